//! Between the plan and the drafter: offers before planning, jobs and proposals after it.
//!
//! Proposals line up with the plan's spans. A drafter's mistake (an error, a token that does not exist) costs the
//! one request it was made for; its round is still computed, without drafts, so that the batch stays as planned.

use redline_kv_cache::{BlockCopy, Lane, SlotMove};
use redline_scheduler::{Commit, Done, Offer, Scheduler, SeqId, StepPlan};
use redline_spec::{CopyOp, DraftError, DraftJob, Drafter, DrawMode, Proposal};

use tracing::warn;

use crate::budget::Budget;
use crate::error::{RequestError, StepError};
use crate::live::LiveRequests;

/// The lane of a drafter that keeps KV of its own.
const DRAFT_LANE: Lane = Lane(1);

/// The engine's drafter, if it has one, and what it made of the current plan.
pub(crate) struct Drafters {
    drafter: Option<Box<dyn Drafter>>,
    lane: Option<Lane>,
    /// Positions the drafter can hold.
    context: usize,
    /// Entries of the target's vocabulary.
    vocab: usize,
    offers: Vec<Offer>,
    /// One per span of the plan.
    proposals: Vec<Proposal>,
    /// Nodes of each proposal.
    shapes: Vec<usize>,
    /// The drafter's job of each span whose lane it has written.
    jobs: Vec<Option<usize>>,
    out: Vec<Result<Proposal, DraftError>>,
    tables: Vec<u32>,
    ops: Vec<CopyOp>,
}

impl Drafters {
    pub(crate) fn new(drafter: Option<Box<dyn Drafter>>, vocab: usize) -> Self {
        let need = drafter.as_ref().and_then(|drafter| drafter.lane());
        Self {
            drafter,
            lane: need.map(|_| DRAFT_LANE),
            context: need.map_or(usize::MAX, |need| need.max_context),
            vocab,
            offers: Vec::new(),
            proposals: Vec::new(),
            shapes: Vec::new(),
            jobs: Vec::new(),
            out: Vec::new(),
            tables: Vec::new(),
            ops: Vec::new(),
        }
    }

    pub(crate) fn offers(&self) -> &[Offer] {
        &self.offers
    }

    pub(crate) fn proposals(&self) -> &[Proposal] {
        &self.proposals
    }

    pub(crate) fn shapes(&self) -> &[usize] {
        &self.shapes
    }

    /// How many leading draft slots count as held by the drafter's lane of `span`, if `path` is kept: all of the
    /// path's nodes below are, up to the first that is not. Other nodes do not matter.
    pub(crate) fn fed(&self, span: usize, path: &[u32]) -> usize {
        let (Some(drafter), Some(job)) = (&self.drafter, self.jobs[span]) else { return 0 };
        let held = path.iter().take_while(|&&node| drafter.holds(job, node));
        held.last().map_or(0, |&node| node as usize + 1)
    }

    /// Asks the drafter what it could propose for each running sequence.
    pub(crate) fn offer(&mut self, scheduler: &Scheduler) {
        self.offers.clear();
        let Some(drafter) = self.drafter.as_mut() else { return };
        for sequence in scheduler.running() {
            let nodes = match sequence.draft_cap() {
                0 => 0,
                _ => drafter.offer(sequence.id().0, sequence.tokens()),
            };
            if nodes > 0 {
                let (seq, lane) = (sequence.id(), self.lane);
                self.offers.push(Offer { seq, nodes, lane, draft_context: self.context });
            }
        }
    }

    /// Has the drafter fill its lane and propose as the plan says.
    pub(crate) fn propose(
        &mut self,
        plan: &mut StepPlan,
        scheduler: &Scheduler,
        live: &mut LiveRequests,
        (mode, budget): (DrawMode, &Budget),
    ) {
        let spans = plan.spans.len();
        self.proposals.resize_with(spans.max(self.proposals.len()), Proposal::new);
        self.proposals.iter_mut().for_each(Proposal::clear);
        self.jobs.clear();
        self.jobs.resize(spans, None);
        self.run_jobs(plan, scheduler, live, (mode, budget));
        self.shapes.clear();
        self.shapes.extend(self.proposals[..spans].iter().map(Proposal::len));
    }

