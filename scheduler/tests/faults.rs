//! Steps that fail, answers that come too late, callers that break the rules.
#![allow(clippy::unwrap_used, reason = "a test may")]
mod rig;

use redline_kv_cache::SequenceKv;
use redline_scheduler::{Commit, Config, Finish, Outcome, Request, SeqId};
use rig::{DRAFT, Rig, config, offer, request};

#[test]
fn a_failed_step_is_tried_again_and_then_ends_by_name() {
    let mut rig = Rig::new(16, config());
    rig.submit(request(1, 6, 20)).unwrap();
    rig.steps(2);
    rig.offers = vec![offer(1, 4, Some(DRAFT))];
    let before = |rig: &Rig| {
        let seq = rig.scheduler.get(SeqId(1)).unwrap();
        (seq.tokens().to_vec(), seq.computed(), seq.kv().filled(&rig.kv, DRAFT))
    };
    let state = before(&rig);
    rig.plan();
    assert_eq!(rig.abandon(), 0);
    assert_eq!(before(&rig), state, "as if it had not been");
    rig.step();
    rig.plan();
    assert_eq!(rig.abandon(), 0, "a good step in between starts the count anew");
    rig.plan();
    assert_eq!(rig.abandon(), 1);
    assert_eq!(rig.ended, [(SeqId(1), Finish::Failed)]);
    assert_eq!((rig.kv.usage().used, rig.scheduler.has_work()), (0, false));
    assert_eq!(rig.scheduler.stats().abandoned, 3);
}

#[test]
fn without_retries_the_first_failure_ends_all_that_were_in_the_step() {
    let mut rig = Rig::new(16, Config { retries: 0, max_seqs: 2, ..config() });
    (1..=3).for_each(|id| rig.submit(request(id, 6, 20)).unwrap());
    rig.plan();
    assert_eq!(rig.abandon(), 2);
    assert_eq!(rig.waiting(), [3], "who was not in it goes on");
    rig.drain();
}

#[test]
fn a_failed_outcome_ends_that_sequence_alone() {
    let mut rig = Rig::new(16, config());
    (1..=2).for_each(|id| rig.submit(request(id, 3, 20)).unwrap());
    rig.step();
    rig.plan();
    let good = Outcome::Round { path: vec![], tokens: vec![1], draft_fed: 0 };
    rig.commit(&[Outcome::Failed, good]);
    let failed = Commit { seq: SeqId(1), kept: 0, accepted: 0, finish: Some(Finish::Failed) };
    assert_eq!(rig.commits[0], failed);
    assert_eq!((rig.commits[1].kept, rig.running()), (1, vec![2]));
}

/// B4: what was cancelled, preempted or replaced under the same id since the plan was made.
#[test]
fn b4_late_answers_are_ignored() {
    type Meddle = fn(&mut Rig);
    let cases: &[Meddle] = &[
        |rig| assert!(rig.scheduler.cancel(&mut rig.kv, SeqId(1))),
        |rig| assert!(rig.scheduler.preempt(&mut rig.kv, SeqId(1))),
        |rig| {
            assert!(rig.scheduler.cancel(&mut rig.kv, SeqId(1)));
            rig.submit(request(1, 5, 9)).unwrap();
        },
        |rig| {
            assert!(rig.scheduler.cancel(&mut rig.kv, SeqId(1)));
            rig.submit(request(3, 5, 9)).unwrap();
            rig.submit(request(1, 5, 9)).unwrap();
        },
    ];
    for abandon in [false, true] {
        for (i, meddle) in cases.iter().enumerate() {
            let mut rig = Rig::new(16, config());
            (1..=2).for_each(|id| rig.submit(request(id, 3, 9)).unwrap());
            rig.step();
            rig.offers = vec![offer(1, 3, Some(DRAFT)), offer(2, 3, None)];
            rig.plan();
            assert!(rig.span(1).unwrap().drafts > 0);
            meddle(&mut rig);
            rig.scheduler.audit(&rig.kv).unwrap();
            let tokens = rig.scheduler.get(SeqId(1)).map(|seq| seq.tokens().len());
            if abandon {
                rig.abandon();
            } else {
                rig.finish_step();
                let nothing = Commit { seq: SeqId(1), kept: 0, accepted: 0, finish: None };
                assert_eq!(rig.commits[0], nothing, "case {i}");
                assert_eq!(rig.commits[1].kept, 4, "the other one is not touched");
            }
            assert_eq!(rig.scheduler.get(SeqId(1)).map(|seq| seq.tokens().len()), tokens);
            rig.drain();
        }
    }
}

