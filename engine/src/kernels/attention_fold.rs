//! Softmax over positions, a tile at a time.
//!
//! The running result of a query is its largest score so far, the mass of the weights relative to it, and the
//! sum of values under these weights; a tile whose largest score is above it makes what is there fade
//! (Milakov, Gimelshein 2018, arXiv 1805.02867). Several queries go over a tile together, each in the same
//! order of operations as alone.

use super::attention::TILE;
use super::attention_tile::{Ahead, KvTile, WIDE};
use super::dot::unroll;
use super::isa::{Isa, LANES, Line};
use super::vector::exp;

/// Queries that are multiplied with a tile at once, at most.
const MOST: usize = 8;
/// Queries that are reduced at once, at most.
const FOUR: usize = 4;

/// Scores of a query, then weights.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Scores([f32; TILE]);

impl Scores {
    #[inline(always)]
    fn halves(&mut self) -> &mut [[f32; LANES]; WIDE] {
        let (halves, _) = self.0.as_chunks_mut().0.as_chunks_mut();
        &mut halves[0]
    }

    /// Puts another value in place of those behind the first `count`.
    #[inline(always)]
    fn hide(&mut self, count: usize, with: f32) {
        if count < TILE {
            self.0[count..].fill(with);
        }
    }
}

/// A query that a tile is folded into.
#[derive(Debug, Clone, Copy)]
pub(super) struct Query {
    /// Where its values and its running result are.
    pub(super) slot: usize,
    /// Positions of the tile that it sees: the first ones.
    pub(super) count: usize,
}

/// Running results, and the queries of the tile at hand.
#[derive(Debug, Default)]
pub(super) struct Folding {
    pub(super) queries: Vec<Query>,
    /// Values of queries, `[dim, slots]`: those of neighbours are found without a pointer for each.
    values: Vec<f32>,
    slots: usize,
    /// Vectors of a result.
    vectors: usize,
    max: Vec<f32>,
    sum: Vec<f32>,
    /// `[slots, vectors]`.
    acc: Vec<Line>,
}

impl Folding {
    /// Empty results of queries whose values are these, in the order of slots, each `dim` of them.
    pub(super) fn start<'a>(
        &mut self,
        (slots, dim): (usize, usize),
        queries: impl Iterator<Item = &'a [f32]>,
    ) {
        (self.slots, self.vectors) = (slots, dim.div_ceil(LANES));
        refill(&mut self.values, slots * dim, 0.0);
        for (slot, values) in queries.enumerate() {
            let to = self.values[slot..].iter_mut().step_by(slots);
            to.zip(values).for_each(|(to, &value)| *to = value);
        }
        refill(&mut self.max, slots, f32::NEG_INFINITY);
        refill(&mut self.sum, slots, 0.0);
        refill(&mut self.acc, slots * self.vectors, Line::default());
    }

    /// What has come of a slot.
    pub(super) fn result(&self, slot: usize, out: &mut [f32]) {
        let acc = &self.acc[slot * self.vectors..][..self.vectors];
        for (out, &acc) in out.iter_mut().zip(acc.iter().flat_map(|acc| &acc.0)) {
            *out = acc / self.sum[slot];
        }
    }

    /// Folds a tile into the queries. What is read next is asked for while the first of them are multiplied.
    #[inline(always)]
    pub(super) fn fold<I: Isa>(&mut self, isa: I, scale: f32, tile: &KvTile) {
        let queries = std::mem::take(&mut self.queries);
        // As many at once as there are registers for.
        let most = const { if I::ROWS < 4 { 2 } else { MOST } };
        let neighbours = queries.chunk_by(|a, b| a.slot + 1 == b.slot);
        let mut ahead = Some(tile.ahead);
        for queries in neighbours.flat_map(|queries| queries.chunks(most)) {
            let mut scores = [Scores([0.0; TILE]); MOST];
            let ahead = ahead.take().unwrap_or_default();
            score_all(isa, self, queries, (&tile.k, ahead), &mut scores);
            for (queries, scores) in queries.chunks(FOUR).zip(scores.chunks_mut(FOUR)) {
                let fade = self.weigh(isa, queries, (scores, scale));
                self.add_all(isa, queries, (scores, &fade), &tile.v);
            }
        }
        self.queries = queries;
    }

    /// Turns scores of up to four queries into weights relative to the largest score of each so far. Gives what the
    /// results before fade by.
    #[inline(always)]
    fn weigh<I: Isa>(
        &mut self,
        isa: I,
        queries: &[Query],
        (scores, scale): (&mut [Scores], f32),
    ) -> Line {
        let (mut fade, mut largest) = (Line::default(), [isa.splat(f32::NEG_INFINITY); FOUR]);
        for (n, (query, scores)) in queries.iter().zip(&mut *scores).enumerate() {
            for half in scores.halves() {
                isa.store(isa.mul(isa.load(half), isa.splat(scale)), half);
            }
            scores.hide(query.count, f32::NEG_INFINITY);
            fade.0[n] = self.max[query.slot];
            // A NaN score is no maximum; its weight is NaN, and so the row.
            let [low, high] = scores.halves();
            let high = isa.larger(isa.load(high), isa.splat(fade.0[n]));
            largest[n] = isa.larger(isa.load(low), high);
        }
        // Reductions, and what results fade by, for all queries at once.
        let max = isa.largests(largest);
        let mut masses = [isa.splat(0.0); FOUR];
        for (n, (query, scores)) in queries.iter().zip(scores).enumerate() {
            fade.0[n] -= max[n];
            for half in scores.halves() {
                isa.store(exp(isa, isa.sub(isa.load(half), isa.splat(max[n]))), half);
            }
            scores.hide(query.count, 0.0);
            let [low, high] = scores.halves();
            masses[n] = isa.add(isa.load(low), isa.load(high));
        }
        let masses = isa.sums(masses);
        isa.store(exp(isa, isa.load(&fade.0)), &mut fade.0);
        for (n, query) in queries.iter().enumerate() {
            self.max[query.slot] = max[n];
            self.sum[query.slot] = self.sum[query.slot] * fade.0[n] + masses[n];
        }
        fade
    }

    /// `acc = acc * fade + Σ weights[p] * v[p]` of up to four queries; neighbours that see as many positions together.
    #[inline(always)]
    fn add_all<I: Isa>(
        &mut self,
        isa: I,
        mut queries: &[Query],
        (mut weights, fade): (&[Scores], &Line),
        v: &[Line],
    ) {
        let mut fade = &fade.0[..];
        while let [first, ..] = queries {
            let alike = queries.iter().take_while(|query| query.count == first.count).count();
            macro_rules! add {
                ($n:literal, $deep:literal) => {
                    self.add::<I, $n, $deep>(isa, queries, (weights, fade), v)
                };
            }
            let done = match alike {
                1 if const { I::ROWS < 4 } => add!(1, 4),
                2.. if const { I::ROWS < 4 } => add!(2, 4),
                1 => add!(1, 8),
                2 => add!(2, 8),
                3 => add!(3, 4),
                _ => add!(4, 4),
            };
            (queries, weights, fade) = (&queries[done..], &weights[done..], &fade[done..]);
        }
    }

    /// The same of the first `N`, which see as many, `DEEP` vectors at once. Gives `N`.
    #[inline(always)]
    fn add<I: Isa, const N: usize, const DEEP: usize>(
        &mut self,
        isa: I,
        queries: &[Query],
        (weights, fade): (&[Scores], &[f32]),
        v: &[Line],
    ) -> usize {
        let (count, vectors, slot) = (queries[0].count, self.vectors, queries[0].slot);
        let (Some(weights), Some(fade)) = (weights.first_chunk(), fade.first_chunk()) else {
            unreachable!("a weight for each query")
        };
        let acc = &mut self.acc[slot * vectors..][..N * vectors];
        let mut at = 0;
        while at < vectors {
            let (v, weights) = ((v, vectors, at), (weights, count));
            at += match vectors - at {
                left if left >= DEEP => add_columns::<I, N, DEEP>(isa, weights, fade, v, acc),
                4.. => add_columns::<I, N, 4>(isa, weights, fade, v, acc),
                _ => add_columns::<I, N, 1>(isa, weights, fade, v, acc),
            };
        }
        N
    }
}

