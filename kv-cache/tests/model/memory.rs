//! A cache with memory that is really written.
//!
//! Every slot holds, per lane, a value that depends on all tokens up to it. Whatever may be written
//! is overwritten with rubbish as soon as it is reserved. So a stale fill, a block shared too long,
//! a copy forgotten or a wrong prefix shows as a wrong value at once.

use redline_kv_cache::{BlockCopy, KvCache, KvConfig, Lane, MAX_LANES, SequenceKv, TokenId};

pub(crate) const LANES: usize = 3;
const RUBBISH: u64 = u64::MAX;

fn value(salt: u64, tokens: &[TokenId]) -> u64 {
    tokens.iter().fold(salt + 17, |hash, &token| {
        (hash ^ u64::from(token) ^ 5).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
    })
}

pub(crate) fn config(blocks: u32, block_size: u32) -> KvConfig {
    KvConfig {
        blocks,
        block_size,
        lanes: LANES as u8,
        prefix_cache: true,
        hash_key: [9; 32],
        with_target_lanes: [false; MAX_LANES],
    }
}

pub(crate) struct Memory {
    pub(crate) kv: KvCache,
    slots: Vec<[u64; LANES]>,
}

impl Memory {
    pub(crate) fn new(config: &KvConfig) -> Self {
        let slots = (config.blocks * config.block_size) as usize;
        Self { kv: KvCache::new(config).unwrap(), slots: vec![[RUBBISH; LANES]; slots] }
    }

    fn at(&self, seq: &SequenceKv, slot: usize) -> usize {
        let size = self.kv.block_size();
        seq.table()[slot / size].index() * size + slot % size
    }

    fn copy(&mut self, copies: &[BlockCopy]) {
        let size = self.kv.block_size();
        for copy in copies {
            let (from, to) = (copy.from.index() * size, copy.to.index() * size);
            self.slots.copy_within(from..from + copy.slots as usize, to);
        }
    }

    /// Overwrites all that the sequence may write.
    fn scribble(&mut self, seq: &SequenceKv) {
        for slot in seq.len()..seq.slots() {
            let at = self.at(seq, slot);
            self.slots[at] = [RUBBISH; LANES];
        }
    }

    fn write(&mut self, seq: &SequenceKv, slot: usize, lane: usize, salt: u64, tokens: &[TokenId]) {
        let at = self.at(seq, slot);
        self.slots[at][lane] = value(salt, &tokens[..=slot]);
    }

    /// Whether there was room. A refusal changes nothing.
    pub(crate) fn reserve(&mut self, seq: &mut SequenceKv, slots: usize) -> bool {
        let mut copies = Vec::new();
        let before = (seq.table().to_vec(), seq.slots(), self.kv.usage());
        if let Err(refusal) = seq.reserve(&mut self.kv, slots, &mut copies) {
            let after = (seq.table().to_vec(), seq.slots(), self.kv.usage());
            assert_eq!((after, copies.len()), (before, 0), "a refusal changes nothing");
            assert!(refusal.needed > refusal.free && refusal.free == self.kv.usage().free);
            return false;
        }
        self.copy(&copies);
        self.scribble(seq);
        true
    }

    /// A fork, where it fits. It takes what it says it needs.
    pub(crate) fn fork(
        &mut self,
        from: &SequenceKv,
        salt: u64,
        len: usize,
        slots: usize,
    ) -> Option<SequenceKv> {
        let (mut seq, mut copies) = (SequenceKv::new(salt), Vec::new());
        let needed = SequenceKv::fork_needs(&self.kv, len, slots);
        let free = self.kv.usage().free;
        let forked = seq.attach_fork(&mut self.kv, from, len, slots, &mut copies);
        assert_eq!(forked.is_ok(), needed <= free, "it takes what it says it needs");
        if forked.is_err() {
            assert!(seq.table().is_empty() && copies.is_empty(), "a refusal changes nothing");
            return None;
        }
        assert_eq!(self.kv.usage().free, free - needed);
        self.copy(&copies);
        self.scribble(&seq);
        Some(seq)
    }

    /// Computes and commits all of `tokens` that is not committed yet; there must be room.
    pub(crate) fn commit(&mut self, seq: &mut SequenceKv, salt: u64, tokens: &[TokenId]) {
        assert!(self.reserve(seq, tokens.len()), "there is room");
        for slot in seq.len()..tokens.len() {
            self.write(seq, slot, 0, salt, tokens);
        }
        seq.commit(&mut self.kv, tokens, tokens.len());
    }

    /// Fills a drafter's lane up to `upto`, which may have been reached before.
    pub(crate) fn fill(
        &mut self,
        seq: &mut SequenceKv,
        lane: usize,
        upto: usize,
        salt: u64,
        tokens: &[TokenId],
    ) {
        for slot in seq.filled(&self.kv, Lane(lane as u8))..upto {
            self.write(seq, slot, lane, salt, tokens);
        }
        seq.set_filled(&mut self.kv, Lane(lane as u8), upto);
    }

    /// Every slot that counts as filled holds what belongs there.
    pub(crate) fn check(&self, seq: &SequenceKv, salt: u64, tokens: &[TokenId]) {
        assert_eq!((seq.len(), seq.is_empty()), (tokens.len(), tokens.is_empty()));
        assert!(seq.holds_prefix_of(&self.kv, tokens));
        for lane in 0..LANES {
            for slot in 0..seq.filled(&self.kv, Lane(lane as u8)) {
                let found = self.slots[self.at(seq, slot)][lane];
                assert_eq!(found, value(salt, &tokens[..=slot]), "lane {lane}, slot {slot}");
            }
        }
    }

    /// Ends all sequences. Nothing must have leaked.
    pub(crate) fn finish(mut self, seqs: impl IntoIterator<Item = SequenceKv>) {
        seqs.into_iter().for_each(|seq| seq.release(&mut self.kv));
        self.kv.audit([]).unwrap();
        assert_eq!(self.kv.usage().free, self.kv.blocks(), "nothing leaked");
    }
}
