//! Cancelling at any moment; what is refused at the door; what is cut to fit.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use redline::model::tiny::Tiny;
use redline::{
    DraftLength, DraftModel, FinishReason, GenerateRequest, Prompt, RequestId, RequestOutput,
    RunOptions, Sampling, SubmitRefused, TokenId,
};
use redline_tests::drafters::Closure;
use redline_tests::requests::{greedy, mixed, prompt};
use redline_tests::rig::{Draft, Rig, assert_clean, drain, run, said, tiny};
use redline_tests::words::VOCAB;

#[test]
fn cancel_where_there_is_little_to_cancel() {
    let mut engine = Rig::default().build();
    assert!(!engine.cancel(RequestId(0)), "nobody there");
    assert!(engine.step().is_empty() && !engine.has_work());
    let id = engine.submit(greedy(&[1, 2, 3], 8)).unwrap();
    assert!(engine.cancel(id));
    assert!(!engine.cancel(id), "once only");
    let outputs = drain(&mut engine, &[id]);
    assert_eq!(outputs[0].finish_reason, FinishReason::Cancelled);
    assert_eq!(outputs[0].token_ids, [0; 0]);
    assert_eq!(run(&mut engine, &[greedy(&[1, 2, 3], 8)])[0].token_ids.len(), 8);
}

#[track_caller]
fn refusal(rig: Rig, request: GenerateRequest) -> String {
    let mut engine = rig.build();
    let refused = engine.submit(request).map(|id| panic!("{id} was taken in"));
    assert!(!engine.has_work(), "nothing is kept of a refused request");
    assert_clean(&engine);
    let answered = run(&mut engine, &[greedy(&[5], 3)]);
    assert_eq!(answered[0].finish_reason, FinishReason::Length);
    refused.unwrap_err().to_string()
}

#[test]
fn refused_at_the_door_by_name() {
    let with = |edit: fn(&mut GenerateRequest)| {
        let mut request = greedy(&[1, 2, 3], 4);
        edit(&mut request);
        refusal(Rig::default(), request)
    };
    assert_eq!(with(|r| r.prompt = Prompt::Tokens(Vec::new())), "the prompt is empty");
    assert_eq!(with(|r| r.max_tokens = 0), "max_tokens is 0, must be at least 1");
    let unknown = "is not in the vocabulary of 64 entries";
    assert_eq!(
        with(|r| r.prompt = Prompt::Tokens(vec![64])),
        format!("token 64 (in the prompt) {unknown}")
    );
    assert_eq!(
        with(|r| r.banned = vec![1, 99]),
        format!("token 99 (among the banned tokens) {unknown}")
    );
    assert_eq!(
        with(|r| r.sampling.logit_bias = vec![(70, 1.0)]),
        format!("token 70 (in the logit bias) {unknown}")
    );
    assert!(with(|r| r.sampling.temperature = f64::NAN).starts_with("temperature = NaN"));
    assert!(with(|r| r.sampling.top_p = 0.0).starts_with("top_p = 0"));
    assert_eq!(with(|r| r.stop = vec![String::new()]), "a stop string is empty");
    let mute = || Rig { text: false, ..Rig::default() };
    let stop = GenerateRequest { stop: vec!["a".into()], ..greedy(&[1], 2) };
    assert_eq!(refusal(mute(), stop), "stop strings need a tokenizer");
    let text = GenerateRequest::new(Prompt::Text("a".into()));
    assert_eq!(refusal(mute(), text), "text needs a tokenizer");
}

#[test]
fn what_can_never_fit_is_refused() {
    let long = || Rig { max_model_len: Some(100), ..Rig::default() };
    assert_eq!(
        refusal(long(), greedy(&prompt(1, 100), 1)),
        "the prompt has 100 tokens, at most 99 fit the context"
    );
    let small = || Rig { blocks: 2, ..Rig::default() };
    // 128 bytes a token, 32 tokens a block: three blocks, and there are two.
    let refused = refusal(small(), greedy(&prompt(1, 60), 6));
    let words = "the request needs up to 12288 bytes of KV cache, there are 8192";
    assert!(refused.starts_with(words), "{refused}");
    // One token less just fits, drafts or not.
    for draft in [Draft::None, Draft::Ngram, Draft::Model(0.1)] {
        let rig = Rig { drafter: draft.drafter(1), length: DraftLength::Fixed(8), ..small() };
        let outputs = run(&mut rig.build(), &vec![greedy(&prompt(1, 60), 5); 3]);
        assert!(outputs.iter().all(|output| output.token_ids.len() == 5));
    }
}

