//! Finding a full committed block by what it holds.
//!
//! A block's hash covers its tokens, its tenant's salt and the hash of the block before it, under a
//! key that no client knows. The hash only *finds* a candidate. Whether it is the right one is
//! decided by comparing the tokens, the salt and the predecessor: every entry has a serial number
//! that is never reused and names the serial of the entry before it. Even a hash of one bit would
//! give no wrong hit, only fewer right ones.

use crate::{BlockId, TokenId};
use hashbrown::HashTable;

/// The serial that stands before the first block of a sequence.
pub(crate) const ROOT: u64 = 0;

/// What a block is looked up by.
#[derive(Debug, Clone, Copy)]
pub struct PrefixKey<'a> {
    /// From [`PrefixIndex::hash`].
    pub hash: u128,
    /// Serial of the entry of the block before, 0 for the first block.
    pub parent: u64,
    /// The tenant's.
    pub salt: u64,
    /// The block's tokens, exactly one block.
    pub tokens: &'a [TokenId],
}

/// What became of an insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Insert {
    /// The block is in the index now.
    New {
        /// Its serial.
        serial: u64,
    },
    /// Another block with the same contents already is.
    Same {
        /// The serial that both share.
        serial: u64,
        /// The block that is in the index.
        block: BlockId,
    },
    /// The hash is taken by other contents. The block stays out, and so must all after it.
    Collision,
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    hash: u128,
    parent: u64,
    salt: u64,
    /// `ROOT` (0) if the block is not in the index.
    serial: u64,
}

/// The index: hash to block, and per block the evidence that it is the right one.
///
/// All memory is allocated at the start; nothing allocates later.
#[derive(Debug)]
pub struct PrefixIndex {
    key: [u8; 32],
    block_size: usize,
    /// Blocks by the hashes in their entries. The hashes are not kept here too: that would make the
    /// table eight times as large, and every look-up a miss of the processor's caches.
    by_hash: HashTable<BlockId>,
    entries: Vec<Entry>,
    /// The tokens of block `b` at `b * block_size`, valid while it has an entry.
    tokens: Vec<TokenId>,
    last_serial: u64,
    buffer: Vec<u8>,
    /// Bits of the hash that are kept. All, except where a test wants collisions.
    mask: u128,
}

impl PrefixIndex {
    /// An empty index for blocks `0..blocks`.
    pub fn new(blocks: u32, block_size: u32, key: [u8; 32]) -> Self {
        let (blocks, block_size) = (blocks as usize, block_size as usize);
        Self {
            key,
            block_size,
            // Twice as many as can be in use: below half full a table clears its tombstones in place.
            by_hash: HashTable::with_capacity(2 * blocks),
            entries: vec![Entry::default(); blocks],
            tokens: vec![0; blocks * block_size],
            last_serial: ROOT,
            buffer: Vec::with_capacity(24 + 4 * block_size),
            mask: u128::MAX,
        }
    }

    /// Cuts all hashes down to `mask`, so that tests meet collisions.
    #[cfg(test)]
    pub(crate) fn weaken(&mut self, mask: u128) {
        self.mask = mask;
    }

    /// Gives an entry a hash that does not lead to it, for an audit to find.
    #[cfg(test)]
    pub(crate) fn misfile(&mut self, block: BlockId) {
        self.entries[block.index()].hash ^= 1 << 63;
    }

    /// The hash of one block: 128 bits of keyed blake3 over the hash before it (0 for the first),
    /// the salt and the tokens.
    pub fn hash(&mut self, parent: u128, salt: u64, tokens: &[TokenId]) -> u128 {
        assert_eq!(tokens.len(), self.block_size, "only full blocks are hashed");
        self.buffer.clear();
        self.buffer.extend_from_slice(&parent.to_le_bytes());
        self.buffer.extend_from_slice(&salt.to_le_bytes());
        for token in tokens {
            self.buffer.extend_from_slice(&token.to_le_bytes());
        }
        let digest = blake3::keyed_hash(&self.key, &self.buffer);
        let mut half = [0; 16];
        half.copy_from_slice(&digest.as_bytes()[..16]);
        u128::from_le_bytes(half) & self.mask
    }

