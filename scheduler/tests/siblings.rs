//! Several samples of one prompt: shared blocks, separate lives.
#![allow(clippy::unwrap_used, reason = "a test may")]
mod rig;

use redline_scheduler::{BlockCopy, Config, Finish, Request, SeqId, SubmitError};
use rig::{DRAFT, Rig, config, offer, request};

fn samples(id: u64, samples: usize, prompt: usize, max_tokens: usize) -> Request {
    Request { samples, ..request(id, prompt, max_tokens) }
}

fn table(rig: &Rig, id: u64) -> Vec<usize> {
    let seq = rig.scheduler.get(SeqId(id)).unwrap();
    seq.kv().table().iter().map(|block| block.index()).collect()
}

#[test]
fn all_samples_are_taken_in_or_none() {
    let mut rig = Rig::new(16, Config { queue_len: 3, ..config() });
    assert_eq!(rig.submit(samples(1, 0, 3, 4)), Err(SubmitError::ZeroSamples));
    let too_many = SubmitError::TooManySamples { samples: 4, limit: 3 };
    assert_eq!(rig.submit(samples(1, 4, 3, 4)), Err(too_many));
    let last = Request { samples: 2, ..Request::new(SeqId(u64::MAX), vec![1], 1) };
    assert_eq!(rig.submit(last), Err(SubmitError::DuplicateId), "there is no such id");
    rig.submit(request(3, 3, 4)).unwrap();
    assert_eq!(rig.submit(samples(1, 3, 3, 4)), Err(SubmitError::DuplicateId), "3 is taken");
    assert_eq!(rig.submit(samples(4, 3, 3, 4)), Err(SubmitError::QueueFull { limit: 3 }));
    rig.submit(samples(4, 2, 3, 4)).unwrap();
    assert_eq!(rig.waiting(), [3, 4, 5]);
    let seq = rig.scheduler.get(SeqId(5)).unwrap();
    assert_eq!((seq.first(), seq.sample()), (SeqId(4), 1));
    assert_eq!(rig.scheduler.get(SeqId(4)).unwrap().sample(), 0);
    rig.drain();
    assert_eq!(rig.ended.len(), 3);
}

/// The prompt has 11 tokens: ten positions to share, two of them in a block that both will write.
#[test]
fn a_prompt_is_computed_once_and_its_last_block_copied() {
    let mut rig = Rig::new(16, config());
    rig.submit(samples(1, 3, 11, 6)).unwrap();
    rig.step();
    assert_eq!((rig.running(), rig.waiting()), (vec![1], vec![2, 3]), "one computes, two wait");
    rig.step();
    assert_eq!(rig.running(), [1], "to its end");
    rig.plan();
    assert_eq!(rig.running(), [1, 2, 3]);
    let tables = [table(&rig, 1), table(&rig, 2), table(&rig, 3)];
    assert!(tables.iter().all(|table| table[..2] == tables[0][..2]), "full blocks are shared");
    let block = |at: usize| rig.scheduler.get(SeqId(at as u64 + 1)).unwrap().kv().table()[2];
    let copy = |to| BlockCopy { from: block(0), to: block(to), slots: 2 };
    assert_eq!(rig.plan.copies, [copy(1), copy(2)]);
    for id in [2, 3] {
        let span = rig.span(id).unwrap();
        assert_eq!((span.start, span.len, span.round), (10, 1, true), "the last token only");
        assert_eq!(rig.scheduler.get(SeqId(id)).unwrap().cached_tokens(), 10);
    }
    rig.finish_step();
    assert_eq!(rig.scheduler.stats().forked, 2);
    rig.drain();
    let ended: Vec<_> = rig.ended.iter().map(|(id, _)| id.0).collect();
    assert_eq!(ended, [1, 2, 3]);
}

/// Its last token is not shared: they need not wait for that.
#[test]
fn a_prompt_is_shared_as_soon_as_all_but_its_last_token_is_computed() {
    let mut rig = Rig::without_prefix_cache(16, config());
    rig.submit(samples(1, 2, 9, 4)).unwrap();
    assert_eq!(rig.step().spans[0].len, 8);
    rig.plan();
    assert_eq!((rig.running(), rig.span(2).unwrap().start), (vec![1, 2], 8));
    rig.finish_step();
    rig.drain();
}

