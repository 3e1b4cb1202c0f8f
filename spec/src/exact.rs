//! An oracle: the exact law of what a ratio-test verifier emits, by walking **every** branch of the
//! code that runs in production, drafting included.
//!
//! A rule meets chance only through [`Choices`]. [`branches`] puts in an implementation that takes
//! each outcome in turn and multiplies probabilities, so nothing is sampled and nothing is written
//! twice. A choice that is asked for twice under one name in one run is reported: with real random
//! numbers it would be the same number, though each use looks right alone.
//!
//! For small vocabularies and trees; the number of branches is the product of all outcomes.
//!
//! ```
//! use redline_spec::{Law, Token, exact};
//! let p = |_: &[u32]| Law::dense(vec![0.75, 0.25]).unwrap();
//! let q = Law::dense(vec![0.5, 0.5]).unwrap();
//! let emitted = exact::emitted(&Token, 1, &p, |builder, choices| {
//!     builder.sample(None, q.clone(), 1, true, choices).map(|_| ())
//! })
//! .unwrap();
//! let error = exact::distance(&emitted.completed(&p, 2), &exact::joint(&p, 2));
//! assert!(error < 1e-15);
//! assert!((emitted.accepted() - 0.75).abs() < 1e-15); // Σ min(p, q)
//! ```

use crate::{
    Builder, Choices, Law, Proposal, ProposalError, RatioRule, RowError, Site, TargetRows, TokenId,
    Verdict, VerifyError,
};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// A law over token sequences.
pub type Runs = BTreeMap<Vec<TokenId>, f64>;

/// Why a walk failed.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum WalkError {
    /// The same name was used for two choices of one run.
    #[error("{0:?} was drawn twice in one round")]
    Reused(Site),
    /// A repeated run with the same outcomes made another choice.
    #[error("a repeated run chose {0:?} where it had not before")]
    NotRepeatable(Site),
    /// Verification failed.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// Drafting failed.
    #[error(transparent)]
    Draft(#[from] ProposalError),
}

/// A choice that was met, its outcomes of positive probability, and which of them is being walked.
#[derive(Debug)]
struct Fork {
    site: Site,
    outcomes: Vec<(TokenId, f64)>,
    taken: usize,
}

/// [`Choices`] that follow a script and extend it by first outcomes.
#[derive(Debug, Default)]
struct Walker {
    script: Vec<Fork>,
    at: usize,
    named: BTreeSet<Site>,
    fault: Option<WalkError>,
}

impl Walker {
    fn choose(&mut self, site: Site, outcomes: impl Iterator<Item = (TokenId, f64)>) -> TokenId {
        if !self.named.insert(site) {
            self.fault.get_or_insert(WalkError::Reused(site));
        }
        if self.at == self.script.len() {
            let outcomes = outcomes.filter(|&(_, p)| p > 0.0).collect();
            self.script.push(Fork { site, outcomes, taken: 0 });
        }
        let fork = &self.script[self.at];
        if fork.site != site {
            self.fault.get_or_insert(WalkError::NotRepeatable(site));
        }
        self.at += 1;
        fork.outcomes.get(fork.taken).map_or(0, |&(outcome, _)| outcome)
    }

    fn probability(&self) -> f64 {
        let taken = |fork: &Fork| fork.outcomes.get(fork.taken).map_or(0.0, |&(_, p)| p);
        self.script.iter().map(taken).product()
    }

    /// Turns to the next branch; false after the last.
    fn turn(&mut self) -> bool {
        self.at = 0;
        self.named.clear();
        while let Some(fork) = self.script.last_mut() {
            fork.taken += 1;
            if fork.taken < fork.outcomes.len() {
                return true;
            }
            self.script.pop();
        }
        false
    }
}

impl Choices for Walker {
    fn accept(&mut self, at: Site, p: f64, q: f64) -> bool {
        // P(u·q < p) for u uniform in [0, 1).
        let a = if p >= q { f64::from(u8::from(p > 0.0)) } else { p / q };
        self.choose(at, [(1, a), (0, 1.0 - a)].into_iter()) == 1
    }

    fn pick(&mut self, at: Site, law: &Law) -> TokenId {
        self.choose(at, law.iter())
    }
}

/// Calls `run` once for every sequence of outcomes, and `each` with its probability and result.
///
/// # Errors
/// [`WalkError`] from `run`, or because its choices are not well named.
pub fn branches<T>(
    mut run: impl FnMut(&mut dyn Choices) -> Result<T, WalkError>,
    mut each: impl FnMut(f64, T),
) -> Result<(), WalkError> {
    let mut walker = Walker::default();
    loop {
        let result = run(&mut walker)?;
        if let Some(fault) = walker.fault.take() {
            return Err(fault);
        }
        each(walker.probability(), result);
        if !walker.turn() {
            return Ok(());
        }
    }
}

/// The law of a round's outcome: how many drafts were accepted, and the tokens emitted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Emitted {
    /// Probability of each (accepted drafts, emitted tokens).
    pub outcomes: BTreeMap<(usize, Vec<TokenId>), f64>,
    /// Expected number of zero-mass residuals.
    pub fallbacks: f64,
}

impl Emitted {
    /// Expected number of accepted drafts.
    #[must_use]
    pub fn accepted(&self) -> f64 {
        self.outcomes.iter().map(|((accepted, _), p)| *accepted as f64 * p).sum()
    }

