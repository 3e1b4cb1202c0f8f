//! How often a draft should be accepted: closed forms, from the two laws at the position.

use redline_spec::{Law, Origin, TokenId};

use super::pit::DraftLaw;
use super::rounds::Level;

/// The acceptance of one level of a round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Expected {
    /// Exactly this, given the text before it.
    Exactly(f64),
    /// About this: the rule's own figure depends on more than one position and is at least as good on average.
    AtLeast(f64),
    /// There is no closed form for it.
    Unknown,
}

impl Expected {
    pub(super) fn value(self) -> Option<f64> {
        match self {
            Self::Exactly(rate) | Self::AtLeast(rate) => Some(rate),
            Self::Unknown => None,
        }
    }
}

/// What `rule` should accept of `level`, where the target's law is `p` and the draft's is `q`.
pub(super) fn expected(rule: &str, level: &Level, p: &Law, q: &DraftLaw) -> Expected {
    let single = level.tokens.len() == 1;
    match (rule, level.origin, q) {
        // The rule draws from p and looks whether it was proposed; on a chain the others come to the same.
        ("coupled" | "token", Origin::PointMass, _) => Expected::Exactly(mass(p, &level.tokens)),
        ("block" | "traversal", Origin::PointMass, _) if single => {
            Expected::Exactly(mass(p, &level.tokens))
        }
        ("coupled", Origin::Shared, DraftLaw::Law(q)) if single => {
            Expected::Exactly(collision(p, q))
        }
        ("token", Origin::Sampled { .. }, DraftLaw::Law(q)) if single => {
            Expected::Exactly(overlap(p, q))
        }
        ("block" | "traversal", Origin::Sampled { .. }, DraftLaw::Law(q)) if single => {
            Expected::AtLeast(overlap(p, q))
        }
        _ => Expected::Unknown,
    }
}

fn mass(p: &Law, tokens: &[TokenId]) -> f64 {
    tokens.iter().map(|&token| p.p(token)).sum::<f64>().min(1.0)
}

/// Σ min(p, q) = 1 − TV: Leviathan et al. 2023, Corollary 3.6.
fn overlap(p: &Law, q: &Law) -> f64 {
    p.iter().map(|(id, mass)| mass.min(q.p(id))).sum::<f64>().min(1.0)
}

/// Σ_i 1 / Σ_j max(p_j/p_i, q_j/q_i): how often two races with the same noise have the same winner.
///
/// Sorted by r = p/q, the inner sum of token i is (mass of p where r_j > r_i)/p_i + (mass of q elsewhere)/q_i.
fn collision(p: &Law, q: &Law) -> f64 {
    let common = p.iter().map(|(id, mass)| (mass, q.p(id))).filter(|&(_, other)| other > 0.0);
    let mut pairs: Vec<(f64, f64)> = common.collect();
    // Tokens of p alone have an infinite ratio, those of q alone none: both only add to sums.
    // A key of each pair alone: products across two pairs are rounded, and then no order.
    pairs.sort_unstable_by(|a, b| (b.0 / b.1).total_cmp(&(a.0 / a.1)));
    let mut p_above = 1.0 - pairs.iter().map(|pair| pair.0).sum::<f64>();
    let mut q_rest = 1.0;
    let mut sum = 0.0;
    for (p_i, q_i) in pairs {
        sum += 1.0 / (p_above.max(0.0) / p_i + q_rest / q_i);
        p_above += p_i;
        q_rest = f64::max(q_rest - q_i, 0.0);
    }
    sum.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use redline_spec::{Draws, coupled_sample};

    fn laws() -> (Law, Law) {
        let p = Law::dense(vec![0.5, 0.3, 0.2, 0.0]).unwrap();
        let q = Law::dense(vec![0.2, 0.2, 0.5, 0.1]).unwrap();
        (p, q)
    }

    #[test]
    fn the_sorted_sum_is_the_formula_and_the_formula_is_what_races_do() {
        let (p, q) = laws();
        let inner = |i: u32| -> f64 {
            let term = |j: u32| (p.p(j) / p.p(i)).max(q.p(j) / q.p(i));
            (0..4).map(term).sum()
        };
        let formula: f64 = (0..3).map(|i| 1.0 / inner(i)).sum();
        assert!((collision(&p, &q) - formula).abs() < 1e-12);
        assert!((collision(&p, &p) - 1.0).abs() < 1e-12);
        assert_eq!(collision(&Law::point(1), &Law::point(2)), 0.0);
        let met = (0..40_000).filter(|&seed| {
            let draws = Draws { seed, sample: 0 };
            coupled_sample(&p, &draws, 9) == coupled_sample(&q, &draws, 9)
        });
        let share = met.count() as f64 / 4e4;
        assert!((share - formula).abs() < 4.0 * (0.25_f64 / 4e4).sqrt(), "{share} {formula}");
    }

    #[test]
    fn laws_with_long_tails_can_be_sorted() {
        let mut draws = 0_u64;
        let mut law = |least: i32| {
            let mut next = || {
                draws += 1;
                let bits = draws.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                (bits ^ bits >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40
            };
            let weights = (0..20_000)
                .map(|_| 2_f64.powf(next() as f64 / f64::from(1 << 24) * f64::from(least)));
            let mut weights: Vec<f64> = weights.collect();
            let sum: f64 = weights.iter().sum();
            weights.iter_mut().for_each(|weight| *weight /= sum);
            Law::dense(weights).unwrap()
        };
        for least in [-1, -60, -540, -1070] {
            let (p, q) = (law(least), law(least));
            let (rate, back) = (collision(&p, &q), collision(&q, &p));
            assert!(rate > 0.0 && (rate - back).abs() < 1e-9, "{rate} {back} to 2^{least}");
            assert!((collision(&p, &p) - 1.0).abs() < 1e-9, "to 2^{least}");
        }
    }

    #[test]
    fn rules_get_the_forms_that_hold_for_them() {
        let (p, q) = laws();
        let q = DraftLaw::Law(q);
        let level = |origin, tokens: &[u32]| Level { origin, tokens: tokens.to_vec() };
        let point = level(Origin::PointMass, &[0, 2]);
        assert_eq!(expected("token", &point, &p, &q), Expected::Exactly(0.7));
        assert_eq!(expected("block", &point, &p, &q), Expected::Unknown);
        let sampled = Origin::Sampled { replacement: false };
        let overlap = 0.2 + 0.2 + 0.2;
        let rate = |rule| expected(rule, &level(sampled, &[1]), &p, &q).value().unwrap();
        assert!((rate("token") - overlap).abs() < 1e-12);
        assert_eq!(rate("block"), rate("token"));
        assert_eq!(
            expected("token", &level(sampled, &[1, 2]), &p, &q),
            Expected::Unknown,
            "siblings depend on each other"
        );
        assert_eq!(
            expected("coupled", &level(Origin::Shared, &[1]), &p, &DraftLaw::Unknown),
            Expected::Unknown
        );
    }
}
