//! Small vocabularies for tests.

use std::sync::LazyLock;

use super::byte_level::CHARS;
use super::parts::Parts;
use super::tokenizer::Tokenizer;
use super::vocab::Kind;

pub(crate) const START: &str = "<|im_start|>";
pub(crate) const END: &str = "<|im_end|>";
pub(crate) const TOOL: &str = "<tool>";

/// The 256 bytes (id = byte), then `extra` normal tokens, then `<|im_start|>`, `<|im_end|>` (the EOS token), the
/// user-defined `<tool>`, and one padding entry.
pub(crate) fn parts(pre: &str, extra: &[&str], merges: &[&str]) -> Parts {
    let mut tokens: Vec<String> = CHARS.iter().map(char::to_string).collect();
    tokens.extend(extra.iter().map(|&token| token.to_owned()));
    let mut kinds = vec![Kind::Normal; tokens.len()];
    let start = tokens.len() as u32;
    tokens.extend([START, END, TOOL, "[PAD]"].map(String::from));
    kinds.extend([Kind::Control, Kind::Control, Kind::UserDefined, Kind::Unused]);
    Parts {
        tokens,
        kinds,
        merges: merges.iter().map(|&merge| merge.to_owned()).collect(),
        pre: pre.to_owned(),
        bos: Some(start),
        add_bos: false,
        eos: Some(start + 1),
        more_ends: Vec::new(),
    }
}

/// No merges: every byte is a token.
pub(crate) fn bytes_only() -> &'static Tokenizer {
    static BUILT: LazyLock<Tokenizer> =
        LazyLock::new(|| Tokenizer::new(&parts("gpt-2", &[], &[])).unwrap());
    &BUILT
}
