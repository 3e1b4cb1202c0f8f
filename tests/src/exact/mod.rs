//! The exact law of every rule by enumeration, and how many drafts each keeps: `redline-tests exact`.
//!
//! `spec::exact` walks every branch of the code that runs in production. Here it does so over hostile laws and trees, drawn
//! by another generator than that of `spec`'s own tests, and for three families of laws whose values are known.

pub mod command;
pub mod families;
pub mod hostile;
pub mod plan;

use redline::TokenId;
use redline::spec::exact::{Emitted, WalkError, distance, emitted, joint};
use redline::spec::{
    Block, Builder, Choices, Coupled, DrawMode, Draws, Law, Proposal, RatioRule, Round, RowError,
    TargetRows, Token, Traversal, Verdict, Verifier, coupled_sample,
};

use crate::random::Random;

use hostile::Pair;
use plan::{Make, Plan};

/// One round of `plan` under `rule`, and the error of its law.
pub fn round(rule: &dyn RatioRule, pair: &Pair, plan: &Plan) -> (Emitted, f64) {
    try_round(rule, pair, plan).unwrap()
}

/// Like [`round`], for rules that may not get to the end.
///
/// # Errors
/// [`WalkError`] from the rule, or because it uses a number twice.
pub fn try_round(
    rule: &dyn RatioRule,
    pair: &Pair,
    plan: &Plan,
) -> Result<(Emitted, f64), WalkError> {
    let target = |path: &[TokenId]| pair.p(path);
    let draft =
        |builder: &mut Builder<'_>, choices: &mut dyn Choices| plan.draft(pair, builder, choices);
    let round = emitted(rule, plan.limit, &target, draft)?;
    let len = plan.depth + 1;
    let error = distance(&round.completed(&target, len), &joint(&target, len));
    Ok((round, error))
}

/// What many cases came to.
#[derive(Debug, Clone, Copy, Default)]
pub struct Worst {
    /// Cases.
    pub cases: usize,
    /// The largest error of a law.
    pub error: f64,
    /// The largest deviation of the drafts kept from the published formula, where there is one.
    pub formula: f64,
    /// The least that is kept more than by `token` of the same drafts.
    pub gain: f64,
}

/// Hostile cases of one rule: chains for `block`; else chains and trees in turn.
pub fn worst(rule: &str, cases: usize, seed: u64) -> Worst {
    let mut random = Random(seed);
    let mut worst = Worst { cases, gain: f64::INFINITY, ..Worst::default() };
    for case in 0..cases {
        let vocab = 1 + random.below(5);
        let pair = Pair::random(vocab, &mut random);
        let width = if rule == "block" || case % 2 == 0 { 1 } else { 3 };
        let plan = Plan::random(vocab, width, &mut random);
        if rule == "coupled" {
            let draws = Draws { seed: random.next_u64(), sample: 0 };
            worst.error = worst.error.max(f64::from(u8::from(!is_plain(&pair, &plan, draws))));
            continue;
        }
        let checked: &dyn RatioRule = match rule {
            "token" => &Token,
            "block" => &Block,
            _ => &Traversal,
        };
        let (found, error) = round(checked, &pair, &plan);
        worst.error = worst.error.max(error);
        let by_token = round(&Token, &pair, &plan).0.accepted();
        worst.gain = worst.gain.min(found.accepted() - by_token);
        if width == 1 {
            let formula = kept(&pair, &plan, &mut Vec::new(), (1.0, 1.0), rule != "token");
            worst.formula = worst.formula.max((found.accepted() - formula).abs());
        }
    }
    worst
}

/// Whether a round under `coupled` says what the plain sampler says.
fn is_plain(pair: &Pair, plan: &Plan, draws: Draws) -> bool {
    let base = draws.seed % 1_000;
    if draws.seed.is_multiple_of(2) {
        let proposal = shared(pair, (plan.depth, plan.width), draws, base);
        return says_plain(&Coupled, pair, &proposal, (draws, base));
    }
    let mut proposal = Proposal::new();
    let mut round = draws.round(base);
    plan.draft(pair, &mut proposal.build(plan.limit), &mut round).unwrap();
    says_plain(&Coupled, pair, &proposal, (draws, base))
}

/// Whether a rule says what the plain sampler says, at every token of a round.
pub fn says_plain(
    rule: &dyn Verifier,
    pair: &Pair,
    proposal: &Proposal,
    (draws, base): (Draws, u64),
) -> bool {
    let mut rows = Rows { pair, proposal, law: None };
    let (mut verdict, mut tokens) = (Verdict::default(), Vec::new());
    rule.verify(&Round { proposal, base, draws }, &mut rows, &mut verdict).unwrap();
    verdict.tokens(proposal, &mut tokens);
    let plain = |i: usize| coupled_sample(&pair.p(&tokens[..i]), &draws, base + i as u64);
    (0..tokens.len()).all(|i| tokens[i] == plain(i))
}

/// The target's rows of a round that begins at the root.
pub struct Rows<'a> {
    /// The models.
    pub pair: &'a Pair,
    /// The drafts.
    pub proposal: &'a Proposal,
    /// The row asked for last.
    pub law: Option<Law>,
}

impl TargetRows for Rows<'_> {
    fn law(&mut self, node: Option<u32>) -> Result<&Law, RowError> {
        let mut path = Vec::new();
        self.proposal.path_tokens(node, &mut path);
        Ok(self.law.insert(self.pair.p(&path)))
    }
}

/// A tree of full width with the target's own noise, as a drafter makes it under `coupled`.
pub fn shared(pair: &Pair, (depth, width): (usize, usize), draws: Draws, base: u64) -> Proposal {
    let mut proposal = Proposal::new();
    let mut builder = proposal.build(64);
    let mut level = vec![None];
    for _ in 0..depth {
        let mut next = Vec::new();
        for parent in level {
            let mut path = Vec::new();
            builder.proposal().path_tokens(parent, &mut path);
            let round = draws.round(base);
            let drawn = builder.draw(parent, pair.q(&path), width, DrawMode::Shared, &round);
            next.extend(drawn.unwrap().map(Some));
        }
        level = next;
    }
    proposal
}

/// Drafts kept of a chain on average, by the published formulas. With Q the law of the drafts: `token` keeps x₁…xᵢ with mass
/// Π min(q, p) (Leviathan et al. 2023, Theorem 3.5), `block` with mass Wᵢ = min(Q(x₁…xᵢ), Wᵢ₋₁·p(xᵢ)) (Sun et al. 2025, §4).
fn kept(
    pair: &Pair,
    plan: &Plan,
    path: &mut Vec<TokenId>,
    (drawn, kept): (f64, f64),
    block: bool,
) -> f64 {
    if plan.children(path) == 0 || path.len() >= plan.limit {
        return 0.0;
    }
    let (p, q) = (pair.p(path), pair.q(path));
    let q = match plan.make_at(path) {
        Make::With | Make::Without => q,
        _ => Law::point(q.argmax()),
    };
    let mut sum = 0.0;
    for (token, q) in q.iter() {
        let here =
            if block { (drawn * q).min(kept * p.p(token)) } else { kept * q.min(p.p(token)) };
        if here > 0.0 {
            path.push(token);
            sum += here + self::kept(pair, plan, path, (drawn * q, here), block);
            path.pop();
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_exact_and_keeps_what_it_should() {
        for rule in crate::sampling::grid::RULES {
            let Worst { error, formula, gain, .. } = worst(rule, 400, 3);
            assert!(
                error < 1e-12 && formula < 1e-12 && gain > -1e-12,
                "{rule}: {error} {formula} {gain}"
            );
        }
    }
}
