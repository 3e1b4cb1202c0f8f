//! A scheduler, its cache and its memory; how a run begins, goes on and ends.

use std::collections::BTreeSet;

use arbitrary::Unstructured;
use redline_kv_cache::{KvConfig, MAX_LANES};
use redline_scheduler::{Config, Finish, KvCache, Scheduler, SeqId, StepPlan};

use super::memory::{LANES_MAX, Memory};
use super::requests::Jobs;
use super::tree::Tree;

/// Far more than any input can need; the promise is that each request ends.
const STEPS_MAX: usize = 20_000;

/// Below `n`; 0 once the bytes are used up, which must be the choice that brings a run to its end.
pub(super) fn pick(bytes: &mut Unstructured<'_>, n: usize) -> usize {
    bytes.int_in_range(0..=n.saturating_sub(1)).unwrap_or(0)
}

pub(super) struct World<'a> {
    pub(super) bytes: Unstructured<'a>,
    pub(super) kv: KvCache,
    pub(super) scheduler: Scheduler,
    pub(super) memory: Memory,
    pub(super) jobs: Jobs,
    pub(super) plan: StepPlan,
    pub(super) trees: Vec<Tree>,
    /// Who was taken out of the plan since it was made: what comes back for them must be ignored.
    pub(super) void: BTreeSet<SeqId>,
    /// What deadlines are measured against.
    pub(super) now: u64,
    /// How many have been seen to end.
    ended: u64,
}

impl<'a> World<'a> {
    pub(super) fn new(mut bytes: Unstructured<'a>) -> Self {
        let b = &mut bytes;
        let lanes = 1 + pick(b, LANES_MAX);
        let mut with_target_lanes = [false; MAX_LANES];
        with_target_lanes[lanes - 1] = lanes > 1 && pick(b, 4) == 3;
        let kv = KvCache::new(&KvConfig {
            blocks: 1 + pick(b, 24) as u32,
            block_size: 1 << pick(b, 4),
            lanes: lanes as u8,
            prefix_cache: pick(b, 4) < 3,
            hash_key: [7; 32],
            with_target_lanes,
        });
        let kv = kv.expect("a shape within bounds");
        let (max_seqs, prefill_floor) = (1 + pick(b, 6), 1 + pick(b, 4));
        let config = Config {
            max_seqs,
            token_budget: max_seqs + prefill_floor + pick(b, 40),
            prefill_floor,
            chunk_max: 1 + pick(b, 16),
            queue_len: 1 + pick(b, 8),
            max_model_len: 2 + pick(b, 63),
            ageing_steps: 1 + pick(b, 16) as u64,
            retries: pick(b, 3) as u32,
        };
        Self {
            memory: Memory::new(kv.blocks(), kv.block_size()),
            scheduler: Scheduler::new(config).expect("bounds that agree"),
            kv,
            bytes,
            jobs: Jobs::default(),
            plan: StepPlan::default(),
            trees: Vec::new(),
            void: BTreeSet::new(),
            now: 0,
            ended: 0,
        }
    }

    pub(super) fn live(&mut self) {
        while !self.bytes.is_empty() {
            if pick(&mut self.bytes, 2) == 0 { self.step() } else { self.meddle() }
        }
    }

    /// Ends everything: step by step, or at once.
    pub(super) fn finish(&mut self) {
        if self.scheduler.stats().submitted % 4 == 3 {
            self.will_end(Finish::Cancelled, |_, _| true);
            self.scheduler.clear(&mut self.kv);
            self.collect();
        }
        self.scheduler.resume();
        let mut steps = 0;
        while self.scheduler.has_work() {
            assert!(steps < STEPS_MAX, "it does not end");
            steps += 1;
            self.step();
        }
        assert!(self.jobs.0.is_empty(), "each ends");
        assert_eq!(self.kv.usage().free, self.kv.blocks(), "nothing leaked");
        let stats = self.scheduler.stats();
        assert_eq!(stats.submitted, stats.finished);
    }

    /// Takes leave of who ended, and audits.
    pub(super) fn collect(&mut self) {
        let all = self.scheduler.stats().finished;
        let fresh = (all - self.ended) as usize;
        self.ended = all;
        let ended: Vec<_> = self.scheduler.ended().collect();
        assert!(fresh <= ended.len(), "{fresh} ended, only {} can be seen", ended.len());
        for (seq, finish) in &ended[ended.len() - fresh..] {
            self.jobs.end(seq, *finish);
        }
        self.jobs.check();
        let audit = self.scheduler.audit(&self.kv);
        assert!(audit.is_ok(), "{audit:?}");
    }
}
