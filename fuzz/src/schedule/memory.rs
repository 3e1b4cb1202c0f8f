//! Memory that is really written. What a slot should hold follows from the tokens up to there; what is written to it
//! follows from what was *read* before it, through the block table. So one stale, foreign or misplaced slot shows.

use redline_kv_cache::BlockId;
use redline_scheduler::{BlockCopy, Lane, SlotMove, TokenId};

pub(super) const LANES_MAX: usize = 3;
const RUBBISH: u64 = 0xDEAD;

pub(super) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// All that was read up to some position.
#[derive(Clone, Copy, Default)]
pub(super) struct Read(u64);

impl Read {
    pub(super) fn slot(self, value: u64) -> Self {
        Self((self.0 ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23))
    }

    /// What feeding `token` here writes.
    pub(super) fn value(self, token: TokenId) -> u64 {
        mix(self.0 ^ (u64::from(token) << 1 | 1))
    }
}

pub(super) struct Memory {
    slots: Vec<[u64; LANES_MAX]>,
    block_size: usize,
}

impl Memory {
    pub(super) fn new(blocks: usize, block_size: usize) -> Self {
        Self { slots: vec![[RUBBISH; LANES_MAX]; blocks * block_size], block_size }
    }

    /// A sequence's position, through its block table.
    pub(super) fn at(&mut self, table: &[BlockId], slot: usize) -> &mut [u64; LANES_MAX] {
        let block = table[slot / self.block_size].index();
        &mut self.slots[block * self.block_size + slot % self.block_size]
    }

    pub(super) fn read(&mut self, table: &[BlockId], upto: usize, lane: Lane) -> Read {
        (0..upto).fold(Read::default(), |read, slot| read.slot(self.at(table, slot)[lane.index()]))
    }

    /// Feeds committed tokens: reads the slots below `start`, writes those from there on.
    pub(super) fn feed(
        &mut self,
        table: &[BlockId],
        start: usize,
        tokens: &[TokenId],
        lane: Lane,
    ) -> Read {
        let mut read = self.read(table, start, lane);
        for (slot, &token) in (start..).zip(tokens) {
            let value = read.value(token);
            self.at(table, slot)[lane.index()] = value;
            read = read.slot(value);
        }
        read
    }

    /// Nothing may depend on what is in these slots.
    pub(super) fn scribble(&mut self, table: &[BlockId], slots: std::ops::Range<usize>) {
        for slot in slots {
            *self.at(table, slot) = [RUBBISH; LANES_MAX];
        }
    }

    pub(super) fn copy(&mut self, copies: &[BlockCopy]) {
        for copy in copies {
            let from = copy.from.index() * self.block_size;
            let to = copy.to.index() * self.block_size;
            self.slots.copy_within(from..from + copy.slots as usize, to);
        }
    }

    pub(super) fn relocate(&mut self, moves: &[SlotMove]) {
        for moved in moves {
            let from = moved.from_block.index() * self.block_size + moved.from_slot as usize;
            let to = moved.to_block.index() * self.block_size + moved.to_slot as usize;
            self.slots[to] = self.slots[from];
        }
    }
}
