//! Drafts and the filling of draft lanes: rows first, blocks last.

use crate::scheduler::Scratch;
use crate::{
    DraftBudget, FillSpan, INLINE_FILL_MAX, Offer, Room, RoundView, Scheduler, Sequence, Span,
    StepPlan,
};
use redline_kv_cache::KvCache;

impl Scheduler {
    /// Grants drafts to the rounds planned so far, with the short fills that they need. `rows.0` is
    /// what is left of the budget, `rows.1` what must stay of it, `rows.2` what prefill could use.
    pub(crate) fn plan_drafts(
        &mut self,
        kv: &KvCache,
        budget: &mut dyn DraftBudget,
        offers: &[Offer],
        plan: &mut StepPlan,
        rows: (&mut usize, usize, usize),
    ) {
        self.index_offers(offers);
        let Scratch { views, grants, offers, .. } = &mut self.scratch;
        views.clear();
        grants.clear();
        if plan.spans.is_empty() {
            return;
        }
        for (span, ticket) in plan.spans.iter().zip(&plan.tickets) {
            let seq = self.roster.get(ticket.slot);
            let mut view = view(kv, seq, span, offers[ticket.slot as usize].as_ref());
            if view.lane_gap > INLINE_FILL_MAX {
                view.nodes = 0;
            }
            views.push(view);
        }
        let (left, floor, other_rows) = rows;
        let mut slots = left.saturating_sub(floor);
        budget.allot(views, Room { slots, other_rows }, grants);
        grants.resize(views.len(), 0);
        for (i, view) in views.iter().enumerate() {
            let lane = offers[plan.tickets[i].slot as usize].and_then(|offer| offer.lane);
            // The drafter's first draft comes from the row of the last committed token.
            let fill = lane.map_or(0, |_| view.lane_gap + 1);
            let drafts = grants[i].min(view.nodes).min(slots.saturating_sub(fill));
            if drafts == 0 {
                continue;
            }
            if let Some(lane) = lane {
                let start = view.context - fill;
                plan.fills.push(FillSpan { seq: view.seq, lane, start, len: fill });
            }
            plan.spans[i].drafts = drafts;
            slots -= drafts + fill;
            *left -= drafts + fill;
        }
    }

    /// Gives rows that nobody else wanted to lanes that are far behind, where the budget agrees.
    pub(crate) fn plan_catch_up(
        &mut self,
        kv: &KvCache,
        budget: &mut dyn DraftBudget,
        plan: &mut StepPlan,
        rows: &mut usize,
    ) {
        for (span, ticket) in plan.spans.iter().zip(&plan.tickets) {
            if *rows == 0 {
                return;
            }
            let offer = self.scratch.offers.get(ticket.slot as usize).and_then(Option::as_ref);
            let Some((offer, lane)) = offer.and_then(|offer| Some((offer, offer.lane?))) else {
                continue;
            };
            let view = view(kv, self.roster.get(ticket.slot), span, Some(offer));
            let far = span.round && view.nodes > 0 && view.lane_gap > INLINE_FILL_MAX;
            if far && budget.invest(&view) {
                let len = (view.lane_gap + 1).min(self.config.chunk_max).min(*rows);
                let start = view.context - 1 - view.lane_gap;
                plan.fills.push(FillSpan { seq: view.seq, lane, start, len });
                *rows -= len;
            }
        }
    }

    /// Reserves the drafts' slots from whatever blocks are left, cutting drafts to what there is.
    pub(crate) fn reserve_drafts(&mut self, kv: &mut KvCache, plan: &mut StepPlan) {
        for (span, ticket) in plan.spans.iter_mut().zip(&plan.tickets) {
            if span.drafts == 0 {
                continue;
            }
            let seq = self.roster.get_mut(ticket.slot);
            let tokens = seq.tokens.len();
            let blocks = seq.kv.table().len() + kv.usage().free;
            span.drafts = span.drafts.min(blocks * kv.block_size() - tokens);
            let reserved = seq.kv.reserve(kv, tokens + span.drafts, &mut plan.copies);
            assert!(reserved.is_ok(), "drafts are cut to the free blocks");
        }
    }

    fn index_offers(&mut self, offers: &[Offer]) {
        let by_slot = &mut self.scratch.offers;
        by_slot.clear();
        by_slot.resize(self.roster.places(), None);
        for offer in offers {
            if let Some(slot) = self.roster.find(offer.seq) {
                by_slot[slot as usize] = Some(*offer);
            }
        }
    }
}

/// A round as the budget sees it, with the nodes it could use if its lane were filled.
fn view(kv: &KvCache, seq: &Sequence, span: &Span, offer: Option<&Offer>) -> RoundView {
    let context = seq.tokens().len();
    let remaining = seq.remaining();
    let lane_gap = offer
        .and_then(|offer| offer.lane)
        .map_or(0, |lane| context - 1 - seq.kv().filled(kv, lane));
    // One token comes from the target in any case; `remaining` covers the model's length too.
    let nodes = offer.map_or(0, |offer| {
        let room = offer.draft_context.saturating_sub(context);
        offer.nodes.min(seq.draft_cap()).min(remaining - 1).min(room)
    });
    RoundView { seq: seq.id(), context, rows: span.len, remaining, nodes, lane_gap }
}
