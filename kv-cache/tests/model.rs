//! Random operations on tiny pools with two tokens, against memory that is really written.
//!
//! Every slot holds, per lane, a value that depends on all tokens up to it. Whatever may be written
//! is overwritten with rubbish as soon as it is reserved. So a stale fill, a block shared too long,
//! a copy forgotten or a wrong prefix shows as a wrong value at once.
#![allow(clippy::unwrap_used, reason = "a test may")]
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use redline_kv_cache::{BlockCopy, KvCache, KvConfig, Lane, MAX_LANES, SequenceKv, TokenId};
use std::collections::BTreeSet;

const LANES: usize = 3;
const RUBBISH: u64 = u64::MAX;

#[derive(Debug, Clone)]
enum Op {
    Start { salt: u64, tokens: Vec<TokenId>, max: usize },
    Reserve { seq: usize, more: usize },
    Commit { seq: usize, tokens: Vec<TokenId> },
    Fill { seq: usize, lane: u8, more: usize },
    Truncate { seq: usize, slots: usize },
    Fork { seq: usize },
    Clear { seq: usize },
    Release { seq: usize },
}

fn tokens(max: usize) -> impl Strategy<Value = Vec<TokenId>> {
    prop::collection::vec(0..2u32, 1..max)
}

fn op() -> impl Strategy<Value = Op> {
    let seq = 0..8usize;
    prop_oneof![
        3 => (0..2u64, tokens(20), 0..20usize)
            .prop_map(|(salt, tokens, max)| Op::Start { salt, tokens, max }),
        4 => (seq.clone(), 0..12usize).prop_map(|(seq, more)| Op::Reserve { seq, more }),
        6 => (seq.clone(), tokens(9)).prop_map(|(seq, tokens)| Op::Commit { seq, tokens }),
        4 => (seq.clone(), 1..LANES as u8, 0..12usize)
            .prop_map(|(seq, lane, more)| Op::Fill { seq, lane, more }),
        3 => (seq.clone(), 0..24usize).prop_map(|(seq, slots)| Op::Truncate { seq, slots }),
        1 => seq.clone().prop_map(|seq| Op::Fork { seq }),
        1 => seq.clone().prop_map(|seq| Op::Clear { seq }),
        2 => seq.prop_map(|seq| Op::Release { seq }),
    ]
}

struct Seq {
    salt: u64,
    /// As many as are committed.
    tokens: Vec<TokenId>,
    kv: SequenceKv,
}

struct World {
    kv: KvCache,
    memory: Vec<[u64; LANES]>,
    seqs: Vec<Seq>,
    /// Every full-block prefix ever committed, by tenant.
    known: BTreeSet<(u64, Vec<TokenId>)>,
}

fn value(salt: u64, tokens: &[TokenId]) -> u64 {
    tokens.iter().fold(salt + 17, |hash, &token| {
        (hash ^ u64::from(token) ^ 5).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
    })
}

impl World {
    fn new(blocks: u32, block_size: u32) -> Self {
        let config = KvConfig {
            blocks,
            block_size,
            lanes: LANES as u8,
            prefix_cache: true,
            hash_key: [9; 32],
            with_target_lanes: [false; MAX_LANES],
        };
        Self {
            kv: KvCache::new(&config).unwrap(),
            memory: vec![[RUBBISH; LANES]; (blocks * block_size) as usize],
            seqs: Vec::new(),
            known: BTreeSet::new(),
        }
    }

    fn at(&self, seq: &SequenceKv, slot: usize) -> usize {
        let size = self.kv.block_size();
        seq.table()[slot / size].index() * size + slot % size
    }

    fn pick(&self, seq: usize) -> Option<usize> {
        (!self.seqs.is_empty()).then(|| seq % self.seqs.len())
    }

    fn copy(&mut self, copies: &[BlockCopy]) {
        let size = self.kv.block_size();
        for copy in copies {
            let (from, to) = (copy.from.index() * size, copy.to.index() * size);
            self.memory.copy_within(from..from + copy.slots as usize, to);
        }
    }

    /// Reserves up to `slots`, does the copies and scribbles over everything that may be written.
    fn reserve(&mut self, i: usize, slots: usize) -> bool {
        let mut copies = Vec::new();
        let seq = &mut self.seqs[i];
        let before = (seq.kv.table().to_vec(), seq.kv.slots(), self.kv.usage());
        if seq.kv.reserve(&mut self.kv, slots, &mut copies).is_err() {
            let after = (seq.kv.table().to_vec(), seq.kv.slots(), self.kv.usage());
            assert_eq!((after, copies.len()), (before, 0), "a refusal changes nothing");
            return false;
        }
        self.copy(&copies);
        for slot in self.seqs[i].kv.len()..self.seqs[i].kv.slots() {
            let at = self.at(&self.seqs[i].kv, slot);
            self.memory[at] = [RUBBISH; LANES];
        }
        true
    }

    fn commit(&mut self, i: usize, tokens: &[TokenId]) {
        let len = self.seqs[i].kv.len();
        if !self.reserve(i, len + tokens.len()) {
            return;
        }
        self.seqs[i].tokens.extend_from_slice(tokens);
        for slot in len..len + tokens.len() {
            let seq = &self.seqs[i];
            let at = self.at(&seq.kv, slot);
            self.memory[at][0] = value(seq.salt, &seq.tokens[..=slot]);
        }
        let seq = &mut self.seqs[i];
        seq.kv.commit(&mut self.kv, &seq.tokens, len + tokens.len());
        let size = self.kv.block_size();
        for end in (size..=seq.tokens.len()).step_by(size) {
            self.known.insert((seq.salt, seq.tokens[..end].to_vec()));
        }
    }

