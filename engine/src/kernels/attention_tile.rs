//! A tile of K and V, read out of the cache's blocks into plain floats.

use std::ops::Range;

use half::slice::HalfFloatSliceExt;

use super::attention::{Input, Plane, Sight, TILE};
use super::isa::{Isa, LANES, Line};

/// Bytes of a line; a row of keys has one or two.
const LINE: usize = size_of::<Line>();

/// Lines of as many values as a tile has positions.
pub(super) const WIDE: usize = TILE / LANES;

/// Keys and values of up to [`TILE`] logical positions.
#[derive(Debug, Default)]
pub(super) struct KvTile {
    /// `[head_dim, TILE]`.
    pub(super) k: Vec<Line>,
    /// `[TILE, padded]`; what is beyond the head's width is zero.
    pub(super) v: Vec<Line>,
    /// What will probably be read next.
    pub(super) ahead: Ahead,
}

/// Where the keys and the values of a tile start, and bytes of a row of keys: there are as many of these in the values. 0 if
/// there is no such tile.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ahead {
    starts: [usize; 2],
    step: usize,
}

impl Ahead {
    /// Of the tile whose keys and values start at value `at` of their planes.
    fn of(input: &Input<'_>, at: usize) -> Self {
        let start = |plane: Plane<'_>| match plane {
            Plane::F16(values) => values[at..].as_ptr().addr(),
            Plane::F32(values) => values[at..].as_ptr().addr(),
        };
        let bytes =
            if matches!(input.k, Plane::F16(_)) { size_of::<u16>() } else { size_of::<f32>() };
        Self { starts: [start(input.k), start(input.v)], step: bytes * TILE }
    }

    /// Asks for a row of keys, and for as many bytes of the values; for nothing if nothing is known: an address that is
    /// none costs a walk through the page tables.
    #[inline(always)]
    pub(super) fn fetch<I: Isa>(self, isa: I, row: usize) {
        if self.step > 0 {
            for start in self.starts {
                let at = start + row * self.step;
                isa.fetch_far(std::ptr::without_provenance(at));
                if self.step > LINE {
                    isa.fetch_far(std::ptr::without_provenance(at + LINE));
                }
            }
        }
    }
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
        let (dim, vectors) = (shape.head_dim, shape.head_dim.div_ceil(LANES));
        if (self.k.len(), self.v.len()) != (dim * WIDE, TILE * vectors) {
            self.k = vec![Line::default(); dim * WIDE];
            self.v = vec![Line::default(); TILE * vectors];
        }
        let piece = |block: usize| (block * shape.kv_heads + kv_head) * dim * shape.block_size;
        self.ahead = Ahead::default();
        // A tile that is a block is read as it lies there, as far as the prefix goes.
        let mut listed = positions.clone();
        if shape.block_size == TILE && positions.start < sight.prefix {
            let (block, _) = sight.place(positions.start, input);
            if positions.start + TILE < sight.prefix {
                let (next, _) = sight.place(positions.start + TILE, input);
                self.ahead = Ahead::of(input, piece(next));
            }
            let at = piece(block);
            to_floats(isa, input.k, at..at + dim * TILE, &mut self.k);
            listed.start = positions.end.min(sight.prefix);
            let read = listed.start - positions.start;
            let rows = self.v.chunks_exact_mut(vectors).take(read).enumerate();
            for (i, v) in rows {
                let at = piece(block) + i * dim;
                to_floats(isa, input.v, at..at + dim, v);
            }
        }
        for position in listed {
            let (block, slot) = sight.place(position, input);
            let i = position - positions.start;
            for (d, k) in self.k.chunks_exact_mut(WIDE).enumerate() {
                let at = piece(block) + d * shape.block_size + slot;
                k[i / LANES].0[i % LANES] = one(isa, input.k, at);
            }
            let at = piece(block) + slot * dim;
            to_floats(isa, input.v, at..at + dim, &mut self.v[i * vectors..][..vectors]);
        }
    }
}

/// Values as floats, in as many lines as they fill.
#[inline(always)]
fn to_floats<I: Isa>(isa: I, plane: Plane<'_>, at: Range<usize>, to: &mut [Line]) {
    match plane {
        Plane::F32(from) => {
            for (from, to) in from[at].chunks(LANES).zip(to) {
                to.0[..from.len()].copy_from_slice(from);
            }
        }
        Plane::F16(from) => {
            let from: &[u16] = from[at].reinterpret_cast();
            let (whole, rest) = from.as_chunks::<LANES>();
            let (to, last) = to.split_at_mut(whole.len());
            for (from, to) in whole.iter().zip(to) {
                isa.store(isa.load_half(from), &mut to.0);
            }
            for (&from, to) in rest.iter().zip(last.iter_mut().flat_map(|last| &mut last.0)) {
                *to = isa.half(from);
            }
        }
    }
}

#[inline(always)]
fn one<I: Isa>(isa: I, plane: Plane<'_>, at: usize) -> f32 {
    match plane {
        Plane::F16(from) => isa.half(from[at].to_bits()),
        Plane::F32(from) => from[at],
    }
}
