//! Why a chat template gives no prompt.

use thiserror::Error;

use super::MAX_TEMPLATE_BYTES;
use crate::gguf::GgufError;

/// Why there is no prompt.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ChatError {
    /// The field has the wrong type.
    #[error(transparent)]
    Metadata(#[from] GgufError),
    /// The template is larger than any real one.
    #[error("the chat template has {bytes} bytes; at most {MAX_TEMPLATE_BYTES} are accepted")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Its expressions are longer than any real ones, and would take for ever to compile.
    #[error("the expressions of the chat template are too long to be compiled")]
    TooComplex,
    /// The template cannot be parsed.
    #[error("the model's chat template is not usable: {reason}")]
    Syntax {
        /// Where and why.
        reason: String,
    },
    /// The template refuses these messages, in its own words.
    #[error("the model's chat template refuses the messages: {reason}")]
    Refused {
        /// Its words.
        reason: String,
    },
    /// The template does not end in a reasonable number of steps.
    #[error("the model's chat template takes too many steps or too much memory")]
    OutOfFuel,
    /// The prompt is too long.
    #[error("the prompt would have more than {limit} bytes")]
    TooLong {
        /// How long it may be.
        limit: usize,
    },
    /// The template fails on these messages.
    #[error("the model's chat template fails: {reason}")]
    Failed {
        /// Where and why.
        reason: String,
    },
}
