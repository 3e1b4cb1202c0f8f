//! A tokenizer of 64 entries: letters, digits, pairs of letters, pieces of characters, two marks.

use std::sync::Arc;

use redline::TokenId;
use redline::text::{Kind, Parts, Tokenizer};

/// Entries of the vocabulary.
pub const VOCAB: usize = 64;
/// The mark that begins a turn.
pub const START: TokenId = 62;
/// The mark that ends a text.
pub const EOS: TokenId = 63;

const PAIRS: [&str; 20] = [
    "th", "he", "in", "er", "an", "re", "on", "at", "en", "nd", "ti", "es", "or", "te", "of", "ed",
    "is", "it", "al", "ar",
];

/// The tokenizer. Entries 57 to 61 are the bytes of `é` and `€`: text is not always whole.
pub fn tokenizer() -> Arc<Tokenizer> {
    let mut tokens: Vec<String> = ('a'..='z').chain('0'..='9').map(String::from).collect();
    tokens.push("Ġ".to_owned());
    tokens.extend(PAIRS.map(str::to_owned));
    tokens.extend(["Ã", "©", "â", "Ĥ", "¬"].map(str::to_owned));
    let mut kinds = vec![Kind::Normal; tokens.len()];
    tokens.extend(["<|im_start|>", "<|im_end|>"].map(str::to_owned));
    kinds.extend([Kind::Control; 2]);
    assert_eq!(tokens.len(), VOCAB);
    let parts = Parts {
        tokens,
        kinds,
        pre: "gpt-2".to_owned(),
        bos: Some(START),
        eos: Some(EOS),
        ..Parts::default()
    };
    Arc::new(Tokenizer::new(&parts).unwrap())
}
