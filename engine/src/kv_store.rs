//! The keys and values themselves, addressed by block.

use half::f16;
use half::slice::HalfFloatSliceExt;
use redline_kv_cache::{BlockCopy, LaneGeometry, SlotMove};

use crate::kernels::attention::Plane;

/// How keys and values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheType {
    /// IEEE half precision.
    #[default]
    F16,
    /// Single precision.
    F32,
}

impl CacheType {
    /// Bytes of a value.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::F16 => 2,
            Self::F32 => 4,
        }
    }
}

/// A store that can't be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Its size overflows.
    #[error("a KV cache of {blocks} blocks of {block_size} tokens is too large to address")]
    TooLarge {
        /// Blocks asked for.
        blocks: u32,
        /// Tokens per block.
        block_size: u32,
    },
    /// The system does not give the memory.
    #[error("no memory for a KV cache of {bytes} bytes")]
    OutOfMemory {
        /// Bytes of the plane that failed.
        bytes: usize,
    },
}

/// Keys and values of one model: per layer `[blocks, block_size, kv_heads, head_dim]`, twice.
#[derive(Debug)]
pub struct KvStore {
    width: usize,
    blocks: u32,
    block_size: u32,
    layers: Vec<[Values; 2]>,
}

#[derive(Debug)]
enum Values {
    F16(Vec<f16>),
    F32(Vec<f32>),
}

impl Values {
    fn new(len: usize, cache: CacheType) -> Result<Self, StoreError> {
        // In debug builds nothing unwritten can be read unnoticed; in release builds zero pages
        // cost nothing until they are used.
        let mut values = match cache {
            CacheType::F16 => Self::F16(zeroed(len)?),
            CacheType::F32 => Self::F32(zeroed(len)?),
        };
        if cfg!(debug_assertions) {
            values.poison(0, len);
        }
        Ok(values)
    }

    fn copy(&mut self, from: usize, to: usize, len: usize) {
        match self {
            Self::F16(v) => v.copy_within(from..from + len, to),
            Self::F32(v) => v.copy_within(from..from + len, to),
        }
    }

    fn write(&mut self, at: usize, row: &[f32]) {
        match self {
            Self::F16(v) => v[at..at + row.len()].convert_from_f32_slice(row),
            Self::F32(v) => v[at..at + row.len()].copy_from_slice(row),
        }
    }

    fn poison(&mut self, at: usize, len: usize) {
        match self {
            Self::F16(v) => v[at..at + len].fill(f16::NAN),
            Self::F32(v) => v[at..at + len].fill(f32::NAN),
        }
    }

    fn plane(&self) -> Plane<'_> {
        match self {
            Self::F16(v) => Plane::F16(v),
            Self::F32(v) => Plane::F32(v),
        }
    }
}

/// Zero pages straight from the system: nothing is touched before it is written.
fn zeroed<T: bytemuck::Zeroable>(len: usize) -> Result<Vec<T>, StoreError> {
    bytemuck::try_zeroed_vec(len)
        .map_err(|()| StoreError::OutOfMemory { bytes: len.saturating_mul(size_of::<T>()) })
}

impl KvStore {
    /// Room for `blocks` blocks.
    ///
    /// # Errors
    /// [`StoreError`] if that is too much.
    pub fn new(
        lane: LaneGeometry,
        blocks: u32,
        block_size: u32,
        cache: CacheType,
    ) -> Result<Self, StoreError> {
        let width = lane.kv_heads as usize * lane.head_dim as usize;
        let len = (blocks as usize)
            .checked_mul(block_size as usize)
            .and_then(|slots| slots.checked_mul(width))
            .filter(|&len| len <= isize::MAX as usize / 8)
            .ok_or(StoreError::TooLarge { blocks, block_size })?;
        let layers = (0..lane.layers)
            .map(|_| Ok([Values::new(len, cache)?, Values::new(len, cache)?]))
            .collect::<Result<_, StoreError>>()?;
        Ok(Self { width, blocks, block_size, layers })
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Slots per block.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Keys of a layer.
    pub fn keys(&self, layer: usize) -> Plane<'_> {
        self.layers[layer][0].plane()
    }

    /// Values of a layer.
    pub fn values(&self, layer: usize) -> Plane<'_> {
        self.layers[layer][1].plane()
    }

    /// Writes one token's keys and values, `[kv_heads, head_dim]` each, rounded to the cache's
    /// type. `slot` counts from the start of the store: block × block size + slot in the block.
    pub fn write(&mut self, layer: usize, slot: usize, k: &[f32], v: &[f32]) {
        let at = slot * self.width;
        let [keys, values] = &mut self.layers[layer];
        keys.write(at, k);
        values.write(at, v);
    }

    /// Copies blocks, then moves slots, in the order given.
    pub fn relocate(&mut self, copies: &[BlockCopy], moves: &[SlotMove]) {
        let (size, width) = (self.block_size as usize, self.width);
        let at = |block: u32, slot: u32| (block as usize * size + slot as usize) * width;
        for plane in self.layers.iter_mut().flatten() {
            for c in copies {
                plane.copy(at(c.from.0, 0), at(c.to.0, 0), c.slots as usize * width);
            }
            for m in moves {
                plane.copy(at(m.from_block.0, m.from_slot), at(m.to_block.0, m.to_slot), width);
            }
        }
    }

    /// Overwrites a block with NaN, so that reading it shows. For debug builds and tests.
    pub fn poison(&mut self, block: u32) {
        let len = self.block_size as usize * self.width;
        for plane in self.layers.iter_mut().flatten() {
            plane.poison(block as usize * len, len);
        }
    }
}
