//! Several samples of one prompt, deadlines, pausing: what the engine makes of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::time::Duration;

use redline::{DraftLength, Event, FinishReason, GenerateRequest, Sampling, SubmitRefused};
use redline_tests::oracle::oracle;
use redline_tests::requests::{greedy, mixed, prompt};
use redline_tests::rig::{Draft, Rig, assert_clean, model, run, said};

/// Requests of all sorts, each with one to four samples.
fn several(seed: u64, n: usize) -> Vec<GenerateRequest> {
    let mut requests = mixed(seed, n);
    for (i, request) in requests.iter_mut().enumerate() {
        request.samples = 1 + i % 4;
        request.sampling.temperature = 1.0;
    }
    requests
}

#[test]
fn each_sample_is_what_plain_decoding_with_its_own_noise_gives() {
    let requests = several(51, 8);
    let mut plain = model(0.0, 1);
    let expected: Vec<_> = requests
        .iter()
        .flat_map(|request| (0..request.samples as u32).map(move |sample| (request, sample)))
        .map(|(request, sample)| oracle(plain.as_mut(), request, sample))
        .collect();
    assert_ne!(expected[1], expected[2], "two samples of one request");
    for draft in [Draft::None, Draft::Ngram, Draft::Model(0.2)] {
        for (seqs, blocks, prefix_cache) in [(8, 256, true), (3, 13, true), (8, 20, false)] {
            let drafter = draft.drafter(1);
            let rig = Rig { drafter, seqs, blocks, prefix_cache, ..Rig::default() };
            let mut engine = rig.build();
            let outputs = run(&mut engine, &requests);
            let ids: Vec<_> = outputs.iter().map(|output| output.token_ids.clone()).collect();
            assert_eq!(ids, expected, "{draft:?}, {seqs} seats, {blocks} blocks");
            let stats = engine.scheduler().stats();
            assert!(stats.forked > 0, "nothing was shared: {stats:?}");
            assert!(blocks > 13 || stats.preempted > 0, "the pool was to be too small");
        }
    }
}

/// The prompt ends in the middle of a block: that block is copied, the ones before are shared.
#[test]
fn the_prompt_is_computed_once() {
    let rig = Rig { prefix_cache: false, ..Rig::default() };
    let mut engine = rig.build();
    let sampling = Sampling { temperature: 1.0, ..Sampling::default() };
    let request = GenerateRequest { samples: 4, sampling, ..greedy(&prompt(3, 100), 8) };
    let outputs = run(&mut engine, &[request]);
    let cached: Vec<_> = outputs.iter().map(|output| output.usage.cached_tokens).collect();
    assert_eq!(cached, [0, 99, 99, 99]);
    assert_eq!(engine.scheduler().stats().forked, 3);
}

#[test]
fn cancelling_a_request_ends_all_its_samples() {
    let mut engine = Rig { seqs: 2, ..Rig::default() }.build();
    let id = engine.submit(GenerateRequest { samples: 3, ..greedy(&prompt(4, 40), 64) }).unwrap();
    let other = engine.submit(greedy(&prompt(5, 40), 40)).unwrap();
    (0..4).for_each(|_| drop(engine.step()));
    assert!(engine.cancel(id));
    assert!(!engine.cancel(id), "once only");
    let mut ended = Vec::new();
    while engine.has_work() {
        for event in engine.step() {
            if let Event::Finished { id, sample, output } = event {
                ended.push((id, sample, output.finish_reason));
            }
        }
    }
    let cancelled = |sample| (id, sample, FinishReason::Cancelled);
    let expected = [cancelled(0), cancelled(1), cancelled(2), (other, 0, FinishReason::Length)];
    assert_eq!(ended, expected);
    assert_clean(&engine);
}

#[test]
fn samples_that_are_none_or_too_many_are_refused() {
    let mut engine = Rig { queue_len: 4, ..Rig::default() }.build();
    let ask = |samples| GenerateRequest { samples, ..greedy(&[1, 2, 3], 4) };
    let refusal = |refused: SubmitRefused| refused.to_string();
    let none = engine.submit(ask(0)).map_err(refusal);
    assert_eq!(none, Err("samples is 0, must be 1 to 1024".into()));
    let absurd = engine.submit(ask(usize::MAX)).map_err(refusal);
    assert_eq!(absurd, Err(format!("samples is {}, must be 1 to 1024", usize::MAX)));
    let many = engine.submit(ask(5)).map_err(refusal);
    assert_eq!(many, Err("5 samples, at most 4 fit the queue".into()));
    assert_eq!(run(&mut engine, &[ask(4)]).len(), 4);
}

#[test]
fn who_runs_out_of_time_ends_with_what_there_is() {
    let mut engine = Rig { seqs: 1, length: DraftLength::Fixed(0), ..Rig::default() }.build();
    let timeout = Some(Duration::ZERO);
    let late = GenerateRequest { timeout, samples: 2, ..greedy(&prompt(6, 9), 50) };
    let late = engine.submit(late).unwrap();
    let timeout = Some(Duration::from_secs(3600));
    let early = engine.submit(GenerateRequest { timeout, ..greedy(&[1, 2], 5) }).unwrap();
    let mut ended = Vec::new();
    while engine.has_work() {
        for event in engine.step() {
            if let Event::Finished { id, output, .. } = event {
                ended.push((id, output.finish_reason, output.token_ids.len()));
            }
        }
    }
    let expired = (late, FinishReason::Timeout, 0);
    assert_eq!(ended, [expired, expired, (early, FinishReason::Length, 5)]);
    assert_clean(&engine);
}

#[test]
fn a_pause_changes_nothing_but_the_time() {
    let requests = several(52, 6);
    let expected = said(&run(&mut Rig::default().build(), &requests));
    let mut engine = Rig { drafter: Draft::Ngram.drafter(1), ..Rig::default() }.build();
    assert_eq!(requests[0].samples, 1);
    engine.submit(requests[0].clone()).unwrap();
    (0..3).for_each(|_| drop(engine.step()));
    engine.pause();
    assert!(!engine.has_work() && engine.step().is_empty());
    assert_eq!(engine.scheduler().running_len(), 1, "it keeps its place");
    engine.resume();
    let mut ids = Vec::new();
    engine.run(|event| {
        if let Event::Finished { output, .. } = event {
            ids = output.token_ids;
        }
    });
    assert_eq!(ids, expected[0].ids());
    engine.drain();
    let refused = engine.submit(greedy(&[1], 1)).map_err(|refused| refused.to_string());
    let draining = "no new requests are taken: those under way are being finished";
    assert_eq!(refused, Err(draining.into()));
    engine.resume();
    assert_eq!(said(&run(&mut engine, &requests)), expected);
}
