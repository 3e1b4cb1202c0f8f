//! Attention straight from the blocks of the cache.
//!
//! A row attends to logical positions `0..len`: `prefix` slots read through the block table, then
//! its listed ancestors among the draft slots (itself last). Positions are reduced in tiles of 32
//! **logical** positions: a tile's scores, its maximum, its weights and its weighted sum of V are
//! computed in one fixed order, then folded into the running result. Where a position is stored
//! (which block, a draft slot of a tree, a moved slot) never enters, so a row in a tree has the
//! bits of the same row in a chain. K and V are read as stored, the row's own included.

use std::ops::Range;

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::Level;
use super::disjoint::Disjoint;
use super::dot::unroll;
use super::isa::{Isa, LANES};
use super::pool::{Pool, share};
use super::vector::exp;

/// Logical positions reduced together.
pub const TILE: usize = 32;
/// Rows of one sequence that share the reading of a tile.
const ROWS: usize = 8;

/// One layer's keys or values, `[blocks, block_size, kv_heads, head_dim]`.
#[derive(Debug, Clone, Copy)]
pub enum Plane<'a> {
    /// Half precision.
    F16(&'a [f16]),
    /// Single precision.
    F32(&'a [f32]),
}

/// What all rows have in common.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; query head `h` reads `h / (heads / kv_heads)`.
    pub kv_heads: usize,
    /// Values of a head.
    pub head_dim: usize,
    /// Slots of a block.
    pub block_size: usize,
    /// Scores are multiplied by this.
    pub scale: f32,
}

/// What one row sees.
#[derive(Debug, Clone)]
pub struct Sight {
    /// Slots `0..prefix` are positions `0..prefix`.
    pub prefix: usize,
    /// Range of [`Input::extras`]: slots of positions `prefix, prefix + 1, …`.
    pub extras: Range<usize>,
    /// Range of [`Input::tables`]: the sequence's blocks.
    pub table: Range<usize>,
    /// The sequence; neighbouring rows of one sequence share the reading of its prefix.
    pub seq: u32,
}

impl Sight {
    fn len(&self) -> usize {
        self.prefix + self.extras.len()
    }

    /// Number of the slot of logical position `position`, in the whole cache.
    #[inline(always)]
    fn slot(&self, position: usize, input: &Input<'_>) -> usize {
        let slot = match position.checked_sub(self.prefix) {
            None => position,
            Some(extra) => input.extras[self.extras.start + extra] as usize,
        };
        let size = input.shape.block_size;
        input.tables[self.table.clone()][slot / size] as usize * size + slot % size
    }
}

/// Buffers of one thread.
#[derive(Debug, Default)]
struct ThreadScratch {
    /// A tile of K and V as f32, `[TILE, padded]`.
    k: Vec<f32>,
    v: Vec<f32>,
    /// Per (row, head): running maximum, sum, and weighted V `[padded]`.
    max: Vec<f32>,
    sum: Vec<f32>,
    acc: Vec<f32>,
    /// A query head, padded.
    q: Vec<f32>,
}

/// Buffers kept from call to call.
#[derive(Debug, Default)]
pub struct Scratch {
    threads: Vec<ThreadScratch>,
    /// (first row, rows, kv head) of each piece of work, and the work before it.
    items: Vec<(usize, usize, usize)>,
    before: Vec<usize>,
}

/// What a call reads.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// Sizes.
    pub shape: Shape,
    /// This layer's keys.
    pub k: Plane<'a>,
    /// This layer's values.
    pub v: Plane<'a>,
    /// Queries, `[rows, heads, head_dim]`.
    pub q: &'a [f32],
    /// What each row sees; at least one position.
    pub sights: &'a [Sight],
    /// Block tables of all sequences.
    pub tables: &'a [u32],
    /// Ancestors' slots of all rows.
    pub extras: &'a [u32],
}

/// Attention of all rows. `out` is `[rows, heads, head_dim]`.
///
/// # Panics
/// If a row sees a slot outside its table or the cache.
pub fn attention(
    level: Level,
    pool: &mut Pool,
    input: Input<'_>,
    out: &mut [f32],
    scratch: &mut Scratch,
) {
    assert_eq!(out.len(), input.sights.len() * input.shape.heads * input.shape.head_dim);
    plan(&input, scratch);
    let (items, before) = (&scratch.items, &scratch.before);
    let total = before.last().copied().unwrap_or(0);
    scratch.threads.resize_with(pool.threads(), ThreadScratch::default);
    let (parts, out) = (pool.threads(), Disjoint::new(out));
    pool.run_each(&mut scratch.threads, |i, scratch| {
        // Contiguous pieces of about equal work.
        let cost = share(total, 1, i, parts);
        for (item, &start) in items.iter().zip(before) {
            if cost.contains(&start) {
                one_item(level, &input, *item, &out, scratch);
            }
        }
    });
}

