//! Wrong use of numbers: at the boundary, twice in a round, twice in a run, from a coarse generator.

use crate::draws::{Purpose, accepts, pick, standard_exponential};
use crate::tests::hostile::Pair;
use crate::tests::plan::{Plan, planned};
use crate::tests::sampled_law::p_value;
use crate::tests::statistics::g_test;
use crate::{
    Block, Choices, DrawMode, Draws, Law, Proposal, RatioRule, Round, RoundDraws, Site, TargetRows,
    Token, TokenId, Traversal, Verdict, Verifier, VerifyError,
};
use proptest::prelude::*;

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

/// Numbers from a list, over and over.
struct Injected<'a> {
    numbers: &'a [f64],
    at: usize,
    /// `u·q ≤ p`.
    wrong: bool,
}

impl Injected<'_> {
    fn number(&mut self) -> f64 {
        self.at += 1;
        self.numbers[self.at % self.numbers.len()]
    }
}

impl Choices for Injected<'_> {
    fn accept(&mut self, _: Site, p: f64, q: f64) -> bool {
        assert!(p.is_finite() && q.is_finite() && p >= 0.0 && q >= 0.0, "accept({p}, {q})");
        let u = self.number();
        if self.wrong { u * q <= p } else { accepts(u, p, q) }
    }

    fn pick(&mut self, _: Site, law: &Law) -> TokenId {
        pick(self.number(), law)
    }
}

/// Whether what `rule` says on extreme numbers can be said at all.
fn possible(
    rule: &dyn RatioRule,
    (pair, plan): (&Pair, &Plan),
    numbers: &[f64],
    wrong: bool,
) -> bool {
    let mut choices = Injected { numbers, at: 0, wrong };
    let (mut proposal, mut verdict) = (Proposal::new(), Verdict::default());
    plan.draft(pair, &[], &mut proposal.build(plan.limit), &mut choices).unwrap();
    let mut rows =
        crate::tests::coupled::Rows { pair, prefix: &[], proposal: &proposal, law: None };
    rule.decide(&proposal, &mut rows, &mut choices, &mut verdict).unwrap();
    let mut tokens = Vec::new();
    verdict.tokens(&proposal, &mut tokens);
    // By weight: the quotient of the least of all numbers may be zero.
    let in_support = |i: usize| pair.p(&tokens[..i]).weighted().any(|(id, _)| id == tokens[i]);
    (0..tokens.len()).all(in_support)
}

const BELOW_ONE: f64 = 1.0 - f64::EPSILON / 2.0;

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn nothing_impossible_is_said_at_the_boundary(
        (pair, plan) in planned(5, 3),
        numbers in prop::collection::vec(
            prop_oneof![3 => Just(0.0), 3 => Just(BELOW_ONE), 1 => 0.0..1.0f64],
            1..12,
        ),
    ) {
        prop_assert!(possible(&Token, (&pair, &plan), &numbers, false));
        prop_assert!(possible(&Traversal, (&pair, &plan), &numbers, false));
        let chain = Plan { width: 1, ..plan };
        prop_assert!(possible(&Block, (&pair, &chain), &numbers, false));
    }
}

#[test]
fn the_wrong_comparison_says_something_impossible() {
    let (p, q) = (Law::dense(vec![0.0, 1.0]).unwrap(), Law::point(0));
    let pair = Pair::new(2, vec![(p, q)]);
    let plan = Plan::full(crate::tests::plan::Make::With, 1, 1);
    assert!(!possible(&Token, (&pair, &plan), &[0.0], true));
    assert!(possible(&Token, (&pair, &plan), &[0.0], false));
}

/// How a rule's choices are named.
#[derive(Clone, Copy, Debug)]
enum Named {
    Rightly,
    /// The token after the path by the number that drew a draft there: vllm #47386.
    NextAsDraft,
    /// A node's test by the number that drew it.
    TestAsDraft,
    /// A node's test by its absolute position.
    TestByPosition,
    /// By place in the round alone.
    SameEveryRound,
}

/// A rule whose numbers have other names.
struct Renamed(&'static (dyn RatioRule + Sync), Named);

struct OtherNames<'a>(Named, RoundDraws, &'a Proposal);

