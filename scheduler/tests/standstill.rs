//! Deadlines, pausing, holding, draining and clearing.
#![allow(clippy::unwrap_used, reason = "a test may")]
mod rig;

use redline_scheduler::{Config, Finish, Request, SeqId, SubmitError};
use rig::{Rig, config, request};

fn ended(rig: &Rig) -> Vec<(u64, Finish)> {
    rig.scheduler.ended().map(|(seq, finish)| (seq.id().0, finish)).collect()
}

#[test]
fn a_deadline_ends_a_request_wherever_it_is() {
    let mut rig = Rig::new(16, Config { max_seqs: 1, ..config() });
    for (id, deadline) in [(1, Some(50)), (2, Some(40)), (3, None), (4, Some(60))] {
        rig.submit(Request { deadline, ..request(id, 3, 20) }).unwrap();
    }
    rig.steps(2);
    assert_eq!(rig.scheduler.expire(&mut rig.kv, 39), 0);
    assert_eq!(rig.scheduler.expire(&mut rig.kv, 50), 2, "running and waiting");
    assert_eq!(ended(&rig), [(1, Finish::Expired), (2, Finish::Expired)]);
    let tokens: Vec<_> = rig.scheduler.ended().map(|(seq, _)| seq.generated().len()).collect();
    assert_eq!(tokens, [2, 0], "what it has is kept");
    rig.scheduler.audit(&rig.kv).unwrap();
    assert_eq!(rig.scheduler.expire(&mut rig.kv, 59), 0);
    assert_eq!(rig.scheduler.expire(&mut rig.kv, 60), 1);
    assert_eq!(rig.scheduler.expire(&mut rig.kv, u64::MAX), 0, "no deadline, no end");
    assert_eq!(rig.scheduler.stats().expired, 3);
    rig.drain();
    assert_eq!(rig.ended, [(SeqId(3), Finish::Length)]);
}

#[test]
fn a_deadline_may_pass_between_plan_and_commit() {
    let mut rig = Rig::new(16, config());
    rig.submit(Request { deadline: Some(1), ..request(1, 3, 20) }).unwrap();
    rig.submit(request(2, 3, 20)).unwrap();
    rig.plan();
    assert_eq!(rig.scheduler.expire(&mut rig.kv, 1), 1);
    rig.finish_step();
    assert_eq!(rig.commits.iter().map(|commit| commit.kept).collect::<Vec<_>>(), [0, 1]);
    rig.drain();
}

#[test]
fn nothing_is_planned_while_paused_and_nothing_is_lost() {
    let mut rig = Rig::new(16, config());
    rig.submit(request(1, 6, 5)).unwrap();
    rig.step();
    let used = rig.kv.usage().used;
    rig.scheduler.pause();
    assert!(rig.scheduler.is_paused() && !rig.scheduler.has_work());
    assert!(!rig.scheduler.is_empty());
    rig.submit(request(2, 6, 5)).unwrap();
    for _ in 0..3 {
        assert!(rig.plan().is_empty());
    }
    assert_eq!((rig.running(), rig.waiting(), rig.kv.usage().used), (vec![1], vec![2], used));
    rig.scheduler.resume();
    rig.drain();
    assert_eq!(rig.ended.len(), 2);
}

#[test]
fn a_pause_in_the_middle_of_a_step_lets_it_end() {
    let mut rig = Rig::new(16, config());
    rig.submit(request(1, 3, 5)).unwrap();
    rig.plan();
    rig.scheduler.pause();
    rig.finish_step();
    assert_eq!(rig.scheduler.get(SeqId(1)).unwrap().generated().len(), 1);
    assert!(rig.plan().is_empty());
    assert!(rig.scheduler.cancel(&mut rig.kv, SeqId(1)));
    assert_eq!(ended(&rig), [(1, Finish::Cancelled)]);
}

