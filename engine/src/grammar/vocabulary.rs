//! The tokenizer's vocabulary as the grammar compiler wants it: the bytes of every token, marks apart from text.

use std::sync::Arc;

use toktrie::{TokEnv, TokRxInfo, TokTrie, TokenizerEnv};

use super::GrammarError;
use crate::text::Tokenizer;

/// Bytes of a token at most: the trie is no deeper.
const TOKEN_BYTES_MAX: usize = 1000;
/// Bytes of all tokens at most: the trie has no more nodes.
const VOCABULARY_BYTES_MAX: usize = 4_000_000;
/// Begins what is no text in the trie; no text in UTF-8 has this byte.
const MARK: u8 = TokTrie::SPECIAL_TOKEN_MARKER;

/// Any way to cut a text into tokens is as good as any other: masks leave the choice to the model.
struct Vocabulary {
    trie: TokTrie,
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        self.trie.greedy_tokenize(bytes)
    }

    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

/// The vocabulary of a tokenizer.
pub(super) fn vocabulary(tokenizer: &Tokenizer) -> Result<TokEnv, GrammarError> {
    let ends = tokenizer.end_tokens();
    let Some(&first) = ends.first() else {
        let why = "it has no token that ends a text";
        return Err(GrammarError::Vocabulary(why.to_owned()));
    };
    let words: Vec<Vec<u8>> =
        (0..tokenizer.vocab_size() as u32).map(|id| word(tokenizer, id)).collect();
    let bytes: usize = words.iter().map(Vec::len).sum();
    if bytes > VOCABULARY_BYTES_MAX {
        let why = format!("its tokens have {bytes} bytes, at most {VOCABULARY_BYTES_MAX} are read");
        return Err(GrammarError::Vocabulary(why));
    }
    let info = TokRxInfo::new(words.len() as u32, first);
    let trie = TokTrie::from(&info, &words).with_eos_tokens(ends);
    Ok(Arc::new(Vocabulary { trie }))
}

/// A token's bytes; none for padding and for what no text can contain.
fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let vocab = tokenizer.vocab();
    let bytes = vocab.bytes(id).unwrap_or_default();
    if bytes.len() > TOKEN_BYTES_MAX {
        return Vec::new();
    }
    if vocab.is_special(id) {
        return [&[MARK], vocab.text(id).unwrap_or_default().as_bytes()].concat();
    }
    if bytes.contains(&MARK) { Vec::new() } else { bytes.to_vec() }
}
