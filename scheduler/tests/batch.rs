//! How a step's rows and blocks are given out: prefill, rounds, drafts, lanes, preemption.
#![allow(clippy::unwrap_used, reason = "a test may")]
mod rig;

use redline_scheduler::{
    Config, FillSpan, Finish, INLINE_FILL_MAX, Lane, Offer, Outcome, Request, SeqId, SlotMove, Span,
};
use rig::{DRAFT, Rig, config, offer, request};

fn span(id: u64, start: usize, len: usize, round: bool, drafts: usize) -> Span {
    Span { seq: SeqId(id), start, len, round, drafts }
}

#[test]
fn a_prompt_is_computed_in_chunks_and_its_last_one_is_a_round() {
    let mut rig = Rig::new(8, config());
    rig.submit(request(1, 19, 2)).unwrap();
    let mut spans = Vec::new();
    while rig.scheduler.has_work() {
        spans.extend(rig.step().spans.clone());
    }
    let expected = [
        span(1, 0, 8, false, 0),
        span(1, 8, 8, false, 0),
        span(1, 16, 3, true, 0),
        span(1, 19, 1, true, 0),
    ];
    assert_eq!(spans, expected);
    assert_eq!(rig.ended, [(SeqId(1), Finish::Length)]);
}

/// B18, one way: a long prompt never stalls decoding.
#[test]
fn b18_decoding_goes_on_while_long_prompts_are_computed() {
    let mut rig = Rig::new(64, config());
    for id in 1..=2 {
        rig.submit(request(id, 3, 40)).unwrap();
    }
    rig.step();
    rig.submit(request(3, 60, 2)).unwrap();
    rig.submit(request(4, 60, 2)).unwrap();
    for _ in 0..7 {
        rig.step();
        for id in 1..=2 {
            assert!(rig.span(id).unwrap().round);
        }
        assert!(rig.plan.rows() <= 16);
    }
    assert!(rig.running().contains(&3) && rig.running().contains(&4));
}

/// B18, the other way: drafts and decoding leave prefill its floor.
#[test]
fn b18_prefill_gets_its_floor_whatever_drafts_would_like() {
    let mut rig = Rig::new(64, config());
    for id in 1..=3 {
        rig.submit(request(id, 3, 60)).unwrap();
    }
    rig.step();
    rig.accept = 0;
    rig.offers = (1..=3).map(|id| offer(id, 30, None)).collect();
    rig.submit(request(4, 30, 2)).unwrap();
    rig.step();
    assert_eq!(rig.budget.slots, 16 - 3 - 4, "the floor is kept for whoever is let in");
    assert_eq!(rig.span(4), Some(span(4, 0, 4, false, 0)));
    rig.step();
    assert_eq!(rig.span(4), Some(span(4, 4, 4, false, 0)));
    rig.scheduler.cancel(&mut rig.kv, SeqId(4));
    rig.step();
    assert_eq!((rig.budget.slots, rig.plan.drafts()), (13, 13), "no prefill, no floor");
}

/// B14: every bound on the number of drafts.
#[test]
fn b14_drafts_are_cut_to_every_bound() {
    let drafts = |prompt, max_tokens, cap, offer: Offer| {
        let mut rig = Rig::new(64, config());
        rig.submit(Request { draft_cap: cap, ..request(1, prompt, max_tokens) }).unwrap();
        rig.until_decoding(1);
        rig.offers = vec![offer];
        rig.step();
        rig.span(1).unwrap().drafts
    };
    let any = |nodes| offer(1, nodes, None);
    assert_eq!(drafts(8, 40, None, any(7)), 7, "the offer");
    assert_eq!(drafts(8, 40, None, any(50)), 15, "the token budget");
    assert_eq!(drafts(8, 40, Some(3), any(7)), 3, "the request's cap");
    assert_eq!(drafts(8, 40, Some(0), any(7)), 0);
    assert_eq!(drafts(8, 6, None, any(7)), 4, "five remain, one is the target's own");
    assert_eq!(drafts(8, 2, None, any(7)), 0, "one remains");
    assert_eq!(drafts(58, 40, None, any(7)), 4, "the model's context");
    // Nine tokens are committed.
    assert_eq!(drafts(8, 40, None, Offer { draft_context: 12, ..any(7) }), 3);
    assert_eq!(drafts(8, 40, None, Offer { draft_context: 9, ..any(7) }), 0);
    assert_eq!(drafts(8, 40, None, Offer { draft_context: 2, ..any(7) }), 0);
    assert_eq!(drafts(8, 40, None, Offer { seq: SeqId(9), ..any(7) }), 0, "nobody's offer");
}

