//! Wrong variants of `token`, all seen by enumeration.

use redline::spec::exact::{Emitted, distance, emitted, joint};
use redline::spec::{
    Choices, Law, Origin, Proposal, RatioRule, Site, TargetRows, Token, Verdict, VerifyError,
};

use crate::exact::plan::Make;

use super::{By, Finding, enumerated, model};

/// What is wrong with the double.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// Nothing: the double must then pass, or it would be caught for the wrong reason.
    None,
    /// lattice #243: the first draft is taken without a test.
    FirstUnverified,
    /// openvino.genai #4190: the correction is drawn from the row after the rejected token.
    ResidualFromNextRow,
    /// The correction is drawn from p, not from (p − q)+.
    ResidualIsTarget,
    /// The token after a full accept is drawn from the drafter's law.
    BonusFromDraft,
    /// transformers #47932: q before truncation is used for the test.
    RawDraftLaw,
    /// Point-mass treatment of drafts that were sampled, but accepted with min(1, p/q) as well.
    AcceptTwice,
    /// The test and the correction use one number.
    OneNumber,
    /// A sampled draft is dropped, unverified, for its own low probability.
    Anticipating,
    /// A sampled draft that the grammar forbids is cut before verification.
    CutByGrammar,
    /// Siblings without replacement are tested against q as it was before the first draw.
    NotRenormalised,
    /// Siblings without replacement: the drawn token leaves q before the residual is taken.
    RemovedTooEarly,
    /// Siblings after the first are tested against p itself.
    SiblingsAgainstTarget,
    /// The token after a full accept is drawn from the row before.
    BonusFromRowBefore,
    /// imp #667: an off-by-one at the boundary says the last accepted token twice.
    LastTwice,
    /// DeepSpec #31: drawn in one precision, tested in another (bf16).
    RoundedDraftLaw,
    /// vllm #10198: the target's law before truncation.
    RawTargetLaw,
    /// z-lab/dflash #74, EAGLE #110: chosen greedily, tested as if drawn from q.
    GreedyAsSampled,
    /// Medusa's typical acceptance, or any threshold: lossy by design.
    Typical,
}

struct Double(Bug);

impl Double {
    fn law_of_drafts(&self, proposal: &Proposal, node: Option<u32>) -> Option<Law> {
        if self.0 != Bug::GreedyAsSampled {
            return proposal.drawn_from(node).cloned();
        }
        let mut path = Vec::new();
        proposal.path_tokens(node, &mut path);
        Some(model().q(&path))
    }

    fn tested_against(&self, q: Law) -> Law {
        let bf16 = |p: f64| f64::from(f32::from_bits((p as f32).to_bits() & 0xFFFF_0000));
        match self.0 {
            Bug::RawDraftLaw => Law::dense(vec![1.0; 3]).unwrap(),
            Bug::RoundedDraftLaw => Law::dense((0..3).map(|id| bf16(q.p(id))).collect()).unwrap(),
            _ => q,
        }
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
        let mut node = None;
        'walk: loop {
            let mut p = rows.law(node)?.clone();
            let replacement = proposal.origin(node) == Some(Origin::Sampled { replacement: true });
            let whole = self.law_of_drafts(proposal, node);
            if self.0 == Bug::RawTargetLaw {
                p = Law::dense((0..3).map(|id| p.p(id) + 0.05).collect()).unwrap();
            }
            let mut q = whole.clone();
            for child in proposal.children(node) {
                let x = proposal.node(child).unwrap().token;
                let mut q_now = self.tested_against(q.clone().unwrap());
                match self.0 {
                    Bug::FirstUnverified if child == 0 => {
                        verdict.path.push(child);
                        node = Some(child);
                        continue 'walk;
                    }
                    Bug::Anticipating if q_now.p(x) < 0.4 => break,
                    Bug::CutByGrammar if p.p(x) == 0.0 => break,
                    Bug::NotRenormalised if !replacement => q_now = whole.clone().unwrap(),
                    Bug::Typical if p.p(x) > 0.15 => {
                        verdict.path.push(child);
                        node = Some(child);
                        continue 'walk;
                    }
                    _ => {}
                }
                let twice = self.0 == Bug::AcceptTwice
                    && choices.accept(Site::draft(child + 1_000), p.p(x), 1.0);
                if twice || choices.accept(Site::accept(child), p.p(x), q_now.p(x)) {
                    verdict.path.push(child);
                    node = Some(child);
                    continue 'walk;
                }
                if self.0 == Bug::ResidualFromNextRow {
                    p = rows.law(Some(child))?.clone();
                }
                let without = q_now.without(x);
                if self.0 == Bug::RemovedTooEarly {
                    q_now = without.clone().unwrap_or(q_now);
                }
                if !matches!(self.0, Bug::ResidualIsTarget | Bug::SiblingsAgainstTarget) {
                    p = p.residual(&q_now).unwrap_or(p);
                }
                if self.0 == Bug::OneNumber {
                    verdict.next = choices.pick(Site::accept(child), &p);
                    return Ok(());
                }
                if !replacement {
                    q = without.or(q);
                }
            }
            let bonus = proposal.origin(node).is_none() && node.is_some();
            if self.0 == Bug::BonusFromDraft && bonus {
                p = Law::dense(vec![0.2, 0.3, 0.5]).unwrap();
            }
            if self.0 == Bug::BonusFromRowBefore && bonus {
                p = rows.law(node.and_then(|n| proposal.node(n)?.parent))?.clone();
            }
            verdict.next = choices.pick(Site::next(node), &p);
            if let Some(last) = node.filter(|_| self.0 == Bug::LastTwice) {
                verdict.next = proposal.node(last).unwrap().token;
            }
            return Ok(());
        }
    }
}

