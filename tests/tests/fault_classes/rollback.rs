//! B2: KV after rejection. Every row of a batch keeps another number of drafts, every round; what it sees afterwards is
//! what a fresh prefill of its committed tokens gives.

use redline::{DraftLength, RequestOutput};
use redline_tests::drafters::{forest, wavering};
use redline_tests::proof::Proving;
use redline_tests::requests::{mixed, whole};
use redline_tests::rig::{Rig, run, said};
use redline_tests::words::VOCAB;
use std::sync::atomic::Ordering;

const DRAFTS: usize = 6;

#[test]
fn b2_rows_that_keep_different_numbers_of_drafts_are_as_computed_afresh() {
    let mut requests = mixed(23, 8);
    requests.iter_mut().for_each(|request| {
        request.ignore_eos = true;
        request.max_tokens = 40;
    });
    let plain = run(&mut Rig::default().build(), &requests);
    let known = whole(&requests, &plain);
    let run_with = |drafter, blocks| {
        let target = Proving::new();
        let proved = target.proved.clone();
        let rig = Rig {
            target: Box::new(target),
            drafter: Some(drafter),
            length: DraftLength::Fixed(DRAFTS),
            blocks,
            ..Rig::default()
        };
        let mut engine = rig.build();
        let found = run(&mut engine, &requests);
        assert_eq!(said(&plain), said(&found));
        assert!(proved.load(Ordering::Relaxed) > 500);
        (found, engine.scheduler().stats().preempted)
    };
    for seed in 0..6 {
        // Twelve blocks: rounds are cut short by preemption, too.
        let blocks = [256, 12][seed as usize % 2];
        let (found, preempted) = run_with(wavering(VOCAB as u32, known.clone(), seed), blocks);
        let kept = histogram(&found);
        assert!(kept.iter().all(|&rounds| rounds >= 3), "every number is kept: {kept:?}");
        assert_eq!(preempted > 0, blocks == 12);
    }
    run_with(forest(VOCAB as u32, known), 256);
}

/// Rounds that kept 0, 1, … drafts.
fn histogram(outputs: &[RequestOutput]) -> [usize; DRAFTS + 1] {
    let mut kept = [0; DRAFTS + 1];
    for output in outputs {
        for (at, rounds) in output.speculation.acceptance_histogram.iter().enumerate() {
            kept[at] += rounds;
        }
    }
    kept
}
