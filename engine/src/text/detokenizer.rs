//! Tokens back to text while they come.

use std::sync::Arc;

use super::vocab::Vocab;

/// Turns the tokens of one sequence into text, piece by piece. A token may end inside a character: its bytes wait
/// until the character is whole, so no piece ever holds a broken one. All pieces together are exactly what
/// [`super::Tokenizer::decode`] makes of all the tokens.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    vocab: Arc<Vocab>,
    specials: bool,
    /// The beginning of a character, at most three bytes between calls.
    pending: Vec<u8>,
}

impl Detokenizer {
    pub(super) fn new(vocab: Arc<Vocab>, specials: bool) -> Self {
        Self { vocab, specials, pending: Vec::new() }
    }

    /// The text that is certain now that this token has come: maybe none.
    pub fn push(&mut self, id: u32) -> String {
        let mut text = String::new();
        self.push_into(id, &mut text);
        text
    }

    /// [`Self::push`], appending to a buffer.
    pub fn push_into(&mut self, id: u32, out: &mut String) {
        if !self.specials && self.vocab.is_special(id) {
            return;
        }
        let bytes = self.vocab.bytes(id).unwrap_or_default();
        // Nearly always both the text before and the token are whole characters.
        if self.pending.is_empty()
            && let Ok(text) = std::str::from_utf8(bytes)
        {
            out.push_str(text);
            return;
        }
        self.pending.extend_from_slice(bytes);
        self.release(out);
    }

    /// The rest: U+FFFD if the last character never became whole. The detokenizer may be used again.
    pub fn finish(&mut self) -> String {
        let mut text = String::new();
        self.release(&mut text);
        if !self.pending.is_empty() {
            self.pending.clear();
            text.push(char::REPLACEMENT_CHARACTER);
        }
        text
    }

    /// Moves what is whole, and what can never become so, out of `pending`.
    fn release(&mut self, out: &mut String) {
        let mut done = 0;
        let chunks = self.pending.utf8_chunks();
        for chunk in chunks {
            out.push_str(chunk.valid());
            done += chunk.valid().len();
            let broken = chunk.invalid();
            if broken.is_empty() || (done + broken.len() == self.pending.len() && may_go_on(broken))
            {
                break;
            }
            out.push(char::REPLACEMENT_CHARACTER);
            done += broken.len();
        }
        self.pending.drain(..done);
    }
}

/// Whether bytes are the beginning of a character rather than none at all.
fn may_go_on(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fixtures;

    #[test]
    fn a_character_comes_out_whole_or_not_at_all() {
        let tokenizer = fixtures::bytes_only();
        let mut detokenizer = tokenizer.detokenizer(false);
        let id = |byte: u8| u32::from(byte);
        let pushed: Vec<String> = "a€é".bytes().map(|byte| detokenizer.push(id(byte))).collect();
        assert_eq!(pushed, ["a", "", "", "€", "", "é"]);
        assert_eq!(detokenizer.finish(), "");
        detokenizer.push(id(0xe2));
        assert_eq!(detokenizer.push(id(b'x')), "\u{fffd}x");
        detokenizer.push(id(0xf0));
        assert_eq!(detokenizer.finish(), "\u{fffd}");
        assert_eq!(detokenizer.push(id(b'y')), "y");
    }

    #[test]
    fn marks_are_shown_on_demand_and_unknown_ids_have_no_text() {
        let tokenizer = fixtures::bytes_only();
        let end = tokenizer.end_tokens()[0];
        assert_eq!(tokenizer.detokenizer(false).push(end), "");
        assert_eq!(tokenizer.detokenizer(true).push(end), fixtures::END);
        assert_eq!(tokenizer.detokenizer(true).push(u32::MAX), "");
    }

    proptest! {
        #[test]
        fn pieces_make_the_whole(ids in proptest::collection::vec(0_u32..300, 0..60), specials: bool) {
            let tokenizer = fixtures::bytes_only();
            let mut detokenizer = tokenizer.detokenizer(specials);
            let mut text: String = ids.iter().map(|id| detokenizer.push(*id)).collect();
            text += &detokenizer.finish();
            prop_assert_eq!(text, tokenizer.decode(&ids, specials));
        }

        #[test]
        fn pieces_of_text_cut_anywhere(text in "\\PC{0,30}") {
            let tokenizer = fixtures::bytes_only();
            let mut detokenizer = tokenizer.detokenizer(false);
            let pieces: Vec<String> = text.bytes().map(|byte| detokenizer.push(byte.into())).collect();
            prop_assert_eq!(pieces.concat(), text);
        }
    }
}
