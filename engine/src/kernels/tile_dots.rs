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
use super::isa::{BIAS, Isa, LANES, ROUND};
use super::tiles::{Tile, VECTORS};

/// Bytes by which reading runs ahead of arithmetic: into the first cache, and into the second one. The
/// first has room for few lines that are on their way, too few to hide the memory behind them.
pub(super) const NEAR: usize = 4096;
pub(super) const FAR: usize = 3 * 4096;

/// 16 sums, in a line of the cache: of those that are not, each access would be two. What is spilled beside them is
/// aligned with them.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(super) struct Sums(pub(super) [f32; LANES]);

/// The sums of a block of `M` rows over the tiles of a strip.
#[inline(always)]
pub(super) fn dots<I: Isa, T: Tile, const M: usize>(
    isa: I,
    strip: &[u8],
    x: RowBlock<'_>,
) -> [Sums; M] {
    let mut y = [isa.splat(0.0); M];
    let x = Rows::<M>::of(x);
    for i in 0..x.check::<T>(strip, 1) {
        let (tiles, x) = (nth_tiles::<T, 1>([strip], i), x.tile::<T>(i));
        for part in 0..T::PARTS {
            unroll!(T::SUBS, sub, {
                let weights = Weights::<I>::of::<T>(isa, tiles[0], part, sub);
                let row = x.at(part * T::SUBS + sub);
                let place = Some((tiles, part, sub));
                let [parts] = sub_block::<I, T, M, 1>(isa, &[weights], row, place);
                for m in 0..M {
                    y[m] = isa.fma(parts[m], isa.splat(row.1[m]), y[m]);
                }
                if T::HAS_MIN && !T::HALVES {
                    for m in 0..M {
                        y[m] = isa.fma(weights.mins[0], isa.splat(row.2[m]), y[m]);
                    }
                }
            });
        }
    }
    let mut out = [Sums::default(); M];
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
    out: &mut [[[Sums; M]; N]],
) {
    let x = Rows::<M>::of(x);
    let subs = x.codes.len() / out.len().max(1);
    out.fill([[Sums::default(); M]; N]);
    for i in 0..x.check::<T>(strips[0], out.len()) {
        let tiles = nth_tiles::<T, N>(strips, i);
        for part in 0..T::PARTS {
            unroll!(T::SUBS, sub, {
                let weights = Weights::<I>::of_all::<T, N>(isa, tiles, part, sub);
                let at = (i * T::PARTS + part) * T::SUBS + sub;
                for t in 0..VECTORS {
                    fetch_lines::<I, T, N>(isa, (tiles, part, sub), t);
                }
                for (block, out) in out.iter_mut().enumerate() {
                    let row = x.at(block * subs + at);
                    let parts = sub_block::<I, T, M, N>(isa, &weights, row, None);
                    for m in 0..M {
                        for n in 0..N {
                            let (factors, y) = ((row.1[m], row.2[m]), isa.load(&out[n][m].0));
                            let y = add_part::<I, T>(isa, &weights[n], factors, parts[n][m], y);
                            isa.store(y, &mut out[n][m].0);
                        }
                    }
                }
            });
        }
    }
}

/// A block of rows, or several, by sub-blocks.
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

/// A sub-block of a tile, unpacked. Where it is not in halves, the second ones are the first.
#[derive(Clone, Copy)]
struct Weights<I: Isa> {
    codes: [I::U; VECTORS],
    scales: [I::V; 2],
    /// What takes [`ROUND`] times the first scale off.
    back: I::V,
    mins: [I::V; 2],
}

impl<I: Isa> Weights<I> {
    // Spelt out rather than mapped: see `each`.
    #[inline(always)]
    fn of_all<T: Tile, const N: usize>(
        isa: I,
        tiles: [&[u8]; N],
        part: usize,
        sub: usize,
    ) -> [Self; N] {
        let mut all = [Self::of::<T>(isa, tiles[0], part, sub); N];
        if N == 2 {
            all[1] = Self::of::<T>(isa, tiles[1], part, sub);
        }
        all
    }

