//! What a plan must hold, may hold and must not hold.

use crate::ledger::{BLOCK, Entry, Ledger};
use redline_scheduler::{
    INLINE_FILL_MAX, KvCache, Offer, Scheduler, SeqId, Sequence, Span, StepPlan,
};

/// What the pool had and what the running were about to take of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before {
    free: usize,
    needed: usize,
}

impl Before {
    pub(crate) fn of(scheduler: &Scheduler, kv: &KvCache) -> Self {
        let needed = scheduler.running().map(|seq| {
            let table = seq.kv().table();
            let cut = table.get(seq.computed() / BLOCK).filter(|_| seq.computed() % BLOCK > 0);
            let copied = cut.is_some_and(|&block| kv.refs(block) > 1);
            seq.tokens().len().div_ceil(BLOCK) - table.len() + usize::from(copied)
        });
        Self { free: kv.usage().free, needed: needed.sum() }
    }
}

/// A plan and all that its rules are about.
pub(crate) struct Planned<'a> {
    pub(crate) scheduler: &'a Scheduler,
    pub(crate) kv: &'a KvCache,
    pub(crate) plan: &'a StepPlan,
    pub(crate) offers: &'a [Offer],
    pub(crate) before: Before,
}

impl Planned<'_> {
    fn span(&self, id: SeqId) -> Option<Span> {
        self.plan.spans.iter().find(|span| span.seq == id).copied()
    }

    fn is_new(&self, id: SeqId) -> bool {
        self.plan.admitted.contains(&id)
    }
}

impl Ledger {
    pub(crate) fn planned(&mut self, now: &Planned<'_>) {
        self.step += 1;
        self.ended.clear();
        assert_eq!(now.plan.step, self.step);
        // Who is held may have all the blocks, or all the places in the batch.
        let stuck = now.plan.is_empty() && now.scheduler.running().any(Sequence::is_held);
        assert!(stuck || now.plan.is_empty() != self.has_work(), "some progress in every step");
        if self.paused {
            assert!(now.plan.preempted.is_empty() && now.plan.admitted.is_empty());
        }
        self.open = !now.plan.is_empty();
        self.live = vec![true; now.plan.spans.len()];
        self.sent_out(now);
        self.let_in(now);
        self.passed(now);
        self.spans(now);
        self.rows(now);
        self.fills(now);
        self.drafts(now);
    }

    /// Blocks and seats go from a lower rank to a higher, and not in vain.
    fn sent_out(&mut self, now: &Planned<'_>) {
        let best = self.inside.iter().min_by_key(|(_, entry)| entry.rank).map(|(&id, _)| id);
        for &id in &now.plan.preempted {
            assert_ne!(Some(id), best, "the best-ranked is never preempted");
            self.put_back(id);
            let lost = &self.inside[&id];
            let important =
                |entry: &Entry| entry.priority > lost.priority && entry.rank < lost.rank;
            let for_priority = self.inside.values().any(important);
            let lowest = !self.inside.values().any(|entry| entry.running && entry.rank > lost.rank);
            let short = now.before.needed > now.before.free;
            assert!(for_priority || short && lowest, "{id:?} was sent out in vain");
        }
    }

    fn let_in(&mut self, now: &Planned<'_>) {
        for &id in &now.plan.admitted {
            assert!(!now.plan.preempted.contains(&id), "out and in again in one step");
            let span = now.span(id).unwrap();
            let entry = self.inside.get_mut(&id).unwrap();
            assert!(!entry.running, "who is let in was waiting");
            (entry.running, entry.computed, entry.passed) = (true, span.start, None);
            assert!(span.start < entry.tokens.len(), "the last token is computed anew");
            let alone = entry.samples == 1;
            assert!(!alone || span.start.is_multiple_of(BLOCK), "whole blocks are found");
            assert!(!alone || self.prefix_cache || span.start == 0, "nothing can be found");
        }
        for &id in &now.plan.admitted {
            self.shared(now, id);
        }
        let seats = self.config.max_seqs - self.in_order(|entry| entry.running).len();
        // Drafts that found no block had taken rows that are nobody's now.
        let cut = now.kv.usage().free == 0 && !now.offers.is_empty();
        let rows = now.plan.rows() < self.config.token_budget && !cut;
        if seats > 0 && rows && !self.paused {
            self.nobody_is_kept_out(now);
        }
    }

    /// Who comes in beside siblings starts from what they have, or would have better waited.
    fn shared(&self, now: &Planned<'_>, id: SeqId) {
        let own = &self.inside[&id];
        let siblings = self.inside.iter().filter(|&(&other, entry)| {
            other != id && entry.running && entry.request == own.request
        });
        let (have, lack): (Vec<_>, Vec<_>) = siblings.partition(|(_, entry)| entry.has_prompt());
        let waits = lack.iter().any(|(_, entry)| entry.rank < own.rank);
        assert!(!waits || !have.is_empty(), "{id:?} computes what a sibling is computing");
        for (_, sibling) in have.into_iter().filter(|&(&id, _)| !now.is_new(id)) {
            let both = own.generated().iter().zip(sibling.generated());
            let same = own.prompt + both.take_while(|(a, b)| a == b).count();
            let common = same.min(sibling.computed).min(own.tokens.len() - 1);
            assert!(own.computed >= common, "{id:?} could have shared {common}");
        }
    }

