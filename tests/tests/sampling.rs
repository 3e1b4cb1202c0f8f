//! A short run of the sampling suite: part of its grid, few samples. `redline-tests sampling` runs all of it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use redline_tests::sampling::grid::{Cell, Kind, Memory, Size, cells};
use redline_tests::sampling::suite::{one, run};

#[test]
fn what_the_engine_says_has_its_law() {
    // Seven and the number of cells have nothing in common with the numbers of settings.
    let some: Vec<Cell> = cells().into_iter().filter(|cell| cell.number % 7 == 3).collect();
    let report = run(&some, 2_000, 5, 2, |_| {});
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    assert!(report.tests > 250, "{} tests", report.tests);
    for rule in &report.rules {
        let [drafted, accepted, rounds, _] = rule.counts;
        assert!(accepted > rounds / 10 && drafted > rounds / 2, "{}: {:?}", rule.rule, rule.counts);
        assert!(rule.detectable[0].1 < 0.02, "{}: {:?}", rule.rule, rule.detectable);
    }
    assert!(report.rules.iter().all(|rule| rule.counts[3] > 0), "some cells preempt");
}

/// Cells that say so really run short: sequences lose their blocks, or drafts are cut.
#[test]
fn shortages_are_real() {
    let of = |memory| {
        let plain = Cell::plain("token", Kind::Without, false);
        one(&Cell { memory, size: Size::Large, batch: 16, ..plain }, 1_000, 1).counts
    };
    let (ample, blocks, rows) = (of(Memory::Ample), of(Memory::Blocks), of(Memory::Rows));
    assert!(ample[3] == 0 && blocks[3] > 100, "preempted: {} and {}", ample[3], blocks[3]);
    let share = |counts: [u64; 4]| counts[0] as f64 / counts[2] as f64;
    assert!(share(rows) < 0.9 * share(ample), "drafts: {} and {}", share(rows), share(ample));
}
