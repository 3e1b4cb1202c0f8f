//! How an empty sequence gets its first blocks: from the prefix index, or from another sequence.

use crate::prefix::ROOT;
use crate::sequence::OutOfBlocks;
use crate::{BlockCopy, BlockId, KvCache, SequenceKv, TokenId};

impl SequenceKv {
    /// Starts the sequence from blocks that already hold its first tokens, at most `max` positions
    /// (pass one less than the number of tokens: the last one must be computed to get logits).
    /// Blocks freed but not reused yet count. Returns the new length.
    ///
    /// # Panics
    /// If the sequence holds blocks already.
    pub fn attach_prefix(&mut self, kv: &mut KvCache, tokens: &[TokenId], max: usize) -> usize {
        assert!(self.table.is_empty(), "a prefix is attached to an empty sequence");
        assert!(max <= tokens.len(), "no more positions than tokens");
        let blocks = kv.index.as_ref().map_or(0, |_| max / kv.block_size());
        self.hash_blocks(kv, tokens, blocks);
        for i in 0..blocks {
            let Some((block, serial)) = self.hit(kv, tokens, i) else { break };
            kv.retain(block);
            self.table.push(block);
            self.chain.push(serial);
        }
        self.len = self.table.len() * kv.block_size();
        self.reserved = self.len;
        self.advance_watermarks(kv);
        self.len
    }

    /// How many positions [`Self::attach_prefix`] would find.
    pub fn find_prefix(&mut self, kv: &mut KvCache, tokens: &[TokenId], max: usize) -> usize {
        assert!(self.table.is_empty(), "asked of an empty sequence");
        let blocks = kv.index.as_ref().map_or(0, |_| max / kv.block_size());
        self.hash_blocks(kv, tokens, blocks);
        let mut parent = ROOT;
        let hits = (0..blocks).take_while(|&i| {
            let found = kv.hit(&self.key(kv, tokens, i, parent));
            parent = found.map_or(parent, |(_, serial)| serial);
            found.is_some()
        });
        hits.count() * kv.block_size()
    }

    /// Whether an empty sequence could attach its prefix (at most `max` positions) and then reserve
    /// `slots` slots. Where the answer is no this mostly takes one look-up, so that a request may
    /// wait for blocks at no cost.
    pub fn would_fit(
        &mut self,
        kv: &mut KvCache,
        tokens: &[TokenId],
        max: usize,
        slots: usize,
    ) -> bool {
        assert!(self.table.is_empty(), "asked of an empty sequence");
        let (needed, free) = (kv.blocks_for(slots), kv.usage().free);
        if needed <= free {
            return true;
        }
        // Only blocks that others hold come without taking a free one: that many must be found.
        let mut missing = needed - free;
        let blocks = max / kv.block_size();
        if kv.index.is_none() || missing > blocks {
            return false;
        }
        self.hash_blocks(kv, tokens, blocks);
        let hash = self.hashes[missing - 1];
        if !kv.index.as_ref().is_some_and(|index| index.has_hash(hash)) {
            return false;
        }
        let mut parent = ROOT;
        for i in 0..blocks {
            let key = self.key(kv, tokens, i, parent);
            let Some((block, serial)) = kv.hit(&key) else { return false };
            parent = serial;
            missing -= usize::from(kv.refs(block) > 0);
            if missing == 0 {
                return true;
            }
        }
        false
    }

    /// Starts the sequence from the first `len` committed positions of another, whose first `len`
    /// tokens are its own, and makes slots `[len, slots)` writable. Full blocks are shared. What lies
    /// in the block that is cut through is copied at once, as whoever forks is about to write there;
    /// the copying is appended to `copies` and must be done before the step reads or writes anything.
    /// `from` keeps all it has, its reserved slots included.
    ///
    /// # Errors
    /// [`OutOfBlocks`]; then nothing was changed.
    ///
    /// # Panics
    /// If the sequence holds blocks already, or `from` is another tenant's, or shorter than `len`.
    pub fn attach_fork(
        &mut self,
        kv: &mut KvCache,
        from: &SequenceKv,
        len: usize,
        slots: usize,
        copies: &mut Vec<BlockCopy>,
    ) -> Result<(), OutOfBlocks> {
        assert!(self.table.is_empty(), "a fork is attached to an empty sequence");
        assert_eq!(self.salt, from.salt, "tenants share nothing");
        assert!(len <= from.len && len <= slots, "a fork of {len} of {} positions", from.len);
        let (needed, free) = (Self::fork_needs(kv, len, slots), kv.usage().free);
        if needed > free {
            return Err(OutOfBlocks { needed, free });
        }
        let (full, kept) = (len / kv.block_size(), (len % kv.block_size()) as u32);
        for &block in &from.table[..full] {
            kv.retain(block);
            self.table.push(block);
        }
        self.chain.extend(from.chain.iter().take(full));
        let hashed = self.hashes.len().min(full);
        self.hashes.extend(from.hashes.iter().take(full).skip(hashed));
        if kept > 0 {
            let (source, to) = (from.table[full], Self::take_block(kv));
            kv.pool.copy_fills(source, to, kept);
            self.table.push(to);
            copies.push(BlockCopy { from: source, to, slots: kept });
        }
        while self.table.len() < kv.blocks_for(slots) {
            self.table.push(Self::take_block(kv));
        }
        (self.len, self.reserved) = (len, slots);
        self.advance_watermarks(kv);
        Ok(())
    }

    /// Free blocks that [`Self::attach_fork`] takes.
    pub fn fork_needs(kv: &KvCache, len: usize, slots: usize) -> usize {
        kv.blocks_for(slots) - len / kv.block_size()
    }

    fn hit(&self, kv: &KvCache, tokens: &[TokenId], i: usize) -> Option<(BlockId, u64)> {
        let parent = self.chain.last().copied().unwrap_or(ROOT);
        kv.hit(&self.key(kv, tokens, i, parent))
    }
}
