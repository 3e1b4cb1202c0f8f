//! Wrong variants of `traversal`. The double recurses and keeps whole laws, as the paper reads.

use super::{error, model};
use crate::exact::emitted;
use crate::tests::plan::{Make, Plan};
use crate::{
    Choices, Law, Origin, Proposal, RatioRule, Site, TargetRows, Traversal, Verdict, VerifyError,
};

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

#[test]
fn the_double_without_a_bug_is_the_rule() {
    let pair = model();
    let target = |path: &[u32]| pair.p(path);
    for (make, depth, width) in [
        (Make::With, 2, 2),
        (Make::Without, 2, 2),
        (Make::Without, 1, 3),
        (Make::Point, 2, 2),
        (Make::Without, 3, 1),
    ] {
        let law = |rule: &dyn RatioRule| {
            emitted(rule, 8, &target, |builder, choices| {
                Plan::full(make, depth, width).draft(&pair, &[], builder, choices)
            })
            .unwrap()
        };
        let (double, rule) = (law(&Double(Bug::None)), law(&Traversal));
        for (outcome, p) in &rule.outcomes {
            let other = double.outcomes.get(outcome).copied().unwrap_or_default();
            assert!((p - other).abs() < 1e-14, "{make:?} {outcome:?}: {p} {other}");
        }
        assert!(error(&Traversal, make, depth, width).unwrap() < 1e-15);
        assert!(error(&Double(Bug::None), make, depth, width).unwrap() < 1e-15);
    }
}

#[test]
fn enumeration_catches_wrong_traversals() {
    for (bug, make) in [
        (Bug::WeightStays, Make::With),
        (Bug::LawStays, Make::With),
        (Bug::Unweighted, Make::With),
        (Bug::DeadChildIgnored, Make::With),
        (Bug::ParentFirst, Make::With),
        (Bug::NotRenormalised, Make::Without),
        (Bug::RemovedTooEarly, Make::Without),
        (Bug::FirstUnverified, Make::With),
        (Bug::Anticipating, Make::With),
        (Bug::ResidualIsTarget, Make::Without),
        (Bug::ResidualIsTarget, Make::Point),
    ] {
        let error = error(&Double(bug), make, 2, 2).unwrap();
        assert!(error > 1e-4, "{bug:?} was not seen: {error:e}");
        println!("{bug:?}: {error:.1e}");
    }
}
