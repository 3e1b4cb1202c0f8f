//! # redline-spec
//!
//! Everything about speculation that is mathematics: laws, draws, proposals, verifiers, budgets and
//! drafters without a model. Values in, values out: no tensors, threads, clocks, files or async,
//! and no generator state, so that the code which runs can be simulated and enumerated.
//!
//! A round of speculative decoding, with the names used here:
//!
//! 1. a [`Controller`] says how many drafts each sequence is worth;
//! 2. a [`Drafter`] fills a [`Proposal`], a token tree, through its [`Builder`];
//! 3. the target model runs once over the tree; [`law()`] turns each of its rows into a [`Law`];
//! 4. a [`Verifier`] walks the tree and gives a [`Verdict`]: the accepted path and one more token.
//!    Their law is the target's own. Under [`Coupled`] they are the very tokens of plain decoding.
//!
//! Layout: [`Sampling`], [`History`], [`Constraint`] → [`law()`] → [`Law`], [`TokenLogprobs`];
//! [`Draws`] (named random numbers) and [`Choices`] (how a ratio test meets them); [`Proposal`], [`Builder`]; [`Verifier`]
//! with [`Coupled`], [`Token`], [`Block`] and [`Traversal`]; [`exact`], the oracle that enumerates;
//! [`Drafter`] with [`Ngram`], [`VocabMap`]; [`Controller`].
#![forbid(unsafe_code)]

mod builder;
mod choices;
mod constraint;
mod controller;
mod drafter;
mod draws;
pub mod exact;
mod exp;
mod history;
mod law;
mod logprob;
mod ngram;
mod philox;
mod process;
mod proposal;
mod race;
mod row;
pub mod rowmath;
mod rows;
mod sampling;
mod select;
mod shape;
mod verify;
mod vocab_map;

#[cfg(test)]
mod tests;

/// A token of a vocabulary.
pub type TokenId = u32;

pub use builder::{Builder, DrawMode};
pub use choices::{Choices, Site};
pub use constraint::{Constraint, ConstraintError, TokenFilter, TokenMask};
pub use controller::{Candidate, Controller, ControllerConfig, StepTiming};
pub use drafter::{CopyOp, DraftError, DraftJob, Drafter, Fill, LaneNeed};
pub use draws::{Draws, Purpose, RoundDraws};
pub use history::{Count, History};
pub use law::{Law, LawError};
pub use logprob::TokenLogprobs;
pub use ngram::{MAX_N, Ngram, NgramConfig, NgramError};
pub use process::{Position, Scratch, law};
pub use proposal::{Node, Origin, Proposal, ProposalError};
pub use race::{coupled_sample, coupled_top};
pub use rows::{LogitRows, RowError, TargetRows};
pub use sampling::{Sampling, SamplingError};
pub use shape::{Place, TreeLimits, nominal_shape};
pub use verify::{
    Block, Coupled, RatioRule, Round, Token, Traversal, Verdict, Verifier, VerifyError,
};
pub use vocab_map::{VocabMap, VocabMapError};