    /// The first in the queue waits for blocks only, and drafts have none of those.
    fn nobody_is_kept_out(&self, now: &Planned<'_>) {
        let first = self.inside.iter().filter(|(_, entry)| !entry.running && !entry.held);
        let Some((id, first)) = first.min_by_key(|(_, entry)| entry.rank) else { return };
        if now.plan.preempted.contains(id) || first.samples > 1 {
            return;
        }
        let for_drafts = now
            .scheduler
            .running()
            .map(|seq| seq.kv().table().len().saturating_sub(seq.tokens().len().div_ceil(BLOCK)));
        let free = now.kv.usage().free + for_drafts.sum::<usize>();
        assert!(first.tokens.len().div_ceil(BLOCK) > free, "{id:?} fits and is kept out");
    }

    /// Who does not fit may be passed for `ageing_steps` steps and no longer.
    fn passed(&mut self, now: &Planned<'_>) {
        let admitted = now.plan.admitted.iter().map(|id| self.inside[id].rank);
        let Some(last) = admitted.max() else { return };
        for (id, entry) in &mut self.inside {
            if entry.running || entry.held || entry.samples > 1 || entry.rank > last {
                continue;
            }
            let since = *entry.passed.get_or_insert(self.step);
            assert!(self.step - since < self.config.ageing_steps, "{id:?} is passed for ever");
        }
    }

    fn spans(&self, now: &Planned<'_>) {
        let mut order = Vec::new();
        for span in &now.plan.spans {
            let entry = &self.inside[&span.seq];
            assert!(entry.running && !entry.held, "only who is in the batch has rows");
            let whole = span.len == entry.behind();
            assert_eq!((span.start, span.round), (entry.computed, whole));
            assert!(span.len > 0 && span.len <= self.config.chunk_max.min(entry.behind()));
            let slots = now.scheduler.get(span.seq).unwrap().kv().slots();
            assert_eq!(slots, entry.tokens.len() + span.drafts, "slots for exactly that");
            let group = match (now.is_new(span.seq), entry.behind()) {
                (true, _) => 2,
                (false, 1) => 0,
                (false, _) => 1,
            };
            order.push((group, entry.rank));
        }
        let sorted = order.is_sorted() && order.windows(2).all(|pair| pair[0] != pair[1]);
        assert!(sorted, "rounds, prefill, the new: each by rank, and each once");
    }

    /// Nobody who decodes pauses, prefill gets its floor, and no row is left while one is wanted.
    fn rows(&self, now: &Planned<'_>) {
        let (rows, budget) = (now.plan.rows(), self.config.token_budget);
        assert!(rows <= budget);
        let (mut wanted, mut given) = (0, 0);
        let free = |entry: &Entry| entry.running && !entry.held && !self.paused;
        for (&id, entry) in self.inside.iter().filter(|(_, entry)| free(entry)) {
            let span = now.span(id);
            if entry.behind() == 1 && !now.is_new(id) {
                assert!(span.is_some_and(|span| span.round), "{id:?} decodes in every step");
                continue;
            }
            let chunk = entry.behind().min(self.config.chunk_max);
            let len = span.map_or(0, |span| span.len);
            // Drafts that found no block have left their rows unused.
            let cut = now.kv.usage().free == 0;
            assert!(rows == budget || len == chunk || cut, "rows are left for {id:?}");
            (wanted, given) = (wanted + entry.behind(), given + len);
        }
        let floor = self.config.prefill_floor.min(self.config.chunk_max);
        assert!(given >= wanted.min(floor), "prefill is not starved");
    }

    fn fills(&self, now: &Planned<'_>) {
        for (i, fill) in now.plan.fills.iter().enumerate() {
            let others = &now.plan.fills[..i];
            assert!(others.iter().all(|other| other.seq != fill.seq), "one fill each");
            let (entry, span) = (&self.inside[&fill.seq], now.span(fill.seq).unwrap());
            let offer = now.offers.iter().rfind(|offer| offer.seq == fill.seq).unwrap();
            assert!(span.round && offer.lane == Some(fill.lane) && fill.len > 0);
            let context = entry.tokens.len();
            let filled = now.scheduler.get(fill.seq).unwrap().kv().filled(now.kv, fill.lane);
            assert_eq!(fill.start, filled.min(context - 1), "from where it is filled");
            assert!(fill.start + fill.len <= context);
            let far = context - 1 - fill.start > INLINE_FILL_MAX;
            // Drafts may have gone for want of blocks since.
            let drafting = span.drafts > 0 || now.kv.usage().free == 0;
            assert!(if far { span.drafts == 0 } else { drafting }, "only what drafts is filled");
            assert!(!far || fill.len <= self.config.chunk_max);
        }
    }

    fn drafts(&self, now: &Planned<'_>) {
        for span in now.plan.spans.iter().filter(|span| span.drafts > 0) {
            let entry = &self.inside[&span.seq];
            let offer = now.offers.iter().rfind(|offer| offer.seq == span.seq).unwrap();
            let context = entry.tokens.len();
            assert!(span.round && !now.is_new(span.seq), "only who decodes drafts");
            assert!(span.drafts <= offer.nodes.min(entry.draft_cap.unwrap_or(usize::MAX)));
            assert!(span.drafts < entry.limit - context, "the last token is the target's");
            assert!(context + span.drafts <= offer.draft_context);
            let mut fills = now.plan.fills.iter();
            let fill = fills.find(|fill| fill.seq == span.seq);
            let ready = fill.is_some_and(|fill| fill.start + fill.len == context);
            assert_eq!(ready, offer.lane.is_some(), "a lane is filled before it drafts");
        }
    }
}