    #[inline(always)]
    fn of<T: Tile>(isa: I, tile: &[u8], part: usize, sub: usize) -> Self {
        let (at, second) = (part * T::SUBS + sub, usize::from(T::HALVES));
        let scale = T::scale(isa, tile, at, 0);
        let mins = if T::HAS_MIN {
            [T::min(isa, tile, at, 0), T::min(isa, tile, at, second)]
        } else {
            [isa.splat(0.0); 2]
        };
        Self {
            codes: T::codes(isa, tile, part, sub),
            scales: [scale, T::scale(isa, tile, at, second)],
            back: isa.mul(scale, isa.splat(-ROUND)),
            mins,
        }
    }
}

/// Products of one sub-block of `N` tiles, times the weights' scales. On the way, asks for what comes after its place.
#[inline(always)]
fn sub_block<I: Isa, T: Tile, const M: usize, const N: usize>(
    isa: I,
    weights: &[Weights<I>; N],
    (codes, _, _, starts): Row<'_, M>,
    place: Option<Place<'_, N>>,
) -> [[I::V; M]; N] {
    let count = if T::HALVES { 2 } else { 1 };
    // A start is one more load, and one strip alone has more loads to wait for than multiplications.
    let biased = N > 1 || T::OFFSET != 0;
    let mut parts = [[isa.splat(0.0); M]; N];
    for half in 0..count {
        let vectors = VECTORS / count;
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
            if let Some(place) = place {
                fetch_lines::<I, T, N>(isa, place, t);
            }
            for m in 0..M {
                for n in 0..N {
                    let apart = M * N <= 2 && t % 2 == 1;
                    let to = if apart { &mut q[n][m] } else { &mut p[n][m] };
                    *to = isa.dot_columns(*to, weights[n].codes[t], codes[t][m], T::WIDE);
                }
            }
        }
        for n in 0..N {
            let weights = &weights[n];
            for m in 0..M {
                let p = if M * N <= 2 { isa.add_whole(p[n][m], q[n][m]) } else { p[n][m] };
                let scale = weights.scales[half];
                parts[n][m] = match (half, biased) {
                    (0, true) => isa.fma(isa.as_floats(p), scale, weights.back),
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
                    parts[n][m] = isa.fma(weights.mins[half], sum, parts[n][m]);
                }
            }
        }
    }
    parts
}

/// What becomes of the sum `y` of a row and a tile with the products `part` of a sub-block.
#[inline(always)]
fn add_part<I: Isa, T: Tile>(
    isa: I,
    weights: &Weights<I>,
    (scale, sum): (f32, f32),
    part: I::V,
    y: I::V,
) -> I::V {
    let y = isa.fma(part, isa.splat(scale), y);
    if T::HAS_MIN && !T::HALVES { isa.fma(weights.mins[0], isa.splat(sum), y) } else { y }
}

/// A sub-block of tiles: part, and sub-block of the part.
type Place<'a, const N: usize> = ([&'a [u8]; N], usize, usize);

/// Asks for what will be read: the lines of a part, spread over the arithmetic of its sub-blocks, since there is room
/// for few lines that are on their way.
#[inline(always)]
fn fetch_lines<I: Isa, T: Tile, const N: usize>(
    isa: I,
    (tiles, part, sub): Place<'_, N>,
    vector: usize,
) {
    let (lines, all) = (T::BYTES / T::PARTS / 64, T::SUBS * VECTORS);
    for line in [sub * VECTORS + vector, sub * VECTORS + vector + all] {
        if line < lines {
            for tile in tiles {
                let at = tile.as_ptr().wrapping_add(part * (T::BYTES / T::PARTS) + 64 * line);
                isa.fetch(at.wrapping_add(NEAR));
                isa.fetch_far(at.wrapping_add(FAR));
            }
        }
    }
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
