//! B14: a draft model whose context is shorter than the target's.

use redline::model::tiny::Tiny;
use redline::{DraftLength, DraftModel, ModelRunner, RunOptions};
use redline_tests::requests::{greedy, prompt};
use redline_tests::rig::{Rig, run, said, tiny};
use redline_tests::words::VOCAB;

fn with_context(context: usize) -> Box<dyn ModelRunner> {
    let options = RunOptions { threads: 1, ..RunOptions::default() };
    Box::new(Tiny { context, ..tiny(0.0) }.build(options).unwrap())
}

#[test]
fn b14_a_draft_context_of_64_under_a_target_of_128_that_is_filled() {
    let lengths = [10, 50, 63, 64, 70, 127];
    let requests: Vec<_> = lengths.iter().map(|&n| greedy(&prompt(n as u64, n), 500)).collect();
    let plain = run(&mut Rig { target: with_context(128), ..Rig::default() }.build(), &requests);
    for (output, prompt) in plain.iter().zip(lengths) {
        assert_eq!(output.token_ids.len(), 128 - prompt, "to the last position");
    }
    for length in [1, 4, 9] {
        let drafter = Some(Box::new(DraftModel::new("short", with_context(64), VOCAB)) as _);
        let length = DraftLength::Fixed(length);
        let rig = Rig { target: with_context(128), drafter, length, ..Rig::default() };
        let outputs = run(&mut rig.build(), &requests);
        assert_eq!(said(&plain), said(&outputs), "{length:?}");
        let drafted: Vec<_> = outputs.iter().map(|output| output.speculation.drafted).collect();
        assert!(drafted[0] > 20, "{length:?}: {drafted:?}");
        assert_eq!(drafted[3..], [0, 0, 0], "beyond the draft's context");
        let stats = &outputs[0].speculation;
        assert_eq!(stats.accepted, stats.drafted, "up to the last position it can hold");
    }
}
