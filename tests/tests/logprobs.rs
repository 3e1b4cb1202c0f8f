//! Log-probabilities are those of the row a token was verified on: what teacher forcing says of the same tokens, to the
//! bit the same with and without speculation, one for each token wherever a sample was cut.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use redline::spec::{
    Constraint, Drafter, History, Law, Position, Scratch, TokenFilter, TokenLogprobs, law,
};
use redline::{
    Batch, Engine, GenerateRequest, Logprobs, LogprobsMode, LogprobsOutput, ModelRunner, Prompt,
    RequestOutput, Rows, Sampling, Scorer, SubmitRefused, TOP_LOGPROBS_MAX, TokenId, verifier,
};
use redline_kv_cache::BlockId;
use redline_tests::drafters::{Closure, forest};
use redline_tests::requests::{greedy, mixed, prompt, stop_midway, whole};
use redline_tests::rig::{Draft, Rig, model, run};
use redline_tests::words::{VOCAB, tokenizer};

const TOP: usize = 5;

/// Requests of all sorts, one to three samples each, that want log-probabilities.
fn asking(seed: u64, n: usize, mode: LogprobsMode) -> Vec<GenerateRequest> {
    let mut requests = mixed(seed, n);
    for (i, request) in requests.iter_mut().enumerate() {
        request.samples = 1 + i % 3;
        request.logprobs = Some(Logprobs { top: TOP, mode });
    }
    requests
}

fn engine(drafter: Option<Box<dyn Drafter>>, rule: &str, (seqs, blocks): (usize, u64)) -> Engine {
    Rig { drafter, rule: verifier(rule).unwrap(), seqs, blocks, ..Rig::default() }.build()
}

/// The request of each output: its samples come one after another.
fn with_requests<'a>(
    requests: &'a [GenerateRequest],
    outputs: &'a [RequestOutput],
) -> impl Iterator<Item = (&'a GenerateRequest, &'a RequestOutput)> {
    let repeated =
        requests.iter().flat_map(|request| std::iter::repeat_n(request, request.samples));
    repeated.zip(outputs)
}

fn tokens_of(request: &GenerateRequest) -> &[TokenId] {
    let Prompt::Tokens(prompt) = &request.prompt else { unreachable!("prompts of tokens") };
    prompt
}

/// Each log-probability is what a pass over the whole text says: no cache, no batch, no drafts.
fn assert_teacher_forced(requests: &[GenerateRequest], outputs: &[RequestOutput]) {
    let text = tokenizer();
    let mut scorer = Scorer::new(model(0.0, 1), text.clone());
    for (request, output) in with_requests(requests, outputs) {
        let prompt = tokens_of(request);
        let ids = [prompt, &output.token_ids].concat();
        let scored = scorer.score(&ids).unwrap();
        let content = &output.logprobs.as_ref().unwrap().content;
        for (i, told) in content.iter().enumerate() {
            let at = prompt.len() + i - 1;
            assert_eq!(told.own.id, output.token_ids[i]);
            let difference = told.own.logprob - scored.logprob[at];
            assert!(difference.abs() < 1e-4, "{difference} at token {i}");
            assert_eq!(told.top_logprobs.len(), TOP);
            assert_eq!(told.top_logprobs[0].id, scored.argmax[at]);
            assert!(told.top_logprobs.is_sorted_by(|a, b| a.logprob >= b.logprob));
            let same = told.top_logprobs.iter().find(|top| top.id == told.own.id);
            assert!(same.is_none_or(|top| *top == told.own));
            let bytes = text.token_bytes(told.own.id).map(<[u8]>::to_vec);
            assert_eq!(told.own.bytes, bytes);
        }
    }
}

/// The law of every emitted token, from a pass a token over a cache of one's own.
fn laws(target: &mut dyn ModelRunner, request: &GenerateRequest, emitted: &[TokenId]) -> Vec<Law> {
    let prompt = tokens_of(request);
    let ids = [prompt, emitted].concat();
    let blocks = (ids.len() as u32).div_ceil(32);
    target.allocate(blocks, 32).unwrap();
    let table: Vec<_> = (0..blocks).map(BlockId).collect();
    let filter = TokenFilter::ban(request.banned.iter().copied());
    let (mut history, mut scratch) = (History::new(prompt), Scratch::default());
    let (mut batch, mut rows) = (Batch::default(), Rows::default());
    let mut laws = Vec::new();
    for position in 0..ids.len() - 1 {
        batch.clear();
        batch.push_seq(&table);
        batch.push_row(ids[position], position as u32);
        batch.want.push(0);
        target.forward(&batch, &mut rows).unwrap();
        if position + 1 < prompt.len() {
            continue;
        }
        let at = Position {
            sampling: &request.sampling,
            history: &history,
            path: &[],
            constraint: Some(&filter as &dyn Constraint),
        };
        laws.push(law(&rows.logits, &at, &mut scratch).unwrap());
        history.push(ids[position + 1]);
    }
    laws
}

