//! Wrong comparisons, seen where a random number is as small or as large as it can be.

use redline::TokenId;
use redline::spec::{Choices, Law, Proposal, RatioRule, Site, Token, Verdict};

use crate::exact::Rows;
use crate::exact::hostile::Pair;
use crate::exact::plan::{Make, Plan};

use super::{By, Finding};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    None,
    /// `u·q ≤ p`: a token of probability zero is accepted if u = 0.
    NotStrict,
    /// u may be 1: where p = q not every draft is accepted, and then nothing is left to correct with.
    One,
    /// The first token whose summed probability is at least u: one of probability zero, if u = 0.
    FirstReached,
}

/// One number for everything.
struct Injected(Bug, f64);

impl Choices for Injected {
    fn accept(&mut self, _: Site, p: f64, q: f64) -> bool {
        if self.0 == Bug::NotStrict { self.1 * q <= p } else { self.1 * q < p }
    }

    fn pick(&mut self, _: Site, law: &Law) -> TokenId {
        let mut sum = 0.0;
        let passed = |&token: &TokenId| {
            sum += law.p(token);
            if self.0 == Bug::FirstReached { self.1 <= sum } else { self.1 < sum }
        };
        (0..3).find(passed).unwrap_or_else(|| law.argmax())
    }
}

/// Whether something impossible happens at this number: a token that cannot be, or a correction of what is right.
fn impossible(bug: Bug, number: f64, laws: ([f64; 3], [f64; 3])) -> bool {
    let pair = Pair::of_three([laws]);
    let mut choices = Injected(bug, number);
    let (mut proposal, mut verdict) = (Proposal::new(), Verdict::default());
    let plan = Plan::full(Make::With, 1, 1);
    plan.draft(&pair, &mut proposal.build(1), &mut choices).unwrap();
    let mut rows = Rows { pair: &pair, proposal: &proposal, law: None };
    Token.decide(&proposal, &mut rows, &mut choices, &mut verdict).unwrap();
    let mut tokens = Vec::new();
    verdict.tokens(&proposal, &mut tokens);
    let said = |i: usize| pair.p(&tokens[..i]).p(tokens[i]) > 0.0;
    verdict.fallbacks > 0 || !(0..tokens.len()).all(said)
}

pub(super) fn findings() -> Vec<Finding> {
    let below_one = 1.0 - f64::EPSILON / 2.0;
    let same = ([0.3, 0.3, 0.4], [0.3, 0.3, 0.4]);
    let disjoint = ([0.0, 0.5, 0.5], [1.0, 0.0, 0.0]);
    let cases = [
        (Bug::NotStrict, "u q <= p", "SGLang #35771", 0.0, disjoint),
        (Bug::One, "u in (0, 1]", "", 1.0, same),
        (Bug::FirstReached, "inverse distribution with <=", "", 0.0, disjoint),
    ];
    let finding = |bug, variant: &str, seen_in, number, laws| Finding {
        rule: "token",
        variant: variant.to_owned(),
        seen_in,
        by: By::Boundary,
        found: format!("at u = {number}"),
        samples: None,
        error: 0.0,
        unseen: 0.0,
        caught: impossible(bug, number, laws),
        control: false,
    };
    let mut findings: Vec<_> = cases
        .into_iter()
        .map(|(bug, v, s, number, laws)| finding(bug, v, s, number, laws))
        .collect();
    for (number, laws) in [(0.0, disjoint), (0.0, same), (below_one, same), (below_one, disjoint)] {
        findings.push(finding(Bug::None, "the right comparison", "", number, laws).sound());
    }
    findings
}