/// On chains of sampled drafts.
fn chains() -> [Finding; 13] {
    let variants = [
        (Bug::FirstUnverified, "first draft unverified", "lattice #243"),
        (
            Bug::ResidualFromNextRow,
            "correction from the row after the rejected token",
            "openvino.genai #4190",
        ),
        (Bug::ResidualIsTarget, "correction from p, not (p - q)+", ""),
        (Bug::BonusFromDraft, "bonus from the drafter's law", ""),
        (Bug::BonusFromRowBefore, "bonus from the row before", ""),
        (Bug::LastTwice, "last accepted token said twice", "imp #667"),
        (Bug::RawDraftLaw, "raw q: tested before truncation", "transformers #47932"),
        (Bug::RoundedDraftLaw, "q in another precision than drawn from", "DeepSpec #31"),
        (Bug::RawTargetLaw, "the target's law before truncation", "vllm #10198"),
        (Bug::AcceptTwice, "sampled drafts tested as chosen and by ratio", ""),
        (Bug::Anticipating, "anticipating truncation of a sampled draft", "D-cut, DSpark"),
        (Bug::CutByGrammar, "sampled draft cut by a grammar", "D-cut, DSpark"),
        (Bug::Typical, "typical acceptance, a threshold", "Medusa, SGLang"),
    ];
    variants.map(|(bug, variant, seen_in)| {
        enumerated("token", variant, seen_in, &Double(bug), Make::With, (2, 1))
    })
}

/// Every variant, and the doubles without one.
pub(super) fn findings() -> Vec<Finding> {
    let sound = "the rule and its double";
    let mut findings = vec![
        enumerated("token", sound, "", &Token, Make::With, (2, 1)).sound(),
        enumerated("token", sound, "", &Double(Bug::None), Make::With, (2, 1)).sound(),
        enumerated("token", sound, "", &Double(Bug::None), Make::With, (2, 2)).sound(),
        enumerated("token", sound, "", &Double(Bug::None), Make::Without, (2, 2)).sound(),
        enumerated("token", sound, "", &Double(Bug::None), Make::Without, (1, 3)).sound(),
    ];
    findings.extend(chains());
    let greedy = ("greedy drafts tested as sampled", "dflash #74, EAGLE #110");
    findings.push(enumerated(
        "token",
        greedy.0,
        greedy.1,
        &Double(Bug::GreedyAsSampled),
        Make::Point,
        (2, 1),
    ));
    let once = "test and correction by one number";
    findings.push(enumerated(
        "token",
        once,
        "vllm #47386",
        &Double(Bug::OneNumber),
        Make::With,
        (1, 1),
    ));
    let trees = [
        (
            Bug::NotRenormalised,
            "without replacement: q not renormalised",
            "Sequoia's notes",
            Make::Without,
        ),
        (
            Bug::RemovedTooEarly,
            "without replacement: removed before the residual",
            "Sequoia's notes",
            Make::Without,
        ),
        (
            Bug::SiblingsAgainstTarget,
            "later siblings tested against p, with replacement",
            "",
            Make::With,
        ),
        (Bug::SiblingsAgainstTarget, "later siblings tested against p, without", "", Make::Without),
    ];
    findings.extend(trees.map(|(bug, variant, seen_in, make)| {
        enumerated("token", variant, seen_in, &Double(bug), make, (2, 2))
    }));
    findings.push(per_path());
    findings
}

/// fms-extras #12: a separate target sample on each path of a free tree, the longest match kept.
fn per_path() -> Finding {
    struct PerPath;
    impl RatioRule for PerPath {
        fn decide(
            &self,
            proposal: &Proposal,
            rows: &mut dyn TargetRows,
            choices: &mut dyn Choices,
            verdict: &mut Verdict,
        ) -> Result<(), VerifyError> {
            verdict.clear();
            let p = rows.law(None)?.clone();
            for child in proposal.children(None) {
                verdict.next = choices.pick(Site::next(Some(child + 100)), &p);
                if proposal.node(child).unwrap().token == verdict.next {
                    verdict.path.push(child);
                    verdict.next = choices.pick(Site::next(Some(child)), rows.law(Some(child))?);
                    return Ok(());
                }
            }
            Ok(())
        }
    }
    let pair = model();
    let target = |path: &[u32]| pair.p(path);
    let free = |rule: &dyn RatioRule| -> Emitted {
        emitted(rule, 2, &target, |builder, _| {
            builder.point(None, 0)?;
            builder.point(None, 2).map(|_| ())
        })
        .unwrap()
    };
    let error = |round: Emitted| distance(&round.completed(&target, 2), &joint(&target, 2));
    let right = error(free(&Token));
    assert!(right < 1e-14, "the rule itself: {right:e}");
    let variant = "a target sample per path, not per node";
    Finding::by_error("token", variant, "fms-extras #12", By::Enumeration, error(free(&PerPath)))
}
