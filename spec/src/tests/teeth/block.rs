//! Wrong variants of `block`. The double is written forwards, from the paper's formulas.

use super::{error, model};
use crate::exact::{WalkError, emitted};
use crate::tests::plan::{Make, Plan};
use crate::{Block, Choices, Proposal, RatioRule, Site, TargetRows, Verdict, VerifyError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// Stops at the first failure.
    Break,
    /// Draws the correction from (p − q)+, not (p_τ·p − q)+.
    TokenResidual,
    /// hᵢ = min(1, p/q).
    TokenThresholds,
    /// pᵢ = pᵢ₋₁·p/q.
    NotCapped,
    /// One η for all.
    OneNumber,
    /// The last draft is dropped, unverified, for its own low probability.
    Anticipating,
    /// The correction comes from the row after the one it corrects.
    ResidualFromNextRow,
}

struct Double(Bug);

impl RatioRule for Double {
    fn decide(
        &self,
        proposal: &Proposal,
        rows: &mut dyn TargetRows,
        choices: &mut dyn Choices,
        verdict: &mut Verdict,
    ) -> Result<(), VerifyError> {
        verdict.clear();
        let row = |i: usize| i.checked_sub(1).map(|n| n as u32);
        let mut drafts = proposal.len();
        let token = |i: usize| proposal.nodes()[i].token;
        if self.0 == Bug::Anticipating {
            let confident = |i: usize| proposal.drawn_from(row(i)).unwrap().p(token(i)) > 0.25;
            drafts = (0..drafts).take_while(|&i| confident(i)).count();
        }
        // p_i, and h_i for i ≥ 1.
        let (mut weights, mut thresholds) = (vec![1.0_f64], vec![1.0]);
        for i in 0..drafts {
            let (p, q) = (rows.law(row(i))?.p(token(i)), proposal.drawn_from(row(i)).unwrap());
            let next = weights[i] * p / q.p(token(i));
            weights.push(if self.0 == Bug::NotCapped { next } else { next.min(1.0) });
        }
        for (i, &weight) in weights.iter().enumerate().skip(1) {
            let before = rows.law(row(i - 1))?.p(token(i - 1));
            let ratio = before / proposal.drawn_from(row(i - 1)).unwrap().p(token(i - 1));
            let p = rows.law(row(i))?;
            thresholds.push(match proposal.drawn_from(row(i)) {
                _ if self.0 == Bug::TokenThresholds => ratio.min(1.0),
                Some(q) if i < drafts => {
                    let z: f64 = (0..3).map(|id| (weight * p.p(id) - q.p(id)).max(0.0)).sum();
                    let all = z + 1.0 - weight;
                    if all > 1e-15 { z / all } else { 1.0 }
                }
                _ => weight,
            });
        }
        let mut tau = 0;
        for (i, &threshold) in thresholds.iter().enumerate().skip(1) {
            let eta = if self.0 == Bug::OneNumber { 0 } else { i as u32 - 1 };
            if choices.accept(Site::block(eta), threshold, 1.0) {
                tau = i;
            } else if self.0 == Bug::Break {
                break;
            }
        }
        verdict.path.extend(0..tau as u32);
        let at = if self.0 == Bug::ResidualFromNextRow && tau < drafts { tau + 1 } else { tau };
        let p = rows.law(row(at))?.clone();
        let weight = if self.0 == Bug::TokenResidual { 1.0 } else { weights[tau] };
        let left = |id: u32| match proposal.drawn_from(row(tau)) {
            Some(q) if tau < drafts => (weight * p.p(id) - q.p(id)).max(0.0),
            _ => p.p(id),
        };
        let rest = crate::Law::dense((0..3).map(left).collect()).unwrap_or(p.clone());
        verdict.next = choices.pick(Site::next(row(tau)), &rest);
        Ok(())
    }
}

#[test]
fn the_double_without_a_bug_is_the_rule() {
    let pair = model();
    let target = |path: &[u32]| pair.p(path);
    for depth in 1..4 {
        let law = |rule: &dyn RatioRule| {
            emitted(rule, 8, &target, |builder, choices| {
                Plan::full(Make::With, depth, 1).draft(&pair, &[], builder, choices)
            })
            .unwrap()
        };
        let (double, rule) = (law(&Double(Bug::None)), law(&Block));
        for (outcome, p) in &rule.outcomes {
            let other = double.outcomes.get(outcome).copied().unwrap_or_default();
            assert!((p - other).abs() < 1e-14, "{outcome:?}: {p} {other}");
        }
        assert!(error(&Block, Make::With, depth, 1).unwrap() < 1e-15);
        assert!(error(&Double(Bug::None), Make::With, depth, 1).unwrap() < 1e-15);
    }
}

#[test]
fn enumeration_catches_wrong_blocks() {
    for bug in [
        Bug::Break,
        Bug::TokenResidual,
        Bug::TokenThresholds,
        Bug::NotCapped,
        Bug::Anticipating,
        Bug::ResidualFromNextRow,
    ] {
        let error = error(&Double(bug), Make::With, 3, 1).unwrap();
        assert!(error > 1e-4, "{bug:?} was not seen: {error:e}");
        println!("{bug:?}: {error:.1e}");
    }
}

#[test]
fn one_eta_for_all_is_named() {
    let seen = error(&Double(Bug::OneNumber), Make::With, 2, 1);
    assert!(matches!(seen, Err(WalkError::Reused(site)) if site == Site::block(0)), "{seen:?}");
}

#[test]
fn a_tree_is_refused_by_name() {
    let seen = error(&Block, Make::With, 1, 2);
    let refused = VerifyError::Refused {
        verifier: "block",
        reason: "it is a tree, and the rule takes chains only",
    };
    assert_eq!(seen, Err(WalkError::Verify(refused)));
}