fn refill<T: Clone>(v: &mut Vec<T>, len: usize, x: T) {
    v.clear();
    v.resize(len, x);
}

/// Scores of neighbouring queries: all, or as many as are reduced at once.
#[inline(always)]
fn score_all<I: Isa>(
    isa: I,
    folding: &Folding,
    queries: &[Query],
    k: (&[Line], Ahead),
    scores: &mut [Scores; MOST],
) {
    let [first, ..] = queries else { return };
    let q = (&folding.values[..], folding.slots, first.slot);
    macro_rules! score {
        ($n:literal) => {
            score::<I, $n>(isa, q, k, scores)
        };
    }
    match queries.len() {
        1 => score!(1),
        _ if const { I::ROWS < 4 } => score!(2),
        2 => score!(2),
        3 => score!(3),
        4 => score!(4),
        5 => score!(5),
        6 => score!(6),
        7 => score!(7),
        _ => score!(8),
    }
}

/// `q · k` of all positions of a tile and of `N` queries from the first on, one dimension after the other.
#[inline(always)]
fn score<I: Isa, const N: usize>(
    isa: I,
    (q, slots, first): (&[f32], usize, usize),
    (k, ahead): (&[Line], Ahead),
    scores: &mut [Scores; MOST],
) {
    let mut sums = [[isa.splat(0.0); WIDE]; N];
    for (d, (k, q)) in k.as_chunks::<WIDE>().0.iter().zip(q.chunks_exact(slots)).enumerate() {
        ahead.fetch(isa, d);
        let k = [isa.load(&k[0].0), isa.load(&k[1].0)];
        let q = &q[first..first + N];
        unroll!(N, n, {
            let q = isa.splat(q[n]);
            unroll!(WIDE, half, sums[n][half] = isa.fma(q, k[half], sums[n][half]));
        });
    }
    unroll!(N, n, {
        unroll!(WIDE, half, isa.store(sums[n][half], &mut scores[n].halves()[half]));
    });
}

/// `C` vectors, the first of which is vector `at`, of `N` neighbouring results. Gives `C`.
#[inline(always)]
fn add_columns<I: Isa, const N: usize, const C: usize>(
    isa: I,
    (weights, count): (&[Scores; N], usize),
    fade: &[f32; N],
    (v, vectors, at): (&[Line], usize, usize),
    acc: &mut [Line],
) -> usize {
    let mut sums = [[isa.splat(0.0); C]; N];
    unroll!(N, n, {
        let fade = isa.splat(fade[n]);
        let acc = &acc[n * vectors + at..][..C];
        unroll!(C, c, sums[n][c] = isa.mul(isa.load(&acc[c].0), fade));
    });
    for (p, v) in v.chunks_exact(vectors).take(count.min(TILE)).enumerate() {
        let v = &v[at..at + C];
        unroll!(N, n, {
            let weight = isa.splat(weights[n].0[p]);
            unroll!(C, c, sums[n][c] = isa.fma(weight, isa.load(&v[c].0), sums[n][c]));
        });
    }
    unroll!(N, n, {
        let acc = &mut acc[n * vectors + at..][..C];
        unroll!(C, c, isa.store(sums[n][c], &mut acc[c].0));
    });
    C
}
