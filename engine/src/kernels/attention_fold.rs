//! Softmax over positions, a tile at a time.
//!
//! The running result of a query is its largest score so far, the mass of the weights relative to it, and the
//! sum of values under these weights; a tile whose largest score is above it makes what is there fade
//! (Milakov, Gimelshein 2018, arXiv 1805.02867). Several queries go over a tile together, each in the same
//! order of operations as alone.

use super::attention::TILE;
use super::attention_tile::KvTile;
use super::dot::unroll;
use super::isa::{Isa, LANES};
use super::vector::exp;

/// Vectors of a tile's scores.
const WIDE: usize = TILE / LANES;
/// Vectors of a value that are summed up together.
const DEEP: usize = 4;
/// Queries that go over a tile together, at most.
const MOST: usize = 4;

/// A query that a tile is folded into.
#[derive(Debug, Clone, Copy)]
pub(super) struct Query {
    /// Where its values start.
    pub(super) at: usize,
    /// Its running result.
    pub(super) slot: usize,
    /// Positions of the tile that it sees: the first ones.
    pub(super) count: usize,
}

/// Running results, and the queries of the tile at hand.
#[derive(Debug, Default)]
pub(super) struct Folding {
    pub(super) queries: Vec<Query>,
    /// Values of a result, padded to whole vectors.
    padded: usize,
    max: Vec<f32>,
    sum: Vec<f32>,
    /// `[slots, padded]`.
    acc: Vec<f32>,
}

impl Folding {
    /// Empty results, `padded` wide.
    pub(super) fn start(&mut self, slots: usize, padded: usize) {
        let fill = |v: &mut Vec<f32>, len: usize, x: f32| {
            v.clear();
            v.resize(len, x);
        };
        self.padded = padded;
        fill(&mut self.max, slots, f32::NEG_INFINITY);
        fill(&mut self.sum, slots, 0.0);
        fill(&mut self.acc, slots * padded, 0.0);
    }

    /// What has come of a slot.
    pub(super) fn result(&self, slot: usize, out: &mut [f32]) {
        for (out, &acc) in out.iter_mut().zip(&self.acc[slot * self.padded..]) {
            *out = acc / self.sum[slot];
        }
    }

    /// Folds a tile into the queries; `q` holds their values, each `dim` wide.
    #[inline(always)]
    pub(super) fn fold<I: Isa>(
        &mut self,
        isa: I,
        (q, dim, scale): (&[f32], usize, f32),
        tile: &KvTile,
    ) {
        let mut next = 0;
        while next < self.queries.len() {
            let left = self.queries.len() - next;
            // As many at once as there are registers for.
            if I::ROWS >= 4 && left >= 4 {
                self.some::<I, 4>(isa, next, (q, dim, scale), tile);
                next += 4;
            } else if left >= 2 {
                self.some::<I, 2>(isa, next, (q, dim, scale), tile);
                next += 2;
            } else {
                self.some::<I, 1>(isa, next, (q, dim, scale), tile);
                next += 1;
            }
        }
    }

    #[inline(always)]
    fn some<I: Isa, const N: usize>(
        &mut self,
        isa: I,
        first: usize,
        (q, dim, scale): (&[f32], usize, f32),
        tile: &KvTile,
    ) {
        let queries: [Query; N] = std::array::from_fn(|n| self.queries[first + n]);
        let q: [&[f32]; N] = std::array::from_fn(|n| &q[queries[n].at..][..dim]);
        let scores = scores::<I, N>(isa, q, &tile.k);
        let mut weights = [[0.0; TILE]; N];
        let fade = self.weigh(isa, queries, (scores, scale), &mut weights);
        let pairs = weights.chunks(2).zip(fade.chunks(2)).zip(queries.chunks(2));
        for ((weights, fade), queries) in pairs {
            match (weights, fade, queries) {
                ([a, b], [fade_a, fade_b], [first, second]) if first.count == second.count => {
                    self.add::<I, 2>(isa, [a, b], [*fade_a, *fade_b], [*first, *second], tile);
                }
                _ => {
                    for ((weights, fade), query) in weights.iter().zip(fade).zip(queries) {
                        self.add::<I, 1>(isa, [weights], [*fade], [*query], tile);
                    }
                }
            }
        }
    }

