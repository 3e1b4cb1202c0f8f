//! Text in, tokens through, text out.
//!
//! [`Tokenizer`] is built from the metadata of a GGUF file ([`Parts`] if it comes from elsewhere), [`ChatTemplate`]
//! turns messages into a prompt, [`TextState`] turns the tokens of one sequence back into text as they come and
//! watches for stop strings, [`compare`] tells whether two models speak the same tokens, [`relate`] translates if they do in
//! another order or only some.
//!
//! Invariants: everything here is a function of its arguments (no clock but the template's `strftime_now`, no
//! files, no threads); what comes out of a model file is bounded and refused by name; no text is cut inside a
//! character.

mod bpe;
mod byte_level;
mod chat;
mod compare;
mod detokenizer;
mod end_tokens;
mod error;
#[cfg(test)]
pub(crate) mod fixtures;
mod parts;
mod pre;
mod relate;
mod special;
mod state;
mod stop;
mod tokenizer;
mod vocab;

#[cfg(test)]
mod reference_tests;

pub use chat::{ChatError, ChatOptions, ChatTemplate, Message};
pub use compare::{Compatibility, Mismatch, compare};
pub use detokenizer::Detokenizer;
pub use error::{EncodeError, TokenizerError};
pub use parts::Parts;
pub use relate::{Mapping, Relation, Unrelated, relate};
pub use state::{Delta, TextState};
pub use stop::{MAX_STOP_BYTES, MAX_STOPS, StopError, StopStrings};
pub use tokenizer::{Encode, MAX_TEXT_BYTES, Tokenizer};
pub use vocab::{Kind, Vocab};
