//! Who grants drafts in a world: a whim that asks for far too much, a fixed length, or `spec`'s controller, fitted to
//! the scheduler as the engine does it and fed with virtual times.

use redline_scheduler::{Done, DraftBudget, INLINE_FILL_MAX, Room, RoundView, SeqId, StepPlan};
use redline_spec::{Candidate, Controller, Proposal, StepTiming};

use super::jobs::Jobs;
use super::rng::{Rng, Stream};
use super::rule::Broken;
use super::shape::Grants;

/// What lasts from step to step.
#[derive(Debug)]
pub(crate) struct Granter {
    kind: Grants,
    seed: u64,
    controller: Controller,
    candidates: Vec<Candidate>,
    /// Virtual seconds of a target pass: fixed, per row, per token of context; the same of a draft pass.
    costs: [f64; 6],
    seqs: usize,
    context_tokens: usize,
}

impl Granter {
    pub(crate) fn new(kind: Grants, seed: u64) -> Self {
        let rng = &mut Rng::new(seed, Stream::Times, 0);
        let mut cost = |most: f64| most * rng.unit().powi(2);
        Self {
            kind,
            seed,
            controller: Controller::default(),
            candidates: Vec::new(),
            costs: [cost(1e-2), cost(2e-3), cost(1e-5), cost(1e-3), cost(2e-4), cost(1e-6)],
            seqs: 0,
            context_tokens: 0,
        }
    }

    /// The budget of one step.
    pub(crate) fn at<'a>(&'a mut self, jobs: &'a Jobs, step: u64) -> StepGrants<'a> {
        let rng = Rng::new(self.seed, Stream::Budget, step);
        StepGrants { granter: self, jobs, rng, broken: None }
    }

    /// Acceptance, counted after truncation, and virtual times: now and then nonsense.
    pub(crate) fn observe(
        &mut self,
        (plan, done, step): (&StepPlan, &Done, u64),
        proposals: &[Proposal],
        passes: bool,
    ) {
        if self.kind != Grants::Auto {
            return;
        }
        let (mut deepest, mut drafted) = (0, 0);
        for (commit, proposal) in done.commits.iter().zip(proposals) {
            let depth = proposal.nodes().iter().map(|node| node.depth as usize).max().unwrap_or(0);
            deepest = deepest.max(depth);
            drafted += proposal.len();
            if depth > 0 && commit.kept > 0 {
                let judged = if commit.finish.is_some() { commit.accepted } else { depth };
                self.controller.observe_round(commit.seq.0, judged, commit.accepted);
            }
        }
        let fills: usize = plan.fills.iter().map(|fill| fill.len).sum();
        let rows = plan.spans.iter().map(|span| span.len).sum::<usize>() + drafted;
        let [fixed, row, context, draft, draft_row, draft_context] = self.costs;
        let tokens = self.context_tokens as f64;
        let rng = &mut Rng::new(self.seed, Stream::Times, step);
        let noise = 0.8 + 0.4 * rng.unit();
        let strange = [f64::NAN, 0.0, f64::INFINITY, -1.0, 1e9];
        let passes = if passes && fills > 0 { deepest.max(1) } else { 0 };
        let draft_s = passes as f64 * (draft + draft_context * tokens) + draft_row * fills as f64;
        let verify_s = noise * (fixed + row * rows as f64 + context * tokens);
        self.controller.observe_time(&StepTiming {
            seqs: self.seqs,
            rows,
            context_tokens: self.context_tokens,
            draft_passes: passes,
            draft_tokens: fills + drafted,
            draft_s: if rng.one_in(64) { rng.pick(&strange) } else { noise * draft_s },
            verify_s: if rng.one_in(64) { rng.pick(&strange) } else { verify_s },
        });
        (self.seqs, self.context_tokens) = (0, 0);
    }

    pub(crate) fn forget(&mut self, seq: SeqId) {
        self.controller.forget(seq.0);
    }
}

/// [`DraftBudget`] of one step. It also looks at what it is shown.
pub(crate) struct StepGrants<'a> {
    granter: &'a mut Granter,
    jobs: &'a Jobs,
    rng: Rng,
    pub(crate) broken: Option<Broken>,
}

impl StepGrants<'_> {
    fn check(&mut self, holds: bool, rule: &str) {
        if !holds && self.broken.is_none() {
            self.broken = Some(Broken(rule.to_owned()));
        }
    }

    fn candidate(&self, round: &RoundView) -> Candidate {
        let job = self.jobs.get(round.seq);
        Candidate {
            seq: round.seq.0,
            drafter: job.map_or(0, |job| job.kind as usize),
            passes: job.is_some_and(|job| job.kind.lane().is_some()),
            context: round.context,
            nodes: round.nodes,
            remaining: round.remaining,
            lane_gap: round.lane_gap,
            pinned: job.and_then(|job| job.pinned),
            tree: None,
        }
    }

    fn auto(&mut self, rounds: &[RoundView], room: Room, grants: &mut Vec<usize>) {
        let rows = room.other_rows + rounds.iter().map(|round| round.rows).sum::<usize>();
        let mut candidates = std::mem::take(&mut self.granter.candidates);
        candidates.clear();
        candidates.extend(rounds.iter().map(|round| self.candidate(round)));
        self.granter.controller.allot(rows, room.slots, &candidates, grants);
        self.granter.candidates = candidates;
        self.check(grants.len() == rounds.len(), "the controller grants to every round");
        let within = grants.iter().zip(rounds).all(|(&grant, round)| grant <= round.nodes);
        self.check(within, "the controller grants no more than a round can use");
        let sum = grants.iter().sum::<usize>();
        self.check(sum <= room.slots, "the controller grants no more than there is room for");
    }
}

impl DraftBudget for StepGrants<'_> {
    fn allot(&mut self, rounds: &[RoundView], room: Room, grants: &mut Vec<usize>) {
        self.check(grants.is_empty(), "grants come empty");
        self.granter.seqs = rounds.len();
        self.granter.context_tokens = rounds.iter().map(|round| round.context).sum();
        for round in rounds {
            let sane = round.nodes < round.remaining && round.rows == 1;
            self.check(sane, "a round that may draft feeds one row and can use what it may keep");
        }
        match self.granter.kind {
            Grants::None => grants.resize(rounds.len(), 0),
            Grants::Fixed(length) => grants.resize(rounds.len(), length),
            Grants::Auto => self.auto(rounds, room, grants),
            Grants::Whim => {
                for round in rounds {
                    grants.push(match self.rng.below(4) {
                        0 => self.rng.below(round.nodes + 1),
                        1 => room.slots + round.nodes + 1,
                        _ => round.nodes,
                    });
                }
                if self.rng.one_in(16) {
                    grants.pop();
                }
            }
        }
    }

    fn invest(&mut self, round: &RoundView) -> bool {
        let far = round.nodes > 0 && round.lane_gap > INLINE_FILL_MAX;
        self.check(far, "only lanes far behind are an investment");
        match self.granter.kind {
            Grants::None => false,
            Grants::Fixed(length) => length > 0,
            Grants::Whim => !self.rng.one_in(3),
            Grants::Auto => {
                let candidate = self.candidate(round);
                self.granter.controller.invest(&candidate)
            }
        }
    }
}
