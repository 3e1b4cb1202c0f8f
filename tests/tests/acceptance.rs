//! What is accepted is what the models say it must be, count for count. A lane filled wrongly shows here at
//! once, where outputs would stay right and only get slower.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use redline::spec::{History, Position, Scratch, law};
use redline::{
    Batch, DraftLength, GenerateRequest, ModelRunner, RequestOutput, Rows, Speculation, TokenId,
    verifier,
};
use redline_kv_cache::BlockId;
use redline_tests::requests::{greedy, mixed, prompt};
use redline_tests::rig::{Draft, Rig, model, run};

/// Requests that nothing ends before their length: every draft is judged.
fn endless(seed: u64, n: usize) -> Vec<GenerateRequest> {
    let mut requests = mixed(seed, n);
    for (i, request) in requests.iter_mut().enumerate() {
        request.ignore_eos = true;
        request.max_tokens = 30 + i;
    }
    requests
}

#[track_caller]
fn assert_all_accepted(outputs: &[RequestOutput], length: usize, what: &str) {
    for (i, output) in outputs.iter().enumerate() {
        let stats = &output.speculation;
        assert_eq!(stats.accepted, stats.drafted, "request {i}, {what}: {stats:?}");
        // Two rounds may pass before the lane is filled, and the last may be shorter.
        let least = (output.token_ids.len().saturating_sub(2) / (length + 1)) * length;
        assert!(stats.drafted >= least, "request {i}, {what}: at least {least} of {stats:?}");
    }
}

#[test]
fn a_model_accepts_all_of_its_own_drafts() {
    let requests = endless(8, 12);
    for rule in ["coupled", "token", "block", "traversal"] {
        for (length, seqs, prefix_cache) in
            [(1, 8, true), (4, 1, false), (4, 8, true), (8, 12, true)]
        {
            let mut engine = Rig {
                drafter: Draft::Model(0.0).drafter(1),
                rule: verifier(rule).unwrap(),
                length: DraftLength::Fixed(length),
                seqs,
                prefix_cache,
                token_budget: 2048,
                ..Rig::default()
            }
            .build();
            let what = format!("{rule}, K = {length}, {seqs} at a time");
            assert_all_accepted(&run(&mut engine, &requests), length, &what);
            // Again: prompts now come out of the prefix cache, the drafter's lane with them.
            let again = run(&mut engine, &requests);
            assert_all_accepted(&again, length, &format!("{what}, second time"));
            let cached: usize = again.iter().map(|output| output.usage.cached_tokens).sum();
            assert_eq!(cached > 0, prefix_cache);
        }
    }
}

/// A request may pin its drafts, whatever the engine's policy; its neighbours keep theirs.
#[test]
fn a_pinned_request_gets_its_own_number_of_drafts() {
    let mut requests = vec![greedy(&prompt(1, 12), 40), greedy(&prompt(2, 12), 40)];
    requests[0].speculation = Speculation::Exactly(2);
    requests.iter_mut().for_each(|request| request.ignore_eos = true);
    for length in [DraftLength::Auto, DraftLength::Fixed(5), DraftLength::Fixed(0)] {
        let rig = Rig { drafter: Draft::Model(0.0).drafter(1), length, ..Rig::default() };
        let outputs = run(&mut rig.build(), &requests);
        let histogram = &outputs[0].speculation.acceptance_histogram;
        assert_eq!(histogram.len(), 3, "{length:?}: {histogram:?}");
        assert!(histogram[2] >= 12, "{length:?}: {histogram:?}");
        if length == DraftLength::Fixed(5) {
            assert_eq!(outputs[1].speculation.acceptance_histogram.len(), 6);
        }
    }
}

#[test]
fn preemption_leaves_no_stale_lane_behind() {
    let requests = endless(9, 16);
    for (prefix_cache, token_budget) in [(true, 512), (false, 512), (true, 80)] {
        let mut engine = Rig {
            drafter: Draft::Model(0.0).drafter(1),
            blocks: 14,
            prefix_cache,
            token_budget,
            ..Rig::default()
        }
        .build();
        for time in 0..2 {
            let outputs = run(&mut engine, &requests);
            let drafted: usize = outputs.iter().map(|output| output.speculation.drafted).sum();
            assert!(drafted > 100, "{drafted} drafted");
            for output in &outputs {
                let stats = &output.speculation;
                assert_eq!(stats.accepted, stats.drafted, "time {time}: {stats:?}");
            }
        }
        assert!(engine.scheduler().stats().preempted >= 5);
    }
}

/// The model's greedy token after each prefix of `tokens`, fed one by one.
fn argmaxes(model: &mut dyn ModelRunner, tokens: &[TokenId]) -> Vec<TokenId> {
    let blocks = (tokens.len() as u32).div_ceil(32);
    model.allocate(blocks, 32).unwrap();
    let table: Vec<_> = (0..blocks).map(BlockId).collect();
    let (mut batch, mut rows) = (Batch::default(), Rows::default());
    batch.push_seq(&table);
    for (position, &token) in tokens.iter().enumerate() {
        let row = batch.push_row(token, position as u32);
        batch.want.push(row);
    }
    model.forward(&batch, &mut rows).unwrap();
    let history = History::default();
    let sampling = redline::Sampling::default();
    let at = Position { sampling: &sampling, history: &history, path: &[], constraint: None };
    let mut scratch = Scratch::default();
    let vocab = model.info().vocab_size;
    rows.logits.chunks(vocab).map(|row| law(row, &at, &mut scratch).unwrap().argmax()).collect()
}

/// Rounds, drafts and accepted drafts of one greedy request, from two lists of argmaxes alone.
fn predicted(draft: &[TokenId], tokens: &[TokenId], prompt: usize, length: usize) -> [usize; 3] {
    let (mut rounds, mut drafted, mut accepted) = (0, 0, 0);
    let mut at = prompt;
    while at < tokens.len() {
        rounds += 1;
        // The prompt's own round has no drafts, nor has the next: its lane is filled beside it.
        let budget = if rounds <= 2 { 0 } else { length.min(tokens.len() - at - 1) };
        let right = (0..budget).take_while(|&i| draft[at + i - 1] == tokens[at + i]).count();
        drafted += budget;
        accepted += right;
        at += right + 1;
    }
    [rounds, drafted, accepted]
}

#[test]
fn a_draft_model_is_accepted_where_the_argmaxes_agree() {
    for noise in [0.1, 0.3, 1.0] {
        let prompts: Vec<_> = (0..6).map(|i| prompt(40 + i, 12 + 17 * i as usize)).collect();
        let requests: Vec<_> = prompts.iter().map(|prompt| greedy(prompt, 48)).collect();
        let drafter = Draft::Model(noise).drafter(1);
        let mut engine = Rig { drafter, token_budget: 2048, ..Rig::default() }.build();
        let mut draft = model(noise, 1);
        let outputs = run(&mut engine, &requests);
        let mut total = [0; 2];
        for (prompt, output) in prompts.iter().zip(&outputs) {
            let tokens = [&prompt[..], &output.token_ids].concat();
            let argmaxes = argmaxes(draft.as_mut(), &tokens);
            let stats = &output.speculation;
            let found = [stats.rounds, stats.drafted, stats.accepted];
            assert_eq!(predicted(&argmaxes, &tokens, prompt.len(), 4), found, "noise {noise}");
            total[0] += stats.drafted;
            total[1] += stats.accepted;
        }
        assert!(0 < total[1] && total[1] < total[0], "noise {noise}: {total:?} tells nothing");
    }
}
