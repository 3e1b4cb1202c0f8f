//! [`TokenLogprobs`]: how likely an emitted token was, and which tokens were the likeliest.
//!
//! Two laws can be meant: the model's own, before anything is done to it, and the one the token was
//! drawn from. Either way the numbers come from the row the token was verified on.

use crate::row::scan;
use crate::rowmath::{Scale, bodies};
use crate::{Law, LawError, TokenId, select};

/// Natural-log probabilities at one position.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenLogprobs {
    /// Of the emitted token; −∞ if the law does not hold it.
    pub logprob: f64,
    /// The likeliest tokens, best first, lower ids first among equals. Fewer than asked for where
    /// the law has fewer: a token without any probability is never among them.
    pub top: Vec<(TokenId, f64)>,
}

impl TokenLogprobs {
    /// The log-softmax of a row of logits: nothing of sampling parameters or constraints in it. Cut
    /// off padding before. Costs an exponential per entry; the `top` likeliest are selected, not
    /// sorted.
    ///
    /// # Errors
    /// [`LawError::NotFinite`] if any logit is NaN or +∞, [`LawError::NoMass`] if all are −∞.
    pub fn of_logits(logits: &[f32], token: TokenId, top: usize) -> Result<Self, LawError> {
        let mut tops = Vec::new();
        let max = scan(logits, &mut tops)?;
        if max == f32::NEG_INFINITY {
            return Err(LawError::NoMass);
        }
        // Against the largest, in f64: neither overflow nor a difference that f32 has rounded.
        let max = f64::from(max);
        let mut weights = vec![0.0; logits.len()];
        let norm = bodies::weights(logits, Scale { max, temperature: 1.0 }, &mut weights).ln();
        let of = |id: u32| {
            logits.get(id as usize).map_or(f64::NEG_INFINITY, |&x| f64::from(x) - max - norm)
        };
        let mut order = Vec::new();
        if top > 0 {
            select::top_k(logits, &tops, top, &mut order);
            order.sort_unstable_by(|&a, &b| select::by_rank(logits, a, b));
        }
        Ok(Self { logprob: of(token), top: order.into_iter().map(|id| (id, of(id))).collect() })
    }

    /// Those of a law, such as the one a token was drawn from.
    #[must_use]
    pub fn of_law(law: &Law, token: TokenId, top: usize) -> Self {
        let mut all: Vec<(TokenId, f64)> = if top > 0 { law.iter().collect() } else { Vec::new() };
        let better =
            |a: &(TokenId, f64), b: &(TokenId, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if top > 0 && top < all.len() {
            all.select_nth_unstable_by(top - 1, better);
            all.truncate(top);
        }
        all.sort_unstable_by(better);
        all.iter_mut().for_each(|(_, p)| *p = p.ln());
        Self { logprob: law.p(token).ln(), top: all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_row_of_huge_logits_neither_overflows_nor_loses_its_tail() {
        let row = [3.0e38, 3.0e38, -3.0e38, f32::NEG_INFINITY];
        let found = TokenLogprobs::of_logits(&row, 1, 4).unwrap();
        assert!((found.logprob + 2_f64.ln()).abs() < 1e-15);
        assert_eq!(found.top.iter().map(|&(id, _)| id).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(found.top[2].1 < -5.9e38 && found.top[2].1.is_finite());
        assert_eq!(
            TokenLogprobs::of_logits(&row, 3, 0).unwrap().logprob,
            f64::NEG_INFINITY,
            "banned in the logits"
        );
        // 40 below the best: 1 + e^-40 is 1 in f32.
        let found = TokenLogprobs::of_logits(&[0.0, -40.0], 1, 0).unwrap();
        assert!((found.logprob + 40.0).abs() < 1e-15);
    }

    #[test]
    fn what_is_no_law_is_refused() {
        let error = TokenLogprobs::of_logits(&[0.0, f32::NAN], 0, 1).unwrap_err();
        assert!(matches!(error, LawError::NotFinite { token: 1, .. }));
        let row = [f32::NEG_INFINITY; 3];
        assert_eq!(TokenLogprobs::of_logits(&row, 0, 1), Err(LawError::NoMass));
    }

    #[test]
    fn outside_a_truncated_law_there_is_nothing() {
        let law = Law::sparse(vec![3, 7], vec![1.0, 3.0]).unwrap();
        let found = TokenLogprobs::of_law(&law, 5, 4);
        assert_eq!(found.logprob, f64::NEG_INFINITY);
        assert_eq!(found.top, [(7, 0.75_f64.ln()), (3, 0.25_f64.ln())]);
        assert_eq!(TokenLogprobs::of_law(&Law::point(2), 2, 5).top, [(2, 0.0)]);
    }

    proptest! {
        #[test]
        fn of_logits_is_the_log_of_the_plain_law(
            row in prop::collection::vec((-40i16..40).prop_map(|x| f32::from(x) / 4.0), 1..200),
            top in 0usize..24,
        ) {
            let weights: Vec<f64> = row.iter().map(|&x| f64::from(x).exp()).collect();
            let law = Law::dense(weights).unwrap();
            let token = row.len() as TokenId / 2;
            let raw = TokenLogprobs::of_logits(&row, token, top).unwrap();
            let of_law = TokenLogprobs::of_law(&law, token, top);
            prop_assert!((raw.logprob - of_law.logprob).abs() < 1e-12);
            prop_assert_eq!(raw.top.len(), top.min(row.len()));
            for (a, b) in raw.top.iter().zip(&of_law.top) {
                prop_assert_eq!(a.0, b.0);
                prop_assert!((a.1 - b.1).abs() < 1e-12);
            }
        }
    }
}