    fn fill(&mut self, i: usize, lane: u8, more: usize) {
        let seq = &self.seqs[i];
        let from = seq.kv.filled(&self.kv, Lane(lane));
        let upto = (from + more).min(seq.kv.len());
        for slot in from..upto {
            let seq = &self.seqs[i];
            let at = self.at(&seq.kv, slot);
            self.memory[at][usize::from(lane)] = value(seq.salt, &seq.tokens[..=slot]);
        }
        self.seqs[i].kv.set_filled(&mut self.kv, Lane(lane), upto);
        // More, if someone else has filled the next block already.
        assert!(self.seqs[i].kv.filled(&self.kv, Lane(lane)) >= upto);
    }

    fn start(&mut self, salt: u64, tokens: Vec<TokenId>, max: usize) -> (usize, usize) {
        let mut kv = SequenceKv::new(salt);
        let (max, slots) = (max.min(tokens.len()), tokens.len());
        let promised = kv.would_fit(&mut self.kv, &tokens, max, slots);
        let hits = kv.attach_prefix(&mut self.kv, &tokens, max);
        let tokens = tokens[..hits].to_vec();
        self.seqs.push(Seq { salt, tokens, kv });
        let fits = self.reserve(self.seqs.len() - 1, slots);
        assert_eq!(fits, promised, "would_fit says what reserve will say");
        (hits, max)
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Start { salt, tokens, max } => {
                self.start(salt, tokens, max);
            }
            Op::Reserve { seq, more } => {
                if let Some(i) = self.pick(seq) {
                    self.reserve(i, self.seqs[i].kv.len() + more);
                }
            }
            Op::Commit { seq, tokens } => {
                if let Some(i) = self.pick(seq) {
                    self.commit(i, &tokens);
                }
            }
            Op::Fill { seq, lane, more } => {
                if let Some(i) = self.pick(seq) {
                    self.fill(i, lane, more);
                }
            }
            Op::Truncate { seq, slots } => {
                if let Some(i) = self.pick(seq) {
                    let seq = &mut self.seqs[i];
                    seq.kv.truncate(&mut self.kv, slots);
                    seq.tokens.truncate(slots);
                }
            }
            Op::Fork { seq } => {
                if let Some(i) = self.pick(seq) {
                    let kv = self.seqs[i].kv.fork(&mut self.kv);
                    let Seq { salt, ref tokens, .. } = self.seqs[i];
                    let tokens = tokens.clone();
                    self.seqs.push(Seq { salt, tokens, kv });
                }
            }
            Op::Clear { seq } => {
                if let Some(i) = self.pick(seq) {
                    let seq = &mut self.seqs[i];
                    seq.kv.clear(&mut self.kv);
                    seq.kv.attach_prefix(&mut self.kv, &seq.tokens, seq.tokens.len());
                    seq.tokens.truncate(seq.kv.len());
                }
            }
            Op::Release { seq } => {
                if let Some(i) = self.pick(seq) {
                    self.seqs.swap_remove(i).kv.release(&mut self.kv);
                }
            }
        }
    }

    fn check(&self) {
        self.kv.audit(self.seqs.iter().map(|seq| &seq.kv)).unwrap();
        for seq in &self.seqs {
            assert_eq!(seq.kv.len(), seq.tokens.len());
            assert!(seq.kv.holds_prefix_of(&self.kv, &seq.tokens));
            for lane in 0..LANES {
                for slot in 0..seq.kv.filled(&self.kv, Lane(lane as u8)) {
                    let found = self.memory[self.at(&seq.kv, slot)][lane];
                    let right = value(seq.salt, &seq.tokens[..=slot]);
                    assert_eq!(found, right, "lane {lane}, slot {slot}");
                }
            }
        }
    }

    fn finish(mut self) {
        for seq in std::mem::take(&mut self.seqs) {
            seq.kv.release(&mut self.kv);
        }
        self.kv.audit([]).unwrap();
        assert_eq!(self.kv.usage().free, self.kv.blocks(), "nothing leaked");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn memory_is_what_the_bookkeeping_says(
        blocks in 2..12u32,
        shift in 0..3u32,
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let mut world = World::new(blocks, 1 << shift);
        for op in ops {
            world.apply(op);
            world.check();
        }
        world.finish();
    }

    /// With blocks to spare nothing is evicted, so a hit must be as long as a naive search's.
    #[test]
    fn every_prefix_that_was_committed_is_found(
        shift in 0..3u32,
        prompts in prop::collection::vec((0..2u64, tokens(14), any::<bool>()), 1..20),
    ) {
        let size = 1usize << shift;
        let mut world = World::new(400, size as u32);
        for (salt, tokens, keep) in prompts {
            let known = |end: &usize| world.known.contains(&(salt, tokens[..*end].to_vec()));
            let expected = (size..tokens.len()).step_by(size).take_while(known).last();
            let (hits, _) = world.start(salt, tokens.clone(), tokens.len() - 1);
            prop_assert_eq!(hits, expected.unwrap_or(0));
            let i = world.seqs.len() - 1;
            world.commit(i, &tokens[hits..]);
            world.check();
            if !keep {
                world.seqs.swap_remove(i).kv.release(&mut world.kv);
            }
        }
        world.finish();
    }
}