#[test]
fn a_fork_works_without_a_prefix_cache_and_takes_over_what_a_drafter_has_filled() {
    let mut rig = Rig::without_prefix_cache(16, Config { max_seqs: 2, ..config() });
    rig.submit(samples(1, 2, 11, 20)).unwrap();
    rig.submit(Request { priority: 1, ..request(9, 3, 6) }).unwrap();
    rig.offers = vec![offer(1, 1, Some(DRAFT))];
    rig.budget.invest = true;
    let filled = |rig: &Rig, id| {
        let seq = rig.scheduler.get(SeqId(id)).unwrap();
        seq.kv().filled(&rig.kv, DRAFT)
    };
    let mut before = 0;
    while !rig.running().contains(&2) {
        before = filled(&rig, 1);
        rig.step();
    }
    assert_eq!(rig.scheduler.stats().forked, 1);
    assert_eq!((before > 10, filled(&rig, 2)), (true, 10));
    rig.drain();
}

#[test]
fn the_next_one_computes_the_prompt_if_the_first_is_gone() {
    for preempted in [true, false] {
        let mut rig = Rig::without_prefix_cache(16, config());
        rig.submit(samples(1, 3, 30, 4)).unwrap();
        rig.step();
        if preempted {
            // It comes back at once, and the others wait for it again.
            assert!(rig.scheduler.preempt(&mut rig.kv, SeqId(1)));
            rig.step();
            assert_eq!(rig.running(), [1]);
        } else {
            assert!(rig.scheduler.cancel(&mut rig.kv, SeqId(1)));
            rig.step();
            assert_eq!(rig.running(), [2]);
        }
        rig.drain();
        assert_eq!(rig.scheduler.stats().forked, 2 - u64::from(!preempted));
    }
}

#[test]
fn who_waits_for_a_sibling_stands_in_nobodys_way() {
    let bounds = Config { max_model_len: 256, ageing_steps: 3, queue_len: 16, ..config() };
    let mut rig = Rig::new(64, bounds);
    rig.submit(samples(1, 8, 100, 4)).unwrap();
    for id in 20..30 {
        rig.submit(request(id, 3, 1)).unwrap();
        rig.step();
        assert!(rig.ended.contains(&(SeqId(id), Finish::Length)), "{id} waits behind siblings");
    }
    assert_eq!((rig.running(), rig.waiting().len()), (vec![1], 7));
    rig.drain();
    assert_eq!(rig.scheduler.stats().forked, 7);
}

/// Nine tokens: the eight to share are two whole blocks, which the prefix cache finds as well.
#[test]
fn what_the_prefix_cache_has_is_not_forked() {
    let mut rig = Rig::new(16, config());
    rig.submit(samples(1, 2, 9, 4)).unwrap();
    rig.drain();
    let stats = rig.scheduler.stats();
    assert_eq!((stats.forked, stats.cached_tokens), (0, 8));
}

#[test]
fn nobody_is_sent_out_for_a_sample_that_waits_for_its_sibling() {
    let mut rig = Rig::new(32, Config { max_seqs: 2, ..config() });
    rig.submit(request(9, 3, 40)).unwrap();
    rig.step();
    rig.submit(Request { priority: 1, ..samples(1, 2, 40, 4) }).unwrap();
    while rig.span(1).is_none_or(|span| !span.round) {
        rig.step();
        assert_eq!((rig.running(), rig.waiting()), (vec![1, 9], vec![2]));
    }
    rig.step();
    assert_eq!((rig.running(), rig.waiting()), (vec![1, 2], vec![9]), "only now");
    rig.drain();
}

/// The fork is in a step that fails: the copy was perhaps not made.
#[test]
fn a_copy_that_an_abandoned_step_may_not_have_made_is_dropped() {
    let mut rig = Rig::without_prefix_cache(16, config());
    rig.submit(samples(1, 2, 7, 9)).unwrap();
    rig.step();
    rig.plan();
    assert_eq!((rig.plan.copies.len(), rig.running()), (1, vec![1, 2]));
    rig.abandon();
    let computed = |id| rig.scheduler.get(SeqId(id)).unwrap().computed();
    assert_eq!((computed(1), computed(2)), (7, 4), "back to the block before");
    rig.plan();
    let span = rig.span(2).unwrap();
    assert_eq!((span.start, span.len, rig.plan.copies.len()), (4, 3, 0));
    rig.finish_step();
    rig.drain();
}