/// Cuts the rows into pieces: up to [`ROWS`] neighbouring rows of one sequence, one KV head.
fn plan(input: &Input<'_>, scratch: &mut Scratch) {
    scratch.items.clear();
    scratch.before.clear();
    let (mut first, mut before) = (0, 0);
    for rows in input.sights.chunk_by(|a, b| a.seq == b.seq).flat_map(|rows| rows.chunks(ROWS)) {
        let work: usize = rows.iter().map(|r| r.len() + TILE).sum();
        for kv_head in 0..input.shape.kv_heads {
            scratch.items.push((first, rows.len(), kv_head));
            scratch.before.push(before);
            before += work;
        }
        first += rows.len();
    }
    scratch.before.push(before);
}

#[inline(always)]
fn one_item_body<I: Isa>(
    isa: I,
    input: &Input<'_>,
    (first, rows, kv_head): (usize, usize, usize),
    out: &Disjoint<'_, f32>,
    scratch: &mut ThreadScratch,
) {
    let shape = input.shape;
    let (group, padded) = (shape.heads / shape.kv_heads, shape.head_dim.next_multiple_of(LANES));
    let sights = &input.sights[first..first + rows];
    reset(scratch, rows * group, padded);
    let longest = sights.iter().map(Sight::len).max().unwrap_or(0);
    // The row whose prefix reaches furthest stands for all rows that see a tile through their
    // prefix.
    let furthest = sights.iter().max_by_key(|s| s.prefix);
    for start in (0..longest).step_by(TILE) {
        let mut shared = false;
        for (r, sight) in sights.iter().enumerate() {
            let count = TILE.min(sight.len().saturating_sub(start));
            if count == 0 {
                continue;
            }
            if start + count > sight.prefix {
                read_tile(isa, input, kv_head, sight, start..start + count, scratch);
                shared = false;
            } else if let (false, Some(furthest)) = (shared, furthest) {
                let end = (start + TILE).min(furthest.prefix);
                read_tile(isa, input, kv_head, furthest, start..end, scratch);
                shared = true;
            }
            for h in 0..group {
                let head = (first + r) * shape.heads + kv_head * group + h;
                let q = &input.q[head * shape.head_dim..][..shape.head_dim];
                fold_tile(isa, q, shape.scale, count, r * group + h, scratch);
            }
        }
    }
    for r in 0..rows {
        let at = ((first + r) * shape.heads + kv_head * group) * shape.head_dim;
        // SAFETY: each (row, kv head) belongs to one item and each item to one thread; the group's
        // heads are neighbours, so this is all that the item writes for the row.
        let out = unsafe { out.part(at, group * shape.head_dim) };
        for (h, out) in out.chunks_exact_mut(shape.head_dim).enumerate() {
            let i = r * group + h;
            let sum = scratch.sum[i];
            for (out, &acc) in out.iter_mut().zip(&scratch.acc[i * padded..]) {
                *out = acc / sum;
            }
        }
    }
}
super::level::dispatch! {
    fn one_item(
        input: &Input<'_>,
        item: (usize, usize, usize),
        out: &Disjoint<'_, f32>,
        scratch: &mut ThreadScratch,
    ) = one_item_body
}

fn reset(scratch: &mut ThreadScratch, heads: usize, padded: usize) {
    let fill = |v: &mut Vec<f32>, len: usize, x: f32| {
        v.clear();
        v.resize(len, x);
    };
    fill(&mut scratch.max, heads, f32::NEG_INFINITY);
    fill(&mut scratch.sum, heads, 0.0);
    fill(&mut scratch.acc, heads * padded, 0.0);
    fill(&mut scratch.q, padded, 0.0);
    // What is beyond the head's width stays zero; rows beyond `count` are never read.
    if scratch.k.len() != TILE * padded {
        fill(&mut scratch.k, TILE * padded, 0.0);
        fill(&mut scratch.v, TILE * padded, 0.0);
    }
}

/// Reads K and V of some logical positions of a row's sight into the scratch tile.
#[inline(always)]
fn read_tile<I: Isa>(
    isa: I,
    input: &Input<'_>,
    kv_head: usize,
    sight: &Sight,
    positions: Range<usize>,
    scratch: &mut ThreadScratch,
) {
    let shape = input.shape;
    let padded = shape.head_dim.next_multiple_of(LANES);
    let tile = scratch.k.chunks_exact_mut(padded).zip(scratch.v.chunks_exact_mut(padded));
    for (position, (k, v)) in positions.zip(tile) {
        let slot = sight.slot(position, input);
        let at = (slot * shape.kv_heads + kv_head) * shape.head_dim;
        read_row(isa, input.k, at, &mut k[..shape.head_dim]);
        read_row(isa, input.v, at, &mut v[..shape.head_dim]);
    }
}

