//! Requests that are held and let go on: nothing is computed for them meanwhile, and their text is the one they would
//! have had.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use redline::{Engine, Event, FinishReason, RequestId};
use redline_tests::requests::{Random, greedy, mixed};
use redline_tests::rig::{Draft, Rig, Said, assert_clean, run, said};

/// How many tokens each of these has, by the scheduler's names.
fn lengths(engine: &Engine, which: impl Fn(RequestId) -> bool) -> BTreeMap<u64, usize> {
    let scheduler = engine.scheduler();
    let known = scheduler.running().chain(scheduler.waiting());
    let chosen = known.filter(|seq| which(RequestId(seq.first().0)));
    chosen.map(|seq| (seq.id().0, seq.tokens().len())).collect()
}

/// Holds and releases by chance, before every step; somebody is always free.
struct Moods {
    random: Random,
    held: Vec<RequestId>,
    /// The lengths of the held before the last step.
    before: BTreeMap<u64, usize>,
    holds: usize,
}

impl Moods {
    fn change(&mut self, engine: &mut Engine, ids: &[RequestId]) {
        let held = &self.held;
        let after = lengths(engine, |id| held.contains(&id));
        assert_eq!(after, self.before, "a held request got a token, or ended");
        for &id in ids {
            let change = self.random.below(6) == 0;
            match self.held.iter().position(|&held| held == id) {
                Some(at) if change => {
                    assert!(engine.hold(id, false));
                    self.held.swap_remove(at);
                }
                None if change && engine.hold(id, true) => {
                    self.held.push(id);
                    self.holds += 1;
                }
                _ => {}
            }
        }
        if !engine.has_work() {
            let id = self.held.pop().expect("somebody is held, or the run would have ended");
            assert!(engine.hold(id, false));
        }
        let held = &self.held;
        self.before = lengths(engine, |id| held.contains(&id));
    }
}

#[test]
fn a_text_is_the_same_after_any_holds() {
    let requests = mixed(31, 14);
    let expected = said(&run(&mut Rig::default().build(), &requests));
    let mut preempted = 0;
    for (seed, draft) in [Draft::None, Draft::Ngram, Draft::Model(0.3)].into_iter().enumerate() {
        for blocks in [14, 256] {
            let drafter = draft.drafter(1);
            let mut engine = Rig { drafter, blocks, seqs: 5, ..Rig::default() }.build();
            let submit = |request: &_| engine.submit(Clone::clone(request)).unwrap();
            let ids: Vec<_> = requests.iter().map(submit).collect();
            let random = Random(seed as u64);
            let mut moods = Moods { random, held: Vec::new(), before: BTreeMap::new(), holds: 0 };
            let mut outputs = BTreeMap::new();
            for step in 0.. {
                if outputs.len() == ids.len() {
                    break;
                }
                assert!(step < 20_000, "it gets nowhere: {outputs:?}");
                moods.change(&mut engine, &ids);
                for event in engine.step() {
                    assert!(!moods.held.contains(&event.id()), "{event:?} of a held request");
                    if let Event::Finished { id, output, .. } = event {
                        outputs.insert(id.0, Said::from(&*output));
                    }
                }
            }
            assert_clean(&engine);
            assert_eq!(outputs.into_values().collect::<Vec<_>>(), expected, "{draft:?}, {blocks}");
            assert!(moods.holds > 20, "{} holds", moods.holds);
            preempted += engine.scheduler().stats().preempted;
        }
    }
    assert!(preempted > 0, "memory was never short");
}

#[test]
fn a_hold_is_for_all_samples_and_for_nobody_else() {
    let mut engine = Rig::default().build();
    let two = redline::GenerateRequest { samples: 2, ..greedy(&[3, 4], 6) };
    let held = engine.submit(two).unwrap();
    let free = engine.submit(greedy(&[5, 6], 6)).unwrap();
    assert!(!engine.hold(RequestId(77), true), "nobody is called so");
    assert!(engine.hold(held, true));
    let mut ended = Vec::new();
    engine.run(|event| ended.extend(matches!(event, Event::Finished { .. }).then(|| event.name())));
    assert_eq!(ended, [(free, 0)]);
    assert!(!engine.hold(free, true), "it has ended");
    assert_eq!(lengths(&engine, |id| id == held).into_values().collect::<Vec<_>>(), [2, 2]);
    assert!(engine.hold(held, false));
    engine.run(|event| ended.extend(matches!(event, Event::Finished { .. }).then(|| event.name())));
    assert_eq!(ended.len(), 3);
    assert_clean(&engine);
}

/// How the only request ends that the next steps tell of.
fn end(engine: &mut Engine) -> FinishReason {
    let events = engine.step();
    let mut ends = events.iter().filter_map(|event| match event {
        Event::Finished { output, .. } => Some(output.finish_reason),
        Event::Tokens { .. } => None,
    });
    let end = ends.next().expect("an end");
    assert_eq!(ends.next(), None);
    end
}

#[test]
fn the_held_are_cancelled_and_time_out_like_others() {
    let mut engine = Rig::default().build();
    let id = engine.submit(greedy(&[3, 4], 50)).unwrap();
    engine.step();
    engine.step();
    assert!(engine.hold(id, true));
    assert!(!engine.has_work());
    assert!(engine.cancel(id));
    assert_eq!(end(&mut engine), FinishReason::Cancelled);
    assert_clean(&engine);

    let timeout = Some(Duration::from_millis(1));
    let id = engine.submit(redline::GenerateRequest { timeout, ..greedy(&[3, 4], 50) }).unwrap();
    assert!(engine.hold(id, true));
    sleep(Duration::from_millis(5));
    assert_eq!(end(&mut engine), FinishReason::Timeout);
    assert_clean(&engine);
}

#[test]
fn a_run_ends_when_all_others_wait_for_the_held() {
    // One seat, and one block more than a sequence needs: who waits wants the seat, or the memory.
    for (seqs, blocks) in [(1, 256), (8, 3)] {
        let requests = [greedy(&[1; 40], 8), greedy(&[2; 40], 8)];
        let alone = |request: &_| {
            Said::from(&run(&mut Rig::default().build(), std::slice::from_ref(request))[0])
        };
        let expected: Vec<_> = requests.iter().map(alone).collect();
        let mut engine = Rig { seqs, blocks, ..Rig::default() }.build();
        let ids = requests.map(|request| engine.submit(request).unwrap());
        engine.step();
        assert!(engine.hold(ids[0], true));
        engine.run(|event| panic!("nobody can go on: {event:?}"));
        assert_eq!((engine.scheduler().running_len(), engine.scheduler().waiting_len()), (1, 1));
        assert!(engine.hold(ids[0], false));
        let mut found = Vec::new();
        engine.run(|event| {
            if let Event::Finished { output, .. } = event {
                found.push(Said::from(&*output));
            }
        });
        assert_eq!(found, expected, "{seqs} seats, {blocks} blocks");
        assert_clean(&engine);
    }
}
