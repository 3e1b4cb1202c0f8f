//! A short run of the simulator, with every assertion on. The long ones are `scripts/show simulation`.

use redline_tests::simulate::mix;

#[test]
fn every_rule_holds_in_the_default_mix() {
    let summary = mix(1, 300_000, 2);
    assert!(summary.violation.is_none(), "{:#?}", summary.violation);
    assert!(summary.steps >= 300_000);
    assert!(summary.mean_running >= 4.0, "{summary:?}");
    assert!(summary.share_with_drafts >= 0.30, "{summary:?}");
    assert!(summary.share_with_preemption >= 0.05, "{summary:?}");
}

#[test]
fn a_seed_gives_the_same_run_on_any_number_of_threads() {
    let runs = [1, 2, 3].map(|threads| mix(7, 20_000, threads));
    for run in &runs {
        assert_eq!((&run.trace_hash, run.steps), (&runs[0].trace_hash, runs[0].steps));
    }
    assert_ne!(mix(8, 20_000, 2).trace_hash, runs[0].trace_hash);
}
