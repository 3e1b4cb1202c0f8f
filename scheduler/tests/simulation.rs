//! Whole runs over tiny pools and two tokens.
#![allow(clippy::unwrap_used, reason = "a test may")]
mod sim;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use sim::World;

fn run(seed: u64, steps: u64) -> World {
    let mut world = World::new(seed);
    for _ in 0..steps {
        while world.scheduler.waiting_len() < world.shape.waiting && !world.rng.one_in(4) {
            world.arrive();
        }
        world.step();
    }
    world.drain(20_000);
    world
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_output_is_the_plain_run_whatever_the_schedule(seed in any::<u64>()) {
        run(seed, 200);
    }
}

#[test]
fn the_mix_has_enough_of_everything() {
    let (mut steps, mut running, mut drafts, mut moves) = (0, 0, 0, 0);
    let (mut preempted, mut cached) = (0, 0);
    for seed in 0..100 {
        let world = run(seed, 200);
        steps += world.steps;
        running += world.running;
        drafts += world.draft_steps;
        moves += world.moves;
        preempted += world.scheduler.stats().preempted;
        cached += world.scheduler.stats().cached_tokens;
    }
    assert!(running > 2 * steps, "{running} running in {steps} steps");
    assert!(drafts * 10 > steps * 3, "{drafts} steps of {steps} with drafts");
    assert!(preempted * 20 > steps, "{preempted} preemptions in {steps} steps");
    assert!(moves > 500 && cached > 1000, "{moves} moves, {cached} cached tokens");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..20 {
        let (a, b) = (run(seed, 100), run(seed, 100));
        assert_eq!((a.trace, a.steps), (b.trace, b.steps));
        assert_eq!(a.scheduler.stats(), b.scheduler.stats());
    }
}
