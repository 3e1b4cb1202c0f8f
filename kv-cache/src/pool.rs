//! Reference counts, the free list and the fill of every block. Every operation is O(1) and
//! allocates nothing.

use crate::{BlockId, Lane, MAX_LANES};

/// The most blocks a pool can have: one id is kept for "no block" in the free list.
pub const BLOCKS_MAX: u32 = u32::MAX - 1;

const NIL: u32 = u32::MAX;

#[derive(Debug, Clone)]
struct Block {
    refs: u32,
    /// Neighbours in the free list. They mean nothing while `refs > 0`.
    prev: u32,
    next: u32,
    /// Leading slots that hold valid keys and values, by lane.
    fills: [u32; MAX_LANES],
}

/// A fixed number of blocks.
///
/// The free list is threaded through the blocks. Its front is reused first; the owner decides at
/// release which end a block goes to, and may take a block out of the middle.
#[derive(Debug)]
pub struct BlockPool {
    blocks: Vec<Block>,
    block_size: u32,
    front: u32,
    back: u32,
    free: usize,
}

impl BlockPool {
    /// A pool of `blocks` free blocks of `block_size` slots, handed out in ascending order.
    ///
    /// # Panics
    /// If `blocks` exceeds [`BLOCKS_MAX`] or either number is 0.
    pub fn new(blocks: u32, block_size: u32) -> Self {
        assert!(blocks > 0 && blocks <= BLOCKS_MAX, "a pool has 1 to {BLOCKS_MAX} blocks");
        assert!(block_size > 0, "a block has at least one slot");
        let empty = Block { refs: 0, prev: NIL, next: NIL, fills: [0; MAX_LANES] };
        let mut pool = Self {
            blocks: vec![empty; blocks as usize],
            block_size,
            front: NIL,
            back: NIL,
            free: 0,
        };
        for block in 0..blocks {
            pool.push_back(block);
        }
        pool
    }

    /// The number of blocks, free or not.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Always false: a pool has at least one block.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Blocks that no table refers to.
    pub fn free(&self) -> usize {
        self.free
    }

    /// Slots of a block.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// How many table entries refer to the block.
    pub fn refs(&self, block: BlockId) -> u32 {
        self.blocks[block.index()].refs
    }

    /// Takes the block at the front of the free list: one reference, nothing filled.
    pub fn take(&mut self) -> Option<BlockId> {
        if self.front == NIL {
            assert_eq!(self.free, 0, "an empty free list that counts free blocks");
            return None;
        }
        let block = self.front;
        self.unlink(block);
        let record = &mut self.blocks[block as usize];
        record.refs = 1;
        record.fills = [0; MAX_LANES];
        Some(BlockId(block))
    }

    /// One reference more; a free block leaves the free list with its fills as they are.
    pub fn retain(&mut self, block: BlockId) {
        if self.refs(block) == 0 {
            self.unlink(block.0);
        }
        self.blocks[block.index()].refs += 1;
    }

    /// One reference less. A block that nobody refers to any more goes to the back of the free
    /// list if it is worth keeping, else to the front.
    ///
    /// # Panics
    /// If nobody refers to the block: a double release would hand it out twice.
    pub fn release(&mut self, block: BlockId, worth_keeping: bool) {
        let record = &mut self.blocks[block.index()];
        assert!(record.refs > 0, "block {} released twice", block.0);
        record.refs -= 1;
        if record.refs == 0 {
            if worth_keeping { self.push_back(block.0) } else { self.push_front(block.0) }
        }
    }

    /// Moves a free block to the front, because it is no longer worth keeping.
    pub(crate) fn demote(&mut self, block: BlockId) {
        assert_eq!(self.refs(block), 0, "only a free block is in the free list");
        self.unlink(block.0);
        self.push_front(block.0);
    }

    /// Leading slots of the block that are filled in the lane.
    pub fn fill(&self, block: BlockId, lane: Lane) -> u32 {
        self.blocks[block.index()].fills[lane.index()]
    }

    /// Leading slots of the block that are filled, by lane.
    pub(crate) fn fills(&self, block: BlockId) -> [u32; MAX_LANES] {
        self.blocks[block.index()].fills
    }

    /// Notes that the first `slots` slots are filled in the lane. Never lowers a fill.
    pub(crate) fn raise_fill(&mut self, block: BlockId, lane: Lane, slots: u32) {
        assert!(slots <= self.block_size, "a block of {} slots", self.block_size);
        let record = &mut self.blocks[block.index()];
        assert!(record.refs > 0, "a block that nobody holds is not written");
        let fill = &mut record.fills[lane.index()];
        *fill = (*fill).max(slots);
    }

    /// Forgets what is filled at or above slot `slots`, in every lane: other tokens go there.
    pub(crate) fn clip_fills(&mut self, block: BlockId, slots: u32) {
        let record = &mut self.blocks[block.index()];
        assert_eq!(record.refs, 1, "only a block held once is overwritten");
        for fill in &mut record.fills {
            *fill = (*fill).min(slots);
        }
    }

    /// Gives a fresh block the fills of the first `slots` slots of the block it is a copy of.
    pub(crate) fn copy_fills(&mut self, from: BlockId, to: BlockId, slots: u32) {
        let fills = self.fills(from);
        for (lane, fill) in fills.into_iter().enumerate() {
            self.blocks[to.index()].fills[lane] = fill.min(slots);
        }
    }

    /// The free blocks, front (reused first) to back. It ends after `len() + 1` blocks at the
    /// latest, so that an audit can walk a broken list.
    pub(crate) fn free_list(&self) -> impl Iterator<Item = (BlockId, Option<BlockId>)> + '_ {
        let mut at = self.front;
        let mut steps = 0;
        std::iter::from_fn(move || {
            if at == NIL || steps > self.blocks.len() {
                return None;
            }
            steps += 1;
            let block = BlockId(at);
            let prev = self.blocks[at as usize].prev;
            at = self.blocks[at as usize].next;
            Some((block, (prev != NIL).then_some(BlockId(prev))))
        })
    }

    /// The last block of the free list.
    pub(crate) fn free_list_back(&self) -> Option<BlockId> {
        (self.back != NIL).then_some(BlockId(self.back))
    }

    fn push_back(&mut self, block: u32) {
        let old = self.back;
        self.link(block, old, NIL);
    }

    fn push_front(&mut self, block: u32) {
        let old = self.front;
        self.link(block, NIL, old);
    }

    fn link(&mut self, block: u32, prev: u32, next: u32) {
        let record = &mut self.blocks[block as usize];
        record.prev = prev;
        record.next = next;
        match prev {
            NIL => self.front = block,
            _ => self.blocks[prev as usize].next = block,
        }
        match next {
            NIL => self.back = block,
            _ => self.blocks[next as usize].prev = block,
        }
        self.free += 1;
    }

    fn unlink(&mut self, block: u32) {
        let Block { prev, next, .. } = self.blocks[block as usize];
        match prev {
            NIL => self.front = next,
            _ => self.blocks[prev as usize].next = next,
        }
        match next {
            NIL => self.back = prev,
            _ => self.blocks[next as usize].prev = prev,
        }
        assert!(self.free > 0, "a block taken out of an empty free list");
        self.free -= 1;
    }
}
