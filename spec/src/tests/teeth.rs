//! Known wrong variants as test doubles: each must be caught, or the tests prove nothing.
//!
//! Sources: ALGORITHMS.md §0, §1, §4, §18. Most are seen by enumeration; comparison at the
//! boundary, use of one number twice and noise shared across families each have their own way.

use super::hostile::{Pair, grow};
use crate::draws::accepts;
use crate::exact::{Emitted, WalkError, distance, emitted, joint};
use crate::{
    Choices, Draws, Law, Origin, Proposal, RatioRule, Site, TargetRows, Token, Verdict, VerifyError,
};

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
        let mut node = None;
        'walk: loop {
            let mut p = rows.law(node)?.clone();
            let replacement = proposal.origin(node) == Some(Origin::Sampled { replacement: true });
            let whole = proposal.drawn_from(node).cloned();
            let mut q = whole.clone();
            for child in proposal.children(node) {
                let x = proposal.node(child).unwrap().token;
                let mut q_now = q.clone().unwrap();
                match self.0 {
                    Bug::FirstUnverified if child == 0 => {
                        verdict.path.push(child);
                        node = Some(child);
                        continue 'walk;
                    }
                    Bug::Anticipating if q_now.p(x) < 0.4 => break,
                    Bug::CutByGrammar if p.p(x) == 0.0 => break,
                    Bug::RawDraftLaw => q_now = Law::dense(vec![1.0; 3]).unwrap(),
                    Bug::NotRenormalised if !replacement => q_now = whole.clone().unwrap(),
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
            verdict.next = choices.pick(Site::next(node), &p);
            return Ok(());
        }
    }
}

fn model() -> Pair {
    let law = |weights: [f64; 3]| Law::dense(weights.to_vec()).unwrap();
    Pair::new(
        3,
        vec![
            (law([0.6, 0.4, 0.0]), law([0.45, 0.2, 0.35])),
            (law([0.2, 0.3, 0.5]), law([0.5, 0.3, 0.2])),
            (law([0.1, 0.8, 0.1]), law([0.1, 0.6, 0.3])),
        ],
    )
}

/// The largest error in the law of three tokens.
fn error(rule: &dyn RatioRule, widths: &[usize], replacement: bool) -> Result<f64, WalkError> {
    let pair = model();
    let target = |path: &[u32]| pair.p(path);
    let round = emitted(rule, 8, &target, |builder, choices| {
        grow(&pair, widths, replacement, builder, choices)
    })?;
    Ok(distance(&round.completed(&target, 3), &joint(&target, 3)))
}

#[test]
fn the_double_without_a_bug_passes() {
    for (widths, replacement) in
        [(&[1, 1][..], true), (&[2, 2], true), (&[2, 2], false), (&[3], false)]
    {
        assert!(error(&Double(Bug::None), widths, replacement).unwrap() < 1e-15);
        assert!(error(&Token, widths, replacement).unwrap() < 1e-15);
    }
}

#[test]
fn enumeration_catches_wrong_chains() {
    for bug in [
        Bug::FirstUnverified,
        Bug::ResidualFromNextRow,
        Bug::ResidualIsTarget,
        Bug::BonusFromDraft,
        Bug::RawDraftLaw,
        Bug::AcceptTwice,
        Bug::Anticipating,
        Bug::CutByGrammar,
    ] {
        let error = error(&Double(bug), &[1, 1], true).unwrap();
        assert!(error > 1e-3, "{bug:?} was not seen: {error:e}");
    }
}

#[test]
fn enumeration_catches_wrong_trees() {
    for (bug, replacement) in [
        (Bug::NotRenormalised, false),
        (Bug::RemovedTooEarly, false),
        (Bug::SiblingsAgainstTarget, true),
        (Bug::SiblingsAgainstTarget, false),
    ] {
        let error = error(&Double(bug), &[2, 1], replacement).unwrap();
        assert!(error > 1e-3, "{bug:?} was not seen: {error:e}");
    }
}

#[test]
fn one_number_used_twice_is_named() {
    let seen = error(&Double(Bug::OneNumber), &[1], true);
    assert!(matches!(seen, Err(WalkError::Reused(site)) if site == Site::accept(0)), "{seen:?}");
}

/// SGLang #35771: `u ≤ p` accepts a token of probability zero when u = 0.
#[test]
fn zero_probability_is_never_accepted() {
    assert!(!accepts(0.0, 0.0, 0.5));
    assert!(!accepts(0.0, 0.0, 0.0));
    assert!(accepts(0.0, 1e-300, 1.0));
    let below_one = 1.0 - f64::EPSILON / 2.0;
    assert!(accepts(below_one, 0.3, 0.3), "p = q is always accepted");
    assert!(accepts(below_one, 0.5, 0.0), "q = 0 < p needs no division");
    let wrong = |u: f64, p: f64, q: f64| u * q <= p;
    assert!(wrong(0.0, 0.0, 0.5), "the wrong comparison is what this test is about");
}

/// fms-extras #12: a separate target sample on each path of a free tree, the longest match kept.
#[test]
fn enumeration_catches_a_sample_per_path() {
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
    assert!(error(free(&Token)) < 1e-15);
    assert!(error(free(&PerPath)) > 1e-3);
}

/// vllm #47386: the drafter's noise is used again for the correction. Enumeration cannot see it,
/// for noise is no choice; sampling does.
#[test]
fn shared_noise_under_a_ratio_test_is_biased() {
    let p = Law::dense(vec![0.4, 0.4, 0.2]).unwrap();
    let q = Law::dense(vec![0.2, 0.3, 0.5]).unwrap();
    let rest = p.residual(&q).unwrap();
    let fit = |correct: &dyn Fn(Draws) -> u32| {
        let mut counts = [0_u64; 3];
        for seed in 0..20_000 {
            let draws = Draws { seed, sample: 0 };
            let x = crate::coupled_sample(&q, &draws, 0);
            let accepted = draws.round(0).accept(Site::accept(0), p.p(x), q.p(x));
            counts[if accepted { x } else { correct(draws) } as usize] += 1;
        }
        super::statistics::g_test(p.iter().map(|(_, p)| p).zip(counts))
    };
    let honest = fit(&|draws| draws.round(0).pick(Site::next(None), &rest));
    assert!(honest > 1e-6, "p = {honest:e}");
    let biased = fit(&|draws| crate::coupled_sample(&rest, &draws, 0));
    assert!(biased < 1e-9, "p = {biased:e}");
}
