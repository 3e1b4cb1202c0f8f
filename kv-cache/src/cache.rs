//! One pool and one prefix index, kept in step: a block is un-indexed before it is overwritten,
//! and goes to the right end of the free list.

use crate::pool::BLOCKS_MAX;
use crate::prefix::{Insert, PrefixIndex, PrefixKey};
use crate::{BlockId, BlockPool, Lane, MAX_LANES};

/// The shape of a cache.
#[derive(Debug, Clone)]
pub struct KvConfig {
    /// Number of blocks.
    pub blocks: u32,
    /// Tokens per block, a power of two.
    pub block_size: u32,
    /// Lanes in use, the target's included: 1 to [`MAX_LANES`].
    pub lanes: u8,
    /// Whether full blocks are indexed and found again.
    pub prefix_cache: bool,
    /// Secret of this process: without it nobody can aim at a collision.
    pub hash_key: [u8; 32],
    /// Lanes that can only be filled during the target's own pass (they need its hidden rows). A
    /// block that is not full in such a lane counts as a prefix miss.
    pub with_target_lanes: [bool; MAX_LANES],
}

/// A shape that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No block, or too many.
    #[error("blocks is {0}, must be 1 to {BLOCKS_MAX}")]
    Blocks(u32),
    /// Positions could not be split by shifting.
    #[error("block_size is {0}, must be a power of two")]
    BlockSize(u32),
    /// Too few or too many lanes.
    #[error("lanes is {0}, must be 1 to {MAX_LANES}")]
    Lanes(u8),
}

/// How the blocks are used. `free + used == total`; `cached` is a part of `free`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// All blocks.
    pub total: usize,
    /// Blocks that can be had now, the cached ones included.
    pub free: usize,
    /// Free blocks that still hold an indexed prefix.
    pub cached: usize,
    /// Blocks that some sequence holds.
    pub used: usize,
}

/// The blocks and what is known about their contents.
#[derive(Debug)]
pub struct KvCache {
    pub(crate) pool: BlockPool,
    /// `None`: nothing is indexed, every prefix misses.
    pub(crate) index: Option<PrefixIndex>,
    config: KvConfig,
    /// Free blocks with a prefix entry, counted as they come and go.
    cached: usize,
}

impl KvCache {
    /// An empty cache. All memory it will ever use is allocated here.
    pub fn new(config: &KvConfig) -> Result<Self, ConfigError> {
        if config.blocks == 0 || config.blocks > BLOCKS_MAX {
            return Err(ConfigError::Blocks(config.blocks));
        }
        if !config.block_size.is_power_of_two() {
            return Err(ConfigError::BlockSize(config.block_size));
        }
        if config.lanes == 0 || usize::from(config.lanes) > MAX_LANES {
            return Err(ConfigError::Lanes(config.lanes));
        }
        Ok(Self::of(config.clone()))
    }

    /// An empty cache of the same shape.
    #[must_use]
    pub fn emptied(&self) -> Self {
        Self::of(self.config.clone())
    }

    fn of(config: KvConfig) -> Self {
        let (blocks, size, key) = (config.blocks, config.block_size, config.hash_key);
        let index = config.prefix_cache.then(|| PrefixIndex::new(blocks, size, key));
        Self { pool: BlockPool::new(blocks, size), index, config, cached: 0 }
    }

    /// How the blocks are used now.
    pub fn usage(&self) -> Usage {
        let (total, free) = (self.pool.len(), self.pool.free());
        Usage { total, free, cached: self.cached, used: total - free }
    }

    /// Tokens per block.
    pub fn block_size(&self) -> usize {
        self.pool.block_size() as usize
    }

    /// The number of blocks, free or not.
    pub fn blocks(&self) -> usize {
        self.pool.len()
    }

    /// The lanes in use, the target's included.
    pub fn lanes(&self) -> usize {
        usize::from(self.config.lanes)
    }

    /// Blocks that hold `slots` slots.
    pub fn blocks_for(&self, slots: usize) -> usize {
        slots.div_ceil(self.block_size())
    }

    /// How many table entries refer to the block.
    pub fn refs(&self, block: BlockId) -> u32 {
        self.pool.refs(block)
    }

    /// Leading slots of the block that are filled in the lane.
    pub fn fill(&self, block: BlockId, lane: Lane) -> usize {
        self.pool.fill(block, lane) as usize
    }

    /// Takes a block out of the prefix index, because its contents are not what they should be (a
    /// copy or move into it was not done).
    pub fn discard(&mut self, block: BlockId) {
        if self.unindex(block) && self.pool.refs(block) == 0 {
            self.pool.demote(block);
            self.cached -= 1;
        }
    }

    pub(crate) fn is_indexed(&self, block: BlockId) -> bool {
        self.index.as_ref().is_some_and(|index| index.holds(block))
    }

    /// The block that is best reused, its prefix entry gone.
    pub(crate) fn take(&mut self) -> Option<BlockId> {
        let block = self.pool.take()?;
        if self.unindex(block) {
            self.cached -= 1;
        }
        Some(block)
    }

    pub(crate) fn retain(&mut self, block: BlockId) {
        if self.pool.refs(block) == 0 && self.is_indexed(block) {
            self.cached -= 1;
        }
        self.pool.retain(block);
    }

    pub(crate) fn release(&mut self, block: BlockId) {
        let indexed = self.is_indexed(block);
        self.pool.release(block, indexed);
        if indexed && self.pool.refs(block) == 0 {
            self.cached += 1;
        }
    }

    /// Makes a block that one table holds alone ready to be written from slot `slots` on.
    pub(crate) fn open(&mut self, block: BlockId, slots: u32) {
        self.unindex(block);
        self.pool.clip_fills(block, slots);
    }

    /// Indexes a full committed block. The serial that the next block of the chain names as its
    /// parent, or `None` if the chain ends here.
    pub(crate) fn enter(&mut self, block: BlockId, key: &PrefixKey<'_>) -> Option<u64> {
        let index = self.index.as_mut()?;
        match index.insert(block, key) {
            Insert::New { serial } => Some(serial),
            Insert::Same { serial, block: old } => {
                // A block that would count as a miss must not stand in the way of a better one.
                if !self.is_usable(old) {
                    self.swap_entry(old, block);
                }
                Some(serial)
            }
            Insert::Collision => None,
        }
    }

    /// The indexed block for the key, if it may be attached.
    pub(crate) fn hit(&self, key: &PrefixKey<'_>) -> Option<(BlockId, u64)> {
        let found = self.index.as_ref()?.find(key)?;
        self.is_usable(found.0).then_some(found)
    }

    fn swap_entry(&mut self, old: BlockId, new: BlockId) {
        let Some(index) = self.index.as_mut() else { return };
        index.replace(old, new);
        if self.pool.refs(old) == 0 {
            self.pool.demote(old);
            self.cached -= 1;
        }
    }

    /// Whether every lane that cannot be filled later is full.
    fn is_usable(&self, block: BlockId) -> bool {
        let fills = self.pool.fills(block);
        let full = self.pool.block_size();
        fills
            .into_iter()
            .zip(self.config.with_target_lanes)
            .all(|(fill, needed)| !needed || fill == full)
    }

    fn unindex(&mut self, block: BlockId) -> bool {
        self.index.as_mut().is_some_and(|index| index.remove(block))
    }
}
