//! The bound on waiting, under arrivals that were made up to break it.
#![allow(clippy::unwrap_used, reason = "a test may")]
mod rig;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use redline_scheduler::{Config, Rank, Request, SeqId};
use rig::{Rig, offer, request};
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
struct Arrival {
    gap: usize,
    prompt: usize,
    max_tokens: usize,
    priority: i32,
    samples: usize,
    drafts: usize,
}

fn arrival() -> impl Strategy<Value = Arrival> {
    (0..4usize, 1..40usize, 1..24usize, -1..3i32, 1..4usize, 0..5usize).prop_map(
        |(gap, prompt, max_tokens, priority, samples, drafts)| Arrival {
            gap,
            prompt,
            max_tokens,
            priority,
            samples,
            drafts,
        },
    )
}

/// When a request came, its rank, and how many that ranked before it were inside with it.
struct Wait {
    since: u64,
    rank: Rank,
    ahead: u64,
}

/// Runs to the end. The worst share of its bound that a request took.
fn worst_wait(config: &Config, arrivals: &[Arrival]) -> f64 {
    let mut rig = Rig::new(16, config.clone());
    let (mut inside, mut worst, mut step) = (BTreeMap::<SeqId, Wait>::new(), 0f64, 0);
    let mut arrivals = arrivals.iter();
    let mut next = arrivals.next();
    let mut gap = next.map_or(0, |arrival| arrival.gap);
    let mut id = 0;
    while next.is_some() || rig.scheduler.has_work() {
        while let Some(arrival) = next.filter(|_| gap == 0) {
            let Arrival { priority, samples, .. } = *arrival;
            let base = request(id, arrival.prompt, arrival.max_tokens);
            if rig.submit(Request { priority, samples, ..base }).is_ok() {
                for i in id..id + samples as u64 {
                    let rank = rig.scheduler.get(SeqId(i)).unwrap().rank();
                    let ahead = inside.values().filter(|wait| wait.rank < rank).count() as u64;
                    let behind = inside.values_mut().filter(|wait| rank < wait.rank);
                    behind.for_each(|wait| wait.ahead += 1);
                    inside.insert(SeqId(i), Wait { since: step, rank, ahead });
                    rig.offers.push(offer(i, arrival.drafts, None));
                }
            }
            id += samples as u64;
            next = arrivals.next();
            gap = next.map_or(0, |arrival| arrival.gap);
        }
        gap = gap.saturating_sub(1);
        step += 1;
        rig.step();
        for (seq, _) in rig.ended.drain(..) {
            let wait = inside.remove(&seq).unwrap();
            let bound = (wait.ahead + 1) * config.service_steps();
            assert!(step - wait.since <= bound, "{seq:?} took {} steps", step - wait.since);
            worst = worst.max((step - wait.since) as f64 / bound as f64);
        }
        let overdue = |wait: &Wait| step - wait.since > (wait.ahead + 1) * config.service_steps();
        assert!(!inside.values().any(overdue), "somebody waits for ever");
    }
    worst
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn nobody_waits_longer_than_the_bound_says(
        arrivals in prop::collection::vec(arrival(), 1..60),
        max_seqs in 1..5usize,
        ageing_steps in 1..20u64,
        chunk_max in 1..16usize,
    ) {
        let config = Config { max_seqs, ageing_steps, chunk_max, queue_len: 200, ..rig::config() };
        worst_wait(&config, &arrivals);
    }
}

/// The bound is of the right size: an adversary gets near enough to it that it is not empty talk.
#[test]
fn the_bound_can_nearly_be_reached() {
    let config = Config { max_seqs: 1, ageing_steps: 1, ..rig::config() };
    let long = Arrival { gap: 0, prompt: 1, max_tokens: 63, priority: 0, samples: 1, drafts: 0 };
    let worst = worst_wait(&config, &[long.clone(), long.clone(), long]);
    assert!(worst > 0.4, "{worst} of the bound");
}