/// B1: a round at the very end of a block has slots for all its drafts.
#[test]
fn b1_slots_are_reserved_for_the_committed_and_the_granted() {
    let mut rig = Rig::new(8, config());
    rig.submit(request(1, 6, 20)).unwrap();
    rig.step();
    rig.offers = vec![offer(1, 5, None)];
    rig.plan();
    let seq = rig.scheduler.get(SeqId(1)).unwrap();
    assert_eq!((seq.tokens().len(), seq.kv().slots(), seq.kv().table().len()), (7, 12, 3));
    let _ = rig.scheduler.settle(&mut rig.kv, &mut rig.plan, &[1]);
    let seq = rig.scheduler.get(SeqId(1)).unwrap();
    assert_eq!((seq.kv().slots(), seq.kv().table().len()), (8, 2), "spare slots go back");
    rig.commit(&[Outcome::Round { path: vec![0], tokens: vec![5, 6], draft_fed: 1 }]);
    let seq = rig.scheduler.get(SeqId(1)).unwrap();
    assert_eq!((seq.computed(), seq.tokens().len(), seq.kv().slots()), (8, 9, 8));
}

#[test]
fn a_round_keeps_what_was_accepted_and_one_more() {
    let mut rig = Rig::new(8, config());
    rig.submit(request(1, 4, 20)).unwrap();
    rig.step();
    rig.offers = vec![offer(1, 4, None)];
    for (accept, tokens) in [(0, 6), (4, 11), (2, 14)] {
        rig.accept = accept;
        rig.step();
        assert_eq!(rig.scheduler.done().commits, rig.commits, "readable until the next step");
        assert_eq!((rig.commits[0].kept, rig.commits[0].accepted), (accept + 1, accept));
        let seq = rig.scheduler.get(SeqId(1)).unwrap();
        assert_eq!((seq.tokens().len(), seq.computed()), (tokens, tokens - 1));
    }
}

/// B9: tokens, keys and values and counts are cut at the same place; a stop goes before length.
#[test]
fn a_stop_inside_a_round_cuts_everything_there() {
    let mut rig = Rig::new(8, config());
    rig.submit(request(1, 4, 5)).unwrap();
    rig.step();
    rig.offers = vec![offer(1, 3, None)];
    rig.stops.0 = Some(7);
    rig.plan();
    let tokens = vec![5, 6, 7, 8];
    rig.commit(&[Outcome::Round { path: vec![0, 1, 2], tokens, draft_fed: 0 }]);
    assert_eq!((rig.commits[0].kept, rig.commits[0].accepted), (3, 3));
    assert_eq!(rig.ended, [(SeqId(1), Finish::Stop)]);
    let generated = rig.scheduler.ended().next().unwrap().0.generated();
    assert_eq!(generated, [1, 5, 6, 7]);
    assert_eq!(rig.kv.usage().cached, 2, "eight positions with valid keys and values");
    // The fifth token is both the last allowed and a stop.
    rig.submit(request(2, 4, 1)).unwrap();
    rig.plan();
    rig.commit(&[Outcome::Round { path: vec![], tokens: vec![7], draft_fed: 0 }]);
    assert_eq!(rig.ended[1], (SeqId(2), Finish::Stop));
}

#[test]
fn an_accepted_branch_moves_to_the_front() {
    let mut rig = Rig::new(8, config());
    rig.submit(request(1, 2, 20)).unwrap();
    rig.step();
    rig.offers = vec![offer(1, 6, None)];
    rig.plan();
    let table = rig.scheduler.get(SeqId(1)).unwrap().kv().table().to_vec();
    let path = vec![0, 2, 5];
    let outcome = Outcome::Round { path, tokens: vec![5, 6, 7, 8], draft_fed: 0 };
    let _ = rig.scheduler.settle(&mut rig.kv, &mut rig.plan, &[6]);
    let done = rig.scheduler.commit(&mut rig.kv, &rig.plan, &[outcome], &mut rig.stops);
    let moved = |from: (usize, u32), to: (usize, u32)| SlotMove {
        from_block: table[from.0],
        from_slot: from.1,
        to_block: table[to.0],
        to_slot: to.1,
    };
    // Three tokens are committed: node i sits in slot 3 + i.
    assert_eq!(done.moves, [moved((1, 1), (1, 0)), moved((2, 0), (1, 1))]);
}

