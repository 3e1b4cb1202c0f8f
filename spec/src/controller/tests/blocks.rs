//! Short runs of one batch after another, some with their drafts fixed, some left to the controller,
//! all on one controller: the way `redline-bench grid` compares them.

use std::collections::BTreeMap;

use super::crowd::Crowd;
use super::*;

/// Seconds by rows: lines between points in milliseconds.
fn lines(points: &[(f64, f64)], rows: f64) -> f64 {
    let above = points.partition_point(|point| point.0 < rows).clamp(1, points.len() - 1);
    let (a, b) = (points[above - 1], points[above]);
    1e-3 * (a.1 + (b.1 - a.1) * (rows - a.0) / (b.0 - a.0))
}

/// About what passes of a 1.5B and of its draft of 0.5B take on two cores.
const PAIR: (Time, Time) = (
    |rows| {
        let ends =
            [(1.0, 34.0), (2.0, 36.0), (4.0, 43.0), (8.0, 54.0), (16.0, 85.0), (512.0, 2200.0)];
        lines(&ends, rows)
    },
    |rows| lines(&[(1.0, 12.0), (4.0, 14.0), (8.0, 18.0), (512.0, 750.0)], rows),
);

/// Mean over blocks of tokens per second, as a multiple of what they are without drafts in the same
/// block: with so many drafts, and as the controller has it.
fn blocks(size: usize, rates: &[f64], gap: usize, tokens: usize) -> BTreeMap<Option<usize>, f64> {
    blocks_on(size, rates, (gap, tokens), |_| 1.0)
}

/// The same on a machine that becomes slower and faster from block to block.
fn blocks_on(
    size: usize,
    rates: &[f64],
    (gap, tokens): (usize, usize),
    slowness: impl Fn(u32) -> f64,
) -> BTreeMap<Option<usize>, f64> {
    let arms = [Some(0), Some(1), Some(2), Some(4), None];
    let mut crowd = Crowd::new(size, rates, (0, tokens), PAIR);
    let (mut ratios, count) = (BTreeMap::new(), 20);
    for block in 0..count {
        crowd.slowness = slowness(block);
        let paces = arms.map(|arm| crowd.block(arm, (128, gap), tokens));
        for (arm, pace) in arms.into_iter().zip(paces) {
            *ratios.entry(arm).or_insert(0.0) += pace / paces[0] / f64::from(count);
        }
    }
    ratios
}

/// P5, and what drafts fixed by others must not pay for: each block begins with as much to learn as
/// the last one, and may spend its own share on it.
#[test]
fn a_batch_explores_on_its_own_account() {
    let rates = [0.55, 0.9, 0.4, 0.75, 0.45, 0.6, 0.35, 0.5];
    for size in [4, 8, 16, 32] {
        for tokens in [24, 48, 96] {
            let auto = blocks(size, &rates, 32, tokens)[&None];
            assert!(auto > 0.98, "{size} x {tokens}: {auto:.3} of plain");
        }
    }
}

/// Times of few rows are measured often and follow the machine at once; those of more rows come late. The gain that seems to be
/// in between is none.
#[test]
fn a_machine_that_changes_its_speed_does_not_mislead() {
    for size in [2, 3, 4] {
        for seed in 0..8 {
            let slowness = |block: u32| {
                let draws = Draws { seed, sample: 0 };
                0.8 + 0.7 * draws.uniform(u64::from(block), 0, Purpose::Accept)
            };
            let auto = blocks_on(size, &[0.5, 0.65, 0.6, 0.45], (35, 48), slowness)[&None];
            assert!(auto > 0.97, "{size}, {seed}: {auto:.3} of plain");
        }
    }
}

#[test]
fn prompts_earn_nothing() {
    let mut controller = Controller::default();
    let prompt = StepTiming { rows: 256, verify_s: 0.9, ..StepTiming::default() };
    controller.observe_time(&prompt);
    assert_eq!(controller.account_s, 0.0);
    controller.observe_time(&StepTiming { seqs: 1, ..prompt });
    assert!(controller.account_s > 0.0);
}

#[test]
fn a_batch_gains_nearly_what_the_best_number_does() {
    let rates = [0.9, 0.85, 0.93, 0.88];
    for (size, least) in [(1, 1.3), (2, 1.1), (4, 1.0)] {
        for gap in [0, 32] {
            let ratios = blocks(size, &rates, gap, 96);
            let best = ratios.iter().filter(|(arm, _)| arm.is_some()).map(|(_, &ratio)| ratio);
            let (auto, best) = (ratios[&None], best.fold(0.0, f64::max));
            assert!(best > least && auto > 0.95 * best, "{size}, {gap}: {auto:.3}, best {best:.3}");
        }
    }
}
