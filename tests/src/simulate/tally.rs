//! What is counted in a run, and added up over episodes.

use super::laws::Tally;
use super::rng::mix;

/// Counts of one episode, or of many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) steps: u64,
    pub(crate) requests: u64,
    pub(crate) cancelled: u64,
    pub(crate) expired: u64,
    pub(crate) forked: u64,
    pub(crate) failed: u64,
    pub(crate) finished: u64,
    pub(crate) tokens: u64,
    /// Tokens that were drafts.
    pub(crate) accepted: u64,
    pub(crate) drafted: u64,
    /// Preemptions, the scheduler's own and forced ones.
    pub(crate) preemptions: u64,
    pub(crate) steps_with_drafts: u64,
    pub(crate) steps_with_preemption: u64,
    /// Sequences in the batch, summed over steps.
    pub(crate) running: u64,
    pub(crate) abandoned: u64,
    pub(crate) moves: u64,
    pub(crate) copies: u64,
    pub(crate) cached_tokens: u64,
    /// Hash of all decisions, in order.
    pub(crate) trace: u64,
    pub(crate) laws: Tally,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.laws.add(&other.laws);
        self.trace = mix(self.trace.rotate_left(1) ^ other.trace);
        for (sum, n) in self.numbers().into_iter().zip(other.clone().numbers()) {
            *sum += *n;
        }
    }

    fn numbers(&mut self) -> [&mut u64; 18] {
        [
            &mut self.steps,
            &mut self.requests,
            &mut self.cancelled,
            &mut self.expired,
            &mut self.forked,
            &mut self.failed,
            &mut self.finished,
            &mut self.tokens,
            &mut self.accepted,
            &mut self.drafted,
            &mut self.preemptions,
            &mut self.steps_with_drafts,
            &mut self.steps_with_preemption,
            &mut self.running,
            &mut self.abandoned,
            &mut self.moves,
            &mut self.copies,
            &mut self.cached_tokens,
        ]
    }
}
