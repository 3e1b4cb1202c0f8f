//! Which tokens end a generation.
//!
//! A chat model may end its turn with another token than the file's `eos_token_id`, and files differ in what they
//! declare. As in llama.cpp, the declared ids are joined by tokens known by name. Unlike there, a name counts only
//! if the entry is not plain text: a model may well write `</s>` as part of an HTML page.

use super::parts::Parts;
use super::vocab::Kind;

const NAMES: [&str; 22] = [
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end_of_turn|>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
    "</s>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    // A code model that goes on to the next file of the repository.
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
];

/// The ids, ascending.
pub(super) fn find(parts: &Parts) -> Vec<u32> {
    let mut ends: Vec<u32> = parts.eos.into_iter().chain(parts.more_ends.iter().copied()).collect();
    for (id, (text, kind)) in (0..).zip(parts.tokens.iter().zip(&parts.kinds)) {
        let mark = matches!(kind, Kind::Control | Kind::UserDefined | Kind::Unknown);
        if mark && NAMES.contains(&text.as_str()) {
            ends.push(id);
        }
    }
    ends.sort_unstable();
    ends.dedup();
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_ids_and_known_names_but_no_plain_text() {
        let parts = Parts {
            tokens: ["a", "<|im_end|>", "</s>", "b", "c"].map(String::from).to_vec(),
            kinds: vec![Kind::Normal, Kind::Control, Kind::Normal, Kind::Normal, Kind::Normal],
            eos: Some(4),
            more_ends: vec![3, 4],
            ..Parts::default()
        };
        assert_eq!(find(&parts), [1, 3, 4]);
    }
}
