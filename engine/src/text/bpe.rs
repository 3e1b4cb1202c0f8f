//! Byte-level BPE of one word, over the merges of the `tokenizers` crate.

use tokenizers::Model;
use tokenizers::models::bpe::{BPE, Vocab as BpeVocab};

use super::byte_level::CHARS;
use super::error::{EncodeError, TokenizerError};
use super::parts::{Parts, shorten};
use super::vocab::Kind;

#[derive(Debug)]
pub(super) struct Bpe {
    model: BPE,
    /// Bytes that have a token.
    has: [bool; 256],
}

impl Bpe {
    pub(super) fn new(parts: &Parts, ignore_merges: bool) -> Result<Self, TokenizerError> {
        let vocab = vocab(parts)?;
        let merges = merges(parts, &vocab)?;
        let has = CHARS.map(|c| vocab.contains_key(c.encode_utf8(&mut [0; 4]) as &str));
        let built = BPE::builder().vocab_and_merges(vocab, merges).ignore_merges(ignore_merges);
        match built.build() {
            Ok(model) => Ok(Self { model, has }),
            Err(error) => Err(name_the_merge(parts, &error.to_string())),
        }
    }

    /// Appends the tokens of a word. Bytes without a token (some vocabularies lack rare control characters and
    /// bytes that valid text seldom has) are left out, as in llama.cpp, and nothing merges across them.
    pub(super) fn encode_word(
        &self,
        word: &str,
        buffer: &mut String,
        ids: &mut Vec<u32>,
    ) -> Result<(), EncodeError> {
        buffer.clear();
        for byte in word.bytes() {
            if self.has[byte as usize] {
                buffer.push(CHARS[byte as usize]);
            } else {
                self.flush(buffer, ids)?;
            }
        }
        self.flush(buffer, ids)
    }

    fn flush(&self, buffer: &mut String, ids: &mut Vec<u32>) -> Result<(), EncodeError> {
        if !buffer.is_empty() {
            let tokens = self.model.tokenize(buffer);
            let tokens =
                tokens.map_err(|error| EncodeError::Failed { reason: error.to_string() })?;
            ids.extend(tokens.iter().map(|token| token.id));
            buffer.clear();
        }
        Ok(())
    }
}

/// The texts that plain text can become.
fn vocab(parts: &Parts) -> Result<BpeVocab, TokenizerError> {
    let mut vocab = BpeVocab::with_capacity(parts.tokens.len());
    for (id, (text, kind)) in (0..).zip(parts.tokens.iter().zip(&parts.kinds)) {
        // Marks are found by their matcher or not at all: no merge may ever make one out of plain text.
        if text.is_empty() || matches!(kind, Kind::Control | Kind::Unknown | Kind::Unused) {
            continue;
        }
        if let Some(first) = vocab.insert(text.clone(), id) {
            let (first, second) = (first as usize, id as usize);
            return Err(TokenizerError::DuplicateToken { text: shorten(text), first, second });
        }
    }
    Ok(vocab)
}

/// The merges as pairs. The library looks up left, right and both together, but trusts that the last is no longer than
/// the longest token.
fn merges(parts: &Parts, vocab: &BpeVocab) -> Result<Vec<(String, String)>, TokenizerError> {
    let longest = parts.tokens.iter().filter(|t| vocab.contains_key(*t)).map(String::len).max();
    let longest = longest.unwrap_or(0);
    let mut merges = Vec::with_capacity(parts.merges.len());
    for (index, merge) in parts.merges.iter().enumerate() {
        let (left, right) =
            split(merge).ok_or_else(|| TokenizerError::BadMerge { index, text: shorten(merge) })?;
        if left.len() + right.len() > longest {
            let token = shorten(&format!("{left}{right}"));
            return Err(TokenizerError::MergeUnknown { index, text: shorten(merge), token });
        }
        merges.push((left.to_owned(), right.to_owned()));
    }
    Ok(merges)
}

/// `left right`.
fn split(merge: &str) -> Option<(&str, &str)> {
    // A token may itself begin with a space, never be empty.
    let (space, _) = merge.char_indices().skip(1).find(|(_, c)| *c == ' ')?;
    Some((&merge[..space], &merge[space + 1..])).filter(|(_, right)| !right.is_empty())
}

/// Which merge the library meant.
fn name_the_merge(parts: &Parts, reason: &str) -> TokenizerError {
    let vocab = vocab(parts).unwrap_or_default();
    for (index, merge) in parts.merges.iter().enumerate() {
        let Some((left, right)) = split(merge) else { continue };
        let both = format!("{left}{right}");
        for token in [left, right, &both] {
            if !vocab.contains_key(token) {
                let (text, token) = (shorten(merge), shorten(token));
                return TokenizerError::MergeUnknown { index, text, token };
            }
        }
    }
    TokenizerError::Build { reason: shorten(reason) }
}
