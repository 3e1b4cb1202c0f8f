//! The small names everything else is said in.

/// One token of the model's vocabulary.
pub type TokenId = u32;

/// One physical block: an index into the tensors of every lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

impl BlockId {
    /// The block's index, for slices.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// How many models may keep keys and values in the same blocks.
///
/// Small and fixed so that a block's fills sit inline in its record.
pub const MAX_LANES: usize = 4;

/// One model's keys and values within the blocks: the target's, a draft model's, a head's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub u8);

impl Lane {
    /// The target model: the lane whose fill *is* the committed length.
    pub const TARGET: Lane = Lane(0);

    /// The lane's index, for slices.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}