fn assert_processed(requests: &[GenerateRequest], outputs: &[RequestOutput]) {
    let mut target = model(0.0, 1);
    for (request, output) in with_requests(requests, outputs) {
        let laws = laws(target.as_mut(), request, &output.token_ids);
        let content = &output.logprobs.as_ref().unwrap().content;
        assert_eq!(laws.len(), content.len());
        for (law, told) in laws.iter().zip(content) {
            let expected = TokenLogprobs::of_law(law, told.own.id, TOP);
            assert_eq!(told.own.logprob, expected.logprob);
            let top: Vec<_> = told.top_logprobs.iter().map(|top| (top.id, top.logprob)).collect();
            assert_eq!(top, expected.top);
            assert!(told.own.logprob.is_finite(), "an emitted token is one of its law");
        }
    }
}

fn logprobs(outputs: &[RequestOutput]) -> Vec<&LogprobsOutput> {
    outputs.iter().map(|output| output.logprobs.as_ref().unwrap()).collect()
}

/// Under `coupled` the rows have the same bits whatever is drafted, so the log-probabilities do, too.
#[test]
fn the_same_bits_with_and_without_speculation() {
    for mode in [LogprobsMode::Raw, LogprobsMode::Processed] {
        let mut requests = asking(5, 15, mode);
        let plain = run(&mut engine(None, "coupled", (1, 256)), &requests);
        stop_midway(&mut requests, &plain);
        let plain = run(&mut engine(None, "coupled", (1, 256)), &requests);
        let known: Vec<_> = with_requests(&requests, &plain)
            .map(|(request, output)| [tokens_of(request), &output.token_ids].concat())
            .collect();
        let mut accepted = 0;
        for tight in [false, true] {
            let drafters = [
                Draft::Ngram.drafter(1),
                Draft::Model(0.15).drafter(1),
                Some(forest(VOCAB as TokenId, known.clone())),
            ];
            for drafter in drafters {
                let size = if tight { (8, 11) } else { (8, 256) };
                let mut engine = engine(drafter, "coupled", size);
                let outputs = run(&mut engine, &requests);
                assert_eq!(logprobs(&outputs), logprobs(&plain));
                accepted += outputs.iter().map(|o| o.speculation.accepted).sum::<usize>();
                assert!(!tight || engine.scheduler().stats().preempted > 0);
            }
        }
        assert!(accepted > 500, "{accepted} drafts accepted: hardly a round of several tokens");
    }
}

/// Two children below each node: the drafter's law, drawn as the rule wants it.
fn bush() -> Box<dyn Drafter> {
    Closure::of_trees("bush", |job, proposal| {
        let mut builder = proposal.build(job.budget);
        let mut level = vec![None];
        while builder.room() > 0 {
            let mut below = Vec::new();
            for parent in level {
                if builder.room() == 0 {
                    break;
                }
                let weights = (0..VOCAB).map(|id| 1.0 / (1.0 + id as f64 % 7.0)).collect();
                let q = Law::dense(weights).unwrap();
                let round = job.draws.round(job.tokens.len() as u64);
                below.extend(builder.draw(parent, q, 2, job.mode, &round)?.map(Some));
            }
            level = below;
        }
        Ok(())
    })
}

