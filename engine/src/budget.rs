//! Fits `spec`'s controller to the scheduler's [`DraftBudget`], and holds the fixed lengths beside it.

use std::ops::Range;

use redline_scheduler::{Done, DraftBudget, Outcome, Room, RoundView, SeqId, StepPlan};
use redline_spec::{
    Candidate, Controller, DrawMode, Place, Proposal, StepTiming, TreeLimits, nominal_shape,
};
use rustc_hash::FxHashMap;

use crate::draft_policy::{DraftLength, DraftPolicy, Drafting, Tree};

/// Nodes a tree may have where nothing else limits it.
const TREE_NODES_MAX: usize = 512;

/// The engine's [`DraftBudget`].
pub(crate) struct Budget {
    policy: DraftPolicy,
    controller: Controller,
    /// Whether drafting costs passes of a model.
    passes: bool,
    candidates: Vec<Candidate>,
    /// Whose trees may spread how far.
    tree: Option<TreeLimits>,
    /// The shape of every round, its head for fewer nodes, if its size was given: the same every time.
    nominal: Vec<Place>,
    /// The shapes of the plan under way, one after the other.
    places: Vec<Place>,
    /// One for each round of the plan.
    shapes: Vec<(SeqId, Range<usize>)>,
    /// Lengths that requests fixed for themselves.
    pins: FxHashMap<SeqId, usize>,
    /// What the plan under way was made of, for the timing that follows it.
    context_tokens: usize,
    seqs: usize,
}

impl Budget {
    /// `passes`: whether drafting costs passes of a model.
    pub(crate) fn new(policy: DraftPolicy, passes: bool) -> Self {
        let tree = policy.tree();
        let limits = tree.limits();
        let nominal = match (tree, limits) {
            (Tree::Sized { .. }, Some(limits)) => nominal_shape(limits, TREE_NODES_MAX),
            _ => Vec::new(),
        };
        Self {
            policy,
            controller: Controller::default(),
            passes,
            candidates: Vec::new(),
            tree: limits,
            nominal,
            places: Vec::new(),
            shapes: Vec::new(),
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

    /// How a law is to be drawn from under a rule that prefers `rule`.
    pub(crate) fn draw_mode(&self, rule: DrawMode) -> DrawMode {
        self.policy.draw().mode(rule)
    }

    /// Where the drafts of round `index` of the plan are to go, which is `seq`'s; empty for a chain.
    pub(crate) fn shape(&self, index: usize, seq: SeqId) -> &[Place] {
        let own = self.shapes.get(index).filter(|(owner, _)| *owner == seq);
        own.map_or(&[], |(_, range)| &self.places[range.clone()])
    }

    /// Chooses the shapes of what was granted.
    fn plan_shapes(&mut self, rounds: &[RoundView], grants: &[usize]) {
        self.places.clear();
        self.shapes.clear();
        if self.tree.is_none() {
            return;
        }
        for (round, &grant) in rounds.iter().zip(grants) {
            let start = self.places.len();
            let candidate = self.candidate(round);
            let by_size = candidate.pinned.is_some() && !self.nominal.is_empty();
            if by_size {
                self.places.extend(self.nominal.iter().take(grant));
            } else if grant > 0 {
                self.controller.shape(&candidate, grant, rounds.len(), &mut self.places);
            }
            self.shapes.push((round.seq, start..self.places.len()));
        }
    }

    /// Nodes that a round can use at most.
    fn usable(&self, round: &RoundView) -> usize {
        match self.nominal.len() {
            0 => round.nodes,
            size => round.nodes.min(size),
        }
    }

    /// The number of drafts that is fixed for a round, by its request or by policy.
    fn fixed(&self, seq: SeqId) -> Option<usize> {
        let by_policy = match &self.policy {
            DraftPolicy::Engine(Drafting { length: DraftLength::Fixed(length), .. }) => {
                Some(*length)
            }
            _ => None,
        };
        self.pins.get(&seq).copied().or(by_policy)
    }

    /// Acceptance, counted after truncation, and measured times in seconds: of drafting, and of the rest of the step.
    pub(crate) fn observe(
        &mut self,
        plan: &StepPlan,
        done: &Done,
        (proposals, outcomes): (&[Proposal], &[Outcome]),
        (draft_s, rest_s): (f64, f64),
    ) {
        let (mut deepest, mut drafted, mut fed_drafts) = (0, 0, 0);
        for ((commit, proposal), outcome) in done.commits.iter().zip(proposals).zip(outcomes) {
            deepest = deepest.max(depth(proposal));
            drafted += proposal.len();
            // The first pass feeds the fills and gives the first drafts; who has no child is not fed.
            let parent = |node: u32| proposal.origin(Some(node)).is_some();
            fed_drafts += (0..proposal.len() as u32).filter(|&node| parent(node)).count();
            let Outcome::Round { path, .. } = outcome else { continue };
            if commit.kept > 0 {
                let path = &path[..commit.accepted];
                let levels = judged(proposal, path, commit.finish.is_some());
                self.controller.observe_levels(commit.seq.0, levels);
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
            nodes: self.usable(round),
            remaining: round.remaining,
            lane_gap: round.lane_gap,
            pinned: self.fixed(round.seq),
            tree: self.tree,
        }
    }
}

/// What a round taught: for the root and each node of the kept `path` that had children, how many, and the
/// rank of the one on the path. A round cut short by a stop says nothing about what is behind the stop.
fn judged<'a>(
    proposal: &'a Proposal,
    path: &'a [u32],
    stopped: bool,
) -> impl Iterator<Item = (usize, Option<usize>)> + 'a {
    let above = std::iter::once(None).chain(path.iter().copied().map(Some));
    let levels = above.enumerate().take(path.len() + usize::from(!stopped));
    let level = move |(depth, parent): (usize, Option<u32>)| {
        let kept = path.get(depth);
        let rank = proposal.children(parent).position(|child| Some(&child) == kept);
        (proposal.children(parent).count(), rank)
    };
    levels.map(level).filter(|&(children, _)| children > 0)
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
            DraftPolicy::Engine(Drafting { length: DraftLength::Fixed(_), .. }) => {
                // Node by node, so that a tight budget is shared evenly.
                let wanted = |round: &RoundView| {
                    self.fixed(round.seq).unwrap_or_default().min(self.usable(round))
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
            DraftPolicy::Engine(Drafting { length: DraftLength::Auto, .. }) => {
                let base_rows =
                    room.other_rows + rounds.iter().map(|round| round.rows).sum::<usize>();
                let mut candidates = std::mem::take(&mut self.candidates);
                candidates.clear();
                candidates.extend(rounds.iter().map(|round| self.candidate(round)));
                self.controller.allot(base_rows, room.slots, &candidates, grants);
                self.candidates = candidates;
            }
        }
        self.plan_shapes(rounds, grants);
    }

    fn invest(&mut self, round: &RoundView) -> bool {
        match &mut self.policy {
            DraftPolicy::Custom(own) => own.invest(round),
            DraftPolicy::Engine(Drafting { length: DraftLength::Fixed(_), .. }) => {
                self.fixed(round.seq).is_some_and(|length| length > 0)
            }
            DraftPolicy::Engine(Drafting { length: DraftLength::Auto, .. }) => {
                let candidate = self.candidate(round);
                self.controller.invest(&candidate)
            }
        }
    }
}