impl OtherNames<'_> {
    fn draws(&self, at: Site) -> (RoundDraws, Site) {
        let test = !matches!(at.purpose, Purpose::Draft | Purpose::Next);
        let mut draws = self.1;
        match self.0 {
            Named::NextAsDraft if !test => return (draws, Site::draft(at.node)),
            Named::TestAsDraft if test => return (draws, Site::draft(at.node)),
            Named::TestByPosition if test => {
                draws.base += u64::from(self.2.depth(Some(at.node))) - 1;
                return (draws, Site { node: 0, ..at });
            }
            Named::SameEveryRound => draws.base = 0,
            _ => {}
        }
        (draws, at)
    }
}

impl Choices for OtherNames<'_> {
    fn accept(&mut self, at: Site, p: f64, q: f64) -> bool {
        let (mut draws, at) = self.draws(at);
        draws.accept(at, p, q)
    }

    fn pick(&mut self, at: Site, law: &Law) -> TokenId {
        let (mut draws, at) = self.draws(at);
        draws.pick(at, law)
    }
}

impl Verifier for Renamed {
    fn name(&self) -> &'static str {
        "renamed"
    }

    fn draw_mode(&self) -> DrawMode {
        DrawMode::Sampled { replacement: true }
    }

    fn verify(
        &self,
        round: &Round<'_>,
        rows: &mut dyn TargetRows,
        verdict: &mut Verdict,
    ) -> Result<(), VerifyError> {
        let mut choices = OtherNames(self.1, round.draws.round(round.base), round.proposal);
        self.0.decide(round.proposal, rows, &mut choices, verdict)
    }
}

/// Each wrong name is seen in the joint law of several rounds; the right ones pass the same test.
/// `token` by position is no bug: it reads no number at a position that it does not commit.
#[test]
fn sampling_catches_numbers_used_twice() {
    let with = DrawMode::Sampled { replacement: true };
    let law = |weights: [f64; 3]| Law::dense(weights.to_vec()).unwrap();
    // Residuals of two tokens: a number used for one of them again matters.
    let wide = Pair::new(
        3,
        vec![
            (law([0.4, 0.4, 0.2]), law([0.2, 0.2, 0.6])),
            (law([0.5, 0.1, 0.4]), law([0.25, 0.5, 0.25])),
        ],
    );
    let plain = Pair::new(2, vec![(law([0.5, 0.5, 0.0]), law([0.85, 0.15, 0.0]))]);
    let p = |rule, named| {
        let pair = if matches!(named, Named::TestByPosition) { &plain } else { &wide };
        p_value(pair, &Renamed(rule, named), (with, &[1, 1]), 25_000)
    };
    let rules: [&'static (dyn RatioRule + Sync); 3] = [&Token, &Block, &Traversal];
    for (index, rule) in rules.into_iter().enumerate() {
        let right = p(rule, Named::Rightly);
        assert!(right > 1e-5, "{index}: p = {right:e}");
        for named in [Named::NextAsDraft, Named::TestAsDraft, Named::SameEveryRound] {
            let wrong = p(rule, named);
            assert!(wrong < 1e-9, "{index} {named:?} was not seen: p = {wrong:e}");
        }
        let by_position = p(rule, Named::TestByPosition);
        assert_eq!(by_position < 1e-9, index > 0, "{index}: p = {by_position:e}");
    }
}

/// The target's noise drew the draft and draws the correction. Enumeration cannot see it, for noise
/// is no choice; sampling does.
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
        g_test(p.iter().map(|(_, p)| p).zip(counts))
    };
    let honest = fit(&|draws| draws.round(0).pick(Site::next(None), &rest));
    assert!(honest > 1e-6, "p = {honest:e}");
    let biased = fit(&|draws| crate::coupled_sample(&rest, &draws, 0));
    assert!(biased < 1e-9, "p = {biased:e}");
}

/// With 24 random bits, Gumbel noise ends near 17, inside what a large vocabulary reaches.
#[test]
fn noise_has_more_than_24_bits() {
    let coarse = |bits: u64| -(-(((bits >> 40) as f64 + 0.5) / f64::from(1 << 24))).ln_1p();
    assert!(-coarse(0).ln() < 17.4);
    assert!(-standard_exponential(0).ln() > 36.0);
    let floor = |noise: &dyn Fn(u64) -> f64| {
        (0..4u64).map(|low| noise(low << 20)).collect::<Vec<_>>().windows(2).all(|w| w[0] < w[1])
    };
    assert!(floor(&standard_exponential) && !floor(&coarse));
}
