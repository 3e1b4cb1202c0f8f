//! The text side of one sequence.

use super::detokenizer::Detokenizer;
use super::stop::StopStrings;

/// What a token added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// Text that is now certain to be part of the answer; maybe none.
    pub text: String,
    /// Whether this token completed a stop string. The answer then ends before that string, and this token is the last.
    pub stopped: bool,
}

/// Detokenizer and stop strings of one sequence, fed token by token.
#[derive(Clone, Debug)]
pub struct TextState {
    detokenizer: Detokenizer,
    stops: StopStrings,
    buffer: String,
}

impl TextState {
    /// Text from `detokenizer`, watched by `stops`.
    #[must_use]
    pub fn new(detokenizer: Detokenizer, stops: StopStrings) -> Self {
        Self { detokenizer, stops, buffer: String::new() }
    }

    /// Takes the next token.
    pub fn push(&mut self, id: u32) -> Delta {
        self.buffer.clear();
        self.detokenizer.push_into(id, &mut self.buffer);
        let mut text = String::new();
        let stopped = self.stops.push(&self.buffer, &mut text);
        Delta { text, stopped }
    }

    /// The rest of the text, after the last token: what was held back, unless a stop string was found.
    pub fn finish(&mut self) -> String {
        let rest = self.detokenizer.finish();
        let mut text = String::new();
        if !self.stops.push(&rest, &mut text) {
            text += &self.stops.finish();
        }
        text
    }

    /// Whether a stop string was found.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stops.stopped()
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;

    fn state(stops: &[&str]) -> TextState {
        TextState::new(fixtures::bytes_only().detokenizer(false), StopStrings::new(stops).unwrap())
    }

    #[test]
    fn text_and_stops_together() {
        let mut state = state(&["é!"]);
        let deltas: Vec<Delta> = "né?é!x".bytes().map(|byte| state.push(byte.into())).collect();
        let texts: Vec<&str> = deltas.iter().map(|delta| delta.text.as_str()).collect();
        assert_eq!(texts, ["n", "", "", "é?", "", "", "", ""]);
        assert_eq!(deltas.iter().position(|delta| delta.stopped), Some(6));
        assert_eq!(state.finish(), "");
        assert!(state.stopped());
    }

    #[test]
    fn what_was_held_back_comes_at_the_end() {
        let mut state = state(&["é!"]);
        for byte in [b'a', 0xc3, 0xa9, 0xc3] {
            state.push(byte.into());
        }
        assert_eq!(state.finish(), "é\u{fffd}");
        assert!(!state.stopped());
    }
}
