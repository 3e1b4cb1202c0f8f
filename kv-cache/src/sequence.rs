//! One sequence's blocks. The only owner of references to blocks.

use crate::prefix::{PrefixKey, ROOT};
use crate::{BlockCopy, BlockId, KvCache, Lane, MAX_LANES, TokenId};

/// Not enough blocks. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{needed} blocks needed, {free} free")]
pub struct OutOfBlocks {
    /// Blocks that the reservation would have taken.
    pub needed: usize,
    /// Blocks that were free.
    pub free: usize,
}

/// The keys and values of one sequence: which blocks, how much of them is valid, how much may be
/// written.
///
/// It belongs to the cache that its blocks came from; every call must be given that cache. It is
/// not `Clone` ([`attach_fork`](Self::attach_fork) shares blocks properly) and must be emptied by
/// [`release`](Self::release) or [`clear`](Self::clear): dropping one that holds blocks would leak
/// them, and is a panic in debug builds.
///
/// The tokens given to `commit` and `attach_prefix` are those of one sequence that only grows,
/// except where [`truncate`](Self::truncate) cut it.
#[derive(Debug)]
pub struct SequenceKv {
    pub(crate) salt: u64,
    pub(crate) table: Vec<BlockId>,
    /// Positions with valid target keys and values: the one true length.
    pub(crate) len: usize,
    /// Slots that may be written: `len <= reserved <= table.len() * block_size`.
    pub(crate) reserved: usize,
    /// Per leading full block, the serial of its contents in the prefix index. Ends early after a
    /// hash collision.
    pub(crate) chain: Vec<u64>,
    /// Per leading full block of the tokens seen, its hash. It depends on tokens alone, so it
    /// outlives `clear`: a preempted or waiting sequence is not hashed again.
    pub(crate) hashes: Vec<u128>,
    /// Per lane, a number of leading blocks known to be full.
    pub(crate) full_blocks: [usize; MAX_LANES],
}

impl SequenceKv {
    /// An empty sequence of the tenant `salt`: prefixes are shared within a tenant only.
    pub fn new(salt: u64) -> Self {
        Self {
            salt,
            table: Vec::new(),
            len: 0,
            reserved: 0,
            chain: Vec::new(),
            hashes: Vec::new(),
            full_blocks: [0; MAX_LANES],
        }
    }

    /// The sequence itself, an empty one of the same tenant in its place.
    pub fn take(&mut self) -> Self {
        let empty = Self::new(self.salt);
        std::mem::replace(self, empty)
    }

    /// Makes room in its own lists for `slots` slots, so that growing to there allocates nothing.
    pub fn preallocate(&mut self, kv: &KvCache, slots: usize) {
        let blocks = kv.blocks_for(slots);
        self.table.reserve(blocks.saturating_sub(self.table.len()));
        if kv.index.is_some() {
            self.chain.reserve(blocks.saturating_sub(self.chain.len()));
            self.hashes.reserve(blocks.saturating_sub(self.hashes.len()));
        }
    }

    /// The blocks, in order of position.
    pub fn table(&self) -> &[BlockId] {
        &self.table
    }

    /// Positions with valid, committed target keys and values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is committed.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Slots it may write to, counted from 0. At least `len`.
    pub fn slots(&self) -> usize {
        self.reserved
    }

    /// Makes slots `[len, slots)` writable. `slots` counts from 0; fewer than before changes
    /// nothing.
    ///
    /// A shared block that would be written is replaced by a copy; the copying is appended to
    /// `copies` and must be done before the step reads or writes anything.
    pub fn reserve(
        &mut self,
        kv: &mut KvCache,
        slots: usize,
        copies: &mut Vec<BlockCopy>,
    ) -> Result<(), OutOfBlocks> {
        if slots <= self.reserved {
            return Ok(());
        }
        let block_size = kv.block_size();
        let kept = (self.len % block_size) as u32;
        // Blocks above the one that holds slot `len` were taken for this sequence alone.
        let partial = (kept > 0).then(|| self.len / block_size);
        let copy = partial.filter(|&i| kv.refs(self.table[i]) > 1);
        let blocks = kv.blocks_for(slots);
        let needed = blocks - self.table.len() + usize::from(copy.is_some());
        let free = kv.usage().free;
        if needed > free {
            return Err(OutOfBlocks { needed, free });
        }
        if let Some(i) = copy {
            let (from, to) = (self.table[i], Self::take_block(kv));
            kv.pool.copy_fills(from, to, kept);
            kv.release(from);
            self.table[i] = to;
            copies.push(BlockCopy { from, to, slots: kept });
        } else if let Some(i) = partial {
            kv.open(self.table[i], kept);
        }
        while self.table.len() < blocks {
            self.table.push(Self::take_block(kv));
        }
        self.reserved = slots;
        self.advance_watermarks(kv);
        Ok(())
    }

