//! The door, the queue, and who comes in when.
#![allow(clippy::unwrap_used, reason = "a test may")]
mod rig;

use redline_scheduler::{Config, Finish, Request, SeqId, SubmitError};
use rig::{Rig, config, request};

#[test]
fn what_can_never_work_is_refused_at_the_door_by_name() {
    let config = Config { queue_len: 2, ..config() };
    let mut rig = Rig::new(8, config.clone());
    assert_eq!(rig.scheduler.config(), &config);
    assert_eq!(rig.submit(request(1, 0, 5)), Err(SubmitError::EmptyPrompt));
    assert_eq!(rig.submit(request(1, 5, 0)), Err(SubmitError::ZeroTokens));
    let too_long = SubmitError::TooLong { prompt: 64, limit: 63 };
    assert_eq!(rig.submit(request(1, 64, 5)), Err(too_long));
    let never = SubmitError::NeverFits { blocks_needed: 9, blocks_total: 8 };
    assert_eq!(rig.submit(request(1, 30, 4)), Err(never));
    let text = rig.submit(request(1, 63, 1)).unwrap_err().to_string();
    assert_eq!(text, "the request needs up to 16 cache blocks, there are 8");
    rig.submit(request(1, 3, 4)).unwrap();
    assert_eq!(rig.submit(request(1, 3, 4)), Err(SubmitError::DuplicateId));
    rig.submit(request(2, 3, 4)).unwrap();
    assert_eq!(rig.submit(request(3, 3, 4)), Err(SubmitError::QueueFull { limit: 2 }));
    rig.step();
    rig.submit(request(3, 3, 4)).unwrap();
    rig.drain();
    assert_eq!(rig.ended.len(), 3, "the refused ones left no trace");
}

/// The last token is never fed, so 33 tokens fit 32 slots.
#[test]
fn a_request_that_just_fits_the_pool_runs_to_its_end() {
    let mut rig = Rig::new(8, config());
    rig.submit(request(1, 30, 3)).unwrap();
    rig.offers = vec![rig::offer(1, 5, None)];
    rig.drain();
    assert_eq!(rig.ended, [(SeqId(1), Finish::Length)]);
    assert_eq!(rig.scheduler.stats().preempted, 0);
}

#[test]
fn max_tokens_is_cut_to_the_context() {
    let mut rig = Rig::new(16, config());
    rig.submit(request(1, 60, usize::MAX)).unwrap();
    let seq = rig.scheduler.get(SeqId(1)).unwrap();
    assert_eq!((seq.limit(), seq.remaining(), seq.is_running()), (64, 4, false));
    while rig.ended.is_empty() {
        rig.step();
    }
    let (seq, finish) = rig.scheduler.ended().next().unwrap();
    assert_eq!((seq.tokens().len(), finish), (64, Finish::Length));
}

#[test]
fn equal_priorities_come_in_by_arrival_and_higher_ones_first() {
    let mut rig = Rig::new(16, Config { max_seqs: 1, ..config() });
    for (id, priority) in [(1, 0), (2, 0), (3, 1), (4, -1), (5, 1)] {
        rig.submit(Request { priority, ..request(id, 3, 1) }).unwrap();
    }
    assert_eq!(rig.waiting(), [3, 5, 1, 2, 4]);
    rig.drain();
    let order: Vec<_> = rig.ended.iter().map(|(id, _)| id.0).collect();
    assert_eq!(order, [3, 5, 1, 2, 4]);
}

#[test]
fn a_request_is_not_starved_by_higher_priorities() {
    let mut rig = Rig::new(16, Config { max_seqs: 1, ..config() });
    rig.submit(Request { priority: -1, ..request(0, 3, 1) }).unwrap();
    for id in 1.. {
        rig.submit(Request { priority: 1, ..request(id, 3, 1) }).unwrap();
        rig.step();
        if rig.ended.contains(&(SeqId(0), Finish::Length)) {
            // Two levels of ten steps each.
            assert!((20..=22).contains(&id), "after {id} others");
            return;
        }
    }
}