    /// Turns scores of queries into weights relative to the largest score of each so far. Gives what the results
    /// before fade by.
    #[inline(always)]
    fn weigh<I: Isa, const N: usize>(
        &mut self,
        isa: I,
        queries: [Query; N],
        (mut scores, scale): ([[I::V; WIDE]; N], f32),
        weights: &mut [[f32; TILE]; N],
    ) -> [f32; N] {
        let mut largest = [isa.splat(f32::NEG_INFINITY); MOST];
        let mut old = [0.0; N];
        for n in 0..N {
            for half in 0..WIDE {
                scores[n][half] = isa.mul(scores[n][half], isa.splat(scale));
            }
            scores[n] = hide(isa, scores[n], queries[n].count, f32::NEG_INFINITY);
            old[n] = self.max[queries[n].slot];
            // A NaN score is no maximum; its weight is NaN, and so the row.
            let high = isa.larger(scores[n][1], isa.splat(old[n]));
            largest[n] = isa.larger(scores[n][0], high);
        }
        // Reductions, and what results fade by, for all queries at once.
        let max = isa.largests(largest);
        let mut fade = [0.0; LANES];
        let mut masses = [isa.splat(0.0); MOST];
        for n in 0..N {
            fade[n] = old[n] - max[n];
            let max = isa.splat(max[n]);
            for half in 0..WIDE {
                scores[n][half] = exp(isa, isa.sub(scores[n][half], max));
            }
            let [low, high] = hide(isa, scores[n], queries[n].count, 0.0);
            masses[n] = isa.add(low, high);
            let halves = weights[n].as_chunks_mut::<LANES>().0;
            isa.store(low, &mut halves[0]);
            isa.store(high, &mut halves[1]);
        }
        let masses = isa.sums(masses);
        let exps = exp(isa, isa.load(&fade));
        isa.store(exps, &mut fade);
        let mut fades = [0.0; N];
        for n in 0..N {
            let slot = queries[n].slot;
            self.max[slot] = max[n];
            self.sum[slot] = self.sum[slot] * fade[n] + masses[n];
            fades[n] = fade[n];
        }
        fades
    }

    /// `acc = acc * fade + Σ weights[p] * v[p]` of queries that see as many positions.
    #[inline(always)]
    fn add<I: Isa, const N: usize>(
        &mut self,
        isa: I,
        weights: [&[f32; TILE]; N],
        fade: [f32; N],
        queries: [Query; N],
        tile: &KvTile,
    ) {
        let vectors = self.padded / LANES;
        let count = queries[0].count;
        let (acc, v) = (self.acc.as_chunks_mut::<LANES>().0, tile.v.as_chunks::<LANES>().0);
        let mut at = 0;
        while at < vectors {
            let slots = queries.map(|query| query.slot * vectors + at);
            let v = &v[at..];
            if vectors - at >= DEEP {
                add_columns::<I, N, DEEP>(isa, (weights, count), fade, slots, (v, vectors), acc);
                at += DEEP;
            } else {
                add_columns::<I, N, 1>(isa, (weights, count), fade, slots, (v, vectors), acc);
                at += 1;
            }
        }
    }
}

/// Another value in place of those behind the first `count`.
#[inline(always)]
fn hide<I: Isa>(isa: I, values: [I::V; WIDE], count: usize, with: f32) -> [I::V; WIDE] {
    if count >= TILE {
        return values;
    }
    let mut all = [[0.0; LANES]; WIDE];
    isa.store(values[0], &mut all[0]);
    isa.store(values[1], &mut all[1]);
    all.as_flattened_mut()[count..].fill(with);
    [isa.load(&all[0]), isa.load(&all[1])]
}

/// `q · k` of all positions of a tile, one dimension after the other.
#[inline(always)]
fn scores<I: Isa, const N: usize>(isa: I, q: [&[f32]; N], k: &[f32]) -> [[I::V; WIDE]; N] {
    let mut out = [[isa.splat(0.0); WIDE]; N];
    let k = k.as_chunks::<LANES>().0.as_chunks::<WIDE>().0;
    for (d, k) in k.iter().enumerate() {
        let k: [I::V; WIDE] = [isa.load(&k[0]), isa.load(&k[1])];
        unroll!(N, n, {
            let q = isa.splat(q[n][d]);
            out[n][0] = isa.fma(q, k[0], out[n][0]);
            out[n][1] = isa.fma(q, k[1], out[n][1]);
        });
    }
    out
}

/// `C` vectors of `N` results.
#[inline(always)]
fn add_columns<I: Isa, const N: usize, const C: usize>(
    isa: I,
    (weights, count): ([&[f32; TILE]; N], usize),
    fade: [f32; N],
    slots: [usize; N],
    (v, stride): (&[[f32; LANES]], usize),
    acc: &mut [[f32; LANES]],
) {
    let mut sums = [[isa.splat(0.0); C]; N];
    unroll!(N, n, {
        let fade = isa.splat(fade[n]);
        let acc = &acc[slots[n]..][..C];
        unroll!(C, c, sums[n][c] = isa.mul(isa.load(&acc[c]), fade));
    });
    for p in 0..count {
        let v = &v[p * stride..][..C];
        unroll!(N, n, {
            let weight = isa.splat(weights[n][p]);
            unroll!(C, c, sums[n][c] = isa.fma(weight, isa.load(&v[c]), sums[n][c]));
        });
    }
    unroll!(N, n, {
        let acc = &mut acc[slots[n]..][..C];
        unroll!(C, c, isa.store(sums[n][c], &mut acc[c]));
    });
}
