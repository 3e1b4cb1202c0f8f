//! The heart of a linear layer over tiles: 16 outputs of up to 8 rows at once.
//!
//! Per output element and sub-block of 32 columns (16, where halves have scales of their own): the
//! exact whole sum of 8-bit products, turned into a float, times the activations' scale, multiplied
//! into the output by the weights'; then their minimum times the sum of activations. The same
//! operations in the same order, however many rows there are.

use super::columns::RowBlock;
use super::dot::unroll;
use super::isa::{Isa, LANES};
use super::tiles::{Tile, VECTORS};

/// Bytes by which reading runs ahead of arithmetic.
const AHEAD: usize = 4096;

/// The sums of a block of `M` rows over the tiles of 16 outputs.
#[inline(always)]
pub(super) fn dots<I: Isa, T: Tile, const M: usize>(
    isa: I,
    tiles: &[u8],
    x: RowBlock<'_>,
) -> [[f32; LANES]; M] {
    let mut y = [isa.splat(0.0); M];
    let codes: &[[[[i8; 4]; M]; VECTORS]] = x.codes.as_chunks::<M>().0.as_chunks().0;
    let subs = T::PARTS * T::SUBS;
    let rows = codes.chunks_exact(subs).zip(x.scales.as_chunks::<M>().0.chunks_exact(subs));
    let rows = rows.zip(x.sums.as_chunks::<M>().0.chunks_exact(subs));
    let rows = rows.zip(x.starts.as_chunks::<M>().0.chunks_exact(subs));
    for (tile, (((codes, scales), sums), starts)) in tiles.chunks_exact(T::BYTES).zip(rows) {
        for part in 0..T::PARTS {
            for line in 0..T::BYTES / T::PARTS / 64 {
                let at = AHEAD + part * (T::BYTES / T::PARTS) + 64 * line;
                isa.fetch(tile.as_ptr().wrapping_add(at));
            }
            unroll!(T::SUBS, sub, {
                let at = part * T::SUBS + sub;
                let row = (&codes[at], &scales[at], &sums[at], &starts[at]);
                sub_block::<I, T, M>(isa, tile, (part, sub), row, &mut y);
            });
        }
    }
    let mut out = [[0.0; LANES]; M];
    for m in 0..M {
        isa.store(y[m], &mut out[m]);
    }
    out
}

type Row<'a, const M: usize> =
    (&'a [[[i8; 4]; M]; VECTORS], &'a [f32; M], &'a [f32; M], &'a [[i32; 2]; M]);

/// One sub-block of a tile into the accumulators.
#[inline(always)]
fn sub_block<I: Isa, T: Tile, const M: usize>(
    isa: I,
    tile: &[u8],
    (part, sub): (usize, usize),
    (codes, scales, sums, starts): Row<'_, M>,
    y: &mut [I::V; M],
) {
    let w = T::codes(isa, tile, part, sub);
    let at = part * T::SUBS + sub;
    let count = if T::HALVES { 2 } else { 1 };
    for half in 0..count {
        let scale = T::scale(isa, tile, at, half);
        let vectors = VECTORS / count;
        let mut p = [isa.whole(0); M];
        if T::OFFSET != 0 {
            for m in 0..M {
                p[m] = isa.whole(starts[m][half]);
            }
        }
        // Sums of few rows would wait for each other.
        let mut q = [isa.whole(0); M];
        for t in 0..vectors {
            let t = half * vectors + t;
            for m in 0..M {
                let to = if M <= 2 && t % 2 == 1 { &mut q[m] } else { &mut p[m] };
                *to = isa.dot_columns(*to, w[t], codes[t][m], T::WIDE);
            }
        }
        for m in 0..M {
            let p = if M <= 2 { isa.add_whole(p[m], q[m]) } else { p[m] };
            let p = isa.mul(isa.floats(p), isa.splat(scales[m]));
            y[m] = isa.fma(p, scale, y[m]);
        }
    }
    if T::HAS_MIN {
        let min = T::min(isa, tile, at);
        for m in 0..M {
            y[m] = isa.fma(min, isa.splat(sums[m]), y[m]);
        }
    }
}