#[test]
fn every_rule_and_drafter_tells_what_teacher_forcing_does() {
    let drafter = |name| match name {
        "ngram" => Draft::Ngram.drafter(1),
        "model" => Draft::Model(0.15).drafter(1),
        _ => Some(bush()),
    };
    for rule in ["coupled", "token", "block", "traversal"] {
        for name in ["ngram", "model", "tree"] {
            if (rule, name) == ("block", "tree") {
                continue;
            }
            for mode in [LogprobsMode::Raw, LogprobsMode::Processed] {
                let requests = asking(9, 6, mode);
                let outputs = run(&mut engine(drafter(name), rule, (8, 256)), &requests);
                let accepted = outputs.iter().map(|o| o.speculation.accepted).sum::<usize>();
                assert!(accepted > 0, "{rule} with {name} accepted nothing");
                match mode {
                    LogprobsMode::Raw => assert_teacher_forced(&requests, &outputs),
                    LogprobsMode::Processed => assert_processed(&requests, &outputs),
                }
            }
        }
    }
}

/// Several tokens are committed at once and cut in their midst: by an end of text, a stop string, the length.
#[test]
fn a_round_is_cut_with_its_tokens() {
    let mut requests = asking(21, 24, LogprobsMode::Raw);
    requests.iter_mut().for_each(|request| request.samples = 1);
    let plain = run(&mut engine(None, "coupled", (8, 256)), &requests);
    let known = whole(&requests, &plain);
    stop_midway(&mut requests, &plain);
    let mut engine = engine(Some(forest(VOCAB as TokenId, known)), "coupled", (8, 256));
    let outputs = run(&mut engine, &requests);
    let cut =
        outputs.iter().zip(&plain).filter(|(cut, all)| cut.token_ids.len() < all.token_ids.len());
    assert!(cut.count() >= 4);
    assert_teacher_forced(&requests, &outputs);
    for (output, plain) in outputs.iter().zip(&plain) {
        let told = &output.logprobs.as_ref().unwrap().content;
        assert_eq!(told[..], plain.logprobs.as_ref().unwrap().content[..told.len()]);
    }
}

#[test]
fn greedy_decoding_leaves_one_token_of_the_processed_law() {
    let request = GenerateRequest {
        logprobs: Some(Logprobs { top: 20, mode: LogprobsMode::Processed }),
        ..greedy(&prompt(1, 9), 4)
    };
    let outputs = run(&mut engine(None, "coupled", (1, 64)), &[request]);
    for told in &outputs[0].logprobs.as_ref().unwrap().content {
        assert_eq!(told.own.logprob, 0.0);
        assert_eq!(told.top_logprobs, std::slice::from_ref(&told.own));
    }
}

#[test]
fn nobody_gets_what_they_did_not_ask_for() {
    let mut engine = engine(Draft::Ngram.drafter(1), "coupled", (2, 64));
    let plain = greedy(&prompt(4, 8), 6);
    let some = |top| GenerateRequest {
        logprobs: Some(Logprobs { top, ..Logprobs::default() }),
        ..plain.clone()
    };
    let outputs = run(&mut engine, &[plain.clone(), some(0)]);
    assert!(outputs[0].logprobs.is_none());
    let json = serde_json::to_value(&outputs[0]).unwrap();
    assert!(json.get("logprobs").is_none());
    let told = &outputs[1].logprobs.as_ref().unwrap().content;
    assert!(told.len() == 6 && told.iter().all(|told| told.top_logprobs.is_empty()));
    let refused = engine.submit(some(TOP_LOGPROBS_MAX + 1)).unwrap_err();
    assert!(matches!(refused, SubmitRefused::TopLogprobs(21)), "{refused}");
    assert_eq!(refused.to_string(), "21 top logprobs; at most 20 are given");
}

/// A law that leaves out a token says so as JSON has it: `null`.
#[test]
fn what_has_no_probability_is_null_in_json() {
    let sampling = Sampling { temperature: 1.0, top_k: 2, ..Sampling::default() };
    let request = GenerateRequest {
        sampling,
        logprobs: Some(Logprobs { top: 4, mode: LogprobsMode::Processed }),
        ..greedy(&prompt(2, 9), 3)
    };
    let outputs = run(&mut engine(None, "coupled", (1, 64)), &[request]);
    let mut content = outputs[0].logprobs.clone().unwrap();
    assert!(content.content.iter().all(|told| told.top_logprobs.len() == 2));
    content.content[0].own.logprob = f64::NEG_INFINITY;
    let json = serde_json::to_value(&content).unwrap();
    assert!(json["content"][0]["logprob"].is_null());
    assert!(json["content"][1]["logprob"].is_number());
    for field in ["token", "id", "bytes", "top_logprobs"] {
        assert!(json["content"][0].get(field).is_some(), "{field}");
    }
}
