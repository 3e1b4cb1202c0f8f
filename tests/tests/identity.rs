//! The token stream is a function of model, prompt, parameters and seed: not of speculation, batch, pool,
//! chunking, prefix cache or threads. Whole outputs are compared.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::collections::BTreeSet;

use proptest::prelude::*;
use redline::{DraftLength, Engine, GenerateRequest, verifier};
use redline_tests::drafters::forest;
use redline_tests::oracle::oracle;
use redline_tests::requests::{greedy, mixed, prompt, stop_midway};
use redline_tests::rig::{Draft, Rig, Said, model, run, said};
use redline_tests::words::VOCAB;

/// Where the schedule can differ.
#[derive(Debug, Clone, Copy)]
struct Setup {
    draft: Draft,
    length: DraftLength,
    seqs: usize,
    blocks: u64,
    prefix_cache: bool,
    token_budget: usize,
    threads: usize,
}

const AMPLE: u64 = 256;
/// The longest request needs 10; eight at a time have to fight.
const TIGHT: u64 = 11;
const PLAIN: Setup = Setup {
    draft: Draft::None,
    length: DraftLength::Fixed(0),
    seqs: 1,
    blocks: AMPLE,
    prefix_cache: false,
    token_budget: 512,
    threads: 1,
};

impl Setup {
    fn engine(self, rule: &str) -> Engine {
        Rig {
            target: model(0.0, self.threads),
            drafter: self.draft.drafter(self.threads),
            rule: verifier(rule).unwrap(),
            length: self.length,
            seqs: self.seqs,
            blocks: self.blocks,
            token_budget: self.token_budget,
            prefix_cache: self.prefix_cache,
            ..Rig::default()
        }
        .build()
    }
}

/// Requests with stop strings that end some of them midway, and what plain decoding says to them.
fn expected(seed: u64, n: usize) -> (Vec<GenerateRequest>, Vec<Said>) {
    let mut requests = mixed(seed, n);
    let outputs = run(&mut PLAIN.engine("coupled"), &requests);
    stop_midway(&mut requests, &outputs);
    let outputs = run(&mut PLAIN.engine("coupled"), &requests);
    (requests, said(&outputs))
}

#[track_caller]
fn assert_same(expected: &[Said], found: &[Said], setup: &impl std::fmt::Debug) {
    for (i, (expected, found)) in expected.iter().zip(found).enumerate() {
        assert_eq!(expected, found, "request {i} under {setup:?}");
    }
}

#[test]
fn plain_decoding_is_what_the_oracle_says() {
    let requests = mixed(11, 24);
    let outputs =
        run(&mut Setup { seqs: 8, prefix_cache: true, ..PLAIN }.engine("coupled"), &requests);
    let mut target = model(0.0, 1);
    for (request, output) in requests.iter().zip(&outputs) {
        assert_eq!(oracle(target.as_mut(), request, 0), output.token_ids);
    }
}

/// One row per drafter, one word per length; its digits choose seats, pool, prefix cache, token budget and
/// threads. Every two values of different columns meet somewhere: `the_set_covers` counts.
const COVERING: [[&[u8; 5]; 4]; 5] = [
    [b"01001", b"00010", b"10101", b"01020"],
    [b"11020", b"10020", b"11111", b"00100"],
    [b"10001", b"10111", b"01110", b"11021"],
    [b"10111", b"11100", b"11120", b"01011"],
    [b"10020", b"11111", b"00001", b"11011"],
];

#[test]
fn the_set_covers() {
    let rows: Vec<Vec<u8>> = (0..5)
        .flat_map(|i| (0..4).map(move |j| (i, j)))
        .map(|(i, j)| [&[i as u8, j as u8], &COVERING[i][j][..]].concat())
        .collect();
    let values = |column: usize| rows.iter().map(|row| row[column]).collect::<BTreeSet<_>>();
    assert_eq!([0, 1, 2, 3, 4, 5, 6].map(|column| values(column).len()), [5, 4, 2, 2, 2, 3, 2]);
    for (a, b) in (0..7).flat_map(|a| (0..a).map(move |b| (a, b))) {
        let pairs: BTreeSet<_> = rows.iter().map(|row| (row[a], row[b])).collect();
        assert_eq!(pairs.len(), values(a).len() * values(b).len(), "columns {b} and {a}");
    }
}

