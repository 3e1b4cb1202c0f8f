//! Fits `spec`'s controller to the scheduler's [`DraftBudget`], and holds the fixed lengths beside it.

use redline_scheduler::{Done, DraftBudget, Room, RoundView, SeqId, StepPlan};
use redline_spec::{Candidate, Controller, Proposal, StepTiming};
use rustc_hash::FxHashMap;

/// How many draft tokens a round gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DraftLength {
    /// The controller decides per sequence and step, from measured acceptance and times.
    Auto,
    /// Always as many as this, where the drafter, the context and the token budget allow it. A request may
    /// still ask for fewer.
    Fixed(usize),
}

/// Who decides how many draft tokens a round gets.
pub enum DraftPolicy {
    /// The engine, by a fixed length or its controller.
    Length(DraftLength),
    /// An embedder's own [`DraftBudget`].
    Custom(Box<dyn DraftBudget + Send>),
}

impl From<DraftLength> for DraftPolicy {
    fn from(length: DraftLength) -> Self {
        Self::Length(length)
    }
}

/// The engine's [`DraftBudget`].
pub(crate) struct Budget {
    policy: DraftPolicy,
    controller: Controller,
    /// Whether drafting costs passes of a model.
    passes: bool,
    candidates: Vec<Candidate>,
    /// Lengths that requests fixed for themselves.
    pins: FxHashMap<SeqId, usize>,
    /// What the plan under way was made of, for the timing that follows it.
    context_tokens: usize,
    seqs: usize,
}

impl Budget {
    /// `passes`: whether drafting costs passes of a model.
    pub(crate) fn new(policy: DraftPolicy, passes: bool) -> Self {
        Self {
            policy,
            controller: Controller::default(),
            passes,
            candidates: Vec::new(),
            pins: FxHashMap::default(),
            context_tokens: 0,
            seqs: 0,
        }
    }

    /// Gives `seq` rounds of `n` drafts, whatever the policy, where the drafter, the context and the token budget
    /// allow it. An embedder's own budget decides for itself.
    pub(crate) fn pin(&mut self, seq: SeqId, n: usize) {
        self.pins.insert(seq, n);
    }

    /// Acceptance, counted after truncation, and measured times in seconds: of drafting, and of the rest of the step.
    pub(crate) fn observe(
        &mut self,
        plan: &StepPlan,
        done: &Done,
        proposals: &[Proposal],
        (draft_s, rest_s): (f64, f64),
    ) {
        let (mut deepest, mut drafted, mut fed_drafts) = (0, 0, 0);
        for (commit, proposal) in done.commits.iter().zip(proposals) {
            let depth = depth(proposal);
            deepest = deepest.max(depth);
            drafted += proposal.len();
            // The first pass feeds the fills and gives the first drafts; the last drafts are not fed.
            fed_drafts += proposal.nodes().iter().filter(|n| (n.depth as usize) < depth).count();
            // A round cut short by a stop says nothing about the drafts behind the stop.
            if !proposal.is_empty() && commit.kept > 0 {
                let judged = if commit.finish.is_some() { commit.accepted } else { depth };
                self.controller.observe_round(commit.seq.0, judged, commit.accepted);
            }
        }
        let fills: usize = plan.fills.iter().map(|fill| fill.len).sum();
        let passes = if fills == 0 { 0 } else { deepest.max(1) };
        self.controller.observe_time(&StepTiming {
            seqs: self.seqs,
            rows: plan.spans.iter().map(|span| span.len).sum::<usize>() + drafted,
            context_tokens: self.context_tokens,
            draft_passes: if self.passes { passes } else { 0 },
            draft_tokens: if self.passes { fills + fed_drafts } else { 0 },
            draft_s: if self.passes { draft_s } else { 0.0 },
            verify_s: if self.passes { rest_s } else { rest_s + draft_s },
        });
        self.seqs = 0;
        self.context_tokens = 0;
    }

    pub(crate) fn forget(&mut self, seq: SeqId) {
        self.pins.remove(&seq);
        self.controller.forget(seq.0);
    }

    fn candidate(&self, round: &RoundView) -> Candidate {
        Candidate {
            seq: round.seq.0,
            drafter: 0,
            passes: self.passes,
            context: round.context,
            nodes: round.nodes,
            remaining: round.remaining,
            lane_gap: round.lane_gap,
            pinned: self.pins.get(&round.seq).copied(),
        }
    }
}

/// The longest path of a proposal.
fn depth(proposal: &Proposal) -> usize {
    proposal.nodes().iter().map(|node| node.depth as usize).max().unwrap_or(0)
}

impl DraftBudget for Budget {
    fn allot(&mut self, rounds: &[RoundView], room: Room, grants: &mut Vec<usize>) {
        self.seqs = rounds.len();
        self.context_tokens = rounds.iter().map(|round| round.context).sum();
        match &mut self.policy {
            DraftPolicy::Custom(own) => own.allot(rounds, room, grants),
            &mut DraftPolicy::Length(DraftLength::Fixed(length)) => {
                // Depth by depth, so that a tight budget is shared evenly.
                let pins = &self.pins;
                let wanted = |round: &RoundView| {
                    pins.get(&round.seq).copied().unwrap_or(length).min(round.nodes)
                };
                let longest = rounds.iter().map(wanted).max().unwrap_or(0);
                let mut left = room.slots;
                grants.resize(rounds.len(), 0);
                for depth in 0..longest {
                    for (grant, round) in grants.iter_mut().zip(rounds) {
                        if left > 0 && wanted(round) > depth {
                            *grant += 1;
                            left -= 1;
                        }
                    }
                }
            }
            DraftPolicy::Length(DraftLength::Auto) => {
                let base_rows =
                    room.other_rows + rounds.iter().map(|round| round.rows).sum::<usize>();
                let mut candidates = std::mem::take(&mut self.candidates);
                candidates.clear();
                candidates.extend(rounds.iter().map(|round| self.candidate(round)));
                self.controller.allot(base_rows, room.slots, &candidates, grants);
                self.candidates = candidates;
            }
        }
    }

    fn invest(&mut self, round: &RoundView) -> bool {
        match &mut self.policy {
            DraftPolicy::Custom(own) => own.invest(round),
            &mut DraftPolicy::Length(DraftLength::Fixed(length)) => {
                self.pins.get(&round.seq).copied().unwrap_or(length) > 0
            }
            DraftPolicy::Length(DraftLength::Auto) => {
                let candidate = self.candidate(round);
                self.controller.invest(&candidate)
            }
        }
    }
}
