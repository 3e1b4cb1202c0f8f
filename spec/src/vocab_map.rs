//! [`VocabMap`]: a drafter's rows in the target's token ids, where the two vocabularies differ.

use crate::TokenId;
use thiserror::Error;

/// Which of a drafter's tokens are which of the target's: a drafter may know fewer tokens, more, or
/// the same in another order.
///
/// Rows of the drafter are put in the target's order *before* [`law()`](crate::law()) is made of
/// them, tokens the drafter lacks banned: Timor et al., ICML 2025 (arXiv 2502.05202), Algorithm 4.
/// The law kept in the proposal is then the one really drawn from, penalties and constraints speak
/// of the same tokens as the target's, and shared noise is named by the target's ids, so every
/// verifier takes such drafts without knowing of it. Tokens that only one of the two has cost
/// acceptance, nothing else.
///
/// A drafter may also *say* fewer tokens than it takes: its head cut to the frequent ones (FR-Spec, arXiv 2502.14856; the
/// draft vocabulary of EAGLE-3). Its rows are then put in order by [`Self::with_head`], which is exact for the same
/// reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VocabMap {
    /// By the drafter's id; [`NONE`] where the target has no such token.
    to_target: Vec<TokenId>,
    /// By the target's id; [`NONE`] where the drafter has none.
    to_draft: Vec<TokenId>,
    /// The target's id of each entry of a row, where rows have not an entry for each of the drafter's tokens.
    head: Option<Vec<TokenId>>,
}

/// No vocabulary is that large: a proposal's names would not fit.
const NONE: TokenId = TokenId::MAX;

/// Why ids do not map.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum VocabMapError {
    /// Two of the drafter's tokens are said to be one of the target's.
    #[error("draft tokens {first} and {second} are both target token {token}")]
    Twice {
        /// The target's token.
        token: TokenId,
        /// The first of the drafter's.
        first: TokenId,
        /// The second.
        second: TokenId,
    },
    /// A token the target does not have.
    #[error("draft token {draft} is mapped to {token}, outside the target's vocabulary of {vocab}")]
    OutOfVocabulary {
        /// The drafter's token.
        draft: TokenId,
        /// What it is mapped to.
        token: TokenId,
        /// Size of the target's vocabulary.
        vocab: usize,
    },
    /// A token that the drafter does not have is said to be in its head.
    #[error("token {token} is outside the drafter's vocabulary of {vocab}")]
    NotADraftToken {
        /// The token.
        token: TokenId,
        /// Size of the drafter's vocabulary.
        vocab: usize,
    },
    /// A token is in the head twice.
    #[error("token {token} is listed twice")]
    ListedTwice {
        /// The drafter's token.
        token: TokenId,
    },
    /// Nothing could ever be drafted.
    #[error("the drafter's and the target's vocabulary have no token in common")]
    Disjoint,
}

impl VocabMap {
    /// From the target's id of each of the drafter's tokens, `None` for those it lacks.
    ///
    /// # Errors
    /// [`VocabMapError`] if the map is not one to one, leads outside, or is empty.
    pub fn new(
        to_target: impl IntoIterator<Item = Option<TokenId>>,
        target_vocab: usize,
    ) -> Result<Self, VocabMapError> {
        let mut map =
            Self { to_target: Vec::new(), to_draft: vec![NONE; target_vocab], head: None };
        for (draft, token) in (0..NONE).zip(to_target) {
            map.to_target.push(token.unwrap_or(NONE));
            let Some(token) = token else { continue };
            let Some(back) = map.to_draft.get_mut(token as usize) else {
                return Err(VocabMapError::OutOfVocabulary { draft, token, vocab: target_vocab });
            };
            if *back != NONE {
                return Err(VocabMapError::Twice { token, first: *back, second: draft });
            }
            *back = draft;
        }
        if map.to_draft.iter().all(|&draft| draft == NONE) {
            return Err(VocabMapError::Disjoint);
        }
        Ok(map)
    }

    /// The map of a drafter whose first `shared` tokens are the target's first ones.
    ///
    /// # Errors
    /// [`VocabMapError`] if the target has fewer, or none is shared.
    pub fn identity(shared: usize, target_vocab: usize) -> Result<Self, VocabMapError> {
        Self::new((0..NONE).take(shared).map(Some), target_vocab)
    }

