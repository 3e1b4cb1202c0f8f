//! The simulator itself: that it finds what it is for, and tells it the same way every time.

use super::episode::{Case, run};
use super::shrink::shrink;

/// A world in which slots in use are overwritten now and then.
fn rotten(number: u64) -> Case {
    let mut case = Case::of(9, number);
    case.shape.mishaps.rot = 50;
    case
}

#[test]
fn one_spoilt_slot_is_found_and_shrunk() {
    for number in 0..5 {
        let case = rotten(number);
        let episode = run(&case);
        let found = episode.broken.clone().expect("a spoilt slot is read");
        let (small, seen) = shrink(&case, &episode);
        assert!(seen.broken.is_some() && seen.counts.steps <= episode.counts.steps, "{found:?}");
        let shape = &small.shape;
        assert!(shape.max_seqs == 1 && shape.steps <= 200 && shape.lanes == 1, "{small:?}");
        let json = serde_json::to_string(&small).unwrap();
        let again = run(&serde_json::from_str(&json).unwrap());
        assert_eq!((again.broken, again.counts), (seen.broken, seen.counts), "as it was printed");
    }
}

#[test]
fn a_panic_is_a_violation_like_any_other() {
    let mut case = Case::of(9, 0);
    case.shape.drafters.clear();
    let found = run(&case).broken.expect("no drafter can be picked");
    assert!(found.0.starts_with("panic: ") && found.0.contains(".rs:"), "{found:?}");
}

#[test]
fn a_request_can_be_left_out() {
    let case = Case::of(9, 3);
    let mut fewer = case.clone();
    fewer.omit = vec![2];
    let (all, less) = (run(&case), run(&fewer));
    assert_eq!((all.broken, less.broken), (None, None));
    assert!(all.counts.trace != less.counts.trace && less.counts.requests > 0);
}
