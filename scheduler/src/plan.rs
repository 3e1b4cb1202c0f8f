//! One step, as plain data. Buffers are reused from step to step.

use crate::SeqId;
use crate::roster::Slot;
use redline_kv_cache::{BlockCopy, Lane};

/// Rows of the target's pass for one sequence.
///
/// It feeds `tokens[start..start + len]`, then `drafts` draft nodes; node `i` goes to slot
/// `start + len + i`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// Whose.
    pub seq: SeqId,
    /// Position of the first token fed: the sequence's `computed`.
    pub start: usize,
    /// Committed tokens fed, at least 1.
    pub len: usize,
    /// Whether it reaches the last committed token, and so yields at least one new one.
    pub round: bool,
    /// Draft nodes: as granted, after `settle` as proposed. 0 unless `round`.
    pub drafts: usize,
}

/// Rows of a drafter's pass over committed tokens, to fill its own lane.
///
/// It feeds `tokens[start..start + len]`. If that reaches the last committed token and the
/// sequence's span has drafts, the drafter goes on to draft from its last row. If a drafter could
/// not do it, the engine takes the entry out of the plan (or cuts its `len`) before `commit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FillSpan {
    /// Whose. At most one per sequence, and only beside a round.
    pub seq: SeqId,
    /// The lane to fill.
    pub lane: Lane,
    /// The lane's watermark.
    pub start: usize,
    /// Tokens, at least 1.
    pub len: usize,
}

/// What to compute in one step.
#[derive(Debug, Default)]
pub struct StepPlan {
    /// Number of the step.
    pub step: u64,
    /// Rows of the target's pass, at most one span per sequence: rounds in order of rank, then
    /// prefill in order of rank, then the newly admitted.
    pub spans: Vec<Span>,
    /// Rows of drafters' passes.
    pub fills: Vec<FillSpan>,
    /// To be done in memory, in every lane and in this order, before anything of this step, the
    /// drafters included, reads or writes the cache.
    pub copies: Vec<BlockCopy>,
    /// Sequences that lost their blocks in this step's planning and wait again.
    pub preempted: Vec<SeqId>,
    /// Sequences that came into the batch.
    pub admitted: Vec<SeqId>,
    /// Per span, which sequence exactly is meant.
    pub(crate) tickets: Vec<Ticket>,
}

/// A sequence as it was when the plan was made: void after preemption, cancel or reuse of the id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) slot: Slot,
    pub(crate) admission: u64,
}

impl StepPlan {
    /// Whether there is nothing to compute.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// All rows of the step, as the token budget counts them: committed tokens, drafts, fills.
    pub fn rows(&self) -> usize {
        let spans: usize = self.spans.iter().map(|span| span.len + span.drafts).sum();
        spans + self.fills.iter().map(|fill| fill.len).sum::<usize>()
    }

    /// Draft nodes of the step.
    pub fn drafts(&self) -> usize {
        self.spans.iter().map(|span| span.drafts).sum()
    }

    pub(crate) fn clear(&mut self, step: u64) {
        let Self { step: number, spans, fills, copies, preempted, admitted, tickets } = self;
        *number = step;
        spans.clear();
        fills.clear();
        copies.clear();
        preempted.clear();
        admitted.clear();
        tickets.clear();
    }

    pub(crate) fn push(&mut self, span: Span, ticket: Ticket) {
        self.spans.push(span);
        self.tickets.push(ticket);
    }
}
