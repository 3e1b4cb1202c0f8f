//! B1: slots for drafts at the end of a block. What was not reserved is poison, what is read must be finite and right.

use redline::{DraftLength, GenerateRequest};
use redline_tests::drafters::{forest, wavering};
use redline_tests::proof::Proving;
use redline_tests::requests::{greedy, prompt, whole};
use redline_tests::rig::{Draft, Rig, run, said};
use redline_tests::words::VOCAB;
use std::sync::atomic::Ordering;

/// Five drafts behind every length around the end of a block, with NaN in every block that nobody owns.
#[test]
fn b1_drafts_across_the_end_of_a_block_see_only_what_was_reserved() {
    let lengths = [27, 28, 29, 30, 31, 32, 33, 63];
    let requests: Vec<GenerateRequest> =
        lengths.iter().map(|&n| greedy(&prompt(n as u64, n), 40)).collect();
    let plain = run(&mut Rig::default().build(), &requests);
    let known = whole(&requests, &plain);
    let vocab = VOCAB as u32;
    for drafter in [
        Draft::Model(0.0).drafter(1),
        Draft::Model(0.3).drafter(1),
        Some(wavering(vocab, known.clone(), 1)),
        Some(forest(vocab, known.clone())),
    ] {
        let mut target = Proving::new();
        target.poison = true;
        let proved = target.proved.clone();
        let rig = Rig {
            target: Box::new(target),
            drafter,
            length: DraftLength::Fixed(5),
            prefix_cache: false,
            ..Rig::default()
        };
        let found = run(&mut rig.build(), &requests);
        assert_eq!(said(&plain), said(&found));
        let drafted: usize = found.iter().map(|output| output.speculation.drafted).sum();
        assert!(drafted > 200, "{drafted} drafts");
        assert!(proved.load(Ordering::Relaxed) > drafted);
    }
}
