//! The keys and values themselves, addressed by block.

use std::ops::{Deref, DerefMut};

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

/// Keys and values of one model: per layer keys `[blocks, kv_heads, head_dim, block_size]` and values `[blocks,
/// kv_heads, block_size, head_dim]`, as [`Plane`] wants them.
#[derive(Debug)]
pub struct KvStore {
    kv_heads: usize,
    head_dim: usize,
    blocks: u32,
    block_size: u32,
    layers: Vec<[Values; 2]>,
}

#[derive(Debug)]
enum Values {
    F16(Aligned<f16>),
    F32(Aligned<f32>),
}

impl Values {
    fn new(len: usize, cache: CacheType) -> Result<Self, StoreError> {
        // In debug builds nothing unwritten can be read unnoticed; in release builds zero pages
        // cost nothing until they are used.
        let mut values = match cache {
            CacheType::F16 => Self::F16(Aligned::zeroed(len)?),
            CacheType::F32 => Self::F32(Aligned::zeroed(len)?),
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

    /// Writes values `step` apart.
    fn write(&mut self, at: usize, step: usize, row: &[f32]) {
        let end = at + (row.len() - 1) * step + 1;
        match self {
            Self::F16(v) if step == 1 => v[at..end].convert_from_f32_slice(row),
            Self::F16(v) => {
                let mut halves = [f16::ZERO; 64];
                for (to, row) in v[at..end].chunks_mut(64 * step).zip(row.chunks(64)) {
                    halves[..row.len()].convert_from_f32_slice(row);
                    to.iter_mut().step_by(step).zip(halves).for_each(|(to, half)| *to = half);
                }
            }
            Self::F32(v) => {
                v[at..end].iter_mut().step_by(step).zip(row).for_each(|(to, &x)| *to = x);
            }
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

/// Bytes of a line of the cache: a vector that is not in one takes two accesses.
const LINE: usize = 64;

/// Values that start where a line of the cache does.
#[derive(Debug)]
struct Aligned<T> {
    all: Vec<T>,
    skipped: usize,
    len: usize,
}

impl<T: bytemuck::Zeroable> Aligned<T> {
    /// Zero pages straight from the system: nothing is touched before it is written. An allocation that is aligned
    /// itself would be written all over.
    fn zeroed(len: usize) -> Result<Self, StoreError> {
        let room = LINE / size_of::<T>();
        let all: Vec<T> = bytemuck::try_zeroed_vec(len + room)
            .map_err(|()| StoreError::OutOfMemory { bytes: len.saturating_mul(size_of::<T>()) })?;
        let skipped = all.as_ptr().align_offset(LINE).min(room);
        Ok(Self { all, skipped, len })
    }
}

impl<T> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.all[self.skipped..][..self.len]
    }
}

impl<T> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.all[self.skipped..][..self.len]
    }
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
        let (kv_heads, head_dim) = (lane.kv_heads as usize, lane.head_dim as usize);
        let len = (blocks as usize)
            .checked_mul(block_size as usize)
            .and_then(|slots| slots.checked_mul(kv_heads * head_dim))
            .filter(|&len| len <= isize::MAX as usize / 8)
            .ok_or(StoreError::TooLarge { blocks, block_size })?;
        let layers = (0..lane.layers)
            .map(|_| Ok([Values::new(len, cache)?, Values::new(len, cache)?]))
            .collect::<Result<_, StoreError>>()?;
        Ok(Self { kv_heads, head_dim, blocks, block_size, layers })
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
        let (size, dim) = (self.block_size as usize, self.head_dim);
        let (block, slot) = (slot / size, slot % size);
        let [keys, values] = &mut self.layers[layer];
        for (head, (k, v)) in k.chunks_exact(dim).zip(v.chunks_exact(dim)).enumerate() {
            let piece = (block * self.kv_heads + head) * dim * size;
            keys.write(piece + slot, size, k);
            values.write(piece + slot * dim, 1, v);
        }
    }

    /// Copies blocks, then moves slots, in the order given.
    pub fn relocate(&mut self, copies: &[BlockCopy], moves: &[SlotMove]) {
        for c in copies {
            self.copy((c.from.0, 0), (c.to.0, 0), c.slots);
        }
        for m in moves {
            self.copy((m.from_block.0, m.from_slot), (m.to_block.0, m.to_slot), 1);
        }
    }

    /// Copies `slots` neighbouring slots, in all layers.
    fn copy(&mut self, from: (u32, u32), to: (u32, u32), slots: u32) {
        let (size, dim, slots) = (self.block_size as usize, self.head_dim, slots as usize);
        for head in 0..self.kv_heads {
            let piece = |block: u32| (block as usize * self.kv_heads + head) * dim * size;
            let (from_piece, to_piece) = (piece(from.0), piece(to.0));
            let (from_slot, to_slot) = (from.1 as usize, to.1 as usize);
            for [keys, values] in &mut self.layers {
                for d in 0..dim {
                    let at = d * size;
                    keys.copy(from_piece + at + from_slot, to_piece + at + to_slot, slots);
                }
                let (from, to) = (from_piece + from_slot * dim, to_piece + to_slot * dim);
                values.copy(from, to, slots * dim);
            }
        }
    }

    /// Overwrites a block with NaN, so that reading it shows. For debug builds and tests.
    pub fn poison(&mut self, block: u32) {
        let len = self.block_size as usize * self.kv_heads * self.head_dim;
        for plane in self.layers.iter_mut().flatten() {
            plane.poison(block as usize * len, len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_start_with_a_line_and_have_their_size() {
        let lane = LaneGeometry { layers: 3, kv_heads: 1, head_dim: 5, element_bytes: 2 };
        for cache in [CacheType::F16, CacheType::F32] {
            let store = KvStore::new(lane, 7, 3, cache).unwrap();
            for plane in (0..3).flat_map(|layer| [store.keys(layer), store.values(layer)]) {
                let (start, len) = match plane {
                    Plane::F16(plane) => (plane.as_ptr().addr(), plane.len()),
                    Plane::F32(plane) => (plane.as_ptr().addr(), plane.len()),
                };
                assert_eq!((start % LINE, len), (0, 7 * 3 * 5));
            }
        }
    }
}