#[test]
fn who_is_held_keeps_blocks_and_place_and_the_others_go_on() {
    let mut rig = Rig::new(16, Config { max_seqs: 2, ..config() });
    for id in 1..=4 {
        rig.submit(request(id, 6, 5)).unwrap();
    }
    rig.step();
    let blocks = |rig: &Rig| rig.scheduler.get(SeqId(1)).unwrap().kv().table().len();
    let (had, generated) = (blocks(&rig), 1);
    assert_eq!(rig.scheduler.hold(SeqId(1), true), 1);
    assert_eq!(rig.scheduler.hold(SeqId(3), true), 1, "one that waits");
    assert_eq!(rig.scheduler.hold(SeqId(9), true), 0);
    // 2 ends, and 4 does, which came after 3.
    while rig.scheduler.has_work() {
        rig.step();
    }
    assert_eq!(rig.ended, [(SeqId(2), Finish::Length), (SeqId(4), Finish::Length)]);
    assert_eq!((rig.running(), rig.waiting(), blocks(&rig)), (vec![1], vec![3], had));
    assert_eq!(rig.scheduler.get(SeqId(1)).unwrap().generated().len(), generated);
    assert!(rig.plan().is_empty() && !rig.scheduler.is_empty());
    rig.scheduler.hold(SeqId(1), false);
    rig.scheduler.hold(SeqId(3), false);
    rig.drain();
    assert_eq!(rig.ended[2..], [(SeqId(1), Finish::Length), (SeqId(3), Finish::Length)]);
}

#[test]
fn who_is_held_in_the_middle_of_a_step_gets_what_it_gave_and_can_be_cancelled() {
    let mut rig = Rig::new(16, config());
    rig.submit(request(1, 3, 5)).unwrap();
    rig.plan();
    rig.scheduler.hold(SeqId(1), true);
    rig.finish_step();
    assert_eq!(rig.scheduler.get(SeqId(1)).unwrap().generated().len(), 1);
    assert!(!rig.scheduler.has_work() && rig.plan().is_empty());
    assert!(rig.scheduler.cancel(&mut rig.kv, SeqId(1)));
    assert_eq!((ended(&rig), rig.kv.usage().used), (vec![(1, Finish::Cancelled)], 0));
}

#[test]
fn samples_are_held_together() {
    let mut rig = Rig::new(16, config());
    rig.submit(Request { samples: 3, ..request(1, 40, 4) }).unwrap();
    rig.step();
    assert_eq!(rig.scheduler.hold(SeqId(1), true), 3);
    assert!(rig.scheduler.get(SeqId(3)).unwrap().is_held() && !rig.scheduler.has_work());
    assert_eq!(rig.scheduler.hold(SeqId(2), true), 0, "the first stands for all");
    rig.scheduler.hold(SeqId(1), false);
    rig.drain();
    assert_eq!(rig.ended.len(), 3);
}

#[test]
fn who_drains_takes_nothing_new_and_finishes_the_rest() {
    let mut rig = Rig::new(16, Config { max_seqs: 1, ..config() });
    rig.submit(request(1, 3, 5)).unwrap();
    rig.submit(request(2, 3, 5)).unwrap();
    rig.scheduler.drain();
    assert!(rig.scheduler.is_draining());
    assert_eq!(rig.submit(request(3, 3, 5)), Err(SubmitError::Draining));
    rig.drain();
    assert_eq!(rig.ended.len(), 2);
    rig.scheduler.resume();
    rig.submit(request(3, 3, 5)).unwrap();
    rig.drain();
}

/// Each more important request puts the one before back into the queue. They must not pile up, and
/// all must be told of their end.
#[test]
fn those_put_back_by_more_important_ones_do_not_pile_up() {
    let mut rig = Rig::new(8, Config { max_seqs: 1, queue_len: 2, ..config() });
    let mut taken = 0;
    for priority in 0..6 {
        match rig.submit(Request { priority, ..request(priority as u64, 3, 9) }) {
            Ok(()) => taken += 1,
            Err(error) => assert_eq!(error, SubmitError::QueueFull { limit: 2 }),
        }
        rig.step();
    }
    assert_eq!((taken, rig.running(), rig.waiting()), (3, vec![2], vec![1, 0]));
    rig.scheduler.clear(&mut rig.kv);
    let told = ended(&rig);
    assert_eq!(told.len(), 3, "only {told:?} were told");
}
