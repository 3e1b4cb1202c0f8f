//! A tile of K and V, read out of the cache's blocks into plain floats.

use std::ops::Range;

use half::slice::HalfFloatSliceExt;

use super::attention::{Input, Plane, Sight, TILE};
use super::isa::{Isa, LANES};

/// Keys and values of up to [`TILE`] logical positions.
#[derive(Debug, Default)]
pub(super) struct KvTile {
    /// `[head_dim, TILE]`.
    pub(super) k: Vec<f32>,
    /// `[TILE, padded]`; what is beyond the head's width is zero.
    pub(super) v: Vec<f32>,
}

impl KvTile {
    /// Reads some positions of a row's sight, the first of which is a multiple of [`TILE`]. What belongs to
    /// positions behind them is whatever it is.
    #[inline(always)]
    pub(super) fn read<I: Isa>(
        &mut self,
        isa: I,
        input: &Input<'_>,
        kv_head: usize,
        sight: &Sight,
        positions: Range<usize>,
    ) {
        let shape = input.shape;
        let (dim, padded) = (shape.head_dim, shape.head_dim.next_multiple_of(LANES));
        if (self.k.len(), self.v.len()) != (dim * TILE, TILE * padded) {
            self.k = vec![0.0; dim * TILE];
            self.v = vec![0.0; TILE * padded];
        }
        let piece = |block: usize| (block * shape.kv_heads + kv_head) * dim * shape.block_size;
        // A tile that is a block is read as it lies there, as far as the prefix goes.
        let mut listed = positions.clone();
        if shape.block_size == TILE && positions.start < sight.prefix {
            let (block, _) = sight.place(positions.start, input);
            to_floats(isa, input.k, piece(block), &mut self.k);
            listed.start = positions.end.min(sight.prefix);
            let whole = (listed.start - positions.start) * dim;
            if padded == dim {
                to_floats(isa, input.v, piece(block), &mut self.v[..whole]);
            } else {
                for (i, v) in self.v.chunks_exact_mut(padded).take(whole / dim).enumerate() {
                    to_floats(isa, input.v, piece(block) + i * dim, &mut v[..dim]);
                }
            }
        }
        for position in listed {
            let (block, slot) = sight.place(position, input);
            let i = position - positions.start;
            for (d, k) in self.k.chunks_exact_mut(TILE).enumerate() {
                k[i] = one(isa, input.k, piece(block) + d * shape.block_size + slot);
            }
            let v = &mut self.v[i * padded..][..dim];
            to_floats(isa, input.v, piece(block) + slot * dim, v);
        }
    }
}

#[inline(always)]
fn to_floats<I: Isa>(isa: I, plane: Plane<'_>, at: usize, to: &mut [f32]) {
    match plane {
        Plane::F32(from) => to.copy_from_slice(&from[at..at + to.len()]),
        Plane::F16(from) => {
            let from: &[u16] = from[at..at + to.len()].reinterpret_cast();
            let (from, from_tail) = from.as_chunks::<LANES>();
            let (to, to_tail) = to.as_chunks_mut::<LANES>();
            for (from, to) in from.iter().zip(to) {
                isa.store(isa.load_half(from), to);
            }
            for (&from, to) in from_tail.iter().zip(to_tail) {
                *to = isa.half(from);
            }
        }
    }
}

#[inline(always)]
fn one<I: Isa>(isa: I, plane: Plane<'_>, at: usize) -> f32 {
    match plane {
        Plane::F32(from) => from[at],
        Plane::F16(from) => isa.half(from[at].to_bits()),
    }
}
