//! Parts that misbehave: only the request they touch fails, by name; the others say what they would have said.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use redline::spec::{DraftError, DraftJob, Law, Position, Proposal, Scratch, law};
use redline::{FinishReason, GenerateRequest, ModelRunner, Prompt, RequestOutput, TokenId};
use redline_tests::drafters::{Closure, chain, future};
use redline_tests::requests::{mixed, whole};
use redline_tests::rig::{Draft, Rig, Said, model, run, said};
use redline_tests::runners::{Spoilt, Watched};
use redline_tests::words::VOCAB;

/// The request that is touched.
const VICTIM: usize = 3;

/// Requests of which the victim says enough, and their undisturbed outputs.
fn undisturbed() -> (Vec<GenerateRequest>, Vec<RequestOutput>) {
    let mut requests = mixed(21, 9);
    requests[VICTIM].ignore_eos = true;
    let outputs = run(&mut Rig::default().build(), &requests);
    assert!(outputs[VICTIM].token_ids.len() >= 12);
    (requests, outputs)
}

/// The victim failed with these words, having said a prefix of what it would have; nobody else did.
#[track_caller]
fn assert_only_victim(expected: &[RequestOutput], found: &[RequestOutput], words: &str) {
    for (i, (expected, found)) in expected.iter().zip(found).enumerate() {
        if i == VICTIM {
            assert_eq!(found.finish_reason, FinishReason::Error);
            let error = found.error.as_deref().unwrap();
            assert!(error.contains(words), "`{error}` does not say `{words}`");
            assert!(expected.token_ids.starts_with(&found.token_ids));
        } else {
            assert_eq!(Said::from(expected), Said::from(found), "request {i}");
        }
    }
}

#[test]
fn always_wrong_is_only_slower() {
    let (requests, expected) = undisturbed();
    let known = whole(&requests, &expected);
    let drafter = Closure::boxed("wrong", move |job, proposal| {
        chain(job, proposal, future(&known, job.tokens).iter().map(|t| (t + 1) % VOCAB as TokenId))
    });
    let found = run(&mut Rig { drafter: Some(drafter), ..Rig::default() }.build(), &requests);
    assert_eq!(said(&expected), said(&found));
    let drafted: usize = found.iter().map(|output| output.speculation.drafted).sum();
    let accepted: usize = found.iter().map(|output| output.speculation.accepted).sum();
    assert!(drafted > 200 && accepted == 0, "{accepted} of {drafted}");
}

