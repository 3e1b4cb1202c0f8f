//! Why a tokenizer cannot be built, or a text not be encoded.

use thiserror::Error;

use crate::gguf::GgufError;

/// What is wrong with a tokenizer's description.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// A field of the file is missing or has the wrong type.
    #[error(transparent)]
    Metadata(#[from] GgufError),
    /// A tokenizer of another make.
    #[error("tokenizer.ggml.model is `{model}`; only `gpt2` (byte-level BPE) is supported")]
    UnknownModel {
        /// What the file says.
        model: String,
    },
    /// A pre-tokenizer this build does not know. Guessing would give other tokens than the model was trained on.
    #[error("tokenizer.ggml.pre is `{pre}`; known are {known}")]
    UnknownPre {
        /// What the file says.
        pre: String,
        /// The names that are known.
        known: String,
    },
    /// No tokens.
    #[error("tokenizer.ggml.tokens is empty")]
    Empty,
    /// More tokens than ids.
    #[error("tokenizer.ggml.tokens has {count} entries; at most {limit} are supported")]
    TooManyTokens {
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// Each token has a type.
    #[error("tokenizer.ggml.token_type has {kinds} entries, tokenizer.ggml.tokens has {tokens}")]
    KindCount {
        /// Entries of the one.
        kinds: usize,
        /// Entries of the other.
        tokens: usize,
    },
    /// A type that does not exist.
    #[error("tokenizer.ggml.token_type[{id}] is {value}; 1 to 6 are defined")]
    UnknownKind {
        /// The entry.
        id: usize,
        /// Its value.
        value: String,
    },
    /// Two ids for one text: encoding would be ambiguous.
    #[error("tokenizer.ggml.tokens: {first} and {second} are both {text:?}")]
    DuplicateToken {
        /// The text.
        text: String,
        /// The lower id.
        first: usize,
        /// The higher id.
        second: usize,
    },
    /// A merge that is not two tokens with a space between.
    #[error("tokenizer.ggml.merges[{index}] is {text:?}, not two tokens")]
    BadMerge {
        /// The entry.
        index: usize,
        /// Its text.
        text: String,
    },
    /// A merge of, or into, something that is no token.
    #[error("tokenizer.ggml.merges[{index}] is {text:?}, but {token:?} is not in the vocabulary")]
    MergeUnknown {
        /// The entry.
        index: usize,
        /// Its text.
        text: String,
        /// The token that is missing.
        token: String,
    },
    /// A special token's id is no id.
    #[error("{key} is {id}; the vocabulary has {size} tokens")]
    IdOutOfRange {
        /// The metadata key.
        key: &'static str,
        /// The id.
        id: u32,
        /// How many tokens there are.
        size: usize,
    },
    /// More special tokens than can be searched for.
    #[error(
        "{count} special tokens of {bytes} bytes; at most {limit_count} of {limit_bytes} bytes are supported"
    )]
    TooManySpecials {
        /// How many.
        count: usize,
        /// Of how many bytes together.
        bytes: usize,
        /// How many there may be.
        limit_count: usize,
        /// Of how many bytes together.
        limit_bytes: usize,
    },
    /// A library refused what passed all checks here.
    #[error("tokenizer cannot be built: {reason}")]
    Build {
        /// Its words.
        reason: String,
    },
}

/// Why a text has no tokens.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// Longer than the caller allows.
    #[error("the text has {bytes} bytes; at most {limit} are accepted")]
    TooLong {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        limit: usize,
    },
    /// A library refused.
    #[error("the text cannot be tokenized: {reason}")]
    Failed {
        /// Its words.
        reason: String,
    },
}
