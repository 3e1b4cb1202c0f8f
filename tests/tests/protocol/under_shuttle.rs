//! Larger scenes than loom can walk through, in schedules drawn by shuttle: at random, and by PCT, which finds whatever
//! takes few switches at the right moments. Seeds are fixed by the schedulers, so the outcome is too.

pub(crate) use shuttle as tool;

#[path = "fake.rs"]
pub(crate) mod fake;
#[path = "../../../engine/src/protocol.rs"]
pub(crate) mod protocol;
#[path = "scenes.rs"]
mod scenes;
#[path = "channels/mod.rs"]
pub(crate) mod sync;

use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner};

/// Switches at the right moments that PCT plans for.
const DEPTH: usize = 3;
const SCHEDULES: usize = 4000;

fn choose(below: usize) -> usize {
    shuttle::rand::thread_rng().gen_range(0..below)
}

fn draw(scheduler: impl Scheduler + 'static, scene: fn()) {
    let mut config = Config::new();
    config.max_steps = MaxSteps::FailAfter(100_000);
    Runner::new(scheduler, config).run(scene);
}

fn crowd() {
    scenes::crowd(choose, false);
}

fn crowd_of_a_dying_engine() {
    scenes::crowd(choose, true);
}

#[test]
fn a_crowd_at_random() {
    draw(RandomScheduler::new_from_seed(1, SCHEDULES), crowd);
}

#[test]
fn a_crowd_by_pct() {
    draw(PctScheduler::new_from_seed(2, DEPTH, SCHEDULES), crowd);
}

#[test]
fn a_dying_engine_at_random() {
    draw(RandomScheduler::new_from_seed(3, SCHEDULES), crowd_of_a_dying_engine);
}

#[test]
fn a_dying_engine_by_pct() {
    draw(PctScheduler::new_from_seed(4, DEPTH, SCHEDULES), crowd_of_a_dying_engine);
}
