//! The heart of a linear layer over tiles: 16 outputs of up to 8 rows at once, or of many such blocks.
//!
//! Per output element and sub-block of 32 columns: the exact whole sum of 8-bit products (two of them, where
//! halves have scales of their own), turned into a float, times the weights' scale, multiplied into the
//! output by the activations'; then the weights' minimum times the sum of activations. The same
//! operations in the same order, however many rows there are.
//!
//! Sums start at [`BIAS`]: their bits are then those of the float `ROUND + sum`, and multiplying it by the scale takes
//! the same `ROUND * scale` off again, which is exact: a scale is a half-precision number times one of 8 bits, three
//! times that has 21 bits. So the product is rounded once, as if the sum had been converted, without converting it.

use super::columns::RowBlock;
use super::dot::unroll;
use super::isa::{BIAS, Isa, Line, ROUND};
use super::source::{Ahead, Source, Weights, fetch_lines};
use super::tiles::{Tile, VECTORS};

/// The sums of a block of `M` rows over the tiles of a strip.
#[inline(always)]
pub(super) fn dots<I: Isa, T: Tile, const M: usize>(
    isa: I,
    strip: &[u8],
    x: RowBlock<'_>,
) -> [Line; M] {
    let (mut y, mut out) = ([isa.splat(0.0); M], [Line::default(); M]);
    let x = Rows::<M>::of(x);
    for i in 0..x.check::<T>(strip, 1) {
        let (tiles, x) = (nth_tiles::<T, 1>([strip], i), x.tile::<T>(i));
        let ahead = Ahead::of([strip], i * T::BYTES);
        for part in 0..T::PARTS {
            unroll!(T::SUBS, sub, {
                let row = x.at(part * T::SUBS + sub);
                let source = Source::<I, 1>::Tiles((tiles, part, sub, ahead));
                let [parts] = sub_block::<I, T, M, 1>(isa, source, row);
                let [min] = source.mins::<T>(isa, 0);
                for m in 0..M {
                    y[m] = add_part::<I, T>(isa, min, (row.1[m], row.2[m]), parts[m], y[m]);
                }
            });
        }
    }
    for m in 0..M {
        isa.store(y[m], &mut out[m].0);
    }
    out
}

/// The same of as many blocks of `M` rows as `out` has room for, and of `N` strips: weights are unpacked once for all
/// blocks, and what is loaded of the rows serves all strips.
#[inline(always)]
pub(super) fn dots_of_many<I: Isa, T: Tile, const M: usize, const N: usize>(
    isa: I,
    strips: [&[u8]; N],
    x: RowBlock<'_>,
    out: &mut [[[Line; M]; N]],
) {
    let (x, blocks) = (Rows::<M>::of(x), out.len());
    out.fill([[Line::default(); M]; N]);
    for i in 0..x.check::<T>(strips[0], blocks) {
        let tiles = nth_tiles::<T, N>(strips, i);
        let ahead = Ahead::of(strips, i * T::BYTES);
        for part in 0..T::PARTS {
            unroll!(T::SUBS, sub, {
                let weights = Weights::<I>::of_all::<T, N>(isa, tiles, part, sub);
                let at = (i * T::PARTS + part) * T::SUBS + sub;
                for t in 0..VECTORS {
                    fetch_lines::<I, T, N>(isa, (tiles, part, sub, ahead), t);
                }
                for (block, out) in out.iter_mut().enumerate() {
                    let row = x.at(at * blocks + block);
                    let source = Source::Unpacked(&weights);
                    let mins = source.mins::<T>(isa, 0);
                    let parts = sub_block::<I, T, M, N>(isa, source, row);
                    for m in 0..M {
                        for n in 0..N {
                            let (factors, y) = ((row.1[m], row.2[m]), isa.load(&out[n][m].0));
                            let y = add_part::<I, T>(isa, mins[n], factors, parts[n][m], y);
                            isa.store(y, &mut out[n][m].0);
                        }
                    }
                }
            });
        }
    }
}

/// A group of blocks of rows, by sub-blocks and blocks.
struct Rows<'a, const M: usize> {
    codes: &'a [[[[i8; 4]; M]; VECTORS]],
    scales: &'a [[f32; M]],
    sums: &'a [[f32; M]],
    starts: &'a [[[i32; 2]; M]],
}

/// A sub-block of them: codes, scales, sums, starts.
type Row<'a, const M: usize> =
    (&'a [[[i8; 4]; M]; VECTORS], &'a [f32; M], &'a [f32; M], &'a [[i32; 2]; M]);

impl<'a, const M: usize> Rows<'a, M> {
    #[inline(always)]
    fn of(x: RowBlock<'a>) -> Self {
        Self {
            codes: x.codes.as_chunks::<M>().0.as_chunks().0,
            scales: x.scales.as_chunks().0,
            sums: x.sums.as_chunks().0,
            starts: x.starts.as_chunks().0,
        }
    }

