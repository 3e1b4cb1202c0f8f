//! [`Law`]: a probability law over token ids.

use crate::TokenId;
use thiserror::Error;

/// A probability law over a vocabulary: what a sampler may emit at one position, and how likely.
///
/// A law is *dense* (one weight for each id `0..len`) or *truncated* (ascending ids with a weight
/// each; every other id has probability zero). Weights are kept as `f64`, scaled so that the
/// largest is exactly 1, beside their total: `p(id) = weight / total`. Scaling keeps masses such as
/// `1e-300` apart from zero and sums away from overflow.
///
/// Every law has passed the checks of its constructor: weights finite, none negative, at least one
/// positive. A drafter therefore cannot hand a garbage law to a verifier; it gets a named error
/// where it builds one.
#[derive(Clone, Debug, PartialEq)]
pub struct Law {
    /// Ascending ids of a truncated law; `None` for a dense one.
    ids: Option<Vec<TokenId>>,
    weights: Vec<f64>,
    total: f64,
    mode: TokenId,
}

/// Why weights, or a row of logits, are not a law.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum LawError {
    /// A weight or logit is NaN or infinite (a logit of −∞ is a banned token and allowed).
    #[error("value {value} of token {token} is not a finite number")]
    NotFinite {
        /// Token whose value it is.
        token: TokenId,
        /// The offending value.
        value: f64,
    },
    /// A weight is below zero.
    #[error("weight {value} of token {token} is negative")]
    Negative {
        /// Token whose weight it is.
        token: TokenId,
        /// The offending weight.
        value: f64,
    },
    /// Nothing can be drawn: no token, all weights zero, or every token banned.
    #[error("no token has any probability")]
    NoMass,
    /// Ids of a truncated law must ascend strictly.
    #[error("token ids are not strictly ascending at index {index}")]
    Unordered {
        /// Index of the first id that is not above its predecessor.
        index: usize,
    },
    /// As many weights as ids are needed.
    #[error("{ids} token ids but {weights} weights")]
    Mismatch {
        /// Number of ids given.
        ids: usize,
        /// Number of weights given.
        weights: usize,
    },
    /// A sampling parameter is out of its range.
    #[error(transparent)]
    Sampling(#[from] crate::SamplingError),
    /// The constraint failed.
    #[error(transparent)]
    Constraint(#[from] crate::ConstraintError),
}

impl Law {
    /// The law that always draws `token`.
    #[must_use]
    pub fn point(token: TokenId) -> Self {
        Self { ids: Some(vec![token]), weights: vec![1.0], total: 1.0, mode: token }
    }

    /// A law from one weight per id `0..weights.len()`; weights need not sum to one.
    ///
    /// # Errors
    /// [`LawError::NotFinite`], [`LawError::Negative`], [`LawError::NoMass`].
    pub fn dense(weights: Vec<f64>) -> Result<Self, LawError> {
        Self::checked(None, weights)
    }

    /// A truncated law from strictly ascending ids and a weight for each.
    ///
    /// # Errors
    /// As [`Law::dense`], and [`LawError::Unordered`], [`LawError::Mismatch`].
    pub fn sparse(ids: Vec<TokenId>, weights: Vec<f64>) -> Result<Self, LawError> {
        if ids.len() != weights.len() {
            return Err(LawError::Mismatch { ids: ids.len(), weights: weights.len() });
        }
        if let Some(i) = ids.windows(2).position(|pair| pair[0] >= pair[1]) {
            return Err(LawError::Unordered { index: i + 1 });
        }
        Self::checked(Some(ids), weights)
    }

    /// Checks, and scales the largest weight to one.
    pub(crate) fn checked(
        ids: Option<Vec<TokenId>>,
        mut weights: Vec<f64>,
    ) -> Result<Self, LawError> {
        // One comparison rejects NaN, infinities and negatives; which it was is told apart below.
        let is_weight = |value: f64| (0.0..f64::INFINITY).contains(&value);
        let (top, fine) = highest(&weights, is_weight);
        if !fine {
            let index = weights.iter().position(|&value| !is_weight(value)).unwrap_or_default();
            let (value, token) =
                (weights[index], ids.as_ref().map_or(index as TokenId, |ids| ids[index]));
            return Err(if value < 0.0 && value.is_finite() {
                LawError::Negative { token, value }
            } else {
                LawError::NotFinite { token, value }
            });
        }
        if top != 1.0 && top > 0.0 {
            weights.iter_mut().for_each(|w| *w /= top);
        }
        Self::scaled(ids, weights)
    }

    /// A law of weights in [0, 1] whose largest is exactly 1.
    pub(crate) fn scaled(ids: Option<Vec<TokenId>>, weights: Vec<f64>) -> Result<Self, LawError> {
        let mode = weights.iter().position(|&w| w == 1.0).ok_or(LawError::NoMass)?;
        let mode = ids.as_ref().map_or(mode as TokenId, |ids| ids[mode]);
        let total = sum(&weights);
        Ok(Self { ids, weights, total, mode })
    }

    /// A dense law of weights in [0, 1] with their sum and the first that is exactly 1.
    pub(crate) fn weighed(weights: Vec<f64>, total: f64, mode: TokenId) -> Self {
        Self { ids: None, weights, total, mode }
    }

    /// Probability of `id`; zero for any id the law does not hold.
    #[must_use]
    pub fn p(&self, id: TokenId) -> f64 {
        let index = match &self.ids {
            None => Some(id as usize).filter(|&i| i < self.weights.len()),
            Some(ids) => ids.binary_search(&id).ok(),
        };
        index.map_or(0.0, |i| self.weights[i] / self.total)
    }

    /// The support in ascending id order: `(id, probability)`, probabilities above zero.
    pub fn iter(&self) -> impl Iterator<Item = (TokenId, f64)> + '_ {
        self.weighted().map(|(id, w)| (id, w / self.total))
    }

    /// The support in ascending id order with weights relative to the likeliest token.
    pub(crate) fn weighted(&self) -> impl Iterator<Item = (TokenId, f64)> + '_ {
        let id_at = move |i: usize| self.ids.as_ref().map_or(i as TokenId, |ids| ids[i]);
        let positive = move |(i, &w): (usize, &f64)| (w > 0.0).then(|| (id_at(i), w));
        self.weights.iter().enumerate().filter_map(positive)
    }

    /// `None` for a dense law, else the ascending ids; and the weights beside them.
    pub(crate) fn parts(&self) -> (Option<&[TokenId]>, &[f64]) {
        (self.ids.as_deref(), &self.weights)
    }

    /// Gives the buffers back for another law.
    pub(crate) fn into_parts(self) -> (Option<Vec<TokenId>>, Vec<f64>) {
        (self.ids, self.weights)
    }

    /// Sum of the weights.
    pub(crate) fn total(&self) -> f64 {
        self.total
    }

    /// The only token with any probability, if there is just one: greedy decoding.
    #[must_use]
    pub fn as_point(&self) -> Option<TokenId> {
        let mut support = self.weighted();
        match (support.next(), support.next()) {
            (Some((id, _)), None) => Some(id),
            _ => None,
        }
    }

    /// The likeliest token; the lowest id among equals.
    #[must_use]
    pub fn argmax(&self) -> TokenId {
        self.mode
    }

    /// Number of tokens with probability above zero.
    #[must_use]
    pub fn support_len(&self) -> usize {
        self.weighted().count()
    }

    /// The residual law `(p − q)+ / Σ (p − q)+`, or `None` where it has no mass (p = q up to
    /// rounding). Leviathan et al. 2023, Algorithm 1; Chen et al. 2023, Theorem 1.
    #[must_use]
    pub fn residual(&self, q: &Self) -> Option<Self> {
        let mut rest = q.weighted().peekable();
        let mut ids = Vec::new();
        let mut weights = Vec::new();
        for (id, weight) in self.weighted() {
            while rest.next_if(|&(other, _)| other < id).is_some() {}
            let taken = rest.next_if(|&(other, _)| other == id).map_or(0.0, |(_, w)| w / q.total);
            let left = weight / self.total - taken;
            if left > 0.0 {
                ids.push(id);
                weights.push(left);
            }
        }
        Self::checked(Some(ids), weights).ok()
    }

    /// The law given that `token` is not drawn; `None` if nothing else can be.
    #[must_use]
    pub fn without(&self, token: TokenId) -> Option<Self> {
        let (ids, mut weights) = (self.ids.clone(), self.weights.clone());
        let index = match &ids {
            None => token as usize,
            Some(ids) => ids.binary_search(&token).unwrap_or(usize::MAX),
        };
        if let Some(weight) = weights.get_mut(index) {
            *weight = 0.0;
        }
        Self::checked(ids, weights).ok()
    }
}

