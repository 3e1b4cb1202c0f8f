//! `plan`: the order in which a step's rows and blocks are given out.

use crate::admission::REFUSALS_MAX;
use crate::plan::Ticket;
use crate::roster::Slot;
use crate::sequence::Phase;
use crate::siblings::Share;
use crate::{DraftBudget, Offer, Scheduler, Span, StepPlan};
use redline_kv_cache::{KvCache, SequenceKv};

impl Scheduler {
    /// Decides what to compute in the next step. Everything it needs is reserved on return.
    ///
    /// Rows are given out in this order:
    ///
    /// ```text
    /// |<------------------------- token_budget -------------------------->|
    /// | one row per      | drafts and the short   | prefill, the new, then |
    /// | decoding seq.    | fills they need        | long lane fills        |
    ///                                   keeps free >= prefill_floor ----->|
    /// ```
    ///
    /// and blocks in this: running sequences by rank (taking from the lowest), the newly admitted,
    /// drafts.
    ///
    /// # Panics
    /// If the last plan was neither committed nor abandoned.
    pub fn plan(
        &mut self,
        kv: &mut KvCache,
        budget: &mut dyn DraftBudget,
        offers: &[Offer],
        plan: &mut StepPlan,
    ) {
        assert!(!self.open, "step {} was neither committed nor abandoned", self.step);
        self.step += 1;
        self.stats.steps += 1;
        self.ended.clear();
        self.done.commits.clear();
        self.done.moves.clear();
        plan.clear(self.step);
        if self.paused {
            return;
        }

        self.secure_running(kv, plan);
        // Only now, so that those who stay do not take what others made way for.
        self.make_way(kv, plan);
        let mut rows = self.config.token_budget;
        self.plan_rounds(plan, &mut rows);
        let floor = self.prefill_floor();
        let other_rows = self.prefill_due(kv, rows);
        self.plan_drafts(kv, budget, offers, plan, (&mut rows, floor, other_rows));
        self.plan_prefill(plan, &mut rows);
        self.admit(kv, plan, &mut rows);
        self.plan_catch_up(kv, budget, plan, &mut rows);
        self.reserve_drafts(kv, plan);
        // A plan without work need not be committed.
        self.open = !plan.is_empty();

        assert!(plan.rows() <= self.config.token_budget, "more rows than the budget");
        assert!(self.roster.running().len() <= self.config.max_seqs, "more sequences than allowed");
    }

    /// Reserves every running sequence's committed tokens, best rank first, taking blocks from the
    /// lowest rank. No draft holds a slot at this point: the last commit took them all back.
    fn secure_running(&mut self, kv: &mut KvCache, plan: &mut StepPlan) {
        let mut i = 0;
        while let Some(&slot) = self.roster.running().get(i) {
            let seq = self.roster.get_mut(slot);
            let tokens = seq.tokens.len();
            if seq.kv.reserve(kv, tokens, &mut plan.copies).is_ok() {
                i += 1;
                continue;
            }
            let lowest = self.roster.running().last().copied().unwrap_or(slot);
            self.preempt_slot(kv, lowest, plan);
        }
    }

    pub(crate) fn preempt_slot(&mut self, kv: &mut KvCache, slot: Slot, plan: &mut StepPlan) {
        plan.preempted.push(self.roster.get(slot).id());
        self.put_back(kv, slot);
    }

    /// One row for each sequence that lacks only its last token.
    fn plan_rounds(&mut self, plan: &mut StepPlan, rows: &mut usize) {
        for i in 0..self.roster.running().len() {
            let slot = self.roster.running()[i];
            let seq = self.roster.get(slot);
            if seq.behind() == 1 && !seq.held {
                self.push_span(slot, plan, rows);
            }
        }
    }

    /// Chunks for the sequences that lack more.
    fn plan_prefill(&mut self, plan: &mut StepPlan, rows: &mut usize) {
        for i in 0..self.roster.running().len() {
            let slot = self.roster.running()[i];
            let seq = self.roster.get(slot);
            if seq.behind() > 1 && !seq.held && *rows > 0 {
                self.push_span(slot, plan, rows);
            }
        }
    }

    /// Gives the sequence as many rows as it lacks, a chunk allows and are left.
    pub(crate) fn push_span(&mut self, slot: Slot, plan: &mut StepPlan, rows: &mut usize) {
        let seq = self.roster.get(slot);
        let Phase::Running { admission } = seq.phase else { return };
        let len = seq.behind().min(self.config.chunk_max).min(*rows);
        assert!(len > 0, "a span feeds at least one token");
        *rows -= len;
        let round = len == seq.behind();
        let span = Span { seq: seq.id(), start: seq.computed(), len, round, drafts: 0 };
        plan.push(span, Ticket { slot, admission });
    }

    /// Rows that prefill will get of the `rows` that are left, were there no drafts: chunks of the
    /// running, and of the waiting whom `admit` will take, as far as that can be told without
    /// looking for their prefixes.
    fn prefill_due(&self, kv: &KvCache, rows: usize) -> usize {
        let chunk = |behind: usize| behind.min(self.config.chunk_max);
        let mut due = self.behind().map(chunk).sum::<usize>();
        let mut seats = self.config.max_seqs - self.roster.running().len();
        let (mut free, mut refusals, mut later) = (kv.usage().free, 0, None);
        for &slot in self.roster.waiting().iter().rev() {
            if due >= rows || seats == 0 || refusals == REFUSALS_MAX {
                break;
            }
            let seq = self.roster.get(slot);
            let family = seq.family();
            if seq.held || later == Some(family) {
                continue;
            }
            let shared = match self.share(slot) {
                Share::Later => {
                    later = Some(family);
                    continue;
                }
                Share::Now { len, .. } => len,
                Share::Nothing => 0,
            };
            let seq = self.roster.get(slot);
            let blocks = SequenceKv::fork_needs(kv, shared, seq.tokens.len());
            let just_preempted = seq.preempted_at == self.step;
            if blocks <= free && !just_preempted {
                (free, seats) = (free - blocks, seats - 1);
                due += chunk(seq.tokens.len() - shared);
            } else if seq.passed_since.is_some_and(|s| self.step - s >= self.config.ageing_steps) {
                break;
            } else {
                refusals += 1;
            }
        }
        due.min(rows)
    }

    /// Rows that drafts must leave: as many as prefill could use, up to the floor.
    fn prefill_floor(&self) -> usize {
        let floor = self.config.prefill_floor;
        let seats = self.roster.running().len() < self.config.max_seqs;
        if seats && self.waiting().any(|seq| !seq.held) {
            return floor;
        }
        self.behind().sum::<usize>().min(floor)
    }

    /// What each of the running lacks whose prompt is not computed.
    fn behind(&self) -> impl Iterator<Item = usize> {
        let free = self.running().filter(|seq| !seq.held);
        free.map(crate::Sequence::behind).filter(|&behind| behind > 1)
    }
}
