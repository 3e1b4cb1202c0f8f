//! Steps that carry prefill beside the rounds.

use super::*;

/// Every step has a chunk, of a length that is only estimated.
#[test]
fn steps_with_prefill_learn_and_speculate() {
    let chunks: fn(u64) -> usize = |step| 130 + (step * 37 % 120) as usize;
    // Rows ride along for free up to 512.
    let mut world = World::new(|r| 1.0f64.max(r / 512.0), |_| 0.1);
    world.other_rows = (256, chunks);
    let actors = [model(0.8), model(0.9)];
    world.run(&actors, 300);
    world.reset();
    world.run(&actors, 2_000);
    let share = world.pace() / world.best(&actors).0;
    assert!(share > 0.95, "{share:.3} of the best");
}

/// A draft that takes longer than a plain step pays only while prefill makes steps long: the rows
/// of prefill alone tell one from the other.
#[test]
fn prefill_rows_count_in_the_length_of_a_step() {
    let chunks: fn(u64) -> usize = |step| 200 + (step * 37 % 56) as usize;
    let mut world = World::new(|r| 1.0f64.max(r / 8.0), |_| 1.5);
    let actors = [model(0.9)];
    for round in 0..6 {
        let prefill = round % 2 == 1;
        world.other_rows = if prefill { (256, chunks) } else { (0, |_| 0) };
        world.run(&actors, 50);
        world.reset();
        world.run(&actors, 500);
        let mean = world.drafted as f64 / world.steps as f64;
        assert!(if prefill { mean > 4.0 } else { mean < 0.1 }, "{round}: K {mean:.2}");
    }
}