    /// The block with exactly these contents and predecessors, and its serial.
    pub fn find(&self, key: &PrefixKey<'_>) -> Option<(BlockId, u64)> {
        let block = self.with_hash(key.hash)?;
        self.is(block, key).then(|| (block, self.entries[block.index()].serial))
    }

    /// Whether any block has this hash: without it, [`find`](Self::find) must fail.
    pub(crate) fn has_hash(&self, hash: u128) -> bool {
        self.with_hash(hash).is_some()
    }

    /// Enters a full committed block that is not in the index.
    pub fn insert(&mut self, block: BlockId, key: &PrefixKey<'_>) -> Insert {
        assert!(!self.holds(block), "block {} is in the index already", block.0);
        assert_eq!(key.tokens.len(), self.block_size, "only full blocks are indexed");
        if let Some(other) = self.with_hash(key.hash) {
            if !self.is(other, key) {
                return Insert::Collision;
            }
            return Insert::Same { serial: self.entries[other.index()].serial, block: other };
        }
        self.last_serial += 1;
        let serial = self.last_serial;
        self.place(block, Entry { hash: key.hash, parent: key.parent, salt: key.salt, serial });
        let at = block.index() * self.block_size;
        self.tokens[at..at + self.block_size].copy_from_slice(key.tokens);
        Insert::New { serial }
    }

    /// Lets `new` stand in for `old`, which has the same contents and leaves the index.
    pub(crate) fn replace(&mut self, old: BlockId, new: BlockId) {
        assert!(self.holds(old) && !self.holds(new), "one entry moves from one block to another");
        let entry = self.displace(old);
        self.place(new, entry);
        let at = old.index() * self.block_size;
        self.tokens.copy_within(at..at + self.block_size, new.index() * self.block_size);
    }

    /// Takes the block out of the index, if it is in it.
    pub fn remove(&mut self, block: BlockId) -> bool {
        if !self.holds(block) {
            return false;
        }
        self.displace(block);
        true
    }

    /// Whether the block is in the index.
    pub fn holds(&self, block: BlockId) -> bool {
        self.entries[block.index()].serial != ROOT
    }

    /// The number of blocks in the index.
    pub fn len(&self) -> usize {
        self.by_hash.len()
    }

    /// Whether no block is in the index.
    pub fn is_empty(&self) -> bool {
        self.by_hash.is_empty()
    }

    /// The tokens of a block in the index.
    pub fn tokens(&self, block: BlockId) -> Option<&[TokenId]> {
        let at = block.index() * self.block_size;
        self.holds(block).then(|| &self.tokens[at..at + self.block_size])
    }

    /// Whether the entry of a block in the index is found under its own hash.
    pub(crate) fn finds_itself(&self, block: BlockId) -> bool {
        self.with_hash(self.entries[block.index()].hash) == Some(block)
    }

    /// The serial of a block in the index.
    pub(crate) fn serial(&self, block: BlockId) -> Option<u64> {
        self.holds(block).then(|| self.entries[block.index()].serial)
    }

    fn place(&mut self, block: BlockId, entry: Entry) {
        self.entries[block.index()] = entry;
        let entries = &self.entries;
        let rehash = |other: &BlockId| short(entries[other.index()].hash);
        self.by_hash.insert_unique(short(entry.hash), block, rehash);
    }

    fn displace(&mut self, block: BlockId) -> Entry {
        let entry = std::mem::take(&mut self.entries[block.index()]);
        let found = self.by_hash.find_entry(short(entry.hash), |&other| other == block);
        let removed = found.map(|found| found.remove());
        assert!(removed.is_ok(), "an entry and its hash point at each other");
        entry
    }

    fn with_hash(&self, hash: u128) -> Option<BlockId> {
        let has = |block: &BlockId| self.entries[block.index()].hash == hash;
        self.by_hash.find(short(hash), has).copied()
    }

    fn is(&self, block: BlockId, key: &PrefixKey<'_>) -> bool {
        let entry = &self.entries[block.index()];
        assert!(entry.serial != ROOT, "a hash that leads to a block without an entry");
        entry.parent == key.parent
            && entry.salt == key.salt
            && self.tokens(block) == Some(key.tokens)
    }
}

/// What a table needs of a hash that is as good as random.
fn short(hash: u128) -> u64 {
    hash as u64
}