#[test]
fn a_full_queue_refuses_and_recovers() {
    let mut engine = Rig { seqs: 1, queue_len: 2, ..Rig::default() }.build();
    let request = || greedy(&[1, 2, 3], 4);
    let mut ids = vec![engine.submit(request()).unwrap(), engine.submit(request()).unwrap()];
    let refused = engine.submit(request());
    assert!(matches!(refused, Err(SubmitRefused::Scheduler(_))));
    assert_eq!(refused.unwrap_err().to_string(), "the queue is full (2 requests)");
    engine.step();
    ids.push(engine.submit(request()).unwrap());
    while engine.has_work() {
        engine.step();
    }
    assert_clean(&engine);
    assert_eq!(ids, [RequestId(0), RequestId(1), RequestId(2)]);
}

#[test]
fn max_tokens_is_cut_at_the_context() {
    for draft in [Draft::None, Draft::Ngram, Draft::Model(0.0)] {
        let rig = Rig {
            drafter: draft.drafter(1),
            max_model_len: Some(100),
            length: DraftLength::Fixed(8),
            ..Rig::default()
        };
        let requests = [99, 98, 90, 60].map(|n| greedy(&prompt(n, n as usize), 500));
        let outputs = run(&mut rig.build(), &requests);
        let lengths: Vec<_> = outputs.iter().map(|output| output.token_ids.len()).collect();
        assert_eq!(lengths, [1, 2, 10, 40]);
        assert!(outputs.iter().all(|output| output.finish_reason == FinishReason::Length));
    }
}

/// What a draft model of this shape drafts for, with what it is drafted for without one.
fn against_plain(draft: &Tiny, requests: &[GenerateRequest]) -> (Vec<RequestOutput>, bool) {
    let plain = run(&mut Rig::default().build(), requests);
    let runner = Box::new(draft.build(RunOptions { threads: 1, ..RunOptions::default() }).unwrap());
    let drafter = Some(Box::new(DraftModel::new("odd", runner, VOCAB)) as _);
    let outputs = run(&mut Rig { drafter, ..Rig::default() }.build(), requests);
    let same = said(&plain) == said(&outputs);
    (outputs, same)
}

#[test]
fn a_draft_model_with_another_vocabulary() {
    for vocab in [40, 63, 65, 100] {
        let mut requests = mixed(vocab, 10);
        for request in &mut requests {
            request.sampling = Sampling { temperature: 1.0, ..Sampling::default() };
            request.ignore_eos = true;
        }
        let (outputs, same) =
            against_plain(&Tiny { vocab: vocab as usize, ..tiny(0.1) }, &requests);
        let beyond = |id: &TokenId| u64::from(*id) >= vocab;
        let told = outputs.iter().flat_map(|output| &output.token_ids).any(beyond);
        assert!(same, "a draft vocabulary of {vocab}");
        assert_eq!(told, vocab < 64, "the target's own tail is said");
    }
}

#[test]
fn more_seats_than_requests() {
    let requests = mixed(2, 3);
    let expected = said(&run(&mut Rig { seqs: 1, ..Rig::default() }.build(), &requests));
    let mut engine = Rig { seqs: 64, drafter: Draft::Ngram.drafter(1), ..Rig::default() }.build();
    assert_eq!(expected, said(&run(&mut engine, &requests)));
    assert_eq!(run(&mut engine, &[]), []);
}

#[test]
fn a_rule_that_takes_no_trees_refuses_a_drafter_of_trees_at_start() {
    let build = |rule| {
        let drafter = Some(Closure::of_trees("forest", |_, _| Ok(())));
        Rig { drafter, rule: redline::verifier(rule).unwrap(), ..Rig::default() }.try_build()
    };
    let refusal = build("block").map(drop).unwrap_err().to_string();
    assert!(refusal.contains("block") && refusal.contains("forest"), "{refusal}");
    for rule in ["coupled", "token", "traversal"] {
        assert!(build(rule).is_ok(), "{rule}");
    }
}