    /// Declares the target's keys and values valid for positions `[0, len)`, `tokens` being (at
    /// least) the tokens there. Blocks that became full are indexed. Reserved slots stay reserved.
    ///
    /// # Panics
    /// If `len` is below the committed length or above what was reserved.
    pub fn commit(&mut self, kv: &mut KvCache, tokens: &[TokenId], len: usize) {
        assert!(self.len <= len, "commit of {len} below the committed {}", self.len);
        assert!(len <= self.reserved, "commit of {len} above the reserved {}", self.reserved);
        assert!(len <= tokens.len(), "commit of {len} of {} tokens", tokens.len());
        let block_size = kv.block_size();
        let (first, last) = (self.len / block_size, len.div_ceil(block_size));
        for i in first..last {
            let filled = (len - i * block_size).min(block_size) as u32;
            kv.pool.raise_fill(self.table[i], Lane::TARGET, filled);
        }
        self.len = len;
        if kv.index.is_none() {
            return;
        }
        let full = len / block_size;
        self.hash_blocks(kv, tokens, full);
        for i in first..full {
            if self.chain.len() != i {
                break; // a collision further down: the chain can't be told apart any more
            }
            let parent = self.chain.last().copied().unwrap_or(ROOT);
            let key = self.key(kv, tokens, i, parent);
            if let Some(serial) = kv.enter(self.table[i], &key) {
                self.chain.push(serial);
            }
        }
    }

    /// Cuts the sequence down to `slots` slots: gives back the blocks wholly above, and everything
    /// committed above. What is left in a block that is cut through is forgotten when it is next
    /// written, not before: it may be shared or indexed.
    pub fn truncate(&mut self, kv: &mut KvCache, slots: usize) {
        if slots >= self.reserved {
            return;
        }
        let blocks = kv.blocks_for(slots);
        while self.table.len() > blocks {
            if let Some(block) = self.table.pop() {
                kv.release(block);
            }
        }
        self.reserved = slots;
        if slots < self.len {
            self.len = slots;
            let full = slots / kv.block_size();
            self.chain.truncate(full);
            self.hashes.truncate(full);
            self.lower_watermarks(full);
        }
    }

    /// Gives all blocks back. The last ones are reused first, so that what stays cached longest is
    /// the part that other sequences are likeliest to share.
    pub fn clear(&mut self, kv: &mut KvCache) {
        while let Some(block) = self.table.pop() {
            kv.release(block);
        }
        self.len = 0;
        self.reserved = 0;
        self.chain.clear();
        self.lower_watermarks(0);
    }

    /// Gives all blocks back and ends the sequence.
    pub fn release(mut self, kv: &mut KvCache) {
        self.clear(kv);
    }

    /// Ends the sequence without giving its blocks back: only for when the cache itself goes away.
    pub fn forget(mut self) {
        self.table.clear();
    }

    pub(crate) fn take_block(kv: &mut KvCache) -> BlockId {
        let block = kv.take();
        assert!(block.is_some(), "free blocks were counted before they were taken");
        block.unwrap_or(BlockId(u32::MAX))
    }

    pub(crate) fn key<'a>(
        &self,
        kv: &KvCache,
        tokens: &'a [TokenId],
        i: usize,
        parent: u64,
    ) -> PrefixKey<'a> {
        let at = i * kv.block_size();
        PrefixKey {
            hash: self.hashes[i],
            parent,
            salt: self.salt,
            tokens: &tokens[at..at + kv.block_size()],
        }
    }

    /// Hashes the first `blocks` blocks of `tokens`, as far as that was not done before.
    pub(crate) fn hash_blocks(&mut self, kv: &mut KvCache, tokens: &[TokenId], blocks: usize) {
        let block_size = kv.block_size();
        let Some(index) = kv.index.as_mut() else { return };
        for i in self.hashes.len()..blocks {
            let block = &tokens[i * block_size..(i + 1) * block_size];
            let parent = self.hashes.last().copied().unwrap_or(0);
            self.hashes.push(index.hash(parent, self.salt, block));
        }
    }
}

impl Drop for SequenceKv {
    fn drop(&mut self) {
        debug_assert!(
            self.table.is_empty() || std::thread::panicking(),
            "a sequence was dropped with {} blocks",
            self.table.len()
        );
    }
}
