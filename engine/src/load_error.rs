//! Why an engine could not be made, and whose fault that is.

use std::io;
use std::path::PathBuf;

use redline_kv_cache::GeometryError;
use redline_scheduler::ConfigError;
use redline_spec::{DraftError, VerifyError};
use thiserror::Error;

use crate::draft_head::DraftHeadError;
use crate::draft_policy::Tree;
use crate::gguf::GgufError;
use crate::hub::HubError;
use crate::model::LoadError as ModelError;
use crate::registry::RegistryError;
use crate::runner::RunnerError;
use crate::text::{ChatError, TokenizerError, Unrelated};

/// Why an engine could not be made.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The model's name or file.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The file's header.
    #[error("{}", path.display())]
    Gguf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: GgufError,
    },
    /// The file's weights or architecture.
    #[error("{}", path.display())]
    Model {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ModelError,
    },
    /// The file's tokenizer.
    #[error("{}", path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: TokenizerError,
    },
    /// The file's chat template.
    #[error("{}", path.display())]
    Template {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ChatError,
    },
    /// The draft model's tokens can't be translated into the target's.
    #[error("the model `{draft}` can't draft for `{target}`")]
    Mismatch {
        /// The draft model.
        draft: String,
        /// The target.
        target: String,
        /// What is in the way.
        source: Unrelated,
    },
    /// The target's own weights are wanted as a draft, in a way that there is not.
    #[error(
        "`{draft}` is no drafter: the target's own weights draft as self:q4_0, self:q3_k or self:q2_k"
    )]
    NoSuchSelf {
        /// What was asked for.
        draft: String,
    },
    /// The target's own weights are to be re-quantised in two ways.
    #[error("`{draft}` says by itself what it is re-quantised to (--draft-quant says it again)")]
    QuantTwice {
        /// The drafter.
        draft: String,
    },
    /// A drafter without weights is to have smaller ones.
    #[error("{what} takes a draft model, and `{drafter}` is none")]
    NoWeights {
        /// The drafter.
        drafter: String,
        /// What was asked for.
        what: &'static str,
    },
    /// The tokens that the draft's head is to keep.
    #[error("the draft model `{draft}`")]
    DraftHead {
        /// The draft model.
        draft: String,
        /// What is wrong with them.
        source: DraftHeadError,
    },
    /// A target that can't say all of its tokens.
    #[error("the head of `{model}` has been cut: it can draft, but not be a target")]
    CutTarget {
        /// The model.
        model: String,
    },
    /// No drafter or rule of that name.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The drafter needs what this engine does not hand out.
    #[error(
        "the drafter `{drafter}` fills its lane with the target's hidden rows, which is not supported yet"
    )]
    NeedsHiddenRows {
        /// Its name.
        drafter: String,
    },
    /// The rule can't verify what the drafter proposes.
    #[error(transparent)]
    Rule(VerifyError),
    /// Trees are wanted of a drafter that has none.
    #[error(
        "the drafter `{drafter}` proposes chains only, so its drafts can't have the shape `{tree}`; a draft model can"
    )]
    NoTrees {
        /// Its name.
        drafter: String,
        /// What was asked for.
        tree: Tree,
    },
    /// `max_model_len` is more than the model was made for.
    #[error(
        "max_model_len {asked} is more than the context of {limit} tokens that `{model}` was made for"
    )]
    TooLong {
        /// What was asked for.
        asked: usize,
        /// The model's context length.
        limit: usize,
        /// The model.
        model: String,
    },
    /// The key of the prefix index.
    #[error("random numbers of the system, for the keys of the prefix cache")]
    Random(#[source] io::Error),
    /// The KV budget does not hold a single block.
    #[error("the KV cache")]
    Geometry(#[from] GeometryError),
    /// Sizes that contradict each other.
    #[error("the scheduler")]
    Config(#[from] ConfigError),
    /// The cache's sizes.
    #[error("the KV cache")]
    Cache(#[from] redline_kv_cache::ConfigError),
    /// The KV cache's memory can't be had.
    #[error("the KV cache of {bytes} bytes can't be allocated")]
    Memory {
        /// Bytes asked for.
        bytes: u64,
        /// What the runner said.
        source: RunnerError,
    },
    /// The drafter can't attach to the cache.
    #[error("the drafter can't attach to the KV cache")]
    Attach(#[source] DraftError),
}

impl LoadError {
    /// Whether the user's input is at fault, rather than the machine or the network.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Hub(error) => error.is_usage(),
            Self::Memory { .. } | Self::Attach(_) => false,
            _ => true,
        }
    }
}
