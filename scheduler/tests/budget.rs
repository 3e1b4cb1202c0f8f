//! What the budget is told, what it decides, and what counts against it.
#![allow(clippy::unwrap_used, reason = "a test may")]
mod rig;

use redline_scheduler::{Config, FillSpan, NoDrafts, Request, SeqId};
use rig::{DRAFT, Rig, config, offer, request};

#[test]
fn the_budget_counts_drafts_and_fills() {
    let mut rig = Rig::new(64, config());
    for id in 1..=2 {
        rig.submit(request(id, 3, 50)).unwrap();
    }
    rig.step();
    rig.offers = (1..=2).map(|id| offer(id, 6, Some(DRAFT))).collect();
    let plan = rig.step();
    // Two rounds, then 3 + 1 to fill and 6 drafts, then 4 to fill: no row is left to draft.
    let fill = FillSpan { seq: SeqId(1), lane: DRAFT, start: 0, len: 4 };
    assert_eq!((plan.fills.as_slice(), plan.rows()), (&[fill][..], 12));
    assert_eq!((rig.span(1).unwrap().drafts, rig.span(2).unwrap().drafts), (6, 0));
}

#[test]
fn who_does_not_speculate_spends_nothing_on_lanes() {
    let mut rig = Rig::new(32, config());
    rig.submit(request(1, 20, 40)).unwrap();
    rig.until_decoding(1);
    let offers = [offer(1, 4, Some(DRAFT))];
    rig.scheduler.plan(&mut rig.kv, &mut NoDrafts, &offers, &mut rig.plan);
    assert_eq!((rig.plan.rows(), rig.plan.drafts()), (1, 0));
    rig.finish_step();
    rig.drain();
}

/// The budget is told of the prefill that comes after it, running and waiting.
#[test]
fn the_budget_hears_of_prefill_before_it_is_planned() {
    let mut rig = Rig::new(64, config());
    rig.submit(request(1, 4, 40)).unwrap();
    rig.until_decoding(1);
    rig.step();
    assert_eq!(rig.budget.other_rows, 0);
    // Without drafts the estimate is exact: one row decodes, 15 are left.
    for (id, prompt) in [(2, 20), (3, 12)] {
        rig.submit(request(id, prompt, 4)).unwrap();
    }
    let mut heard = Vec::new();
    while rig.span(2).is_none_or(|span| !span.round) {
        rig.step();
        let rounds = rig.budget.seen.len();
        heard.push(rig.budget.other_rows);
        assert_eq!(rig.budget.other_rows, rig.plan.rows() - rounds);
    }
    assert_eq!(heard[0], 15, "a chunk of 8, and 7 rows are left for the next");
    // With drafts, and prefill in every step, rounds still get theirs.
    rig.submit(request(4, 50, 4)).unwrap();
    rig.offers = vec![offer(1, 4, None)];
    while rig.span(4).is_none_or(|span| !span.round) {
        rig.step();
        assert!(rig.budget.other_rows > 0 && rig.span(1).unwrap().drafts > 0);
        let planned = rig.plan.rows() - rig.plan.drafts() - rig.budget.seen.len();
        assert!(rig.budget.other_rows >= planned);
    }
}

/// A request that waits for blocks adds no rows.
#[test]
fn the_budget_does_not_hear_of_prefill_that_cannot_come() {
    let mut rig = Rig::new(8, config());
    rig.submit(request(1, 4, 12)).unwrap();
    rig.until_decoding(1);
    rig.submit(request(2, 30, 2)).unwrap();
    rig.step();
    assert_eq!((rig.budget.other_rows, rig.span(2)), (0, None));
}

/// A held one gets none, running or waiting, and drafts get what prefill would have had.
#[test]
fn the_budget_does_not_hear_of_prefill_that_is_held() {
    let mut rig = Rig::new(64, Config { max_seqs: 3, ..config() });
    rig.submit(request(1, 4, 40)).unwrap();
    rig.until_decoding(1);
    rig.submit(request(2, 50, 4)).unwrap();
    rig.step();
    rig.submit(request(3, 50, 4)).unwrap();
    rig.offers = vec![offer(1, 20, None)];
    rig.scheduler.hold(SeqId(2), true);
    rig.scheduler.hold(SeqId(3), true);
    rig.step();
    assert_eq!((rig.running(), rig.waiting()), (vec![1, 2], vec![3]));
    assert_eq!((rig.budget.slots, rig.budget.other_rows, rig.plan.rows()), (15, 0, 16));
    rig.scheduler.hold(SeqId(3), false);
    rig.step();
    assert_eq!((rig.budget.slots, rig.budget.other_rows), (11, 8), "the floor is kept for it");
}

/// Of those that wait, as far as blocks and seats go. Eight blocks, of which one is taken.
#[test]
fn the_budget_hears_of_as_many_as_can_come_in() {
    let heard = |max_seqs: usize, prompts: [usize; 2]| {
        let mut rig = Rig::new(8, Config { max_seqs, ..config() });
        rig.submit(request(1, 3, 12)).unwrap();
        rig.step();
        (2..4).zip(prompts).for_each(|(id, prompt)| rig.submit(request(id, prompt, 2)).unwrap());
        rig.step();
        assert_eq!(rig.budget.other_rows, rig.plan.rows() - 1);
        rig.budget.other_rows
    };
    assert_eq!(heard(4, [16, 16]), 8, "blocks for one, and a chunk of it");
    assert_eq!(heard(4, [12, 12]), 15, "blocks for both");
    assert_eq!(heard(2, [3, 3]), 3, "a seat for one");
    assert_eq!(heard(3, [3, 3]), 6, "seats for both");
}

/// What siblings share is not computed again.
#[test]
fn the_budget_hears_of_what_a_fork_lacks() {
    let mut rig = Rig::new(16, config());
    rig.submit(Request { samples: 2, ..request(1, 8, 12) }).unwrap();
    rig.step();
    rig.step();
    assert_eq!((rig.running(), rig.budget.other_rows), (vec![1, 2], 1), "its last token");
}

/// The small one was sent out first and would fit again once the large one is out, too. It comes
/// back in the next step.
#[test]
fn the_budget_does_not_hear_of_prefill_of_who_was_just_sent_out() {
    let mut rig = Rig::new(12, config());
    rig.submit(request(1, 16, 30)).unwrap();
    rig.submit(request(2, 3, 20)).unwrap();
    rig.submit(Request { priority: 1, ..request(3, 3, 40) }).unwrap();
    rig.until_decoding(1);
    rig.submit(Request { priority: 1, ..request(4, 32, 2) }).unwrap();
    rig.step();
    assert_eq!(rig.plan.preempted, [SeqId(2), SeqId(1)]);
    assert_eq!((rig.running(), rig.waiting()), (vec![3, 4], vec![1, 2]));
    assert_eq!(rig.budget.other_rows, 8, "a chunk of the new one");
    rig.step();
    assert_eq!(rig.running(), [3, 4, 2]);
    rig.drain();
}

/// While nobody can come in, no rows are kept for those who would like to.
#[test]
fn a_full_batch_keeps_no_floor_for_the_queue() {
    let mut rig = Rig::new(32, Config { max_seqs: 2, ..config() });
    (1..=2).for_each(|id| rig.submit(request(id, 3, 40)).unwrap());
    rig.step();
    rig.submit(request(3, 3, 40)).unwrap();
    rig.step();
    assert_eq!((rig.waiting(), rig.budget.slots), (vec![3], 14));
}
