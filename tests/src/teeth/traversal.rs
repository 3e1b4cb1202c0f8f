//! Wrong variants of `traversal`. The double recurses and keeps whole laws, as the paper reads.

use redline::spec::{
    Choices, Law, Origin, Proposal, RatioRule, Site, TargetRows, Traversal, Verdict, VerifyError,
};

use crate::exact::plan::Make;

use super::{Finding, enumerated, same_outcomes};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// a stays as it was when a child is rejected.
    WeightStays,
    /// p stays.
    LawStays,
    /// (p − q)+ where (a·p − q)+ is meant.
    Unweighted,
    /// A child of weight 0 is passed over without taking its residual.
    DeadChildIgnored,
    /// A node is tested before what is below it, and its children only if it passed.
    ParentFirst,
    /// Without replacement: q stays whole.
    NotRenormalised,
    /// Without replacement: the token leaves q before the residual is taken.
    RemovedTooEarly,
    /// The first node counts as accepted.
    FirstUnverified,
    /// A sampled leaf is not verified if its own probability is low.
    Anticipating,
    /// The token after the path is the target's, whatever was rejected there.
    ResidualIsTarget,
}

struct Double(Bug);

struct Walk<'a> {
    bug: Bug,
    proposal: &'a Proposal,
    rows: &'a mut dyn TargetRows,
    choices: &'a mut dyn Choices,
}

impl Walk<'_> {
    /// The node kept at or below `node`, and the law of the token after it.
    fn visit(&mut self, node: Option<u32>, mut a: f64) -> Option<(Option<u32>, Law)> {
        let whole = self.rows.law(node).unwrap().clone();
        let mut p = whole.clone();
        let mut q = self.proposal.drawn_from(node).cloned();
        let replacement = self.proposal.origin(node) == Some(Origin::Sampled { replacement: true });
        let test = |walk: &mut Self, a| {
            node.is_none_or(|node| walk.choices.accept(Site::traverse(node), a, 1.0))
        };
        if self.bug == Bug::ParentFirst && !test(self, a) {
            return None;
        }
        let children: Vec<u32> = self.proposal.children(node).collect();
        for child in children {
            let x = self.proposal.node(child).unwrap().token;
            let mut q_k = q.clone().unwrap_or_else(|| Law::point(x));
            let leaf = self.proposal.origin(Some(child)).is_none();
            if self.bug == Bug::Anticipating && leaf && q_k.p(x) < 0.4 {
                continue;
            }
            let verified = self.bug != Bug::FirstUnverified || child > 0;
            let weight = if verified { (a * p.p(x) / q_k.p(x)).min(1.0) } else { 1.0 };
            if weight > 0.0 {
                if let Some(kept) = self.visit(Some(child), weight) {
                    return Some(kept);
                }
            } else if self.bug == Bug::DeadChildIgnored {
                continue;
            }
            let without = q_k.without(x);
            if self.bug == Bug::RemovedTooEarly && !replacement {
                q_k = without.clone().unwrap_or(q_k);
            }
            let scale = if self.bug == Bug::Unweighted { 1.0 } else { a };
            let left: Vec<f64> = (0..3).map(|id| (scale * p.p(id) - q_k.p(id)).max(0.0)).collect();
            let z: f64 = left.iter().sum();
            if self.bug != Bug::WeightStays {
                a = if z + 1.0 - a > 1e-15 { z / (z + 1.0 - a) } else { 1.0 };
            }
            if self.bug != Bug::LawStays {
                p = Law::dense(left).unwrap_or(p);
            }
            if !replacement && q.is_some() && self.bug != Bug::NotRenormalised {
                q = without.or(q);
            }
        }
        let kept = self.bug == Bug::ParentFirst || test(self, a);
        let p = if self.bug == Bug::ResidualIsTarget { whole } else { p };
        kept.then_some((node, p))
    }
}

impl RatioRule for Double {
    fn decide(
        &self,
        proposal: &Proposal,
        rows: &mut dyn TargetRows,
        choices: &mut dyn Choices,
        verdict: &mut Verdict,
    ) -> Result<(), VerifyError> {
        verdict.clear();
        let mut walk = Walk { bug: self.0, proposal, rows, choices };
        let (node, law) = walk.visit(None, 1.0).unwrap();
        let mut path: Vec<u32> =
            std::iter::successors(node, |&n| proposal.node(n).unwrap().parent).collect();
        path.reverse();
        verdict.path = path;
        verdict.next = walk.choices.pick(Site::next(node), &law);
        Ok(())
    }
}

/// Every variant, and the double without one.
pub(super) fn findings() -> Vec<Finding> {
    let sound = "the rule and its double";
    let mut findings = Vec::new();
    for (make, shape) in [
        (Make::With, (2, 2)),
        (Make::Without, (2, 2)),
        (Make::Without, (1, 3)),
        (Make::Point, (2, 2)),
        (Make::Without, (3, 1)),
    ] {
        findings.push(same_outcomes("traversal", &Traversal, &Double(Bug::None), make, shape));
        findings.push(enumerated("traversal", sound, "", &Traversal, make, shape).sound());
        findings.push(enumerated("traversal", sound, "", &Double(Bug::None), make, shape).sound());
    }
    let variants = [
        (Bug::WeightStays, "weight not lowered by rejected children", Make::With),
        (Bug::LawStays, "law not lowered by rejected children", Make::With),
        (Bug::Unweighted, "residual without the weight", Make::With),
        (Bug::DeadChildIgnored, "a child of weight 0 leaves no residual", Make::With),
        (Bug::ParentFirst, "parent tested before its children", Make::With),
        (Bug::NotRenormalised, "without replacement: q not renormalised", Make::Without),
        (Bug::RemovedTooEarly, "without replacement: removed before the residual", Make::Without),
        (Bug::FirstUnverified, "first draft unverified", Make::With),
        (Bug::Anticipating, "anticipating truncation of a sampled leaf", Make::With),
        (Bug::ResidualIsTarget, "correction from p, without replacement", Make::Without),
        (Bug::ResidualIsTarget, "correction from p, point masses", Make::Point),
    ];
    findings.extend(variants.map(|(bug, variant, make)| {
        enumerated("traversal", variant, "", &Double(bug), make, (2, 2))
    }));
    findings
}