    /// The same map for a drafter that is fed any of its tokens but whose rows have an entry for each of `kept` only,
    /// in that order. What the target lacks may be among them, and is never drafted.
    ///
    /// # Errors
    /// [`VocabMapError`] if a token is no token of the drafter's or is kept twice, or none is one of the target's.
    pub fn with_head(mut self, kept: &[TokenId]) -> Result<Self, VocabMapError> {
        let mut seen = vec![false; self.to_target.len()];
        for &token in kept {
            let vocab = seen.len();
            match seen.get_mut(token as usize) {
                None => return Err(VocabMapError::NotADraftToken { token, vocab }),
                Some(seen) if *seen => return Err(VocabMapError::ListedTwice { token }),
                Some(seen) => *seen = true,
            }
        }
        let head: Vec<_> = kept.iter().map(|&token| self.to_target[token as usize]).collect();
        if head.iter().all(|&token| token == NONE) {
            return Err(VocabMapError::Disjoint);
        }
        self.head = Some(head);
        Ok(self)
    }

    /// The target's id of the drafter's token.
    #[must_use]
    pub fn to_target(&self, draft: TokenId) -> Option<TokenId> {
        self.to_target.get(draft as usize).copied().filter(|&token| token != NONE)
    }

    /// The drafter's id of the target's token. A drafter that is to be fed one it lacks cannot go
    /// on from there.
    #[must_use]
    pub fn to_draft(&self, target: TokenId) -> Option<TokenId> {
        self.to_draft.get(target as usize).copied().filter(|&token| token != NONE)
    }

    /// A row of the drafter's logits in the target's order, into `out`: one value for each of the
    /// target's tokens, −∞ for those the drafter lacks. What it says of tokens the target lacks is
    /// left out.
    pub fn row(&self, logits: &[f32], out: &mut Vec<f32>) {
        out.clear();
        if let Some(head) = &self.head {
            out.resize(self.to_draft.len(), f32::NEG_INFINITY);
            for (&token, &logit) in head.iter().zip(logits) {
                // NONE is outside of every row.
                if let Some(out) = out.get_mut(token as usize) {
                    *out = logit;
                }
            }
            return;
        }
        let at = |&draft: &TokenId| logits.get(draft as usize).copied();
        out.extend(self.to_draft.iter().map(|draft| at(draft).unwrap_or(f32::NEG_INFINITY)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_both_ways_and_names_what_is_wrong() {
        let map = VocabMap::new([Some(2), None, Some(0)], 4).unwrap();
        let there: Vec<_> = (0..4).map(|draft| map.to_target(draft)).collect();
        assert_eq!(there, [Some(2), None, Some(0), None]);
        let back: Vec<_> = (0..5).map(|target| map.to_draft(target)).collect();
        assert_eq!(back, [Some(2), None, Some(0), None, None]);
        let mut row = vec![7.0];
        map.row(&[1.0, f32::NAN, 3.0], &mut row);
        assert_eq!(row, [3.0, f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY]);
        let twice = VocabMapError::Twice { token: 1, first: 0, second: 2 };
        assert_eq!(VocabMap::new([Some(1), None, Some(1)], 4), Err(twice));
        let outside = VocabMapError::OutOfVocabulary { draft: 1, token: 4, vocab: 4 };
        assert_eq!(VocabMap::new([None, Some(4)], 4), Err(outside));
        assert_eq!(VocabMap::new([None, None], 4), Err(VocabMapError::Disjoint));
    }
    #[test]
    fn a_head_has_rows_of_its_own_and_is_fed_everything() {
        let map = VocabMap::new([Some(2), None, Some(0), Some(3)], 4).unwrap();
        let cut = map.clone().with_head(&[3, 1, 0]).unwrap();
        let back: Vec<_> = (0..4).map(|target| cut.to_draft(target)).collect();
        assert_eq!(back, [Some(2), None, Some(0), Some(3)]);
        let mut row = Vec::new();
        cut.row(&[1.0, f32::NAN, 3.0], &mut row);
        assert_eq!(row, [f32::NEG_INFINITY, f32::NEG_INFINITY, 3.0, 1.0]);
        let whole = map.clone().with_head(&[0, 1, 2, 3]).unwrap();
        let logits = [4.0, 5.0, 6.0, 7.0];
        let mut plain = Vec::new();
        whole.row(&logits, &mut row);
        map.row(&logits, &mut plain);
        assert_eq!(row, plain);
        let outside = VocabMapError::NotADraftToken { token: 4, vocab: 4 };
        assert_eq!(map.clone().with_head(&[0, 4]), Err(outside));
        assert_eq!(map.clone().with_head(&[2, 2]), Err(VocabMapError::ListedTwice { token: 2 }));
        assert_eq!(map.clone().with_head(&[1]), Err(VocabMapError::Disjoint));
        assert_eq!(map.with_head(&[]), Err(VocabMapError::Disjoint));
        let same = VocabMap::identity(2, 3).unwrap();
        assert_eq!([0, 1, 2].map(|id| same.to_draft(id)), [Some(0), Some(1), None]);
        assert!(VocabMap::identity(4, 3).is_err());
    }
}
