//! B4 and B5: what is preempted, paused or aborted leaves nothing behind, neither state nor blocks.

use redline::{FinishReason, ModelRunner};
use redline_tests::requests::{Random, mixed};
use redline_tests::rig::{Draft, Rig, Said, assert_clean, drain_with, model, run};
use redline_tests::runners::Watched;

/// Passes in between fail.
fn failing(seed: u64) -> Box<dyn ModelRunner> {
    let mut target = Watched::new(model(0.0, 1));
    // Never twice in a row: that would end requests.
    target.fails = Box::new(move |pass| pass % 2 == 1 && Random(seed + pass as u64).below(4) == 0);
    Box::new(target)
}

/// At every step somebody may be taken back, preempted for want of blocks, put off by a pass that fails, or sent again:
/// who gets to the end has said what plain decoding says.
#[test]
fn b4_who_was_preempted_paused_or_sent_again_says_the_same() {
    let requests = mixed(33, 10);
    let expected = run(&mut Rig::default().build(), &requests);
    let (mut preempted, mut abandoned, mut again) = (0, 0, 0);
    for seed in 0..16 {
        let mut random = Random(seed);
        let draft = [Draft::Ngram, Draft::Model(0.2), Draft::Model(0.0)][random.below(3)];
        let (drafter, target) = (draft.drafter(1), failing(seed));
        let mut engine = Rig { target, drafter, blocks: 11, ..Rig::default() }.build();
        // Which request each id is of.
        let mut of: Vec<usize> = (0..requests.len()).collect();
        let mut ids: Vec<_> =
            requests.iter().map(|request| engine.submit(request.clone()).unwrap()).collect();
        let outputs = drain_with(&mut engine, &mut ids, |engine, ids, _| {
            let victim = random.below(ids.len());
            if random.below(4) == 0 && of.len() < 40 && engine.cancel(ids[victim]) {
                of.push(of[victim]);
                ids.push(engine.submit(requests[of[victim]].clone()).unwrap());
            }
        });
        for (output, &of) in outputs.iter().zip(&of) {
            if output.finish_reason == FinishReason::Cancelled {
                assert!(expected[of].token_ids.starts_with(&output.token_ids));
                again += 1;
            } else {
                assert_eq!(Said::from(&expected[of]), Said::from(output), "request {of}");
            }
        }
        let stats = engine.scheduler().stats();
        preempted += stats.preempted;
        abandoned += stats.abandoned;
    }
    assert!(preempted > 20 && abandoned > 20 && again > 50, "{preempted} {abandoned} {again}");
}

#[test]
fn b5_random_aborts_leave_the_pool_as_it_was() {
    let requests = mixed(31, 12);
    let expected = run(&mut Rig::default().build(), &requests);
    for seed in 0..24 {
        let mut random = Random(seed);
        let draft = [Draft::None, Draft::Ngram, Draft::Model(0.2)][random.below(3)];
        let blocks = [13, 256][random.below(2)];
        let seqs = 1 + random.below(8);
        let mut engine = Rig { drafter: draft.drafter(1), blocks, seqs, ..Rig::default() }.build();
        let mut ids: Vec<_> =
            requests.iter().map(|request| engine.submit(request.clone()).unwrap()).collect();
        let mut cancelled = vec![false; ids.len()];
        let outputs = drain_with(&mut engine, &mut ids, |engine, ids, _| {
            if random.below(3) == 0 {
                let victim = random.below(ids.len());
                let known = engine.cancel(ids[victim]);
                assert!(!known || !cancelled[victim], "once only");
                cancelled[victim] |= known;
            }
        });
        assert_clean(&engine);
        for (i, output) in outputs.iter().enumerate() {
            if cancelled[i] {
                assert_eq!(output.finish_reason, FinishReason::Cancelled);
                assert!(expected[i].token_ids.starts_with(&output.token_ids));
            } else {
                assert_eq!(Said::from(&expected[i]), Said::from(output), "request {i}");
            }
        }
    }
}
