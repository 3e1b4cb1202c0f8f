//! Memory that is really written, and the mock model that reads it.
//!
//! What a slot holds depends on everything the model *read* before it, through the block table. So
//! one stale, foreign or missing slot changes all that follows.
use super::rng::mix;
use redline_scheduler::{BlockCopy, Lane, SlotMove, TokenId};

pub(crate) const LANES: usize = 3;
pub(crate) const RUBBISH: u64 = 0xDEAD;

/// All that a model has read so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Read(u64);

impl Read {
    pub(crate) fn slot(self, value: u64) -> Self {
        Self((self.0 ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23))
    }

    /// What feeding `token` after this leaves in the cache.
    pub(crate) fn value(self, token: TokenId) -> u64 {
        mix(self.0 ^ (u64::from(token) << 1 | 1))
    }

    /// The token that comes next: one of two.
    pub(crate) fn next_token(self) -> TokenId {
        (mix(self.0 ^ 0xABCD) & 1) as TokenId
    }
}

pub(crate) struct Memory {
    slots: Vec<[u64; LANES]>,
    block_size: usize,
}

impl Memory {
    pub(crate) fn new(blocks: usize, block_size: usize) -> Self {
        Self { slots: vec![[RUBBISH; LANES]; blocks * block_size], block_size }
    }

    /// The slot at a sequence's position, through its block table.
    pub(crate) fn at(
        &mut self,
        table: &[redline_kv_cache::BlockId],
        slot: usize,
    ) -> &mut [u64; LANES] {
        let block = table[slot / self.block_size].index();
        &mut self.slots[block * self.block_size + slot % self.block_size]
    }

    pub(crate) fn read(
        &mut self,
        table: &[redline_kv_cache::BlockId],
        upto: usize,
        lane: Lane,
    ) -> Read {
        (0..upto).fold(Read::default(), |read, slot| read.slot(self.at(table, slot)[lane.index()]))
    }

    pub(crate) fn copy(&mut self, copies: &[BlockCopy]) {
        for copy in copies {
            let (from, to) = (copy.from.index(), copy.to.index());
            let from = from * self.block_size;
            self.slots.copy_within(from..from + copy.slots as usize, to * self.block_size);
        }
    }

    pub(crate) fn relocate(&mut self, moves: &[SlotMove]) {
        for moved in moves {
            let from = moved.from_block.index() * self.block_size + moved.from_slot as usize;
            let to = moved.to_block.index() * self.block_size + moved.to_slot as usize;
            self.slots[to] = self.slots[from];
        }
    }
}

/// What the plain, unbatched, unspeculated model generates.
pub(crate) fn plain_run(prompt: &[TokenId], count: usize) -> Vec<TokenId> {
    let mut read = Read::default();
    for &token in prompt {
        read = read.slot(read.value(token));
    }
    let mut generated = Vec::new();
    for _ in 0..count {
        let token = read.next_token();
        generated.push(token);
        read = read.slot(read.value(token));
    }
    generated
}
