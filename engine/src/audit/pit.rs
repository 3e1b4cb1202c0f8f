//! The randomised probability integral transform: one number a token that must be uniform.
//!
//! Of a token x drawn from law p, `U = F(x−) + V·p(x)` is uniform on [0, 1), whatever p is, where F sums p over the
//! tokens that come before x in any order that was fixed before x was drawn, and V is uniform and the audit's own.
//! So tokens of all contexts of a real model, with a hundred thousand entries each, can be pooled into one test. The
//! order decides what it sees: by descending p, that likely tokens come too often; by descending q/p, that tokens
//! which the draft likes more than the target do, which is where a wrong acceptance test puts mass.

use redline_spec::{Law, TokenId};

use super::uniforms::Uniforms;

/// What a drafter would have said at a position, as far as is known.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum DraftLaw {
    /// Nothing.
    Unknown,
    /// Its tokens were chosen without chance.
    Points(Vec<TokenId>),
    /// Its tokens are drawn from this.
    Law(Law),
}

/// What one token says about the law it was drawn from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Transformed {
    /// U by descending p.
    pub(super) by_likelihood: f64,
    /// U by descending q/p; nothing where q is not known.
    pub(super) by_draft: Option<f64>,
    /// Whether it is a token with q > p, and the probability of that under p.
    pub(super) favoured: Option<(f64, bool)>,
    /// The law could not have given this token.
    pub(super) impossible: bool,
}

/// Turns tokens into uniforms.
pub(super) struct Transform {
    random: Uniforms,
    /// q by token id, zero everywhere between calls.
    dense: Vec<f64>,
}

impl Transform {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: Uniforms::new(seed), dense: Vec::new() }
    }

    /// Token `x`, which was drawn where the target's law is `p` and the draft's is `q`.
    pub(super) fn apply(&mut self, x: TokenId, p: &Law, q: &DraftLaw) -> Transformed {
        let own = p.p(x);
        let (v, w) = (self.random.next(), self.random.next());
        let before = |other: (TokenId, f64)| other.1 > own || (other.1 == own && other.0 < x);
        let mass: f64 = p.iter().filter(|&other| before(other)).map(|(_, mass)| mass).sum();
        let mut transformed = Transformed {
            by_likelihood: within(mass + v * own),
            by_draft: None,
            favoured: None,
            impossible: own <= 0.0,
        };
        if matches!(q, DraftLaw::Unknown) {
            return transformed;
        }
        self.spread(q);
        let draft = |id: TokenId| self.dense.get(id as usize).copied().unwrap_or(0.0);
        let q_own = draft(x);
        let (mut mass, mut favoured) = (0.0, 0.0);
        for (id, p_other) in p.iter() {
            let q_other = draft(id);
            // q_other / p_other against q_own / own, without dividing.
            let (left, right) = (q_other * own, q_own * p_other);
            if left > right || (left == right && id < x) {
                mass += p_other;
            }
            if q_other > p_other {
                favoured += p_other;
            }
        }
        transformed.by_draft = Some(within(mass + w * own));
        // A set of all or nothing tells nothing; of rounding, neither.
        if favoured > 1e-9 && favoured < 1.0 - 1e-9 {
            transformed.favoured = Some((favoured, q_own > own));
        }
        self.clear(q);
        transformed
    }

    fn spread(&mut self, q: &DraftLaw) {
        let Self { dense, .. } = self;
        let mut put = |id: TokenId, mass: f64| {
            let at = id as usize;
            if dense.len() <= at {
                dense.resize(at + 1, 0.0);
            }
            dense[at] = mass;
        };
        match q {
            DraftLaw::Unknown => {}
            // More than any p: proposed tokens come first, and count as favoured.
            DraftLaw::Points(tokens) => tokens.iter().for_each(|&token| put(token, 2.0)),
            DraftLaw::Law(law) => law.iter().for_each(|(id, mass)| put(id, mass)),
        }
    }

    fn clear(&mut self, q: &DraftLaw) {
        match q {
            DraftLaw::Unknown => {}
            DraftLaw::Points(tokens) => {
                tokens.iter().for_each(|&token| self.dense[token as usize] = 0.0);
            }
            DraftLaw::Law(law) => law.iter().for_each(|(id, _)| self.dense[id as usize] = 0.0),
        }
    }
}

/// Rounding may carry a sum of probabilities a little over 1.
fn within(u: f64) -> f64 {
    u.clamp(0.0, 1.0 - f64::EPSILON)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p() -> Law {
        Law::dense(vec![0.1, 0.4, 0.2, 0.3]).unwrap()
    }

    #[test]
    fn each_token_falls_into_its_own_part_of_the_unit_interval() {
        let mut transform = Transform::new(1);
        let q = Law::dense(vec![0.7, 0.1, 0.2, 0.0]).unwrap();
        // By p: 1, 3, 2, 0. By q/p: 0 (7), 2 (1), 1 (0.25), 3 (0).
        let expected = [
            ((0.9, 1.0), (0.0, 0.1)),
            ((0.0, 0.4), (0.3, 0.7)),
            ((0.7, 0.9), (0.1, 0.3)),
            ((0.4, 0.7), (0.7, 1.0)),
        ];
        for _ in 0..100 {
            for (x, &(by_p, by_q)) in (0..).zip(&expected) {
                let out = transform.apply(x, &p(), &DraftLaw::Law(q.clone()));
                let inside = |u: f64, (from, to): (f64, f64)| u >= from - 1e-12 && u < to + 1e-12;
                assert!(inside(out.by_likelihood, by_p), "{x}: {out:?}");
                assert!(inside(out.by_draft.unwrap(), by_q), "{x}: {out:?}");
                let (mass, is) = out.favoured.unwrap();
                assert!((mass - 0.1).abs() < 1e-12 && is == (x == 0), "{out:?}");
                assert!(!out.impossible);
            }
        }
    }

    #[test]
    fn proposed_tokens_come_first_and_nothing_is_left_behind() {
        let mut transform = Transform::new(2);
        let points = DraftLaw::Points(vec![3]);
        let out = transform.apply(3, &p(), &points);
        assert!(out.by_draft.unwrap() < 0.3 && out.favoured.unwrap().1);
        let out = transform.apply(1, &p(), &points);
        // The others are equal and go by id: 0, then 1.
        assert!((0.4..0.8).contains(&out.by_draft.unwrap()), "{out:?}");
        assert!(transform.dense.iter().all(|&mass| mass == 0.0));
        assert_eq!(transform.apply(1, &p(), &DraftLaw::Unknown).by_draft, None);
        // A draft that agrees has no favourites.
        assert_eq!(transform.apply(1, &p(), &DraftLaw::Law(p())).favoured, None);
    }

    #[test]
    fn a_token_without_probability_is_named() {
        let mut transform = Transform::new(3);
        let p = Law::sparse(vec![1, 2], vec![0.5, 0.5]).unwrap();
        assert!(transform.apply(7, &p, &DraftLaw::Unknown).impossible);
        assert!(!transform.apply(2, &p, &DraftLaw::Unknown).impossible);
    }
}