#[test]
fn a_preempted_request_keeps_its_place_and_needs_no_room_in_the_queue() {
    let mut rig = Rig::new(16, Config { max_seqs: 2, queue_len: 1, ..config() });
    for id in 1..=2 {
        rig.submit(request(id, 3, 20)).unwrap();
        rig.step();
    }
    rig.submit(request(3, 3, 4)).unwrap();
    assert!(rig.scheduler.preempt(&mut rig.kv, SeqId(2)));
    assert!(!rig.scheduler.preempt(&mut rig.kv, SeqId(2)), "it waits already");
    assert_eq!((rig.waiting(), rig.running()), (vec![2, 3], vec![1]));
    rig.scheduler.audit(&rig.kv).unwrap();
    assert_eq!(rig.submit(request(4, 3, 4)), Err(SubmitError::QueueFull { limit: 1 }));
    rig.step();
    assert_eq!(rig.running(), [1, 2]);
    assert_eq!(rig.scheduler.stats().admitted, 3);
    let seq = rig.scheduler.get(SeqId(2)).unwrap();
    assert_eq!((seq.preemptions(), seq.prompt_len()), (1, 3));
    assert!(!seq.generated().is_empty(), "its tokens are kept");
}

#[test]
fn who_does_not_fit_may_be_passed_but_not_for_ever() {
    let mut rig = Rig::new(10, config());
    rig.submit(request(1, 3, 30)).unwrap();
    rig.step();
    rig.submit(request(2, 37, 2)).unwrap();
    let mut passed = 0;
    for id in 3.. {
        rig.submit(request(id, 3, 2)).unwrap();
        rig.step();
        let rounds = rig.budget.seen.len();
        assert_eq!(rig.budget.other_rows, rig.plan.rows() - rounds, "the budget is told");
        if rig.span(id).is_some() {
            passed += 1;
            continue;
        }
        break;
    }
    assert_eq!(passed, 10, "one a step for ageing_steps steps");
    rig.until_decoding(2);
    rig.drain();
}

#[test]
fn who_was_passed_and_came_in_is_patient_again() {
    let mut rig = Rig::new(10, Config { ageing_steps: 3, ..config() });
    rig.submit(request(1, 8, 30)).unwrap();
    rig.submit(request(2, 33, 4)).unwrap();
    rig.steps(4);
    assert_eq!((rig.running(), rig.waiting()), (vec![1], vec![2]), "it does not fit");
    rig.scheduler.cancel(&mut rig.kv, SeqId(1));
    rig.submit(Request { priority: 9, ..request(3, 1, 30) }).unwrap();
    rig.step();
    assert_eq!(rig.running(), [3, 2]);
    while rig.plan.preempted.is_empty() {
        rig.step();
    }
    assert_eq!(rig.waiting(), [2], "the other one grew");
    rig.submit(request(4, 3, 2)).unwrap();
    rig.step();
    assert_eq!((rig.running(), rig.waiting()), (vec![3, 4], vec![2]), "it is passed");
    rig.drain();
}

#[test]
fn nobody_is_sent_out_for_an_equal_that_came_earlier() {
    let mut rig = Rig::new(10, config());
    rig.submit(request(1, 3, 3)).unwrap();
    rig.step();
    rig.submit(request(2, 37, 2)).unwrap();
    rig.submit(request(3, 3, 20)).unwrap();
    rig.steps(6);
    assert_eq!((rig.running(), rig.waiting()), (vec![3], vec![2]));
    assert_eq!(rig.scheduler.stats().preempted, 0);
    rig.drain();
}