#[inline(always)]
fn read_row<I: Isa>(isa: I, plane: Plane<'_>, at: usize, to: &mut [f32]) {
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

/// Folds the scratch tile's first `count` positions into running result `i` of a query head.
#[inline(always)]
fn fold_tile<I: Isa>(
    isa: I,
    q: &[f32],
    scale: f32,
    count: usize,
    i: usize,
    scratch: &mut ThreadScratch,
) {
    scratch.q[..q.len()].copy_from_slice(q);
    let padded = scratch.q.len();
    let mut weights = scores(isa, &scratch.q, scale, count, &scratch.k);
    let halves = weights.as_chunks_mut::<LANES>().0;
    let (low, high) = (isa.load(&halves[0]), isa.load(&halves[1]));
    // A NaN score is no maximum; its weight is NaN, and so the row.
    let old = scratch.max[i];
    let max = isa.largest(isa.larger(low, isa.larger(high, isa.splat(old))));
    let max_v = isa.splat(max);
    isa.store(exp(isa, isa.sub(low, max_v)), &mut halves[0]);
    isa.store(exp(isa, isa.sub(high, max_v)), &mut halves[1]);
    weights[count..].fill(0.0);
    let halves = weights.as_chunks::<LANES>().0;
    let mass = isa.sum(isa.add(isa.load(&halves[0]), isa.load(&halves[1])));
    let mut fade = [0.0; LANES];
    isa.store(exp(isa, isa.sub(isa.splat(old), max_v)), &mut fade);
    let fade = fade[0];
    scratch.max[i] = max;
    scratch.sum[i] = scratch.sum[i] * fade + mass;
    let acc = &mut scratch.acc[i * padded..(i + 1) * padded];
    for (c, acc) in acc.chunks_mut(4 * LANES).enumerate() {
        let v = &scratch.v[4 * LANES * c..];
        if acc.len() == 4 * LANES {
            fold_values::<I, 4>(isa, &weights[..count], v, padded, fade, acc);
        } else {
            for (c, acc) in acc.chunks_mut(LANES).enumerate() {
                fold_values::<I, 1>(isa, &weights[..count], &v[LANES * c..], padded, fade, acc);
            }
        }
    }
}

/// `q · k * scale` of the tile's first `count` positions; minus infinity for the rest.
#[inline(always)]
fn scores<I: Isa>(isa: I, q: &[f32], scale: f32, count: usize, k: &[f32]) -> [f32; TILE] {
    let mut out = [0.0; TILE];
    let (q, k) = (q.as_chunks::<LANES>().0, k.as_chunks::<LANES>().0);
    let size = q.len(); // vectors of a key
    let fours = out.as_chunks_mut::<4>().0.iter_mut().zip(k.chunks_exact(4 * size));
    for (out, k) in fours.take(count.div_ceil(4)) {
        let mut acc = [isa.splat(0.0); 4];
        for (c, q) in q.iter().enumerate() {
            let v = isa.load(q);
            unroll!(4, p, acc[p] = isa.fma(v, isa.load(&k[p * size + c]), acc[p]));
        }
        *out = isa.sums(acc);
    }
    for half in out.as_chunks_mut::<LANES>().0 {
        isa.store(isa.mul(isa.load(half), isa.splat(scale)), half);
    }
    out[count..].fill(f32::NEG_INFINITY);
    out
}

/// `acc = acc * fade + Σ weights[p] * v[p]` for `C` vectors, position after position.
#[inline(always)]
fn fold_values<I: Isa, const C: usize>(
    isa: I,
    weights: &[f32],
    v: &[f32],
    stride: usize,
    fade: f32,
    acc: &mut [f32],
) {
    let acc = acc.as_chunks_mut::<LANES>().0;
    let fade = isa.splat(fade);
    let mut sums = [fade; C];
    unroll!(C, c, sums[c] = isa.mul(isa.load(&acc[c]), fade));
    for (p, &weight) in weights.iter().enumerate() {
        let (v, weight) = (v[p * stride..].as_chunks::<LANES>().0, isa.splat(weight));
        unroll!(C, c, sums[c] = isa.fma(weight, isa.load(&v[c]), sums[c]));
    }
    unroll!(C, c, isa.store(sums[c], &mut acc[c]));
}
