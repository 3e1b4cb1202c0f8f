//! Text to tokens and back.

use std::borrow::Cow;
use std::sync::Arc;

use super::bpe::Bpe;
use super::detokenizer::Detokenizer;
use super::end_tokens;
use super::error::{EncodeError, TokenizerError};
use super::parts::Parts;
use super::pre::PreTokenizer;
use super::special::{Fragment, SpecialMatcher};
use super::vocab::{Kind, Vocab};
use crate::gguf::Header;

/// The longest text that is encoded unless a caller says otherwise.
pub const MAX_TEXT_BYTES: usize = 16 << 20;

/// A model's tokenizer.
#[derive(Debug)]
pub struct Tokenizer {
    vocab: Arc<Vocab>,
    pre: PreTokenizer,
    bpe: Bpe,
    /// All marks and always-whole texts.
    specials: SpecialMatcher,
    /// Only the always-whole texts.
    user_defined: SpecialMatcher,
    bos: Option<u32>,
    add_bos: bool,
    ends: Vec<u32>,
}

/// How to encode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encode {
    /// Recognise special tokens that are written out in the text. Off for text from people who must not be able to
    /// forge the end of a turn.
    pub specials: bool,
    /// Begin with the BOS token if the model wants one and the text does not begin with it already.
    pub bos: bool,
    /// Refuse longer texts.
    pub max_bytes: usize,
}

impl Default for Encode {
    fn default() -> Self {
        Self { specials: true, bos: true, max_bytes: MAX_TEXT_BYTES }
    }
}

impl Tokenizer {
    /// The tokenizer that a GGUF file describes.
    ///
    /// # Errors
    /// [`TokenizerError`] naming the field.
    pub fn from_gguf(header: &Header) -> Result<Self, TokenizerError> {
        Self::new(&Parts::from_gguf(header)?)
    }

    /// A tokenizer from its description.
    ///
    /// # Errors
    /// [`TokenizerError`] naming the field.
    pub fn new(parts: &Parts) -> Result<Self, TokenizerError> {
        parts.check()?;
        let pre = PreTokenizer::new(&parts.pre)?;
        let ends = end_tokens::find(parts);
        let of_kinds = |kinds: &'static [Kind]| {
            (0..)
                .zip(parts.tokens.iter().zip(&parts.kinds))
                .filter(|(_, (_, kind))| kinds.contains(kind))
                .map(|(id, (text, _))| (id, text.as_str()))
        };
        Ok(Self {
            vocab: Arc::new(Vocab::new(parts, &ends)),
            bpe: Bpe::new(parts, pre.ignore_merges)?,
            specials: SpecialMatcher::new(of_kinds(&[
                Kind::Control,
                Kind::UserDefined,
                Kind::Unknown,
            ]))?,
            user_defined: SpecialMatcher::new(of_kinds(&[Kind::UserDefined]))?,
            pre,
            bos: parts.bos,
            add_bos: parts.add_bos,
            ends,
        })
    }

    /// The tokens of a text.
    ///
    /// # Errors
    /// [`EncodeError::TooLong`]; anything else would be a fault of the tokenizer.
    pub fn encode(&self, text: &str, how: Encode) -> Result<Vec<u32>, EncodeError> {
        if text.len() > how.max_bytes {
            return Err(EncodeError::TooLong { bytes: text.len(), limit: how.max_bytes });
        }
        let matcher = if how.specials { &self.specials } else { &self.user_defined };
        let mut ids = Vec::with_capacity(text.len() / 3 + 1);
        let mut buffer = String::new();
        for fragment in matcher.fragments(text) {
            match fragment {
                Fragment::Token(id) => ids.push(id),
                Fragment::Text(range) => {
                    let text = &text[range];
                    for word in self.pre.words(text) {
                        self.bpe.encode_word(&text[word], &mut buffer, &mut ids)?;
                    }
                }
            }
        }
        if let Some(bos) =
            self.bos.filter(|bos| how.bos && self.add_bos && ids.first() != Some(bos))
        {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    /// The text of tokens, with U+FFFD for what is not valid UTF-8. Marks (see [`Vocab::is_special`]) are left out
    /// unless `specials`. Ids outside the vocabulary have no text.
    #[must_use]
    pub fn decode(&self, ids: &[u32], specials: bool) -> String {
        let mut bytes = Vec::with_capacity(ids.len() * 4);
        for id in ids {
            if specials || !self.vocab.is_special(*id) {
                bytes.extend_from_slice(self.vocab.bytes(*id).unwrap_or_default());
            }
        }
        match String::from_utf8_lossy(&bytes) {
            Cow::Owned(text) => text,
            Cow::Borrowed(text) => text.to_owned(),
        }
    }

    /// A detokenizer for one sequence.
    #[must_use]
    pub fn detokenizer(&self, specials: bool) -> Detokenizer {
        Detokenizer::new(self.vocab.clone(), specials)
    }

    /// The name of its rule for where words end; rules with several names have one here.
    #[must_use]
    pub fn pre(&self) -> &'static str {
        self.pre.name
    }

    /// All tokens.
    #[must_use]
    pub fn vocab(&self) -> &Vocab {
        &self.vocab
    }

    /// How many tokens there are, padding included.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    /// The bytes a token adds to the text. `None` for an id outside the vocabulary.
    #[must_use]
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.vocab.bytes(id)
    }

    /// A token for people.
    #[must_use]
    pub fn piece(&self, id: u32) -> Cow<'_, str> {
        self.vocab.piece(id)
    }

    /// The token that begins a text, if the model has one.
    #[must_use]
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// Whether encoding begins with it by default.
    #[must_use]
    pub fn add_bos(&self) -> bool {
        self.add_bos
    }

    /// The tokens that end a generation, ascending: the declared ones, and those known by name.
    #[must_use]
    pub fn end_tokens(&self) -> &[u32] {
        &self.ends
    }

    /// Whether a token ends a generation.
    #[must_use]
    pub fn is_end(&self, id: u32) -> bool {
        self.ends.binary_search(&id).is_ok()
    }
}

#[cfg(test)]
mod tests;
