//! How far each lane of a sequence is filled. Kept per block in the pool, so that it survives
//! prefix hits and preemption; a sequence only remembers how many leading blocks it has already
//! seen full.

use crate::{KvCache, Lane, SequenceKv};

impl SequenceKv {
    /// Positions `[0, filled)` are valid in the lane. Never more than the committed length.
    ///
    /// Amortised O(1): a block seen full is not looked at again.
    pub fn filled(&self, kv: &KvCache, lane: Lane) -> usize {
        assert!(lane.index() < kv.lanes(), "lane {} of {}", lane.0, kv.lanes());
        let full = self.count_full(kv, lane);
        let partial = self.table.get(full).map_or(0, |&block| kv.fill(block, lane));
        (full * kv.block_size() + partial).min(self.len)
    }

    /// Notes that positions `[0, upto)` are valid in the lane. Never lowers a fill, and is the one
    /// change that blocks shared with others permit.
    ///
    /// # Panics
    /// If `upto` is above the committed length: what lies there is not known to stay. Or if the
    /// lane is the target's, whose fill is set by `commit` alone.
    pub fn set_filled(&mut self, kv: &mut KvCache, lane: Lane, upto: usize) {
        assert!(lane != Lane::TARGET, "the target's lane is filled by commit");
        assert!(upto <= self.len, "fill of {upto} above the committed {}", self.len);
        let block_size = kv.block_size();
        let first = self.filled(kv, lane) / block_size;
        for i in first..upto.div_ceil(block_size) {
            let slots = (upto - i * block_size).min(block_size) as u32;
            kv.pool.raise_fill(self.table[i], lane, slots);
        }
        self.full_blocks[lane.index()] = self.count_full(kv, lane);
    }

    /// Looks past the blocks that filled up since, in every lane.
    pub(crate) fn advance_watermarks(&mut self, kv: &KvCache) {
        for lane in 0..kv.lanes() {
            self.full_blocks[lane] = self.count_full(kv, Lane(lane as u8));
        }
    }

    /// Forgets about blocks from `blocks` on.
    pub(crate) fn lower_watermarks(&mut self, blocks: usize) {
        for full in &mut self.full_blocks {
            *full = (*full).min(blocks);
        }
    }

    fn count_full(&self, kv: &KvCache, lane: Lane) -> usize {
        let known = self.full_blocks[lane.index()];
        // A full block that the sequence was cut within will be clipped when it is written.
        let whole = self.len / kv.block_size();
        let more = self.table[known..whole].iter();
        known + more.take_while(|&&block| kv.fill(block, lane) == kv.block_size()).count()
    }
}
