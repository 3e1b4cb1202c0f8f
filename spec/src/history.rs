//! [`History`]: how often each token has occurred, for the penalties.

use crate::TokenId;
use rustc_hash::FxHashMap;

/// Occurrences of one token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Whether it occurs in the prompt.
    pub prompt: bool,
    /// How often it occurs in the output.
    pub output: u32,
}

/// Token counts of one sequence, kept up to date as tokens are *committed*.
///
/// As in vLLM, the repetition penalty looks at prompt and output, the presence and frequency
/// penalties at the output only. Draft tokens never enter: a row below drafts passes its path to
/// [`law`](crate::law()), which counts it on top, so a rejected draft leaves no trace.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Distinct tokens in order of first occurrence. A list, so that walking it has one order.
    counts: Vec<(TokenId, Count)>,
    /// Where each token is in `counts`.
    index: FxHashMap<TokenId, u32>,
}

impl History {
    /// The history of a sequence that has its prompt and no output yet.
    #[must_use]
    pub fn new(prompt: &[TokenId]) -> Self {
        let mut history = Self::default();
        for &token in prompt {
            history.entry(token).prompt = true;
        }
        history
    }

    /// Counts one committed output token.
    pub fn push(&mut self, token: TokenId) {
        let count = self.entry(token);
        count.output = count.output.saturating_add(1);
    }

    /// Occurrences of `token`.
    #[must_use]
    pub fn count(&self, token: TokenId) -> Count {
        self.index.get(&token).map_or_else(Count::default, |&at| self.counts[at as usize].1)
    }

    /// Every token seen with its occurrences, in order of first occurrence.
    pub fn iter(&self) -> impl Iterator<Item = (TokenId, Count)> + '_ {
        self.counts.iter().copied()
    }

    fn entry(&mut self, token: TokenId) -> &mut Count {
        let next = self.counts.len();
        let at = *self.index.entry(token).or_insert(next as u32) as usize;
        if at == next {
            self.counts.push((token, Count::default()));
        }
        &mut self.counts[at].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompt_and_output_are_counted_apart() {
        let mut history = History::new(&[5, 5, 7]);
        for token in [7, 9, 9] {
            history.push(token);
        }
        assert_eq!(history.count(5), Count { prompt: true, output: 0 });
        assert_eq!(history.count(7), Count { prompt: true, output: 1 });
        assert_eq!(history.count(9), Count { prompt: false, output: 2 });
        assert_eq!(history.count(1), Count::default());
        assert_eq!(history.iter().map(|(t, _)| t).collect::<Vec<_>>(), [5, 7, 9]);
    }
}
