//! Finding special tokens in text.

use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};

use super::error::TokenizerError;

/// An automaton takes some ten times the memory of its patterns, and patterns come from model files.
const MAX_COUNT: usize = 1 << 16;
const MAX_BYTES: usize = 1 << 20;

/// Finds the tokens that stand in text as they are written: leftmost first, and of several at one place the
/// longest.
#[derive(Debug)]
pub(super) struct SpecialMatcher {
    automaton: Option<AhoCorasick>,
    ids: Vec<u32>,
}

/// A stretch of text, or a special token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fragment {
    Text(Range<usize>),
    Token(u32),
}

impl SpecialMatcher {
    pub(super) fn new<'t>(
        tokens: impl Iterator<Item = (u32, &'t str)>,
    ) -> Result<Self, TokenizerError> {
        let mut ids = Vec::new();
        let mut patterns = Vec::new();
        for (id, text) in tokens.filter(|(_, text)| !text.is_empty()) {
            ids.push(id);
            patterns.push(text);
        }
        let bytes = patterns.iter().map(|text| text.len()).sum();
        if ids.len() > MAX_COUNT || bytes > MAX_BYTES {
            let count = ids.len();
            let (limit_count, limit_bytes) = (MAX_COUNT, MAX_BYTES);
            return Err(TokenizerError::TooManySpecials { count, bytes, limit_count, limit_bytes });
        }
        if ids.is_empty() {
            return Ok(Self { automaton: None, ids });
        }
        let automaton =
            AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&patterns);
        let automaton =
            automaton.map_err(|error| TokenizerError::Build { reason: error.to_string() })?;
        Ok(Self { automaton: Some(automaton), ids })
    }

    /// The text in order; no stretch is empty.
    pub(super) fn fragments(&self, text: &str) -> Vec<Fragment> {
        let mut fragments = Vec::new();
        let mut done = 0;
        for found in self.automaton.iter().flat_map(|automaton| automaton.find_iter(text)) {
            if found.start() > done {
                fragments.push(Fragment::Text(done..found.start()));
            }
            fragments.push(Fragment::Token(self.ids[found.pattern().as_usize()]));
            done = found.end();
        }
        if done < text.len() {
            fragments.push(Fragment::Text(done..text.len()));
        }
        fragments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_at_a_place_wins() {
        let matcher =
            SpecialMatcher::new([(1, "<a>"), (2, "<a><b>"), (3, ""), (4, "ä")].into_iter())
                .unwrap();
        use Fragment::{Text, Token};
        assert_eq!(
            matcher.fragments("x<a><b><a>äy"),
            [Text(0..1), Token(2), Token(1), Token(4), Text(12..13)]
        );
        assert_eq!(matcher.fragments("<a"), [Text(0..2)]);
        assert_eq!(matcher.fragments(""), []);
        let none = SpecialMatcher::new(std::iter::empty()).unwrap();
        assert_eq!(none.fragments("<a>"), [Text(0..3)]);
    }

    #[test]
    fn a_flood_of_specials_is_refused() {
        let text = "x".repeat(2048);
        let many = (0..1000).map(|id| (id, text.as_str()));
        assert!(matches!(SpecialMatcher::new(many), Err(TokenizerError::TooManySpecials { .. })));
    }
}