/// The largest of some values, 0 if there is none above, and whether `test` holds for each. In lanes that do not
/// wait for each other.
fn highest(values: &[f64], test: impl Fn(f64) -> bool) -> (f64, bool) {
    let (chunks, rest) = values.as_chunks::<8>();
    let (mut tops, mut fine) = ([0.0; 8], [true; 8]);
    for chunk in chunks {
        for lane in 0..8 {
            let x = chunk[lane];
            fine[lane] &= test(x);
            tops[lane] = if x > tops[lane] { x } else { tops[lane] };
        }
    }
    let top = tops.iter().chain(rest).fold(0.0, |a, &x| if x > a { x } else { a });
    (top, !fine.contains(&false) && rest.iter().all(|&x| test(x)))
}

/// Sum in eight interleaved parts: one fixed order, in which the additions need not wait for each
/// other. That of [`rowmath`](crate::rowmath), too.
pub(crate) fn sum(weights: &[f64]) -> f64 {
    let mut parts = [0.0; 8];
    let (chunks, rest) = weights.as_chunks::<8>();
    for chunk in chunks {
        parts.iter_mut().zip(chunk).for_each(|(part, w)| *part += w);
    }
    parts.iter_mut().zip(rest).for_each(|(part, w)| *part += w);
    parts.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constructors_name_what_is_wrong() {
        assert_eq!(Law::dense(vec![]), Err(LawError::NoMass));
        assert_eq!(Law::dense(vec![0.0, 0.0]), Err(LawError::NoMass));
        assert_eq!(Law::dense(vec![0.5, -0.5]), Err(LawError::Negative { token: 1, value: -0.5 }));
        assert!(matches!(
            Law::dense(vec![0.5, f64::NAN]),
            Err(LawError::NotFinite { token: 1, .. })
        ));
        assert!(matches!(
            Law::sparse(vec![3, 9], vec![1.0, f64::INFINITY]),
            Err(LawError::NotFinite { token: 9, .. })
        ));
        assert_eq!(Law::sparse(vec![3, 3], vec![1.0, 1.0]), Err(LawError::Unordered { index: 1 }));
        assert_eq!(
            Law::sparse(vec![3], vec![1.0, 1.0]),
            Err(LawError::Mismatch { ids: 1, weights: 2 })
        );
    }

    #[test]
    fn huge_and_tiny_weights_are_normalised() {
        let law = Law::dense(vec![f64::MAX, f64::MAX, 0.0]).unwrap();
        assert_eq!((law.p(0), law.p(1), law.p(2), law.p(99)), (0.5, 0.5, 0.0, 0.0));
        let law = Law::dense(vec![0.0, 5e-324]).unwrap();
        assert_eq!((law.p(1), law.as_point(), law.support_len()), (1.0, Some(1), 1));
        let law = Law::dense(vec![1.0, 1e-300]).unwrap();
        assert_eq!((law.p(1), law.as_point()), (1e-300, None));
    }

    #[test]
    fn ties_go_to_the_lowest_id() {
        assert_eq!(Law::sparse(vec![4, 7, 9], vec![0.1, 0.4, 0.4]).unwrap().argmax(), 7);
    }

    #[test]
    fn residual_walks_mixed_forms_together() {
        let p = Law::dense(vec![0.2, 0.3, 0.5]).unwrap();
        let q = Law::sparse(vec![1, 2, 8], vec![0.1, 0.6, 0.3]).unwrap();
        let r = p.residual(&q).unwrap();
        assert!((r.p(0) - 0.5).abs() < 1e-15 && (r.p(1) - 0.5).abs() < 1e-15);
        assert_eq!(r.support_len(), 2);
        assert_eq!(p.residual(&p), None);
        assert_eq!(Law::point(3).without(3), None);
    }
}
