//! Everything that can fail in a step fails once, at every place of a run: the Nth pass of the target, the Nth pass of the
//! draft model, the Nth move in the cache, an allocation at any time, the Nth event to a reader. Outputs are those of the
//! undisturbed run, no block is lost, and the engine goes on.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redline::spec::Drafter;
use redline::{AsyncEngine, DraftLength, DraftModel, Engine, GenerateRequest, TokenId};
use redline_tests::drafters::forest;
use redline_tests::patience::{idle, soon};
use redline_tests::requests::{greedy, mixed, prompt, whole};
use redline_tests::rig::{Draft, Rig, Said, drain_with, model, run, said};
use redline_tests::runners::Watched;
use redline_tests::words::VOCAB;

/// Requests of all sorts, and what plain decoding says to them.
fn undisturbed() -> (Vec<GenerateRequest>, Vec<Said>) {
    let mut requests = mixed(21, 4);
    requests.extend([32, 64].map(|length| greedy(&prompt(length, length as usize), 20)));
    let outputs = run(&mut Rig::default().build(), &requests);
    (requests, said(&outputs))
}

/// Whose pass fails.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Model {
    Target,
    Draft,
}

/// An engine with a draft model in which the `nth` pass (from 1) of one of the two fails; how many it has had.
fn engine(whose: Model, nth: usize) -> (Engine, Arc<AtomicUsize>) {
    let watched = |which: Model, noise: f32| {
        let mut model = Watched::new(model(noise, 1));
        model.fails = Box::new(move |pass| which == whose && pass == nth);
        model
    };
    let (target, draft) = (watched(Model::Target, 0.0), watched(Model::Draft, 0.2));
    let passes = if whose == Model::Target { &target.passes } else { &draft.passes }.clone();
    let drafter: Box<dyn Drafter> = Box::new(DraftModel::new("flaky", Box::new(draft), VOCAB));
    let rig = Rig { target: Box::new(target), drafter: Some(drafter), ..Rig::default() };
    (rig.build(), passes)
}

/// Two runs, the second over the first's prefixes, with every single failure that can be in them; then a third.
fn assert_made_up_for(whose: Model, abandons: u64, least: usize) {
    let (requests, expected) = undisturbed();
    let (mut undisturbed, passes) = engine(whose, 0);
    (0..2).for_each(|_| assert_eq!(expected, said(&run(&mut undisturbed, &requests))));
    let total = passes.load(Ordering::Relaxed);
    assert!(total >= least, "{total} passes tell little");
    for nth in 1..=total {
        let (mut engine, _) = engine(whose, nth);
        for time in 0..3 {
            let found = said(&run(&mut engine, &requests));
            assert_eq!(expected, found, "pass {nth} of the {whose:?} failed; run {time}");
        }
        assert_eq!(engine.scheduler().stats().abandoned, abandons, "pass {nth}");
    }
}

#[test]
fn the_nth_pass_of_the_target() {
    assert_made_up_for(Model::Target, 1, 40);
}

/// It costs its round the drafts, and nobody anything else.
#[test]
fn the_nth_pass_of_the_draft_model() {
    assert_made_up_for(Model::Draft, 0, 80);
}

/// Moves after an accepted tree path that cannot be done: the tokens stand, their KV is computed again.
#[test]
fn the_nth_move_of_an_accepted_path() {
    let requests: Vec<_> = (0..4).map(|i| greedy(&prompt(60 + i, 30), 40)).collect();
    let outputs = run(&mut Rig::default().build(), &requests);
    let (known, expected) = (whole(&requests, &outputs), said(&outputs));
    let moves = |fails: Box<dyn Fn(usize) -> bool + Send>| {
        let mut target = Watched::new(model(0.0, 1));
        target.relocation_fails = fails;
        let calls = target.relocations.clone();
        let rig = Rig {
            target: Box::new(target),
            drafter: Some(forest(VOCAB as TokenId, known.clone())),
            length: DraftLength::Fixed(9),
            ..Rig::default()
        };
        assert_eq!(expected, said(&run(&mut rig.build(), &requests)));
        calls.load(Ordering::Relaxed)
    };
    let total = moves(Box::new(|_| false));
    assert!(total >= 8, "{total} moves");
    for nth in 1..=total {
        moves(Box::new(move |n| n == nth));
    }
    moves(Box::new(|_| true));
}