    fn run_jobs(
        &mut self,
        plan: &mut StepPlan,
        scheduler: &Scheduler,
        live: &mut LiveRequests,
        how: (DrawMode, &Budget),
    ) {
        let Some(drafter) = self.drafter.as_mut() else { return };
        let wanted = jobs_of(plan, scheduler, live, &mut self.tables, how);
        if wanted.is_empty() {
            return;
        }
        let (spans, jobs): (Vec<usize>, Vec<DraftJob<'_>>) = wanted.into_iter().unzip();
        self.out.clear();
        self.out.extend(spans.iter().map(|&span| Ok(std::mem::take(&mut self.proposals[span]))));
        drafter.propose(&jobs, &mut self.out);
        let budgets: Vec<usize> = jobs.iter().map(|job| job.budget).collect();
        drop(jobs);
        for (job, outcome) in self.out.drain(..).enumerate() {
            let seq = plan.spans[spans[job]].seq;
            if let Err(error @ DraftError::Pass(_)) = &outcome {
                warn!(drafter = drafter.name(), %error, "a round goes without drafts");
                plan.fills.retain(|fill| fill.seq != seq);
                continue;
            }
            let failed = |error| (seq, error);
            let checked = check(outcome, budgets[job], self.vocab, drafter.name());
            match checked.map_err(failed) {
                Ok(proposal) => {
                    self.proposals[spans[job]] = proposal;
                    self.jobs[spans[job]] = Some(job);
                }
                Err((seq, error)) => {
                    live.fail(seq, error);
                    plan.fills.retain(|fill| fill.seq != seq);
                }
            }
        }
    }

    /// Copies and moves within the drafter's lane.
    pub(crate) fn relocate(
        &mut self,
        copies: &[BlockCopy],
        moves: &[SlotMove],
    ) -> Result<(), StepError> {
        let Some(drafter) = self.drafter.as_mut().filter(|_| self.lane.is_some()) else {
            return Ok(());
        };
        if copies.is_empty() && moves.is_empty() {
            return Ok(());
        }
        self.ops.clear();
        self.ops.extend(copies.iter().map(|copy| CopyOp {
            from_block: copy.from.0,
            from_slot: 0,
            to_block: copy.to.0,
            to_slot: 0,
            slots: copy.slots,
        }));
        self.ops.extend(moves.iter().map(|at| CopyOp {
            from_block: at.from_block.0,
            from_slot: at.from_slot,
            to_block: at.to_block.0,
            to_slot: at.to_slot,
            slots: 1,
        }));
        drafter.relocate(&self.ops).map_err(StepError::Draft)
    }

    /// Tells the drafter what became of each round.
    pub(crate) fn observe(&mut self, scheduler: &Scheduler, done: &Done) {
        let Some(drafter) = self.drafter.as_mut() else { return };
        for (commit, proposal) in done.commits.iter().zip(&self.proposals) {
            let Commit { seq, kept, accepted, finish } = *commit;
            match scheduler.get(seq) {
                Some(sequence) if kept > 0 && finish.is_none() => {
                    drafter.observe(seq.0, sequence.tokens(), proposal.len(), accepted);
                }
                _ => {}
            }
        }
    }

    pub(crate) fn forget(&mut self, seq: SeqId) {
        if let Some(drafter) = self.drafter.as_mut() {
            drafter.forget(seq.0);
        }
    }
}

/// A drafter's answer, checked against what it was allowed and what exists.
fn check(
    outcome: Result<Proposal, DraftError>,
    budget: usize,
    vocab: usize,
    name: &str,
) -> Result<Proposal, RequestError> {
    let drafter = || name.to_owned();
    let proposal = outcome.map_err(|source| RequestError::Draft { drafter: drafter(), source })?;
    if proposal.len() > budget {
        return Err(RequestError::DraftTooLong {
            drafter: drafter(),
            nodes: proposal.len(),
            budget,
        });
    }
    match proposal.check(vocab) {
        Ok(()) => Ok(proposal),
        Err(source) => {
            Err(RequestError::Draft { drafter: drafter(), source: DraftError::Proposal(source) })
        }
    }
}

/// The jobs of a plan with the index of the span each belongs to: rounds that were granted drafts, and
/// rounds whose lane is to be filled. A plan's short fills come before its long ones.
fn jobs_of<'a>(
    plan: &StepPlan,
    scheduler: &'a Scheduler,
    live: &'a LiveRequests,
    tables: &'a mut Vec<u32>,
    (mode, budgets): (DrawMode, &'a Budget),
) -> Vec<(usize, DraftJob<'a>)> {
    tables.clear();
    let mut found = Vec::new();
    let mut fills = 0;
    for (index, span) in plan.spans.iter().enumerate() {
        let fill = plan.fills.iter().find(|fill| fill.seq == span.seq);
        if span.drafts == 0 && fill.is_none() {
            continue;
        }
        let (Some(sequence), Some(state)) = (scheduler.get(span.seq), live.get(span.seq)) else {
            continue;
        };
        let start = tables.len();
        if fill.is_some() {
            fills += 1;
            tables.extend(sequence.kv().table().iter().map(|block| block.0));
        }
        let feed = fill.map_or(0..0, |fill| fill.start..fill.start + fill.len);
        found.push((index, span.drafts, sequence, state, feed, start..tables.len()));
    }
    assert_eq!(fills, plan.fills.len(), "every fill belongs to a round of the plan");
    let tables = &*tables;
    let job = |(index, budget, sequence, state, fill, table)| {
        let sequence: &'a redline_scheduler::Sequence = sequence;
        let state: &'a crate::live::Live = state;
        let table: std::ops::Range<usize> = table;
        let shape = budgets.shape(index, sequence.id());
        let job = DraftJob {
            seq: sequence.id().0,
            tokens: sequence.tokens(),
            budget,
            shape: shape.get(..budget).unwrap_or(shape),
            mode,
            draws: state.draws,
            sampling: &state.sampling,
            history: &state.history,
            constraint: state.constraint.as_deref(),
            ends: &state.eos,
            table: &tables[table],
            fill,
        };
        (index, job)
    };
    found.into_iter().map(job).collect()
}
