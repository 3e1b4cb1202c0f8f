//! The law of three consecutive drafted rounds: how many drafts each keeps, together with the tokens.

use std::collections::BTreeMap;

use redline::TokenId;
use redline::spec::exact::{Emitted, emitted};
use redline::spec::{
    Block, Choices, Law, Proposal, RatioRule, Site, TargetRows, Token, Traversal, Verdict,
    VerifyError,
};

use super::drafts::{enumerable, width};
use super::engine::{DRAFTED, NO_ROUND};
use super::grid::{Cell, Kind};
use super::race::child;
use super::world::{Place, World};

/// `coupled` where its noise is not that of the drafts: the target's own sample, kept as long as it is a child.
struct Matching;

impl RatioRule for Matching {
    fn decide(
        &self,
        proposal: &Proposal,
        rows: &mut dyn TargetRows,
        choices: &mut dyn Choices,
        verdict: &mut Verdict,
    ) -> Result<(), VerifyError> {
        verdict.clear();
        loop {
            let node = verdict.path.last().copied();
            verdict.next = choices.pick(Site::next(node), rows.law(node)?);
            match proposal.child(node, verdict.next) {
                Some(child) => verdict.path.push(child),
                None => return Ok(()),
            }
        }
    }
}

/// What a round does: (accepted drafts, tokens) and probability.
type Round = Vec<((usize, Vec<TokenId>), f64)>;

/// The laws of a cell's rounds, each made when it is asked for.
pub struct Rounds<'a> {
    cell: &'a Cell,
    world: &'a World,
    /// By what a round depends on.
    known: BTreeMap<(Place, usize), Round>,
}

impl<'a> Rounds<'a> {
    /// None made yet.
    pub fn new(cell: &'a Cell, world: &'a World) -> Self {
        Self { cell, world, known: BTreeMap::new() }
    }

    /// The law of the round that begins at `place` with so many draft nodes.
    pub fn at(&mut self, place: Place, nodes: usize) -> &Round {
        let mut alike = place;
        let depth = if self.cell.tree { 2 } else { nodes };
        let mut said = Vec::new();
        self.world.said(place, &mut said);
        if !self.world.sampling.has_penalties() && said.len() > 2 && depth + 2 < self.world.length {
            // Only the last two tokens matter: the place where nothing else has been said stands for all.
            alike = self.world.walk(0, &said[said.len() - 2..]);
        }
        let (cell, world) = (self.cell, self.world);
        self.known.entry((alike, nodes)).or_insert_with(|| round(cell, world, alike, nodes))
    }
}

fn round(cell: &Cell, world: &World, place: Place, nodes: usize) -> Round {
    if cell.rule == "coupled" && cell.kind == Kind::Shared {
        let mut shared = Shared { cell, world, nodes, place, out: BTreeMap::new() };
        shared.descend(&mut Vec::new(), &mut Vec::new(), 1.0);
        return shared.out.into_iter().collect();
    }
    let rule: &dyn RatioRule = match cell.rule {
        "token" => &Token,
        "block" => &Block,
        "traversal" => &Traversal,
        _ => &Matching,
    };
    let target = |path: &[TokenId]| -> Law { world.p(world.walk(place, path)).clone() };
    let draft = |builder: &mut redline::spec::Builder<'_>, choices: &mut dyn Choices| {
        enumerable(cell, world, place, builder, choices)
    };
    let Emitted { outcomes, .. } = emitted(rule, nodes, &target, draft).unwrap();
    outcomes.into_iter().collect()
}

/// Draft and target with the same noise: at each node the closed form of one race.
struct Shared<'a> {
    cell: &'a Cell,
    world: &'a World,
    nodes: usize,
    place: Place,
    out: BTreeMap<(usize, Vec<TokenId>), f64>,
}

impl Shared<'_> {
    fn descend(&mut self, ranks: &mut Vec<usize>, path: &mut Vec<TokenId>, mass: f64) {
        let at = self.world.walk(self.place, path);
        let (p, q) = (self.world.p(at).clone(), self.world.q(at).clone());
        let width = width(self.cell, self.nodes, ranks, path);
        for (token, mut rest) in p.iter() {
            path.push(token);
            for rank in 0..width {
                let kept = child(&p, &q, self.world.vocab, token, rank);
                if kept > 0.0 {
                    rest -= kept;
                    ranks.push(rank);
                    self.descend(ranks, path, mass * kept);
                    ranks.pop();
                }
            }
            if rest > 1e-15 {
                *self.out.entry((ranks.len(), path.clone())).or_default() += mass * rest;
            }
            path.pop();
        }
    }
}

/// Accepted drafts of the three drafted rounds, [`NO_ROUND`] for one that no longer was; one digit each.
pub type Kept = u32;

/// The law of (place after the prompt's round and so many rounds, drafts kept in each), for zero to three rounds. Where
/// something is too rare to be told apart, it is left out, and so is all that follows from it.
pub fn three_rounds(
    cell: &Cell,
    world: &World,
    rare: f64,
) -> [BTreeMap<(Place, Kept), f64>; DRAFTED + 1] {
    let mut rounds = Rounds::new(cell, world);
    let mut laws: [BTreeMap<(Place, Kept), f64>; DRAFTED + 1] = Default::default();
    // The prompt's own round carries no drafts.
    laws[0] = world.p(0).iter().map(|(token, p)| ((world.step(0, token), 0), p)).collect();
    let end = world.first(world.length);
    let mut said = Vec::new();
    for done in 0..DRAFTED {
        let (before, after) = laws.split_at_mut(done + 1);
        for (&(place, kept), &mass) in before[done].iter().filter(|(_, mass)| **mass >= rare) {
            if place >= end {
                *after[0].entry((place, kept * 8 + NO_ROUND)).or_default() += mass;
                continue;
            }
            world.said(place, &mut said);
            let last = if done == 0 { 1 } else { (kept % 8) as usize + 1 };
            let nodes = cell.granted(world.length - said.len(), last);
            for ((accepted, tokens), p) in rounds.at(place, nodes) {
                let key = (world.walk(place, tokens), kept * 8 + *accepted as Kept);
                *after[0].entry(key).or_default() += mass * p;
            }
        }
    }
    laws
}