/// A giant among a stream of small ones that would always fit.
#[test]
fn a_giant_is_not_starved_by_small_ones() {
    let mut rig = Rig::new(10, config());
    rig.submit(request(1, 3, 9)).unwrap();
    rig.step();
    rig.submit(request(2, 37, 2)).unwrap();
    for id in 3..200 {
        let _ = rig.submit(request(id, 3, 9));
        rig.step();
        if rig.running().contains(&2) {
            // Ten steps of patience, then the longest of those inside.
            assert!(id <= 3 + 10 + 9, "after {id} others");
            return;
        }
    }
    unreachable!("the giant starved");
}

#[test]
fn many_that_do_not_fit_do_not_hide_one_that_does_for_ever() {
    let mut rig = Rig::new(10, Config { queue_len: 64, ageing_steps: 1000, ..config() });
    rig.submit(request(1, 3, 30)).unwrap();
    rig.step();
    for id in 2..40 {
        rig.submit(request(id, 37, 1)).unwrap();
    }
    rig.submit(request(40, 3, 2)).unwrap();
    rig.drain();
    assert_eq!(rig.ended.len(), 40);
}

/// What bounds the cost of a step under a long queue.
#[test]
fn sixteen_that_do_not_fit_are_looked_at_in_a_step() {
    let comes_in = |giants: u64| {
        let mut rig = Rig::new(10, Config { queue_len: 64, ageing_steps: 1000, ..config() });
        rig.submit(request(1, 3, 30)).unwrap();
        rig.step();
        (0..giants).for_each(|id| rig.submit(request(100 + id, 37, 1)).unwrap());
        rig.submit(request(2, 3, 2)).unwrap();
        rig.step();
        assert_eq!(rig.budget.other_rows, rig.plan.rows() - 1, "the budget is told");
        rig.running().contains(&2)
    };
    assert!(comes_in(15) && !comes_in(16));
}

#[test]
fn an_important_request_comes_in_past_less_important_ones() {
    let mut rig = Rig::new(32, Config { max_seqs: 2, ..config() });
    rig.submit(request(1, 3, 40)).unwrap();
    rig.submit(request(2, 3, 40)).unwrap();
    rig.step();
    rig.submit(request(3, 3, 4)).unwrap();
    rig.step();
    assert_eq!(rig.running(), [1, 2], "not for an equal");
    rig.submit(Request { priority: 1, ..request(4, 3, 4) }).unwrap();
    let plan = rig.step();
    assert_eq!(
        (plan.preempted.as_slice(), plan.admitted.as_slice()),
        (&[SeqId(2)][..], &[SeqId(4)][..])
    );
    assert_eq!((rig.running(), rig.waiting()), (vec![4, 1], vec![2, 3]));
    rig.drain();
    assert_eq!(rig.ended.len(), 4);
}

#[test]
fn nobody_is_sent_out_in_vain() {
    // The important one needs nine blocks; the unimportant ones hold too few.
    let mut rig = Rig::new(10, config());
    rig.submit(Request { priority: 1, ..request(1, 8, 20) }).unwrap();
    rig.submit(request(2, 7, 9)).unwrap();
    rig.step();
    rig.step();
    rig.submit(Request { priority: 1, ..request(3, 34, 2) }).unwrap();
    rig.step();
    assert_eq!((rig.running(), rig.waiting()), (vec![1, 2], vec![3]));
    // Blocks, not seats, keep this one out: one victim is enough.
    let mut rig = Rig::new(10, config());
    rig.submit(request(1, 12, 20)).unwrap();
    rig.submit(request(2, 12, 20)).unwrap();
    rig.steps(6);
    rig.submit(Request { priority: 1, ..request(3, 12, 2) }).unwrap();
    let plan = rig.step();
    assert_eq!(plan.preempted, [SeqId(2)]);
    assert_eq!(rig.running(), [3, 1]);
}

