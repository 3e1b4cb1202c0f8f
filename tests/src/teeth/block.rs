//! Wrong variants of `block`. The double is written forwards, from the paper's formulas.

use redline::spec::{
    Block, Choices, Law, Proposal, RatioRule, Site, TargetRows, Verdict, VerifyError,
};

use crate::exact::plan::Make;

use super::{Finding, enumerated, same_outcomes};

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
        let rest = Law::dense((0..3).map(left).collect()).unwrap_or(p.clone());
        verdict.next = choices.pick(Site::next(row(tau)), &rest);
        Ok(())
    }
}

/// Every variant, and the double without one.
pub(super) fn findings() -> Vec<Finding> {
    let sound = "the rule and its double";
    let mut findings = vec![same_outcomes("block", &Block, &Double(Bug::None), Make::With, (3, 1))];
    for depth in 1..4 {
        findings.push(enumerated("block", sound, "", &Block, Make::With, (depth, 1)).sound());
        findings.push(
            enumerated("block", sound, "", &Double(Bug::None), Make::With, (depth, 1)).sound(),
        );
    }
    let variants = [
        (Bug::Break, "break at the first failure", "vllm-ascend #7807"),
        (Bug::TokenResidual, "residual of token", ""),
        (Bug::TokenThresholds, "thresholds of token", ""),
        (Bug::NotCapped, "weight not capped at 1", ""),
        (Bug::OneNumber, "one number for all tests of a round", ""),
        (Bug::Anticipating, "anticipating truncation of a sampled draft", "D-cut, DSpark"),
        (Bug::ResidualFromNextRow, "correction from the row after", "openvino.genai #4190"),
    ];
    findings.extend(variants.map(|(bug, variant, seen_in)| {
        enumerated("block", variant, seen_in, &Double(bug), Make::With, (3, 1))
    }));
    findings.push(enumerated("block", "a tree", "", &Block, Make::With, (1, 2)));
    findings
}
