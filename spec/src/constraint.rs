//! [`Constraint`]: which tokens may come next (grammars, schemas, banned words).

use crate::TokenId;
use thiserror::Error;

/// Decides, position by position, which tokens a sequence may emit.
///
/// One value belongs to one sequence and stands after its committed tokens. A draft path is judged
/// on a [`fork`](Constraint::fork), so that a rejected draft leaves no trace.
pub trait Constraint: Send {
    /// Bans in `mask` every token that may not come next. The mask arrives with every token of the
    /// vocabulary allowed, and bans of others may already be in it: never allow anything again.
    ///
    /// # Errors
    /// If the constraint cannot tell, for instance because a grammar ran out of its limits.
    fn mask(&self, mask: &mut TokenMask) -> Result<(), ConstraintError>;

    /// Takes `token` as the next token.
    ///
    /// # Errors
    /// [`ConstraintError::Forbidden`] if it may not come next; the constraint must not be used
    /// after that.
    fn advance(&mut self, token: TokenId) -> Result<(), ConstraintError>;

    /// An independent copy in the same state.
    fn fork(&self) -> Box<dyn Constraint>;

    /// Whether nothing but the end of the text can follow.
    fn is_finished(&self) -> bool {
        false
    }
}

/// Why a constraint failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConstraintError {
    /// The token may not come next.
    #[error("token {token} is forbidden by the constraint")]
    Forbidden {
        /// The refused token.
        token: TokenId,
    },
    /// Anything else, in the words of the constraint.
    #[error("constraint failed: {0}")]
    Failed(String),
}

/// One bit per token of the vocabulary: 1 allowed, 0 banned. Words of 32 bits, lowest id in the
/// lowest bit, the layout grammar engines hand over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenMask {
    words: Vec<u32>,
    len: usize,
}

impl TokenMask {
    /// Allows every token of a vocabulary of `len`; keeps the buffer.
    pub fn reset(&mut self, len: usize) {
        self.words.clear();
        self.words.resize(len.div_ceil(32), u32::MAX);
        self.len = len;
    }

    /// Size of the vocabulary.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the vocabulary is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether `token` is in the vocabulary and not banned.
    #[must_use]
    pub fn allows(&self, token: TokenId) -> bool {
        let at = token as usize;
        at < self.len && self.words[at / 32] >> (at % 32) & 1 == 1
    }

    /// Bans one token; outside the vocabulary nothing happens.
    pub fn ban(&mut self, token: TokenId) {
        if let Some(word) = self.words.get_mut(token as usize / 32) {
            *word &= !(1 << (token % 32));
        }
    }

    /// Keeps only tokens that are set in `words` too; words that are missing ban.
    pub fn intersect(&mut self, words: &[u32]) {
        let others = words.iter().copied().chain(std::iter::repeat(0));
        self.words.iter_mut().zip(others).for_each(|(word, other)| *word &= other);
    }

    /// Sets the value of every banned token to −∞. Whole words of allowed tokens cost one test.
    pub(crate) fn apply(&self, logits: &mut [f32]) {
        for (&word, chunk) in self.words.iter().zip(logits.chunks_mut(32)) {
            if word != u32::MAX {
                for (bit, logit) in chunk.iter_mut().enumerate() {
                    if word >> bit & 1 == 0 {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
        }
    }
}

/// Allows a fixed set of tokens at every position, or bans one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFilter {
    /// Sorted tokens.
    tokens: Vec<TokenId>,
    allow: bool,
}

impl TokenFilter {
    /// Only these tokens may be emitted.
    #[must_use]
    pub fn allow(tokens: impl IntoIterator<Item = TokenId>) -> Self {
        Self::new(tokens, true)
    }

    /// These tokens are never emitted.
    #[must_use]
    pub fn ban(tokens: impl IntoIterator<Item = TokenId>) -> Self {
        Self::new(tokens, false)
    }

    fn new(tokens: impl IntoIterator<Item = TokenId>, allow: bool) -> Self {
        let mut tokens: Vec<_> = tokens.into_iter().collect();
        tokens.sort_unstable();
        tokens.dedup();
        Self { tokens, allow }
    }
}

impl Constraint for TokenFilter {
    fn mask(&self, mask: &mut TokenMask) -> Result<(), ConstraintError> {
        if !self.allow {
            self.tokens.iter().for_each(|&token| mask.ban(token));
            return Ok(());
        }
        let mut words = vec![0_u32; mask.len().div_ceil(32)];
        for &token in &self.tokens {
            if let Some(word) = words.get_mut(token as usize / 32) {
                *word |= 1 << (token % 32);
            }
        }
        mask.intersect(&words);
        Ok(())
    }

    fn advance(&mut self, token: TokenId) -> Result<(), ConstraintError> {
        if self.tokens.binary_search(&token).is_ok() == self.allow {
            Ok(())
        } else {
            Err(ConstraintError::Forbidden { token })
        }
    }

    fn fork(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allow_and_ban_agree_with_advance() {
        for (mut filter, expected) in [
            (TokenFilter::allow([3, 40, 500]), vec![3, 40]),
            (TokenFilter::ban([3, 40, 500]), (0..70).filter(|t| ![3, 40].contains(t)).collect()),
        ] {
            let mut mask = TokenMask::default();
            mask.reset(70);
            filter.mask(&mut mask).unwrap();
            let allowed: Vec<TokenId> = (0..200).filter(|&t| mask.allows(t)).collect();
            assert_eq!(allowed, expected);
            for token in 0..70 {
                assert_eq!(filter.advance(token).is_ok(), mask.allows(token));
            }
        }
    }

    #[test]
    fn apply_bans_exactly_the_banned() {
        let mut mask = TokenMask::default();
        mask.reset(67);
        mask.ban(0);
        mask.ban(66);
        let mut logits = vec![1.0; 67];
        mask.apply(&mut logits);
        for (token, &logit) in logits.iter().enumerate() {
            assert_eq!(logit == 1.0, mask.allows(token as TokenId));
        }
    }
}
