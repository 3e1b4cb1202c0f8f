//! Which token each slot of a KV cache was computed from: what a row really sees, read back through its
//! block table. A stale, foreign or lost slot shows as a wrong or missing token.

use redline::{Batch, Row, TokenId};
use redline_kv_cache::{BlockCopy, BlockId, SlotMove};

/// The tokens behind a KV cache.
#[derive(Debug, Default)]
pub struct Shadow {
    size: usize,
    slots: Vec<Option<TokenId>>,
}

impl Shadow {
    /// An empty cache of this size.
    pub fn new(blocks: u32, block_size: u32) -> Self {
        let slots = vec![None; blocks as usize * block_size as usize];
        Self { size: block_size as usize, slots }
    }

    /// Notes what a batch writes.
    pub fn write(&mut self, batch: &Batch) {
        for row in &batch.rows {
            let at = self.at(batch.table(row.seq), row.slot);
            self.slots[at] = Some(row.token);
        }
    }

    /// The tokens a row sees, its own last; `None` if it sees a slot that was never written.
    pub fn context(&self, batch: &Batch, row: &Row) -> Option<Vec<TokenId>> {
        let table = batch.table(row.seq);
        let seen = (0..row.prefix).chain(batch.extras_of(row).iter().copied());
        seen.map(|slot| self.slots[self.at(table, slot)]).collect()
    }

    /// Copies and moves as a runner does.
    pub fn relocate(&mut self, copies: &[BlockCopy], moves: &[SlotMove]) {
        for copy in copies {
            let (from, to) = (copy.from.0 as usize * self.size, copy.to.0 as usize * self.size);
            self.slots.copy_within(from..from + copy.slots as usize, to);
        }
        for step in moves {
            let at = |block: BlockId, slot: u32| block.0 as usize * self.size + slot as usize;
            let from = at(step.from_block, step.from_slot);
            self.slots[at(step.to_block, step.to_slot)] = self.slots[from];
        }
    }

    fn at(&self, table: &[BlockId], slot: u32) -> usize {
        table[slot as usize / self.size].0 as usize * self.size + slot as usize % self.size
    }
}