    /// Probability that exactly `count` drafts are accepted.
    #[must_use]
    pub fn accepts(&self, count: usize) -> f64 {
        let equal = self.outcomes.iter().filter(|((accepted, _), _)| *accepted == count);
        equal.map(|(_, p)| p).sum()
    }

    /// The law of the first `len` tokens: runs that are shorter go on as the target would, longer
    /// ones are cut. Equal to [`joint`] iff the round changed nothing.
    pub fn completed(&self, target: &dyn Fn(&[TokenId]) -> Law, len: usize) -> Runs {
        let mut runs = Runs::new();
        for ((_, tokens), &p) in &self.outcomes {
            let mut run = tokens[..tokens.len().min(len)].to_vec();
            extend(target, len, &mut run, p, &mut runs);
        }
        runs
    }
}

/// The exact law of one round: `draft` fills a proposal of at most `limit` nodes, `rule` verifies
/// it against `target`, which gives the law after any tokens of the round.
///
/// # Errors
/// [`WalkError`] if drafting or verification fails in any branch, or a draw is used twice.
pub fn emitted(
    rule: &dyn RatioRule,
    limit: usize,
    target: &dyn Fn(&[TokenId]) -> Law,
    mut draft: impl FnMut(&mut Builder<'_>, &mut dyn Choices) -> Result<(), ProposalError>,
) -> Result<Emitted, WalkError> {
    let (mut proposal, mut verdict) = (Proposal::new(), Verdict::default());
    let mut emitted = Emitted::default();
    let round = |choices: &mut dyn Choices| {
        draft(&mut proposal.build(limit), choices)?;
        let mut rows = TableRows { proposal: &proposal, target, law: None };
        rule.decide(&proposal, &mut rows, choices, &mut verdict)?;
        let mut tokens = Vec::new();
        verdict.tokens(&proposal, &mut tokens);
        Ok(((verdict.path.len(), tokens), verdict.fallbacks))
    };
    branches(round, |p, (outcome, fallbacks)| {
        *emitted.outcomes.entry(outcome).or_default() += p;
        emitted.fallbacks += p * f64::from(fallbacks);
    })?;
    Ok(emitted)
}

/// The exact law of the first `len` tokens of as many rounds as that takes. `target` gives the law
/// after any tokens; `draft` is told how the round begins and fills a proposal of at most `limit`
/// nodes.
///
/// Rounds use numbers of their own, as [`RoundDraws`](crate::RoundDraws) of different bases are, so
/// each is a round of [`emitted`] from where the last one ended.
///
/// # Errors
/// As [`emitted`].
pub fn rounds(
    rule: &dyn RatioRule,
    limit: usize,
    target: &dyn Fn(&[TokenId]) -> Law,
    mut draft: impl FnMut(&[TokenId], &mut Builder<'_>, &mut dyn Choices) -> Result<(), ProposalError>,
    len: usize,
) -> Result<Runs, WalkError> {
    let mut open = Runs::from([(Vec::new(), 1.0)]);
    let mut runs = Runs::new();
    // A round's run extends its prefix, so it sorts after it and no prefix is met twice.
    while let Some((prefix, mass)) = open.pop_first() {
        if prefix.len() >= len {
            *runs.entry(prefix[..len].to_vec()).or_default() += mass;
            continue;
        }
        let after = |path: &[TokenId]| target(&[&prefix, path].concat());
        let round =
            emitted(rule, limit, &after, |builder, choices| draft(&prefix, builder, choices))?;
        for ((_, tokens), p) in &round.outcomes {
            *open.entry([&prefix[..], tokens].concat()).or_default() += mass * p;
        }
    }
    Ok(runs)
}

/// The target's own law of `len` tokens.
pub fn joint(target: &dyn Fn(&[TokenId]) -> Law, len: usize) -> Runs {
    let mut runs = Runs::new();
    extend(target, len, &mut Vec::new(), 1.0, &mut runs);
    runs
}

/// The largest absolute difference between two laws.
#[must_use]
pub fn distance(a: &Runs, b: &Runs) -> f64 {
    let at = |runs: &Runs, key| runs.get(key).copied().unwrap_or_default();
    a.keys().chain(b.keys()).map(|key| (at(a, key) - at(b, key)).abs()).fold(0.0, f64::max)
}

/// Adds `p` times the target's law of all continuations of `run` to length `len`.
fn extend(
    target: &dyn Fn(&[TokenId]) -> Law,
    len: usize,
    run: &mut Vec<TokenId>,
    p: f64,
    runs: &mut Runs,
) {
    if run.len() >= len {
        *runs.entry(run.clone()).or_default() += p;
        return;
    }
    for (token, next) in target(run).iter() {
        run.push(token);
        extend(target, len, run, p * next, runs);
        run.pop();
    }
}

/// Target rows from a function of the path.
struct TableRows<'a> {
    proposal: &'a Proposal,
    target: &'a dyn Fn(&[TokenId]) -> Law,
    law: Option<Law>,
}

impl TargetRows for TableRows<'_> {
    fn law(&mut self, node: Option<u32>) -> Result<&Law, RowError> {
        let mut path = Vec::new();
        self.proposal.path_tokens(node, &mut path);
        Ok(self.law.insert((self.target)(&path)))
    }
}