#[test]
fn a_covering_set_of_configurations() {
    let (requests, expected) = expected(3, 24);
    let stopped = expected.iter().filter(|said| said.stopped()).count();
    assert!(stopped >= 6, "only {stopped} of 24 stop midway: the test says little");
    let auto = DraftLength::Auto;
    let k = DraftLength::Fixed;
    let drafts =
        [Draft::None, Draft::Ngram, Draft::Model(0.15), Draft::Model(1.0), Draft::Model(0.0)];
    let lengths = [k(1), k(4), k(8), auto];
    let mut tight = 0;
    for (draft, row) in drafts.into_iter().zip(COVERING) {
        for (length, others) in lengths.into_iter().zip(row) {
            let [seqs, blocks, prefix_cache, token_budget, threads] =
                others.map(|digit| usize::from(digit - b'0'));
            let setup = Setup {
                draft,
                length,
                seqs: [1, 8][seqs],
                blocks: [AMPLE, TIGHT][blocks],
                prefix_cache: prefix_cache == 1,
                token_budget: [72, 130, 512][token_budget],
                threads: 1 + threads,
            };
            let mut engine = setup.engine("coupled");
            assert_same(&expected, &said(&run(&mut engine, &requests)), &setup);
            // With a fixed length the schedule does not depend on the clock, so neither does this.
            let preempted = engine.scheduler().stats().preempted;
            if setup.blocks == TIGHT && setup.seqs > 1 && length != auto {
                assert!(preempted >= 5, "only {preempted} preemptions under {setup:?}");
                tight += 1;
            }
            // Once more, over what the first run left in the prefix cache.
            assert_same(&expected, &said(&run(&mut engine, &requests)), &setup);
        }
    }
    assert_eq!(tight, 5);
}

#[test]
fn greedy_is_the_same_under_every_rule() {
    let mut requests = mixed(5, 16);
    requests.iter_mut().for_each(|request| request.sampling.temperature = 0.0);
    let expected = said(&run(&mut PLAIN.engine("coupled"), &requests));
    for (draft, blocks) in
        [(Draft::Ngram, AMPLE), (Draft::Model(0.15), TIGHT), (Draft::None, AMPLE)]
    {
        let setup = Setup { draft, length: DraftLength::Fixed(4), seqs: 8, blocks, ..PLAIN };
        for rule in ["token", "block", "traversal"] {
            assert_same(&expected, &said(&run(&mut setup.engine(rule), &requests)), &setup);
        }
    }
}

/// Under `token` what is drawn may depend on the drafts, but not on the schedule.
#[test]
fn the_token_rule_does_not_see_the_schedule() {
    let requests = mixed(6, 16);
    for draft in [Draft::None, Draft::Model(0.3)] {
        // With a lane, how many rounds pass before the first draft depends on the schedule: no drafts then.
        let length = DraftLength::Fixed(0);
        let alone = Setup { draft, length, ..PLAIN };
        let expected = said(&run(&mut alone.engine("token"), &requests));
        let crowd = Setup { seqs: 8, blocks: TIGHT, token_budget: 72, prefix_cache: true, ..alone };
        assert_same(&expected, &said(&run(&mut crowd.engine("token"), &requests)), &crowd);
    }
}

/// Trees whose accepted path has to be moved: tokens right, KV right (the next tokens say so).
#[test]
fn trees_are_compacted() {
    let mut requests: Vec<_> =
        (0..6).map(|i| greedy(&prompt(i, 20 + 9 * i as usize), 40)).collect();
    requests.iter_mut().step_by(2).for_each(|request| request.sampling.temperature = 1.0);
    let outputs = run(&mut PLAIN.engine("coupled"), &requests);
    let whole = |(i, output): (usize, &redline::RequestOutput)| {
        let mut tokens = prompt(i as u64, 20 + 9 * i);
        tokens.extend(&output.token_ids);
        tokens
    };
    let known: Vec<_> = outputs.iter().enumerate().map(whole).collect();
    for (seqs, blocks) in [(1, AMPLE), (8, AMPLE), (8, 9)] {
        let drafter = Some(forest(VOCAB as u32, known.clone()));
        let rig = Rig { drafter, seqs, blocks, length: DraftLength::Fixed(9), ..Rig::default() };
        let mut engine = rig.build();
        let found = run(&mut engine, &requests);
        assert_same(&said(&outputs), &said(&found), &(seqs, blocks));
        let stats = &found[0].speculation;
        assert!(stats.accepted >= stats.rounds * 3 / 2, "the right path is accepted: {stats:?}");
        assert_eq!(engine.scheduler().stats().preempted > 0, blocks == 9);
    }
}

fn setups() -> impl Strategy<Value = Setup> {
    let draft = prop_oneof![
        Just(Draft::Ngram),
        Just(Draft::Model(0.0)),
        (1_u8..20).prop_map(|tenths| Draft::Model(f32::from(tenths) / 10.0)),
    ];
    let length = prop_oneof![(0_usize..=12).prop_map(DraftLength::Fixed), Just(DraftLength::Auto)];
    let schedule = (1_usize..=12, 11_u64..40, any::<bool>(), 70_usize..400, 1_usize..=3);
    (draft, length, schedule).prop_map(|(draft, length, schedule)| {
        let (seqs, blocks, prefix_cache, token_budget, threads) = schedule;
        Setup { draft, length, seqs, blocks, prefix_cache, token_budget, threads }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_configuration(setup in setups(), seed in any::<u64>(), n in 1_usize..14) {
        let (requests, expected) = expected(seed, n);
        let found = said(&run(&mut setup.engine("coupled"), &requests));
        prop_assert_eq!(expected, found);
    }
}