type Mistake = fn(&DraftJob<'_>, &mut Proposal) -> Result<(), DraftError>;

#[test]
fn a_drafters_mistake_costs_one_request() {
    let out_of_range: Mistake = |job, proposal| chain(job, proposal, [1, VOCAB as TokenId]);
    let largest: Mistake = |job, proposal| chain(job, proposal, [TokenId::MAX]);
    let too_many: Mistake = |job, proposal| {
        let job = DraftJob { budget: job.budget + 1, ..job.clone() };
        chain(&job, proposal, 0..50)
    };
    let nan_row: Mistake = |job, proposal| {
        let at = Position {
            sampling: job.sampling,
            history: job.history,
            path: &[],
            constraint: job.constraint,
        };
        let law = law(&[f32::NAN; VOCAB], &at, &mut Scratch::default())?;
        let round = job.draws.round(job.tokens.len() as u64);
        proposal.build(job.budget).draw(None, law, 1, job.mode, &round)?;
        Ok(())
    };
    let nan_law: Mistake = |job, proposal| {
        let law = Law::dense(vec![0.5, f64::NAN, 0.5])?;
        let round = job.draws.round(job.tokens.len() as u64);
        proposal.build(job.budget).draw(None, law, 1, job.mode, &round)?;
        Ok(())
    };
    let error: Mistake = |_, _| Err(DraftError::Failed("out of ideas".to_owned()));
    let (requests, expected) = undisturbed();
    for (mistake, words) in [
        (out_of_range, "draft token 64 is outside the vocabulary of 64"),
        (largest, "is outside the vocabulary"),
        (too_many, "the drafter `faulty` proposed 5 tokens where 4 were granted"),
        (nan_row, "the drafter's law is unusable"),
        (nan_law, "the drafter's law is unusable"),
        (error, "the drafter `faulty` failed: the drafter failed: out of ideas"),
    ] {
        for late in [0, 5] {
            let from = late + prompt_len(&requests[VICTIM]);
            let drafter = Closure::boxed("faulty", move |job, proposal| {
                match job.seq as usize == VICTIM && job.tokens.len() > from {
                    true => mistake(job, proposal),
                    false => chain(job, proposal, [9, 8, 7]),
                }
            });
            let mut engine = Rig { drafter: Some(drafter), ..Rig::default() }.build();
            let found = run(&mut engine, &requests);
            assert_only_victim(&expected, &found, words);
            assert!(found[VICTIM].token_ids.len() > late);
        }
    }
}

fn prompt_len(request: &GenerateRequest) -> usize {
    let Prompt::Tokens(tokens) = &request.prompt else { return 0 };
    tokens.len()
}

#[test]
fn a_bad_row_of_the_target_costs_one_request() {
    let (requests, expected) = undisturbed();
    let known = whole(&requests, &expected);
    for (draft, value, said) in [
        (Draft::None, f32::NAN, 0),
        (Draft::None, f32::NEG_INFINITY, 7),
        (Draft::Ngram, f32::NAN, 5),
        (Draft::Model(0.0), f32::INFINITY, 6),
        (Draft::Model(0.2), f32::NAN, 9),
        (Draft::Model(0.2), f32::NEG_INFINITY, 0),
    ] {
        let bad = known[VICTIM][..prompt_len(&requests[VICTIM]) + said].to_vec();
        let target = Spoilt::new(model(0.0, 1), move |seen| (seen == bad).then_some(value));
        let mut engine =
            Rig { target: Box::new(target), drafter: draft.drafter(1), ..Rig::default() }.build();
        let found = run(&mut engine, &requests);
        assert_only_victim(&expected, &found, "is no probability law");
        // A bad row below accepted drafts takes that round's tokens with it, no more.
        let kept = found[VICTIM].token_ids.len();
        assert!(kept <= said && kept + 4 >= said, "{draft:?}: {kept} tokens before row {said}");
    }
}

#[test]
fn rows_off_the_emitted_path_are_never_read() {
    let (requests, expected) = undisturbed();
    let known = whole(&requests, &expected);
    let target = Spoilt::new(model(0.0, 1), move |seen| {
        let on_path = |whole: &Vec<TokenId>| whole.starts_with(seen) || seen.starts_with(whole);
        (!known.iter().any(on_path)).then_some(f32::NAN)
    });
    let drafter = Draft::Model(0.5).drafter(1);
    let mut engine = Rig { target: Box::new(target), drafter, ..Rig::default() }.build();
    assert_eq!(said(&expected), said(&run(&mut engine, &requests)));
}

/// A target that fails as `fails` says.
fn failing(fails: impl Fn(usize) -> bool + Send + 'static) -> Box<dyn ModelRunner> {
    let mut target = Watched::new(model(0.0, 1));
    target.fails = Box::new(fails);
    Box::new(target)
}

#[test]
fn a_pass_that_fails_twice_fails_its_requests_by_name() {
    let (requests, expected) = undisturbed();
    for n in 1..=20 {
        let rig = Rig {
            target: failing(move |pass| pass == n || pass == n + 1),
            drafter: Draft::Model(0.2).drafter(1),
            seqs: 2,
            ..Rig::default()
        };
        let mut engine = rig.build();
        let found = run(&mut engine, &requests);
        let failed = |output: &RequestOutput| output.finish_reason == FinishReason::Error;
        let count = found.iter().filter(|output| failed(output)).count();
        assert!((1..=2).contains(&count), "{count} failed at pass {n}");
        for (expected, found) in expected.iter().zip(&found) {
            if failed(found) {
                let error = found.error.as_deref().unwrap();
                assert!(error.contains("its step kept failing"), "{error}");
                assert!(error.contains(&format!("pass {} was told to fail", n + 1)), "{error}");
                assert!(expected.token_ids.starts_with(&found.token_ids));
            } else {
                assert_eq!(Said::from(expected), Said::from(found));
            }
        }
        // The engine goes on as if nothing had been.
        assert_eq!(said(&expected), said(&run(&mut engine, &requests)));
    }
}
