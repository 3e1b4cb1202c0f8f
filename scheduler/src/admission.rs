//! From the queue into the batch.

use crate::roster::Slot;
use crate::siblings::Share;
use crate::{Scheduler, StepPlan};
use redline_kv_cache::{KvCache, SequenceKv};

/// How many waiting requests that do not fit are looked at per step. It bounds the cost of a step
/// under a long queue; those further down get their turn as the front is admitted.
pub(crate) const REFUSALS_MAX: usize = 16;

/// Whether a waiting sequence can come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entrance {
    Open(Way),
    /// It would fit, but better waits for what a sibling is computing. It stands in nobody's way.
    Later,
    /// It does not fit.
    Shut,
}

/// Where its first blocks come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The prefix cache, as far as that goes.
    Prefix,
    /// The first `len` positions of a running sibling.
    Fork { from: Slot, len: usize },
}

impl Scheduler {
    /// Admits whoever fits, best rank first, while there are rows and seats.
    ///
    /// A request is admitted if its whole context fits now, so that it is not preempted before its
    /// first token by its own prefill. One that does not fit may be passed, but not for ever: after
    /// `ageing_steps` steps the queue waits behind it.
    pub(crate) fn admit(&mut self, kv: &mut KvCache, plan: &mut StepPlan, rows: &mut usize) {
        let (mut refusals, mut later) = (0, None);
        let mut at = self.roster.waiting().len();
        while at > 0 && refusals < REFUSALS_MAX {
            if *rows == 0 || self.roster.running().len() >= self.config.max_seqs {
                return;
            }
            at -= 1;
            let slot = self.roster.waiting()[at];
            let seq = self.roster.get(slot);
            let family = seq.family();
            if seq.held || later == Some(family) {
                continue;
            }
            match self.entrance(kv, slot) {
                Entrance::Open(way) => self.start(kv, slot, way, plan, rows),
                Entrance::Later => later = Some(family),
                Entrance::Shut if self.is_blocking(slot) => return,
                Entrance::Shut => refusals += 1,
            }
        }
    }

    /// Whether a waiting sequence's context fits the free blocks, and how. Not if it lost its blocks
    /// in this very step.
    fn entrance(&mut self, kv: &mut KvCache, slot: Slot) -> Entrance {
        let share = self.share(slot);
        let step = self.step;
        let seq = self.roster.get_mut(slot);
        if seq.preempted_at == step {
            return Entrance::Shut;
        }
        let tokens = seq.tokens.len();
        match share {
            Share::Later => return Entrance::Later,
            Share::Now { from, len }
                if len > seq.kv.find_prefix(kv, &seq.tokens, tokens - 1)
                    && SequenceKv::fork_needs(kv, len, tokens) <= kv.usage().free =>
            {
                return Entrance::Open(Way::Fork { from, len });
            }
            Share::Now { .. } | Share::Nothing => {}
        }
        let fits = seq.kv.would_fit(kv, &seq.tokens, tokens - 1, tokens);
        if fits { Entrance::Open(Way::Prefix) } else { Entrance::Shut }
    }

    fn is_blocking(&mut self, slot: Slot) -> bool {
        let (step, patience) = (self.step, self.config.ageing_steps);
        let since = *self.roster.get_mut(slot).passed_since.get_or_insert(step);
        step - since >= patience
    }

    fn start(
        &mut self,
        kv: &mut KvCache,
        slot: Slot,
        way: Way,
        plan: &mut StepPlan,
        rows: &mut usize,
    ) {
        self.stats.admitted += 1;
        let admission = self.stats.admitted;
        let seq = self.roster.get_mut(slot);
        let (tokens, limit) = (seq.tokens.len(), seq.limit());
        seq.tokens.reserve_exact(limit - tokens);
        seq.kv.preallocate(kv, limit);
        let hits = match way {
            Way::Prefix => seq.kv.attach_prefix(kv, &seq.tokens, tokens - 1),
            Way::Fork { from, len } => {
                self.fork(kv, slot, (from, len), plan);
                len
            }
        };
        let seq = self.roster.get_mut(slot);
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

    fn fork(&mut self, kv: &mut KvCache, slot: Slot, from: (Slot, usize), plan: &mut StepPlan) {
        let seq = self.roster.get_mut(slot);
        let (tokens, mut own) = (seq.tokens.len(), seq.kv.take());
        let from_kv = &self.roster.get(from.0).kv;
        let forked = own.attach_fork(kv, from_kv, from.1, tokens, &mut plan.copies);
        assert!(forked.is_ok(), "it was asked whether it fits");
        self.roster.get_mut(slot).kv = own;
        self.stats.forked += 1;
    }

    /// Lets the first in the queue in past running requests of lower priority and lower rank, if it
    /// cannot come in otherwise and that is enough. Without this a full batch of long unimportant
    /// requests would keep an important one out.
    pub(crate) fn make_way(&mut self, kv: &mut KvCache, plan: &mut StepPlan) {
        let mut waiting = self.roster.waiting().iter().rev();
        let Some(&first) = waiting.find(|&&slot| !self.roster.get(slot).held) else { return };
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
        let seats = self.roster.running().len() < self.config.max_seqs;
        seats && matches!(self.entrance(kv, first), Entrance::Open(_))
    }

    fn would_make_way(&mut self, kv: &mut KvCache, first: Slot) -> bool {
        let seats = self.roster.running().iter().any(|&slot| self.outranks(first, slot));
        if !seats || self.share(first) == Share::Later || self.can_come_in(kv, first) {
            return false;
        }
        let needed = kv.blocks_for(self.roster.get(first).tokens.len());
        needed <= kv.usage().free + self.blocks_in_the_way(kv, first)
    }

    /// Blocks that would be free if all who may have to make way for `first` did: those that nobody
    /// else holds.
    fn blocks_in_the_way(&mut self, kv: &KvCache, first: Slot) -> usize {
        let mut held = std::mem::take(&mut self.scratch.held);
        held.clear();
        held.resize(kv.blocks(), 0);
        let mut freed = 0;
        for &slot in self.roster.running() {
            if !self.outranks(first, slot) {
                continue;
            }
            for &block in self.roster.get(slot).kv.table() {
                held[block.index()] += 1;
                freed += usize::from(held[block.index()] == kv.refs(block));
            }
        }
        self.scratch.held = held;
        freed
    }

    fn outranks(&self, first: Slot, running: Slot) -> bool {
        let (first, running) = (self.roster.get(first), self.roster.get(running));
        first.rank < running.rank && first.priority() > running.priority()
    }
}
