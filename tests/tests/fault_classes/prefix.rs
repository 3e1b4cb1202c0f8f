//! B3: prefix caching and speculation leave each other alone.

use redline::{Engine, GenerateRequest, RequestOutput};
use redline_tests::requests::{greedy, mixed, prompt};
use redline_tests::rig::{Draft, Rig, run, said};

/// Prompts around and beyond block borders; the last one shares two blocks with the one before.
fn requests() -> Vec<GenerateRequest> {
    let mut prompts: Vec<_> = [31, 32, 33, 64, 70, 100].map(|n| prompt(n, n as usize)).to_vec();
    prompts.push([&prompts[5][..64], &prompt(7, 30)].concat());
    prompts.iter().map(|prompt| greedy(prompt, 60)).collect()
}

/// One by one, so that each finds what the ones before left.
fn in_turn(engine: &mut Engine, requests: &[GenerateRequest]) -> Vec<RequestOutput> {
    requests.iter().flat_map(|request| run(engine, std::slice::from_ref(request))).collect()
}

fn hits(outputs: &[RequestOutput]) -> Vec<usize> {
    outputs.iter().map(|output| output.usage.cached_tokens).collect()
}

/// Accepted of drafted.
fn acceptance(outputs: &[RequestOutput]) -> (usize, usize) {
    let each = outputs.iter().map(|output| &output.speculation);
    each.fold((0, 0), |sum, stats| (sum.0 + stats.accepted, sum.1 + stats.drafted))
}

#[test]
fn b3_a_second_identical_request_hits_as_much_with_speculation_as_without() {
    let requests = requests();
    let mut plain = Rig::default().build();
    let expected = in_turn(&mut plain, &requests);
    let again = in_turn(&mut plain, &requests);
    assert_eq!(hits(&again), [0, 0, 32, 32, 64, 96, 64], "whole blocks before the last token");
    for draft in [Draft::Ngram, Draft::Model(0.0), Draft::Model(0.05)] {
        let mut engine = Rig { drafter: draft.drafter(1), ..Rig::default() }.build();
        let first = in_turn(&mut engine, &requests);
        let second = in_turn(&mut engine, &requests);
        assert_eq!(said(&expected), said(&first), "{draft:?}");
        assert_eq!(said(&expected), said(&second), "{draft:?}");
        assert_eq!(hits(&expected), hits(&first), "{draft:?}");
        assert_eq!(hits(&again), hits(&second), "{draft:?}");
        let ((kept, of), (kept_again, of_again)) = (acceptance(&first), acceptance(&second));
        assert!(of > 100, "{draft:?}: {of} drafts");
        // A lane that came out of the cache drafts a round earlier; otherwise nothing is different.
        let (rate, rate_again) = (kept as f64 / of as f64, kept_again as f64 / of_again as f64);
        assert!((rate - rate_again).abs() < 0.05, "{draft:?}: {rate} and {rate_again}");
        assert!(of_again >= of * 9 / 10, "{draft:?}: {of} and {of_again} drafts");
        if draft == Draft::Model(0.0) {
            assert_eq!((kept, kept_again), (of, of_again));
        }
    }
}

/// Drafts reserve blocks, but push out no prefix that they do not use: in a pool that just holds the prompts and one
/// output, the second run still finds them.
#[test]
fn b3_reserving_for_drafts_does_not_push_prefixes_out() {
    let requests: Vec<_> = (0..4).map(|i| greedy(&prompt(80 + i, 65), 8)).collect();
    let blocks = 3 * 4;
    let mut plain = Rig { blocks, seqs: 1, ..Rig::default() }.build();
    let _ = in_turn(&mut plain, &requests);
    let expected = in_turn(&mut plain, &requests);
    assert_eq!(hits(&expected), [64; 4]);
    let mut engine =
        Rig { blocks, seqs: 1, drafter: Draft::Model(0.2).drafter(1), ..Rig::default() }.build();
    let _ = in_turn(&mut engine, &requests);
    let found = in_turn(&mut engine, &requests);
    assert_eq!(hits(&found), hits(&expected));
    assert_eq!(said(&found), said(&expected));
}

/// A prompt that is still being verified and computed is not published: others of the same prefix, at the same time,
/// say what they would alone.
#[test]
fn b3_requests_of_one_prefix_at_the_same_time_do_not_disturb_each_other() {
    let shared = prompt(5, 96);
    let mut requests = mixed(29, 8);
    for (i, request) in requests.iter_mut().enumerate() {
        let tokens = [&shared[..32 * (1 + i % 3)], &prompt(i as u64, 1 + 9 * i)].concat();
        request.prompt = redline::Prompt::Tokens(tokens);
    }
    let alone: Vec<_> = requests
        .iter()
        .flat_map(|request| run(&mut Rig::default().build(), std::slice::from_ref(request)))
        .collect();
    for draft in [Draft::Ngram, Draft::Model(0.2)] {
        // Little budget: prompts are computed in chunks, over several steps.
        let rig = Rig { drafter: draft.drafter(1), token_budget: 90, ..Rig::default() };
        let mut engine = rig.build();
        for _ in 0..2 {
            assert_eq!(said(&alone), said(&run(&mut engine, &requests)), "{draft:?}");
        }
    }
}
