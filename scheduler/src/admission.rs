//! From the queue into the batch.

use crate::roster::Slot;
use crate::{Scheduler, StepPlan};
use redline_kv_cache::KvCache;

/// How many waiting requests that do not fit are looked at per step. It bounds the cost of a step
/// under a long queue; those further down get their turn as the front is admitted.
pub(crate) const REFUSALS_MAX: usize = 16;

impl Scheduler {
    /// Admits whoever fits, best rank first, while there are rows and seats.
    ///
    /// A request is admitted if its whole context fits now, so that it is not preempted before its
    /// first token by its own prefill. One that does not fit may be passed, but not for ever: after
    /// `ageing_steps` steps the queue waits behind it.
    pub(crate) fn admit(&mut self, kv: &mut KvCache, plan: &mut StepPlan, rows: &mut usize) {
        let mut refusals = 0;
        let mut at = self.roster.waiting().len();
        while at > 0 && refusals < REFUSALS_MAX {
            if *rows == 0 || self.roster.running().len() >= self.config.max_seqs {
                return;
            }
            at -= 1;
            let slot = self.roster.waiting()[at];
            if self.fits(kv, slot) {
                self.start(kv, slot, plan, rows);
            } else if self.is_blocking(slot) {
                return;
            } else {
                refusals += 1;
            }
        }
    }

    /// Whether a waiting sequence's context fits the free blocks. Not if it lost its blocks in this
    /// very step.
    fn fits(&mut self, kv: &mut KvCache, slot: Slot) -> bool {
        let step = self.step;
        let seq = self.roster.get_mut(slot);
        let tokens = seq.tokens.len();
        let just_preempted = seq.preemptions > 0 && seq.preempted_at == step;
        !just_preempted && seq.kv.would_fit(kv, &seq.tokens, tokens - 1, tokens)
    }

    fn is_blocking(&mut self, slot: Slot) -> bool {
        let (step, patience) = (self.step, self.config.ageing_steps);
        let since = *self.roster.get_mut(slot).passed_since.get_or_insert(step);
        step - since >= patience
    }

    fn start(&mut self, kv: &mut KvCache, slot: Slot, plan: &mut StepPlan, rows: &mut usize) {
        self.stats.admitted += 1;
        let admission = self.stats.admitted;
        let seq = self.roster.get_mut(slot);
        let (tokens, limit) = (seq.tokens.len(), seq.limit());
        seq.tokens.reserve_exact(limit - tokens);
        seq.kv.preallocate(kv, limit);
        let hits = seq.kv.attach_prefix(kv, &seq.tokens, tokens - 1);
        let reserved = seq.kv.reserve(kv, tokens, &mut plan.copies);
        assert!(reserved.is_ok(), "it was asked whether it fits");
        seq.passed_since = None;
        if seq.cached.is_none() {
            seq.cached = Some(hits);
        }
        self.stats.cached_tokens += hits as u64;
        plan.admitted.push(self.roster.get(slot).id());
        self.roster.start(slot, admission);
        self.push_span(slot, plan, rows);
    }

    /// Lets the first in the queue in past running requests of lower priority and lower rank, if it
    /// cannot come in otherwise and that is enough. Without this a full batch of long unimportant
    /// requests would keep an important one out.
    pub(crate) fn make_way(&mut self, kv: &mut KvCache, plan: &mut StepPlan) {
        let Some(&first) = self.roster.waiting().last() else { return };
        if !self.would_make_way(kv, first) {
            return;
        }
        let mut at = self.roster.running().len();
        while at > 0 && !self.can_come_in(kv, first) {
            at -= 1;
            let slot = self.roster.running()[at];
            if self.outranks(first, slot) {
                self.preempt_slot(kv, slot, plan);
            }
        }
    }

    fn can_come_in(&mut self, kv: &mut KvCache, first: Slot) -> bool {
        self.roster.running().len() < self.config.max_seqs && self.fits(kv, first)
    }

    fn would_make_way(&mut self, kv: &mut KvCache, first: Slot) -> bool {
        let (mut seats, mut blocks) = (0, 0);
        for &slot in self.roster.running().iter().rev() {
            if self.outranks(first, slot) {
                seats += 1;
                blocks += self.roster.get(slot).kv.table().len();
            }
        }
        if seats == 0 || self.can_come_in(kv, first) {
            return false;
        }
        // Blocks shared among the running are counted twice: then it may not come in after all.
        let seated = self.roster.running().len() - seats < self.config.max_seqs;
        let needed = kv.blocks_for(self.roster.get(first).tokens.len());
        seated && needed <= kv.usage().free + blocks
    }

    fn outranks(&self, first: Slot, running: Slot) -> bool {
        let (first, running) = (self.roster.get(first), self.roster.get(running));
        first.rank < running.rank && first.priority() > running.priority()
    }
}
