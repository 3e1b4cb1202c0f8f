//! Under `coupled` the tokens of a request with a grammar are those of plain decoding, whatever is drafted, however
//! many, in which company and with how little memory; and every output keeps to its grammar.

use redline::{FinishReason, GenerateRequest, Grammar, TokenId};
use redline_tests::rig::{Said, run, said};

use crate::world::{Draft, ENDS, X, languages, letters, letters_engine, request};

/// Requests with every grammar, and some without one, two samples each, prompts of up to three blocks.
fn requests(n: u64) -> Vec<GenerateRequest> {
    let languages = languages();
    let prompt =
        |i: u64| (0..=(i * 13 % 70)).map(|j| ((i + j * j) % 8) as TokenId).collect::<Vec<_>>();
    let one = |i: u64| {
        let language = &languages[i as usize % languages.len()];
        let mut request = request(&language.grammar, &prompt(i), i, 60);
        if i % 5 == 4 {
            // A long one, so that there is something to fight for.
            request.constraint = Some(Grammar::regex("(a|b|é){70,75}c").into());
        }
        request.samples = 2;
        match i % 7 {
            5 => request.sampling.temperature = 0.0,
            6 => request.constraint = None,
            _ => {}
        }
        request
    };
    (0..n).map(one).collect()
}

#[test]
fn speculation_changes_nothing() {
    let requests = requests(70);
    let plain = run(&mut letters_engine(Draft::None, ("coupled", 0), (1, 64)), &requests);
    let expected: Vec<Said> = said(&plain);
    let languages = languages();
    let mut stopped = 0;
    for (i, output) in plain.iter().enumerate() {
        let request = i / 2;
        if request % 7 != 6 && request % 5 != 4 && output.finish_reason == FinishReason::Stop {
            stopped += 1;
            let language = &languages[request % languages.len()];
            assert!(language.is_whole(&output.text), "{:?}: {:?}", language.grammar, output.text);
        }
    }
    assert!(stopped > 60, "{stopped} of 140 ended by themselves");
    for draft in [Draft::Ngram, Draft::Model] {
        for k in 1..=4 {
            // Some sequences have to give way to others.
            for size in [(8, 64), (6, 7)] {
                let mut engine = letters_engine(draft, ("coupled", k), size);
                let outputs = run(&mut engine, &requests);
                assert_eq!(said(&outputs), expected, "{draft:?}, K = {k}, {size:?}");
                let accepted: usize = outputs.iter().map(|o| o.speculation.accepted).sum();
                assert!(accepted > 50, "{draft:?}, K = {k}: {accepted} drafts accepted");
                assert!(size.1 == 64 || engine.scheduler().stats().preempted > 0);
            }
        }
    }
}

#[test]
fn every_rule_keeps_to_the_grammar() {
    let language = letters();
    for rule in ["token", "block", "traversal"] {
        for draft in [Draft::Ngram, Draft::Model] {
            let mut engine = letters_engine(draft, (rule, 4), (8, 64));
            let requests: Vec<_> = (0..200)
                .map(|seed| request(&language.grammar, &[X, 0, 1, 0, 1], seed, 80))
                .collect();
            let outputs = run(&mut engine, &requests);
            let done = outputs.iter().filter(|output| output.finish_reason == FinishReason::Stop);
            assert!(done.clone().count() > 190);
            for output in done {
                assert!(language.is_whole(&output.text), "{:?}", output.text);
                let (end, text) = output.token_ids.split_last().unwrap();
                assert!(ENDS.contains(end) && !text.iter().any(|token| ENDS.contains(token)));
            }
        }
    }
}

/// Where nothing but the end can follow, it does: greedy decoding of a model that would go on for ever.
#[test]
fn a_finished_grammar_ends_the_text() {
    for draft in [Draft::None, Draft::Ngram, Draft::Model] {
        let mut engine = letters_engine(draft, ("coupled", 4), (1, 16));
        let mut request = request(&Grammar::regex("x(a|b){3}"), &[X, X, X, X], 1, 50);
        request.sampling.temperature = 0.0;
        let output = run(&mut engine, &[request]).remove(0);
        assert_eq!(output.finish_reason, FinishReason::Stop);
        assert_eq!((output.text.len(), &output.text[..1]), (4, "x"));
    }
}