    /// The number of tiles; there must be activations for all of them in each block.
    #[inline(always)]
    fn check<T: Tile>(&self, tiles: &[u8], blocks: usize) -> usize {
        let least = self.codes.len().min(self.scales.len());
        let least = least.min(self.sums.len()).min(self.starts.len());
        let count = tiles.len() / T::BYTES;
        assert!(count * T::PARTS * T::SUBS * blocks <= least, "activations for every tile");
        count
    }

    /// What is multiplied with tile `i`: so many that places in it need no check.
    #[inline(always)]
    fn tile<T: Tile>(&self, i: usize) -> Self {
        let count = T::PARTS * T::SUBS;
        Self {
            codes: &self.codes[i * count..][..count],
            scales: &self.scales[i * count..][..count],
            sums: &self.sums[i * count..][..count],
            starts: &self.starts[i * count..][..count],
        }
    }

    #[inline(always)]
    fn at(&self, at: usize) -> Row<'a, M> {
        (&self.codes[at], &self.scales[at], &self.sums[at], &self.starts[at])
    }
}

/// Products of one sub-block of `N` tiles, times the weights' scales.
#[inline(always)]
fn sub_block<'a, I: Isa, T: Tile, const M: usize, const N: usize>(
    isa: I,
    source: Source<'a, I, N>,
    row: Row<'_, M>,
) -> [[I::V; M]; N] {
    let mut parts = [[isa.splat(0.0); M]; N];
    if let Source::Unpacked(_) = source {
        for half in 0..1 + usize::from(T::HALVES) {
            half_block::<I, T, M, N>(isa, source, row, half, &mut parts);
        }
    } else {
        // Spelt out, or the compiler would keep a loop.
        half_block::<I, T, M, N>(isa, source, row, 0, &mut parts);
        if T::HALVES {
            half_block::<I, T, M, N>(isa, source, row, 1, &mut parts);
        }
    }
    parts
}

/// A half of it, or all where halves have no scales of their own, added to `parts`.
#[inline(always)]
fn half_block<I: Isa, T: Tile, const M: usize, const N: usize>(
    isa: I,
    source: Source<'_, I, N>,
    (codes, _, _, starts): Row<'_, M>,
    half: usize,
    parts: &mut [[I::V; M]; N],
) {
    // A start is one more load, and one strip alone has more loads to wait for than multiplications.
    let biased = N > 1 || T::OFFSET != 0;
    let vectors = if T::HALVES { VECTORS / 2 } else { VECTORS };
    let mut p = [[isa.whole(0); M]; N];
    if biased {
        for m in 0..M {
            for n in 0..N {
                let start = if T::OFFSET == 0 { &BIAS } else { &starts[m][half] };
                p[n][m] = isa.whole_from(start);
            }
        }
    }
    // Sums of few rows would wait for each other.
    let mut q = [[isa.whole(0); M]; N];
    for t in 0..vectors {
        let t = half * vectors + t;
        let w = source.code::<T>(isa, t);
        for m in 0..M {
            for n in 0..N {
                let apart = M * N <= 2 && t % 2 == 1;
                let to = if apart { &mut q[n][m] } else { &mut p[n][m] };
                *to = isa.dot_columns(*to, w[n], codes[t][m], T::WIDE);
            }
        }
    }
    let (scales, backs, mins) =
        (source.scales::<T>(isa, half), source.backs::<T>(isa), source.mins::<T>(isa, half));
    for n in 0..N {
        for m in 0..M {
            let p = if M * N <= 2 { isa.add_whole(p[n][m], q[n][m]) } else { p[n][m] };
            let scale = scales[n];
            parts[n][m] = match (half, biased) {
                (0, true) => isa.fma(isa.as_floats(p), scale, backs[n]),
                // Of an infinite scale nothing is left in both ways.
                (0, false) => isa.fma(isa.floats(p), scale, isa.mul(scale, isa.splat(0.0))),
                (_, true) => {
                    let p = isa.sub(isa.as_floats(p), isa.splat(ROUND));
                    isa.fma(p, scale, parts[n][m])
                }
                (_, false) => isa.fma(isa.floats(p), scale, parts[n][m]),
            };
        }
        if T::HAS_MIN && T::HALVES {
            for m in 0..M {
                let sum = isa.splat(starts[m][half] as f32);
                parts[n][m] = isa.fma(mins[n], sum, parts[n][m]);
            }
        }
    }
}

/// What becomes of the sum `y` of a row and a tile with minimums `min` with the products `part` of a sub-block.
#[inline(always)]
fn add_part<I: Isa, T: Tile>(
    isa: I,
    min: I::V,
    (scale, sum): (f32, f32),
    part: I::V,
    y: I::V,
) -> I::V {
    let y = isa.fma(part, isa.splat(scale), y);
    if T::HAS_MIN && !T::HALVES { isa.fma(min, isa.splat(sum), y) } else { y }
}

/// Tile `i` of each strip.
#[inline(always)]
fn nth_tiles<T: Tile, const N: usize>(strips: [&[u8]; N], i: usize) -> [&[u8]; N] {
    let mut tiles = strips;
    for tile in &mut tiles {
        *tile = &tile[i * T::BYTES..][..T::BYTES];
    }
    tiles
}