/// Two that share their prompt's blocks hold five together, not eight: with the three free ones that
/// is not enough for nine.
#[test]
fn nobody_is_sent_out_for_blocks_that_are_counted_twice() {
    let mut rig = Rig::new(10, config());
    rig.submit(Request { priority: 1, ..request(9, 4, 20) }).unwrap();
    let shared = |id| Request { id: SeqId(id), ..request(1, 12, 8) };
    rig.submit(shared(1)).unwrap();
    rig.steps(3);
    rig.submit(shared(2)).unwrap();
    rig.step();
    assert_eq!((rig.running(), rig.kv.usage().free), (vec![9, 1, 2], 3));
    rig.submit(Request { priority: 1, ..request(3, 34, 2) }).unwrap();
    rig.step();
    assert_eq!((rig.running(), rig.scheduler.stats().preempted), (vec![9, 1, 2], 0));
    // What is theirs alone does count.
    rig.submit(Request { priority: 2, ..request(4, 26, 2) }).unwrap();
    rig.step();
    assert_eq!((rig.running(), rig.scheduler.stats().preempted), (vec![4, 9], 2));
}

#[test]
fn age_protects_an_unimportant_request_that_runs() {
    let mut rig = Rig::new(32, Config { max_seqs: 1, ..config() });
    rig.submit(request(1, 3, 40)).unwrap();
    rig.steps(11);
    rig.submit(Request { priority: 1, ..request(2, 3, 4) }).unwrap();
    rig.step();
    assert_eq!(rig.running(), [1], "one level is worth ten steps");
}

#[test]
fn a_second_identical_prompt_is_found_but_for_its_last_token() {
    let mut rig = Rig::new(16, config());
    let again = |id, prompt| Request { id: SeqId(id), ..request(1, prompt, 2) };
    rig.submit(again(1, 12)).unwrap();
    rig.drain();
    for (id, prompt, hits) in [(2, 12, 8), (3, 13, 12), (4, 11, 8), (5, 4, 0)] {
        rig.submit(again(id, prompt)).unwrap();
        rig.step();
        let seq = rig.scheduler.get(SeqId(id)).or(rig.scheduler.ended().next().map(|end| end.0));
        assert_eq!(seq.unwrap().cached_tokens(), hits, "prompt of {prompt}");
        let span = rig.span(id).unwrap();
        assert_eq!((span.start, span.len), (hits, (prompt - hits).min(8)));
        rig.drain();
    }
    assert_eq!(rig.scheduler.stats().cached_tokens, 28);
}

#[test]
fn other_tenants_prompts_are_not_found() {
    let mut rig = Rig::new(16, config());
    for (id, salt) in [(1, 1), (2, 2)] {
        rig.submit(Request { id: SeqId(id), salt, ..request(1, 12, 2) }).unwrap();
        rig.drain();
    }
    assert_eq!(rig.scheduler.stats().cached_tokens, 0);
}

#[test]
fn cancel_works_wherever_the_request_is() {
    let mut rig = Rig::new(8, Config { max_seqs: 1, ..config() });
    rig.submit(request(1, 3, 9)).unwrap();
    rig.submit(request(2, 3, 9)).unwrap();
    rig.step();
    for id in [2, 1] {
        assert!(rig.scheduler.cancel(&mut rig.kv, SeqId(id)));
        assert!(!rig.scheduler.cancel(&mut rig.kv, SeqId(id)), "only once");
        let (seq, finish) = rig.scheduler.ended().last().unwrap();
        assert_eq!((seq.id(), finish), (SeqId(id), Finish::Cancelled));
    }
    assert!(!rig.scheduler.has_work());
    assert_eq!(rig.kv.usage().used, 0);
    rig.submit(request(3, 3, 9)).unwrap();
    rig.submit(request(4, 3, 9)).unwrap();
    rig.step();
    rig.scheduler.clear(&mut rig.kv);
    assert!(!rig.scheduler.has_work());
    assert_eq!((rig.kv.usage().used, rig.scheduler.stats().finished), (0, 4));
}
