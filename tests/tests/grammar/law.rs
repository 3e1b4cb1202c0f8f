//! Under a grammar the output's law is the target's masked law: the joint law of whole outputs, enumerated, against
//! what the engine says. And drafters with known bugs, which the same test must reject.
//!
//! Power: with 12,000 samples, a total variation of 0.04 gives a non-centrality of at least 4 · 12,000 · 0.04² = 77,
//! over some 60 cells: the test at 10⁻⁴ fails to see it with probability below 0.05. Seeds are fixed, so the outcome is,
//! too.

use std::collections::BTreeMap;

use redline::spec::{
    DraftError, DraftJob, Drafter, History, Law, Position, Proposal, Scratch, law,
};
use redline::{Event, Logprobs, LogprobsMode, TokenId};
use redline_tests::drafters::Closure;
use redline_tests::rig::run;
use redline_tests::stats::g_test;

use crate::world::{
    Draft, ENDS, VOCAB, X, engine, enumerate, letters, logit, request, table, tokenizer,
};

const PROMPT: [TokenId; 2] = [X, 0];
const LENGTH: usize = 4;
const SAMPLES: u64 = 12_000;

/// p-value of what `drafter` comes to under a rule, and how many drafts were accepted.
fn p_value(rule: &str, k: usize, drafter: Option<Box<dyn Drafter>>) -> (f64, usize) {
    let language = letters();
    let law = enumerate(&language, &PROMPT, LENGTH);
    assert!((law.values().sum::<f64>() - 1.0).abs() < 1e-12);
    let mut engine = engine(table(0.0), drafter, (rule, k), (32, 64), Some(tokenizer()));
    let mut counts: BTreeMap<Vec<TokenId>, u64> =
        law.keys().map(|said| (said.clone(), 0)).collect();
    let mut accepted = 0;
    for seed in 0..SAMPLES {
        engine.submit(request(&language.grammar, &PROMPT, seed, LENGTH)).unwrap();
        if seed % 128 == 127 || seed + 1 == SAMPLES {
            engine.run(|event| {
                if let Event::Finished { output, .. } = event {
                    assert_eq!(output.error, None);
                    accepted += output.speculation.accepted;
                    *counts.get_mut(&output.token_ids).expect("an output of the grammar") += 1;
                }
            });
        }
    }
    (g_test(law.iter().map(|(said, &p)| (p, counts[said]))), accepted)
}

#[test]
fn the_law_is_the_targets_masked_law() {
    let (p, _) = p_value("coupled", 0, None);
    assert!(p > 1e-4, "plain decoding: p = {p:e}");
    for (rule, k) in [("coupled", 3), ("token", 1), ("token", 3), ("block", 3), ("traversal", 4)] {
        let (p, accepted) = p_value(rule, k, Draft::Model.drafter());
        assert!(p > 1e-4, "{rule}, K = {k}: p = {p:e}");
        assert!(accepted > 4000, "{rule}, K = {k}: {accepted} drafts accepted");
    }
    for rule in ["token", "block"] {
        let (p, accepted) = p_value(rule, 2, Draft::Ngram.drafter());
        assert!(p > 1e-4, "ngram under {rule}: p = {p:e}");
        assert!(accepted > 50, "ngram under {rule}: {accepted} drafts accepted");
    }
}

