//! Work on the tensors that the bookkeeping asks for. It is returned as data and done by whoever
//! owns the memory.

use crate::BlockId;

/// Copy the first `slots` slots of one block to another, in every lane.
///
/// Copies must be applied in the order given, before anything of the same step reads or writes
/// either block: a block freed by one entry may be the destination of a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockCopy {
    /// The block to read.
    pub from: BlockId,
    /// The block to write.
    pub to: BlockId,
    /// How many leading slots to copy.
    pub slots: u32,
}

/// Move one slot's keys and values, in every lane.
///
/// Moves must be applied in the order given; within one sequence no destination is a later source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotMove {
    /// The block to read.
    pub from_block: BlockId,
    /// The slot within it.
    pub from_slot: u32,
    /// The block to write.
    pub to_block: BlockId,
    /// The slot within it.
    pub to_slot: u32,
}