/// Number 2 lost what it had forked, number 1 all: the better rank waits for nobody.
#[test]
fn nobody_waits_for_a_sibling_that_ranks_behind() {
    let mut rig = Rig::without_prefix_cache(16, config());
    rig.submit(samples(1, 2, 7, 9)).unwrap();
    rig.step();
    rig.plan();
    rig.abandon();
    assert!(rig.scheduler.preempt(&mut rig.kv, SeqId(1)));
    assert_eq!(rig.scheduler.get(SeqId(2)).unwrap().computed(), 4);
    rig.plan();
    assert_eq!(rig.running(), [1, 2]);
    rig.finish_step();
    rig.drain();
}

#[test]
fn samples_are_cancelled_together_or_one_by_one() {
    let mut rig = Rig::new(16, Config { max_seqs: 2, ..config() });
    rig.submit(samples(1, 4, 5, 20)).unwrap();
    rig.submit(request(9, 3, 2)).unwrap();
    rig.steps(3);
    assert_eq!(rig.running(), [1, 2]);
    assert!(rig.scheduler.cancel(&mut rig.kv, SeqId(2)));
    assert_eq!(rig.scheduler.cancel_samples(&mut rig.kv, SeqId(1)), 3, "running and waiting");
    assert_eq!(rig.scheduler.cancel_samples(&mut rig.kv, SeqId(1)), 0);
    let ended: Vec<_> = rig.scheduler.ended().map(|(seq, finish)| (seq.id().0, finish)).collect();
    assert_eq!(ended, [2, 1, 3, 4].map(|id| (id, Finish::Cancelled)));
    rig.drain();
    assert_eq!(rig.ended, [(SeqId(9), Finish::Length)]);
}

/// Once their ways part, a sibling that lost its blocks can share the prompt only.
#[test]
fn a_preempted_sibling_shares_no_more_than_is_the_same() {
    let mut rig = Rig::without_prefix_cache(16, config());
    rig.submit(samples(1, 2, 6, 20)).unwrap();
    rig.steps(2);
    rig.differ(SeqId(2));
    rig.steps(4);
    let generated = |id| rig.scheduler.get(SeqId(id)).unwrap().generated().to_vec();
    assert_ne!(generated(1)[1], generated(2)[1]);
    let same = generated(1).iter().zip(generated(2)).take_while(|(a, b)| **a == *b).count();
    rig.scheduler.preempt(&mut rig.kv, SeqId(2));
    rig.plan();
    assert_eq!(rig.span(2).unwrap().start, 6 + same);
    rig.finish_step();
    rig.drain();
}

/// Number 1 has less in common with number 3 than number 2, whoever of them is further.
#[test]
fn the_sibling_with_the_most_in_common_is_forked() {
    for first in [1, 2] {
        let mut rig = Rig::without_prefix_cache(32, config());
        rig.submit(samples(1, 3, 6, 20)).unwrap();
        rig.steps(2);
        rig.differ(SeqId(first));
        rig.steps(3);
        rig.differ(SeqId(3 - first));
        rig.steps(3);
        let generated = |id| rig.scheduler.get(SeqId(id)).unwrap().generated().to_vec();
        let own = generated(3);
        let same = |id| own.iter().zip(generated(id)).take_while(|(a, b)| **a == *b).count();
        let (less, most) = (same(first), same(3 - first));
        assert!(0 < less && less < most && most < own.len() - 1, "{less}, {most}");
        rig.scheduler.preempt(&mut rig.kv, SeqId(3));
        rig.plan();
        assert_eq!(rig.span(3).unwrap().start, 6 + most);
        rig.finish_step();
        rig.drain();
    }
}

/// Number 3 of the first request still runs when its first two names are used again.
#[test]
fn a_name_used_again_makes_no_siblings_of_strangers() {
    let mut rig = Rig::without_prefix_cache(16, config());
    rig.submit(samples(1, 3, 6, 20)).unwrap();
    rig.steps(2);
    for id in [1, 2] {
        assert!(rig.scheduler.cancel(&mut rig.kv, SeqId(id)));
    }
    let prompt = vec![5; 6];
    rig.submit(Request { prompt, salt: 1, ..samples(1, 2, 6, 4) }).unwrap();
    rig.plan();
    assert_eq!(rig.running(), [3, 1], "number 2 waits for the new number 1");
    assert_eq!((rig.span(1).unwrap().start, rig.scheduler.stats().forked), (0, 2));
    rig.finish_step();
    rig.drain();
}