#[test]
fn drafts_go_to_zero_before_anyone_is_preempted_or_kept_out() {
    let mut rig = Rig::new(4, config());
    rig.submit(request(1, 6, 9)).unwrap();
    rig.submit(request(2, 6, 9)).unwrap();
    rig.step();
    rig.offers = vec![offer(1, 6, None), offer(2, 6, None)];
    rig.plan();
    assert!(rig.plan.preempted.is_empty());
    // Seven tokens each in two blocks each: one draft fits beside them.
    assert_eq!((rig.span(1).unwrap().drafts, rig.span(2).unwrap().drafts), (1, 1));
    rig.accept = 0;
    rig.finish_step();
    rig.plan();
    assert_eq!((rig.plan.drafts(), rig.plan.preempted.len()), (0, 0));
    rig.finish_step();
    rig.plan();
    assert_eq!(rig.plan.preempted, [SeqId(2)], "only now, and the last one");
    rig.finish_step();
    rig.drain();
    assert_eq!(rig.ended.len(), 2);
}

#[test]
fn nobody_is_kept_out_of_the_batch_for_a_draft() {
    let mut rig = Rig::new(4, config());
    rig.submit(request(1, 3, 10)).unwrap();
    rig.step();
    rig.offers = vec![offer(1, 8, None)];
    rig.submit(request(2, 10, 2)).unwrap();
    let plan = rig.step();
    assert_eq!((plan.admitted.as_slice(), plan.drafts()), (&[SeqId(2)][..], 0));
}

#[test]
fn a_preempted_sequence_is_computed_again_from_what_is_cached() {
    let mut rig = Rig::new(16, config());
    rig.submit(request(1, 6, 12)).unwrap();
    rig.steps(4);
    let tokens = rig.scheduler.get(SeqId(1)).unwrap().tokens().to_vec();
    assert!(rig.scheduler.preempt(&mut rig.kv, SeqId(1)));
    assert_eq!(rig.kv.usage().used, 0);
    rig.plan();
    assert_eq!(rig.plan.admitted, [SeqId(1)]);
    assert_eq!(rig.span(1), Some(span(1, 8, 2, true, 0)));
    let seq = rig.scheduler.get(SeqId(1)).unwrap();
    assert_eq!((seq.tokens(), seq.cached_tokens()), (tokens.as_slice(), 0));
    rig.finish_step();
    rig.drain();
}

#[test]
fn a_lane_a_little_behind_is_filled_in_the_step_that_drafts() {
    let mut rig = Rig::new(16, config());
    rig.submit(request(1, 3, 40)).unwrap();
    rig.step();
    rig.offers = vec![offer(1, 4, Some(DRAFT))];
    let fills =
        |rig: &mut Rig| rig.step().fills.iter().map(|f| (f.start, f.len)).collect::<Vec<_>>();
    assert_eq!(fills(&mut rig), [(0, 4)]);
    let seq = rig.scheduler.get(SeqId(1)).unwrap();
    assert_eq!((seq.computed(), seq.kv().filled(&rig.kv, DRAFT)), (8, 8), "all four were fed");
    rig.accept = 1;
    assert_eq!(fills(&mut rig), [(8, 1)]);
    let seq = rig.scheduler.get(SeqId(1)).unwrap();
    assert_eq!((seq.computed(), seq.kv().filled(&rig.kv, DRAFT)), (10, 10), "the rejected not");
    rig.plan();
    assert_eq!(rig.plan.fills[0].start, 10);
    rig.accept = 4;
    let mut outcome = rig.outcome(&rig.plan.spans[0]);
    if let Outcome::Round { draft_fed, .. } = &mut outcome {
        *draft_fed = 3;
    }
    rig.commit(&[outcome]);
    assert_eq!(fills(&mut rig), [(14, 2)], "the last draft was never fed");
}

#[test]
fn how_far_behind_a_lane_may_be_to_draft_at_once() {
    for (prompt, nodes) in [(INLINE_FILL_MAX, 4), (INLINE_FILL_MAX + 1, 0)] {
        let mut rig = Rig::new(16, config());
        rig.submit(request(1, prompt, 40)).unwrap();
        rig.until_decoding(1);
        rig.offers = vec![offer(1, 4, Some(DRAFT))];
        rig.step();
        assert_eq!((rig.budget.seen[0].lane_gap, rig.plan.drafts()), (prompt, nodes));
    }
}

/// Up to its last committed token, where rows and the chunk allow.
#[test]
fn a_lane_catches_up_in_one_go() {
    let mut rig = Rig::new(16, Config { token_budget: 64, chunk_max: 32, ..config() });
    rig.submit(request(1, 20, 40)).unwrap();
    rig.until_decoding(1);
    rig.offers = vec![offer(1, 4, Some(DRAFT))];
    rig.budget.invest = true;
    rig.step();
    let fill = FillSpan { seq: SeqId(1), lane: DRAFT, start: 0, len: 21 };
    assert_eq!((rig.plan.fills.as_slice(), rig.plan.drafts()), (&[fill][..], 0));
}