/// The draft model goes and comes back, or stays away.
#[test]
fn a_draft_model_that_keeps_failing_is_only_slower() {
    let (requests, expected) = undisturbed();
    for n in [1, 2, 5, 9] {
        let mut draft = Watched::new(model(0.2, 1));
        draft.fails = Box::new(move |pass| pass == n || pass > n + 3);
        let passes = draft.passes.clone();
        let drafter = Box::new(DraftModel::new("flaky", Box::new(draft), VOCAB));
        let mut engine = Rig { drafter: Some(drafter), ..Rig::default() }.build();
        assert_eq!(expected, said(&run(&mut engine, &requests)));
        assert!(passes.load(Ordering::Relaxed) > n + 3);
    }
}

/// Every third pass, in a pool that preempts.
#[test]
fn every_third_pass_of_the_target() {
    let (requests, expected) = undisturbed();
    let mut target = Watched::new(model(0.0, 1));
    target.fails = Box::new(|pass| pass % 3 == 0);
    let drafter = Draft::Model(0.2).drafter(1);
    let mut engine = Rig { target: Box::new(target), drafter, blocks: 8, ..Rig::default() }.build();
    assert_eq!(expected, said(&run(&mut engine, &requests)));
    let stats = engine.scheduler().stats();
    assert!(stats.preempted > 0 && stats.abandoned > 5, "{stats:?}");
}

/// A pool of every size, from the one in which the longest request just fits to one that is never full: each
/// allocation fails in one of them.
#[test]
fn an_allocation_in_pools_of_every_size() {
    let (requests, expected) = undisturbed();
    let mut preempted = Vec::new();
    for blocks in 6..=30 {
        for draft in [Draft::Model(0.2), Draft::Ngram] {
            let mut engine = Rig { drafter: draft.drafter(1), blocks, ..Rig::default() }.build();
            for _ in 0..2 {
                assert_eq!(expected, said(&run(&mut engine, &requests)), "{blocks} blocks");
            }
            preempted.push(engine.scheduler().stats().preempted);
        }
    }
    assert!(preempted[0] > 0 && *preempted.last().unwrap() == 0, "{preempted:?}");
}

/// Before the Nth step somebody important takes most of the pool, and leaves two steps later.
#[test]
fn an_allocation_at_every_step() {
    let (requests, expected) = undisturbed();
    let (mut steps, mut preempted) = (usize::MAX, 0);
    for nth in 0.. {
        if nth > steps {
            break;
        }
        let drafter = Draft::Model(0.2).drafter(1);
        let mut engine = Rig { drafter, blocks: 10, ..Rig::default() }.build();
        let submit = |request: &GenerateRequest| engine.submit(request.clone()).unwrap();
        let mut ids: Vec<_> = requests.iter().map(submit).collect();
        let hog = GenerateRequest { priority: 100, ..greedy(&prompt(9, 240), 9) };
        let outputs = drain_with(&mut engine, &mut ids, |engine, ids, step| {
            steps = if nth == 0 { step } else { steps };
            if step == nth {
                ids.push(engine.submit(hog.clone()).unwrap());
            } else if step == nth + 2 {
                engine.cancel(*ids.last().unwrap());
            }
        });
        assert_eq!(expected, said(&outputs[..requests.len()]), "at step {nth}");
        preempted += engine.scheduler().stats().preempted;
    }
    assert!(preempted > 10, "{preempted} preemptions");
}

/// A reader goes away after every number of events. The others are told what they would have been, and afterwards the
/// whole pool can be had.
#[tokio::test]
async fn the_nth_event_to_a_reader() {
    let requests: Vec<_> = (0..3).map(|i| greedy(&prompt(70 + i, 30), 24)).collect();
    let expected = said(&run(&mut Rig::default().build(), &requests));
    for nth in 0..=25 {
        let rig = Rig { drafter: Draft::Model(0.2).drafter(1), blocks: 8, ..Rig::default() };
        let engine = AsyncEngine::spawn(rig.build()).unwrap();
        let mut streams = Vec::new();
        for request in &requests {
            streams.push(soon(engine.submit(request.clone())).await.unwrap());
        }
        let mut victim = streams.remove(1);
        for _ in 0..nth {
            soon(victim.next()).await;
        }
        drop(victim);
        for (stream, expected) in streams.into_iter().zip([&expected[0], &expected[2]]) {
            assert_eq!(&Said::from(&soon(stream.finish()).await.unwrap()), expected);
        }
        idle(&engine).await;
        let all = soon(engine.submit(greedy(&prompt(3, 250), 6))).await.unwrap();
        assert_eq!(soon(all.finish()).await.unwrap().token_ids.len(), 6, "reader {nth}");
        soon(engine.shut_down()).await;
    }
}
