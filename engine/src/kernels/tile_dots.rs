//! The heart of a linear layer over tiles: 16 outputs of up to 8 rows at once.
//!
//! Per output element and sub-block of 32 columns: the exact whole sum of 8-bit products (two of them, where
//! halves have scales of their own), turned into a float, times the weights' scale, multiplied into the
//! output by the activations'; then the weights' minimum times the sum of activations. The same
//! operations in the same order, however many rows there are.

use super::columns::RowBlock;
use super::dot::unroll;
use super::isa::{Isa, LANES};
use super::tiles::{Tile, VECTORS};

/// Bytes by which reading runs ahead of arithmetic: into the first cache, and into the second one. The
/// first has room for few lines that are on their way, too few to hide the memory behind them.
pub(super) const NEAR: usize = 4096;
pub(super) const FAR: usize = 3 * 4096;

/// The sums of a block of `M` rows over the tiles of 16 outputs.
#[inline(always)]
pub(super) fn dots<I: Isa, T: Tile, const M: usize>(
    isa: I,
    tiles: &[u8],
    x: RowBlock<'_>,
) -> [[f32; LANES]; M] {
    let mut y = [isa.splat(0.0); M];
    let codes: &[[[[i8; 4]; M]; VECTORS]] = x.codes.as_chunks::<M>().0.as_chunks().0;
    let (scales, sums) = (x.scales.as_chunks::<M>().0, x.sums.as_chunks::<M>().0);
    let starts = x.starts.as_chunks::<M>().0;
    let (count, subs) = (tiles.len() / T::BYTES, T::PARTS * T::SUBS);
    let least = codes.len().min(scales.len()).min(sums.len()).min(starts.len());
    assert!(count * subs <= least, "activations for every tile");
    for i in 0..count {
        let tile = &tiles[i * T::BYTES..][..T::BYTES];
        let ahead = tile.as_ptr();
        for part in 0..T::PARTS {
            unroll!(T::SUBS, sub, {
                let at = i * subs + part * T::SUBS + sub;
                let row = (&codes[at], &scales[at], &sums[at], &starts[at]);
                sub_block::<I, T, M>(isa, (tile, ahead), (part, sub), row, &mut y);
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
    (tile, ahead): (&[u8], *const u8),
    (part, sub): (usize, usize),
    (codes, scales, sums, starts): Row<'_, M>,
    y: &mut [I::V; M],
) {
    let w = T::codes(isa, tile, part, sub);
    let at = part * T::SUBS + sub;
    let count = if T::HALVES { 2 } else { 1 };
    let mut parts = [isa.splat(0.0); M];
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
            // Spread over the arithmetic: there is room for few lines that are on their way.
            let (lines, line) = (T::BYTES / T::PARTS / 64, sub * VECTORS + t);
            let at = part * (T::BYTES / T::PARTS);
            if line < lines {
                fetch(isa, ahead, at + 64 * line);
            }
            if line + T::SUBS * VECTORS < lines {
                fetch(isa, ahead, at + 64 * (line + T::SUBS * VECTORS));
            }
            for m in 0..M {
                let to = if M <= 2 && t % 2 == 1 { &mut q[m] } else { &mut p[m] };
                *to = isa.dot_columns(*to, w[t], codes[t][m], T::WIDE);
            }
        }
        for m in 0..M {
            let p = if M <= 2 { isa.add_whole(p[m], q[m]) } else { p[m] };
            let p = isa.floats(p);
            parts[m] = if half == 0 { isa.mul(p, scale) } else { isa.fma(p, scale, parts[m]) };
        }
        if T::HAS_MIN && T::HALVES {
            let min = T::min(isa, tile, at, half);
            for m in 0..M {
                parts[m] = isa.fma(min, isa.splat(starts[m][half] as f32), parts[m]);
            }
        }
    }
    for m in 0..M {
        y[m] = isa.fma(parts[m], isa.splat(scales[m]), y[m]);
    }
    if T::HAS_MIN && !T::HALVES {
        let min = T::min(isa, tile, at, 0);
        for m in 0..M {
            y[m] = isa.fma(min, isa.splat(sums[m]), y[m]);
        }
    }
}

/// Asks for what will be read.
#[inline(always)]
fn fetch<I: Isa>(isa: I, ahead: *const u8, at: usize) {
    isa.fetch(ahead.wrapping_add(at + NEAR));
    isa.fetch_far(ahead.wrapping_add(at + FAR));
}
