//! redline: LLM inference in which every sequence of a continuous batch runs speculative rounds.
//!
//! A drafter proposes a few tokens, one pass of the target verifies them all, accepted ones are kept and the KV of
//! the rest is rolled back. The output follows the target's law exactly; under the default rule it is the very token
//! stream of plain decoding.
//!
//! Start with [`load`] and [`Engine`], or [`AsyncEngine`] from async code. To bring parts of your own, implement
//! [`ModelRunner`], [`Drafter`](redline_spec::Drafter), [`Verifier`](redline_spec::Verifier) or
//! [`Constraint`](redline_spec::Constraint) and hand them to [`assemble`] or a [`Registry`].
//!
//! To read the code, start with `step.rs`.

mod async_engine;
pub mod audit;
mod batch;
mod budget;
pub mod cli;
mod constraint;
mod cores;
mod draft_head;
mod draft_loader;
mod draft_model;
mod draft_policy;
mod draft_tree;
mod drafting;
mod engine;
mod error;
mod frontend;
pub mod gguf;
mod grammar;
pub mod hub;
pub mod kernels;
pub mod kv_store;
mod live;
mod load_error;
mod load_options;
mod loader;
mod logprobs;
mod memory;
pub mod model;
mod model_file;
pub mod model_runner;
mod protocol;
mod random;
mod registry;
mod request;
pub mod runner;
mod score;
pub mod spans;
mod step;
pub mod svg;
mod sync;
pub mod text;
mod verify;

pub use async_engine::{AsyncEngine, AsyncError, EVENTS_BUFFERED, RequestStream};
pub use constraint::RequestConstraint;
pub use draft_head::{DraftHead, DraftHeadError};
pub use draft_loader::{DraftParts, load_draft};
pub use draft_model::DraftModel;
pub use draft_policy::{DraftLength, DraftPolicy, Drafting, Draw, Tree};
pub use engine::Engine;
pub use error::FailureKind;
pub use frontend::{Frontend, Prepared, SAMPLES_MAX, SubmitRefused};
pub use grammar::{GRAMMAR_BYTES_MAX, Grammar, GrammarError, WHITESPACE_MAX};
pub use kv_store::CacheType;
pub use load_error::LoadError;
pub use load_options::{Backend, EngineOptions, LoadOptions};
pub use loader::{
    BLOCK_SIZE, Target, assemble, load, load_scorer, load_target, load_tokenizer, load_with,
};
pub use logprobs::{
    Logprob, Logprobs, LogprobsMode, LogprobsOutput, TOP_LOGPROBS_MAX, TokenLogprob,
};
pub use model::DraftQuant;
pub use model_runner::{CandleRunner, CpuRunner, RunOptions};
pub use registry::{DrafterContext, Factory, Registry, RegistryError, verifier};
pub use request::{
    Event, FinishReason, GenerateRequest, Origin, Prompt, RequestId, RequestOutput, Speculation,
    SpeculationStats, Timing, TokenEvent, Usage,
};
pub use runner::{Batch, ModelInfo, ModelRunner, Row, Rows, RunnerError, SeqRows};
pub use score::{ScoreError, Scored, Scorer};

pub use redline_kv_cache as kv_cache;
pub use redline_scheduler as scheduler;
pub use redline_spec::{self as spec, Sampling, TokenId};
