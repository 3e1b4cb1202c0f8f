//! Ends in the middle of a run of accepted drafts: end of text, stop strings, length. Tokens, text, usage and
//! statistics are cut at the same place, as plain decoding would, and nothing past it is looked at.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use redline::model::tiny::Tiny;
use redline::{
    DraftLength, DraftModel, Engine, FinishReason, GenerateRequest, Prompt, RequestOutput,
    RunOptions, TokenId,
};
use redline_tests::drafters::{Closure, chain};
use redline_tests::requests::{greedy, mixed, prompt};
use redline_tests::rig::{Draft, Rig, Said, model, run, said, tiny};
use redline_tests::runners::{Spoilt, Table};
use redline_tests::words::{EOS, VOCAB};

/// Counts on from the last token: `c d e …`; after `after` comes the end of text.
fn counting(after: TokenId) -> Table {
    Table::new(VOCAB, 64, move |seen, logits| {
        let last = seen.last().copied().unwrap_or_default();
        let next = if last == after { EOS } else { (last + 1) % 26 };
        logits[next as usize] = 1.0;
    })
}

/// Counts on too, past any end.
fn engine(after: TokenId, drafts: usize) -> Engine {
    let drafter = Closure::boxed("counting", move |job, proposal| {
        let last = job.tokens.last().copied().unwrap_or_default();
        let next = move |t: &TokenId| Some(if *t == after { EOS } else { (t + 1) % 26 });
        chain(job, proposal, std::iter::successors(next(&last), next))
    });
    Rig {
        target: Box::new(counting(after)),
        drafter: Some(drafter),
        length: DraftLength::Fixed(drafts),
        ..Rig::default()
    }
    .build()
}

#[test]
fn every_end_at_every_place_of_a_run() {
    let never = VOCAB as TokenId;
    let mut stops = 0;
    // `c` is the prompt; `d` comes from its own round, then a run of up to 1 + drafts.
    for after in [never, 3, 4, 5, 6, 7] {
        for stop in ["", "d", "f", "gh", "efg", "ghi"] {
            for max_tokens in [1, 2, 3, 5, 6, 8] {
                let request = GenerateRequest {
                    max_tokens,
                    ignore_eos: false,
                    stop: Some(stop.to_owned())
                        .filter(|stop| !stop.is_empty())
                        .into_iter()
                        .collect(),
                    ..greedy(&[2], 8)
                };
                let plain = run(&mut engine(after, 0), std::slice::from_ref(&request));
                let text = &plain[0].text;
                assert!(stop.is_empty() || !text.contains(stop), "{text}");
                stops += usize::from(plain[0].finish_reason == FinishReason::Stop);
                for drafts in [1, 2, 4, 8] {
                    let found = run(&mut engine(after, drafts), std::slice::from_ref(&request));
                    let what = format!("end after {after}, stop `{stop}`, {drafts} drafts");
                    assert_eq!(Said::from(&plain[0]), Said::from(&found[0]), "{what}");
                    assert_right(&found[0], &what);
                }
            }
        }
    }
    assert!(stops > 100, "{stops}");
}

/// Every draft is right: each token after the first is one, but for one of the target's own a round.
fn assert_right(output: &RequestOutput, what: &str) {
    let stats = &output.speculation;
    let own = output.token_ids.len() - stats.accepted;
    assert!(own == stats.rounds || own + 1 == stats.rounds, "{what}: {stats:?}");
}

#[test]
fn the_end_of_text_beats_the_length() {
    let request = GenerateRequest { ignore_eos: false, ..greedy(&[2], 5) };
    for drafts in [0, 4, 8] {
        let output = run(&mut engine(6, drafts), std::slice::from_ref(&request)).remove(0);
        assert_eq!(output.token_ids, [3, 4, 5, 6, EOS]);
        assert_eq!((output.finish_reason, &*output.text), (FinishReason::Stop, "defg"));
    }
}

/// A model that drafts for itself runs past the end of text with drafts that would all be accepted; rows there
/// are NaN.
#[test]
fn rows_past_the_end_are_never_read() {
    let requests: Vec<_> = (0..16)
        .map(|i| {
            let mut request = greedy(&prompt(i, 9 + i as usize), 40);
            request.sampling.temperature = 1.0;
            request.sampling.logit_bias = vec![(EOS, 2.0)];
            request.seed = Some(i);
            request.ignore_eos = false;
            request
        })
        .collect();
    let expected = run(&mut Rig::default().build(), &requests);
    let ended = |output: &RequestOutput| output.token_ids.last() == Some(&EOS);
    assert!(expected.iter().filter(|output| ended(output)).count() >= 8);
    let whole = |(request, output): (&GenerateRequest, &RequestOutput)| match &request.prompt {
        Prompt::Tokens(tokens) if ended(output) => [&tokens[..], &output.token_ids].concat(),
        _ => vec![TokenId::MAX],
    };
    let known: Vec<_> = requests.iter().zip(&expected).map(whole).collect();
    for draft in [Draft::Model(0.0), Draft::Ngram] {
        let known = known.clone();
        let target = Spoilt::new(model(0.0, 1), move |seen| {
            known.iter().any(|whole| seen.starts_with(whole)).then_some(f32::NAN)
        });
        let rig = Rig {
            target: Box::new(target),
            drafter: draft.drafter(1),
            length: DraftLength::Fixed(8),
            ..Rig::default()
        };
        assert_eq!(said(&expected), said(&run(&mut rig.build(), &requests)), "{draft:?}");
    }
}

/// A vocabulary padded beyond the tokenizer's: the tail is never said, with or without drafts.
#[test]
fn padding_is_never_said() {
    let padded = |noise: f32| {
        let options = RunOptions { threads: 1, ..RunOptions::default() };
        Box::new(Tiny { vocab: VOCAB + 30, ..tiny(noise) }.build(options).unwrap())
    };
    let mut requests = mixed(51, 12);
    requests.iter_mut().for_each(|request| request.sampling.temperature = 1.0);
    let plain = run(&mut Rig { target: padded(0.0), ..Rig::default() }.build(), &requests);
    let ids = || plain.iter().flat_map(|output| &output.token_ids);
    assert!(ids().count() > 100 && ids().all(|&id| (id as usize) < VOCAB));
    for noise in [0.0, 0.3] {
        let drafter = Some(Box::new(DraftModel::new("padded", padded(noise), VOCAB)) as _);
        let mut engine = Rig { target: padded(0.0), drafter, ..Rig::default() }.build();
        let found = run(&mut engine, &requests);
        assert_eq!(said(&plain), said(&found), "noise {noise}");
    }
}