/// The log-probabilities of an output, processed, add up to that of the whole in the enumerated law.
#[test]
fn processed_logprobs_are_of_the_masked_law() {
    let language = letters();
    let law = enumerate(&language, &PROMPT, LENGTH);
    for rule in ["coupled", "token"] {
        let drafter = Draft::Model.drafter();
        let mut engine = engine(table(0.0), drafter, (rule, 3), (8, 64), Some(tokenizer()));
        let one = |seed| {
            let mut request = request(&language.grammar, &PROMPT, seed, LENGTH);
            request.logprobs = Some(Logprobs { top: 20, mode: LogprobsMode::Processed });
            request
        };
        for output in run(&mut engine, &(0..50).map(one).collect::<Vec<_>>()) {
            let content = output.logprobs.unwrap().content;
            let sum: f64 = content.iter().map(|told| told.own.logprob).sum();
            assert!((sum - law[&output.token_ids].ln()).abs() < 1e-9);
            for (i, told) in content.iter().enumerate() {
                let said = &output.token_ids[..i];
                let allowed = (0..VOCAB as TokenId).filter(|&id| language.allows(said, id));
                let mut ids: Vec<_> = told.top_logprobs.iter().map(|top| top.id).collect();
                ids.sort_unstable();
                assert_eq!(ids, allowed.collect::<Vec<_>>(), "the law's tokens and no others");
            }
        }
    }
}

/// What is done to a sampled draft that the grammar forbids. (In `draft_model` none can come up: the mask is applied
/// before the draw.)
#[derive(Debug, Clone, Copy, PartialEq)]
enum Forbidden {
    /// It is drawn and handed over: the verifier rejects it.
    Handed,
    /// It is drawn, looked at, and taken back with what would follow it: a known bug.
    Cut,
}

/// Samples a chain from a law of its own, near the target's.
fn sampler(forbidden: Forbidden) -> Box<dyn Drafter> {
    Closure::boxed("sampler", move |job, proposal| {
        let nodes = draw(job, proposal, job.budget)?;
        if forbidden == Forbidden::Cut {
            // The proposal is made anew, without the node that did not please.
            let again = nodes.iter().position(|&fits| !fits).unwrap_or(nodes.len());
            draw(job, proposal, again)?;
        }
        Ok(())
    })
}

/// Whether each token drawn fits the grammar.
fn draw(
    job: &DraftJob<'_>,
    proposal: &mut Proposal,
    length: usize,
) -> Result<Vec<bool>, DraftError> {
    let round = job.draws.round(job.tokens.len() as u64);
    let mut builder = proposal.build(length);
    let mut at = job.constraint.map(|constraint| constraint.fork());
    let mut tokens = job.tokens.to_vec();
    let (mut fits, mut parent) = (Vec::new(), None);
    for _ in 0..length {
        let q = draft_law(&tokens)?;
        let drawn = builder.draw(parent, q, 1, job.mode, &round)?;
        let token = builder.proposal().node(drawn.start).map(|node| node.token).unwrap_or_default();
        let taken = at.as_mut().is_none_or(|at| at.advance(token).is_ok());
        fits.push(taken);
        tokens.push(token);
        parent = Some(drawn.start);
        if !taken || ENDS.contains(&token) {
            break;
        }
    }
    Ok(fits)
}

fn draft_law(tokens: &[TokenId]) -> Result<Law, DraftError> {
    let row: Vec<f32> = (0..VOCAB as TokenId).map(|t| logit(tokens, t, 0.7) as f32).collect();
    let sampling = redline::Sampling { temperature: 1.0, ..redline::Sampling::default() };
    let history = History::default();
    let at = Position { sampling: &sampling, history: &history, path: &[], constraint: None };
    Ok(law(&row, &at, &mut Scratch::default())?)
}

#[test]
fn a_sampled_draft_is_never_cut_by_the_grammar() {
    for rule in ["token", "block", "traversal"] {
        let (p, accepted) = p_value(rule, 3, Some(sampler(Forbidden::Handed)));
        assert!(p > 1e-4, "handing over, under {rule}: p = {p:e}");
        assert!(accepted > 1000, "under {rule}: {accepted} drafts accepted");
        // What is accepted where the forbidden is taken back was not so likely to be rejected as it should have been.
        let (p, _) = p_value(rule, 3, Some(sampler(Forbidden::Cut)));
        assert!(p < 1e-6, "cutting got through under {rule}: p = {p:e}");
    }
}