#[test]
fn moves_that_were_not_done_leave_nothing_to_be_found() {
    let mut rig = Rig::new(16, config());
    rig.submit(request(1, 3, 20)).unwrap();
    rig.step();
    rig.offers = vec![offer(1, 6, None)];
    rig.plan();
    let tokens = vec![5, 6, 7, 8, 9];
    let _ = rig.scheduler.settle(&mut rig.kv, &mut rig.plan, &[6]);
    rig.commit(&[Outcome::Round { path: vec![1, 2, 3, 5], tokens, draft_fed: 0 }]);
    assert_eq!(rig.scheduler.get(SeqId(1)).unwrap().computed(), 8);
    rig.abandon();
    let seq = rig.scheduler.get(SeqId(1)).unwrap();
    assert_eq!((seq.computed(), seq.tokens().len()), (3, 9), "the tokens stay");
    rig.scheduler.cancel(&mut rig.kv, SeqId(1));
    assert_eq!(rig.kv.usage().cached, 1, "the block before");
    let prompt = vec![1100, 1101, 1102, 1, 5, 6, 7, 8, 9];
    rig.submit(Request { prompt, ..request(2, 9, 2) }).unwrap();
    rig.step();
    assert_eq!(rig.scheduler.get(SeqId(2)).unwrap().cached_tokens(), 4);
    rig.drain();
}

#[test]
fn a_step_without_work_needs_no_end() {
    let mut rig = Rig::new(8, config());
    for _ in 0..3 {
        assert!(rig.plan().is_empty());
    }
    rig.finish_step();
    rig.plan();
    assert_eq!(rig.abandon(), 0);
    rig.submit(request(1, 3, 2)).unwrap();
    rig.drain();
}

#[test]
fn those_who_ended_do_not_pile_up() {
    let mut rig = Rig::new(8, config());
    for id in 0..100 {
        rig.submit(request(id, 3, 2)).unwrap();
        assert!(rig.scheduler.cancel(&mut rig.kv, SeqId(id)));
    }
    assert_eq!(rig.scheduler.ended().count(), 12);
    assert_eq!(rig.scheduler.ended().last().unwrap().0.id(), SeqId(99));
    rig.plan();
    assert_eq!(rig.scheduler.ended().count(), 0);
}

#[test]
fn callers_that_break_the_rules_are_caught() {
    type Misuse = fn(&mut Rig);
    let round = |path: Vec<u32>, tokens| Outcome::Round { path, tokens, draft_fed: 0 };
    let cases: &[Misuse] = &[
        |rig| {
            rig.plan();
        },
        |rig| {
            let _ = rig.scheduler.settle(&mut rig.kv, &mut rig.plan, &[4]);
        },
        |rig| {
            let _ = rig.scheduler.settle(&mut rig.kv, &mut rig.plan, &[]);
        },
        |rig| rig.commit(&[]),
        |rig| rig.commit(&[Outcome::Chunk]),
        |rig| {
            rig.finish_step();
            rig.finish_step();
        },
        |rig| {
            rig.finish_step();
            let _ = rig.scheduler.settle(&mut rig.kv, &mut rig.plan, &[3]);
        },
        |rig| {
            rig.plan.spans.pop();
            rig.commit(&[]);
        },
        |rig| {
            rig.plan.step -= 1;
            rig.abandon();
        },
    ];
    let start = || {
        let mut rig = Rig::new(8, config());
        rig.submit(request(1, 3, 9)).unwrap();
        rig.step();
        rig.offers = vec![offer(1, 3, None)];
        rig.plan();
        rig
    };
    for (i, misuse) in cases.iter().enumerate() {
        let caught = std::panic::catch_unwind(|| misuse(&mut start()));
        assert!(caught.is_err(), "case {i}");
    }
    let outcomes = [
        round(vec![0], vec![1]),
        round(vec![0, 0], vec![1, 1, 1]),
        round(vec![1, 0], vec![1, 1, 1]),
        round(vec![3], vec![1, 1]),
        round(vec![], vec![]),
    ];
    for outcome in outcomes {
        let caught = std::panic::catch_unwind(|| start().commit(std::slice::from_ref(&outcome)));
        assert!(caught.is_err(), "{outcome:?}");
    }
    start().finish_step();
}

#[test]
fn a_scheduler_may_be_dropped_with_work_inside() {
    let mut rig = Rig::new(8, config());
    rig.submit(request(1, 3, 9)).unwrap();
    rig.step();
    assert!(rig.kv.usage().used > 0);
}

#[test]
fn an_audit_must_know_of_blocks_that_others_hold() {
    let mut rig = Rig::new(16, config());
    rig.submit(request(1, 6, 4)).unwrap();
    rig.step();
    let mut other = SequenceKv::new(0);
    other.reserve(&mut rig.kv, 5, &mut Vec::new()).unwrap();
    assert!(rig.scheduler.audit(&rig.kv).is_err());
    rig.scheduler.audit_beside(&rig.kv, &[&other]).unwrap();
    other.release(&mut rig.kv);
    rig.scheduler.audit(&rig.kv).unwrap();
}