#[test]
fn a_fill_that_was_not_done_is_not_recorded() {
    let mut rig = Rig::new(16, config());
    rig.submit(request(1, 3, 40)).unwrap();
    rig.step();
    rig.offers = vec![offer(1, 4, Some(DRAFT))];
    rig.plan();
    rig.plan.fills.clear();
    let _ = rig.scheduler.settle(&mut rig.kv, &mut rig.plan, &[0]);
    rig.commit(&[Outcome::Round { path: vec![], tokens: vec![1], draft_fed: 0 }]);
    assert_eq!(rig.scheduler.get(SeqId(1)).unwrap().kv().filled(&rig.kv, DRAFT), 0);
    rig.plan();
    rig.plan.fills[0].len = 2;
    let _ = rig.scheduler.settle(&mut rig.kv, &mut rig.plan, &[0]);
    rig.commit(&[Outcome::Round { path: vec![], tokens: vec![1], draft_fed: 0 }]);
    assert_eq!(rig.scheduler.get(SeqId(1)).unwrap().kv().filled(&rig.kv, DRAFT), 2);
}

#[test]
fn a_lane_far_behind_is_filled_in_chunks_and_only_if_the_budget_invests() {
    let mut rig = Rig::new(32, config());
    rig.submit(request(1, 20, 40)).unwrap();
    rig.until_decoding(1);
    rig.offers = vec![offer(1, 4, Some(DRAFT))];
    rig.step();
    let gap = 20;
    assert_eq!((rig.budget.seen[0].nodes, rig.budget.seen[0].lane_gap), (0, gap));
    assert_eq!((rig.budget.asked[0].nodes, rig.budget.asked[0].lane_gap), (4, gap));
    assert_eq!((rig.plan.fills.len(), rig.plan.drafts()), (0, 0), "it said no");
    rig.budget.invest = true;
    let mut done = 0;
    while rig.plan.drafts() == 0 {
        rig.step();
        let fill = rig.plan.fills[0];
        assert_eq!((fill.start, fill.seq), (done, SeqId(1)));
        assert!(fill.len <= 8 || rig.plan.drafts() > 0);
        done += fill.len;
        assert!(rig.span(1).unwrap().round, "it decodes meanwhile");
    }
    assert_eq!(done, 24, "two chunks, then what is left in one go with the drafts");
    assert!(rig.plan.fills[0].len <= INLINE_FILL_MAX + 1);
}

/// B3: the lane of a prefix hit is as full as it was.
#[test]
fn b3_lane_fill_survives_the_end_of_a_sequence() {
    let mut rig = Rig::new(32, config());
    rig.offers = vec![offer(1, 4, Some(DRAFT))];
    rig.budget.invest = true;
    rig.submit(request(1, 20, 10)).unwrap();
    rig.drain();
    rig.offers = vec![offer(2, 4, Some(DRAFT))];
    rig.submit(Request { id: SeqId(2), ..request(1, 20, 10) }).unwrap();
    rig.until_decoding(2);
    let plan = rig.step();
    assert_eq!((plan.fills[0].start, plan.drafts()), (16, 4), "ready after its first token");
}

#[test]
fn a_lane_gap_is_counted_by_lane() {
    let mut rig = Rig::new(32, config());
    rig.submit(request(1, 6, 20)).unwrap();
    rig.step();
    rig.offers = vec![offer(1, 2, Some(DRAFT))];
    rig.step();
    rig.offers = vec![offer(1, 2, None)];
    rig.step();
    assert_eq!((rig.budget.seen[0].lane_gap, rig.plan.fills.len()), (0, 0));
    rig.offers = vec![offer(1, 2, Some(Lane(1)))];
    rig.step();
    assert_eq!(rig.budget.seen[0].lane_gap, 3, "it drafted without its lane meanwhile");
}

#[test]
fn a_plan_does_not_depend_on_the_order_of_offers() {
    let plan = |reverse: bool| {
        let mut rig = Rig::new(64, Config { max_seqs: 8, token_budget: 40, ..config() });
        (1..=6).for_each(|id| rig.submit(request(id, 3, 30)).unwrap());
        rig.step();
        rig.offers = (1..=6).map(|id| offer(id, id as usize, None)).collect();
        if reverse {
            rig.offers.reverse();
        }
        rig.step().spans.clone()
    };
    assert_eq!(plan(false), plan(true));
}
