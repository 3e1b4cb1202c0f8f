//! B17: rows of a batch are not mixed up. Very different prompts, each with another number of drafts, against each alone.

use redline::{DraftLength, Speculation};
use redline_tests::requests::mixed;
use redline_tests::rig::{Draft, Rig, run, said};

#[test]
fn b17_a_batch_of_different_prompts_and_drafts_says_what_each_says_alone() {
    for seed in [36, 37] {
        let mut requests = mixed(seed, 12);
        for (i, request) in requests.iter_mut().enumerate() {
            request.speculation = Speculation::Exactly(i * 5 % 8);
        }
        for draft in [Draft::Ngram, Draft::Model(0.0), Draft::Model(0.2)] {
            // Room for everybody: what is drafted then depends on nobody else, either.
            let rig = || Rig {
                drafter: draft.drafter(1),
                length: DraftLength::Fixed(3),
                seqs: 12,
                token_budget: 4096,
                ..Rig::default()
            };
            let together = run(&mut rig().build(), &requests);
            let alone: Vec<_> = requests
                .iter()
                .flat_map(|request| run(&mut rig().build(), std::slice::from_ref(request)))
                .collect();
            assert_eq!(said(&alone), said(&together), "{draft:?}");
            let mut drafted = 0;
            for (i, (alone, together)) in alone.iter().zip(&together).enumerate() {
                let (alone, together) = (&alone.speculation, &together.speculation);
                let both = (&alone.acceptance_histogram, &together.acceptance_histogram);
                assert_eq!(both.0, both.1, "request {i}, {draft:?}");
                drafted += together.drafted;
            }
            assert!(drafted > 100, "{draft:?}: {drafted} drafts");
        }
    }
}
