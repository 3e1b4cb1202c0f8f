//! Memory that is really written, and what a mock model reads in it.
//!
//! What a slot holds depends on everything the model *read* before it, through the block table and the list of
//! ancestors. So one stale, foreign or missing slot changes all that follows. Each lane keeps its values in its own
//! cipher: what is read in a wrong lane is wrong.

use redline_scheduler::{BlockCopy, Lane, SlotMove, TokenId};
use redline_spec::Proposal;

use super::rng::mix;

pub(crate) const LANES: usize = 3;
/// What a slot holds that may be written but was not.
const RUBBISH: u64 = 0xDEAD_BEEF;
const CIPHERS: [u64; LANES] = [0, 0x1F83_D9AB_FB41_BD6B, 0x5BE0_CD19_137E_2179];

/// All that a model has read so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Read(u64);

impl Read {
    /// Before the first token, under the key of a world.
    pub(crate) fn start(key: u64) -> Self {
        Self(key)
    }

    /// After one more slot.
    pub(crate) fn slot(self, value: u64) -> Self {
        Self((self.0 ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23))
    }

    /// What feeding `token` after this leaves in its slot.
    pub(crate) fn value(self, token: TokenId) -> u64 {
        mix(self.0 ^ (u64::from(token) << 1 | 1))
    }

    /// After one more token, without any memory: what plain decoding has read.
    pub(crate) fn token(self, token: TokenId) -> Self {
        self.slot(self.value(token))
    }

    /// What the law of the next token is made of.
    pub(crate) fn law_bits(self) -> u64 {
        mix(self.0 ^ 0xABCD)
    }
}

/// The slots of all blocks, in every lane.
#[derive(Debug)]
pub(crate) struct Memory {
    slots: Vec<[u64; LANES]>,
    block_size: usize,
    key: u64,
}

/// One sequence's slots in one lane, through its block table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) table: &'a [redline_kv_cache::BlockId],
    pub(crate) lane: Lane,
}

impl Memory {
    pub(crate) fn new(blocks: usize, block_size: usize, key: u64) -> Self {
        Self { slots: vec![[RUBBISH; LANES]; blocks * block_size], block_size, key }
    }

    pub(crate) fn key(&self) -> u64 {
        self.key
    }

    fn index(&self, view: View<'_>, slot: usize) -> usize {
        view.table[slot / self.block_size].index() * self.block_size + slot % self.block_size
    }

    fn get(&self, view: View<'_>, slot: usize) -> u64 {
        let lane = view.lane.index();
        self.slots[self.index(view, slot)][lane] ^ CIPHERS[lane]
    }

    fn set(&mut self, view: View<'_>, slot: usize, value: u64) {
        let (at, lane) = (self.index(view, slot), view.lane.index());
        self.slots[at][lane] = value ^ CIPHERS[lane];
    }

    /// Reads slots `0..upto`.
    ///
    /// # Panics
    /// If the table is too short.
    pub(crate) fn read(&self, view: View<'_>, upto: usize) -> Read {
        let (mut read, mut left) = (Read::start(self.key), upto);
        let lane = view.lane.index();
        for block in view.table {
            let slots = left.min(self.block_size);
            let from = block.index() * self.block_size;
            for slot in &self.slots[from..from + slots] {
                read = read.slot(slot[lane] ^ CIPHERS[lane]);
            }
            left -= slots;
            if left == 0 {
                return read;
            }
        }
        assert_eq!(left, 0, "a row reads {left} slots that are not in the block table");
        read
    }

    /// Feeds `tokens[from..to]` as a pass does: writes each one's slot, then reads it. Returns what the last row read.
    pub(crate) fn feed(
        &mut self,
        view: View<'_>,
        tokens: &[TokenId],
        from: usize,
        to: usize,
    ) -> Read {
        let mut read = self.read(view, from);
        for (slot, &token) in tokens.iter().enumerate().take(to).skip(from) {
            self.set(view, slot, read.value(token));
            read = read.slot(self.get(view, slot));
        }
        read
    }

    /// Feeds node `node` of a tree whose root is the last of `context` committed tokens, which read `root`: the row
    /// reads the committed slots and those of its ancestors, its own last.
    pub(crate) fn feed_node(
        &mut self,
        view: View<'_>,
        (context, root): (usize, Read),
        proposal: &Proposal,
        node: u32,
        path: &mut Vec<u32>,
    ) -> Read {
        proposal.path_nodes(node, path);
        let Some((&own, ancestors)) = path.split_last() else { return root };
        let read = |root, &ancestor: &u32| {
            let slot = context + ancestor as usize;
            Read::slot(root, self.get(view, slot))
        };
        let before = ancestors.iter().fold(root, read);
        let token = proposal.node(node).map_or(0, |node| node.token);
        let slot = context + own as usize;
        self.set(view, slot, before.value(token));
        before.slot(self.get(view, slot))
    }

    /// Copy-on-write, in every lane.
    pub(crate) fn copy(&mut self, copies: &[BlockCopy]) {
        for copy in copies {
            let (from, to) = (copy.from.index() * self.block_size, copy.to.index());
            self.slots.copy_within(from..from + copy.slots as usize, to * self.block_size);
        }
    }

    /// Tree compaction, in every lane.
    pub(crate) fn relocate(&mut self, moves: &[SlotMove]) {
        for moved in moves {
            let from = moved.from_block.index() * self.block_size + moved.from_slot as usize;
            let to = moved.to_block.index() * self.block_size + moved.to_slot as usize;
            self.slots[to] = self.slots[from];
        }
    }

    /// Overwrites slots `from..to` in every lane.
    pub(crate) fn scribble(&mut self, table: &[redline_kv_cache::BlockId], from: usize, to: usize) {
        for slot in from..to {
            let at = self.index(View { table, lane: Lane::TARGET }, slot);
            self.slots[at] = [RUBBISH; LANES];
        }
    }

    /// Whether every slot below the fill of its lane (`filled`, by lane) holds what plain decoding of `tokens` would
    /// have put there.
    pub(crate) fn is_right(
        &self,
        table: &[redline_kv_cache::BlockId],
        tokens: &[TokenId],
        filled: [usize; LANES],
    ) -> bool {
        let mut read = Read::start(self.key);
        let upto = filled[Lane::TARGET.index()];
        let mut wrong = 0;
        let chunks = tokens[..upto].chunks(self.block_size);
        for (i, (block, tokens)) in table.iter().zip(chunks).enumerate() {
            let (first, from) = (i * self.block_size, block.index() * self.block_size);
            for (at, (&token, slot)) in tokens.iter().zip(&self.slots[from..]).enumerate() {
                let value = read.value(token);
                read = read.slot(value);
                for lane in 0..LANES {
                    let counts = u64::from(first + at < filled[lane]);
                    wrong |= (slot[lane] ^ CIPHERS[lane] ^ value) * counts;
                }
            }
        }
        wrong == 0 && table.len() * self.block_size >= upto
    }
}
