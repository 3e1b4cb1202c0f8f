//! Attention straight from the blocks of the cache.
//!
//! A row attends to logical positions `0..len`: `prefix` slots read through the block table, then
//! its listed ancestors among the draft slots (itself last). Positions are reduced in tiles of 32
//! **logical** positions: a tile's scores, its maximum, its weights and its weighted sum of V are
//! computed in one fixed order, then folded into the running result ([`super::attention_fold`]). A tile is read
//! once ([`super::attention_tile`]) for all heads and rows that share it. Where a position is stored
//! (which block, a draft slot of a tree, a moved slot) never enters, so a row in a tree has the
//! bits of the same row in a chain. K and V are read as stored, the row's own included.

use std::ops::Range;

use half::f16;

use super::Level;
use super::attention_fold::{Folding, Query};
use super::attention_tile::KvTile;
use super::disjoint::Disjoint;
use super::isa::Isa;
use super::pool::Pool;

/// Logical positions reduced together.
pub const TILE: usize = 32;
/// Rows of one sequence that share the reading of a tile.
const ROWS: usize = 8;

/// One layer's keys, `[blocks, kv_heads, head_dim, block_size]`, or values, `[blocks, kv_heads, block_size,
/// head_dim]`: a head's part of a block is one piece, and scores of neighbouring positions are computed side
/// by side.
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

    /// Block of the cache, and slot in it, of logical position `position`.
    #[inline(always)]
    pub(super) fn place(&self, position: usize, input: &Input<'_>) -> (usize, usize) {
        let slot = match position.checked_sub(self.prefix) {
            None => position,
            Some(extra) => input.extras[self.extras.start + extra] as usize,
        };
        let size = input.shape.block_size;
        (input.tables[self.table.clone()][slot / size] as usize, slot % size)
    }
}

/// Buffers of one thread.
#[derive(Debug, Default)]
struct ThreadScratch {
    tile: KvTile,
    folding: Folding,
}

/// Some neighbouring rows of one sequence, and one KV head.
#[derive(Debug, Clone, Copy)]
struct Item {
    first: usize,
    rows: usize,
    kv_head: usize,
    /// Work of all items before this one, and of one of its query heads.
    before: usize,
    work: usize,
}

/// Buffers kept from call to call.
#[derive(Debug, Default)]
pub struct Scratch {
    threads: Vec<ThreadScratch>,
    items: Vec<Item>,
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
    let shape = input.shape;
    assert_eq!(out.len(), input.sights.len() * shape.heads * shape.head_dim);
    assert_eq!(input.q.len(), out.len());
    let group = shape.heads / shape.kv_heads;
    let total = plan(&input, group, &mut scratch.items);
    let items = &scratch.items;
    scratch.threads.resize_with(pool.threads(), ThreadScratch::default);
    let out = Disjoint::new(out);
    let most = (items.len() * group).min(pool.threads());
    pool.run_each(&mut scratch.threads[..most], |part, scratch| {
        // Contiguous pieces of about equal work; an item may be shared, by query heads.
        let cost = part.share(total, 1);
        for item in items {
            // A piece is whose its middle is.
            let middle = |h: usize| item.before + h * item.work + item.work / 2;
            let is_mine = |&h: &usize| cost.contains(&middle(h));
            let mut heads = (0..group).filter(is_mine);
            if let Some(start) = heads.next() {
                let end = heads.next_back().unwrap_or(start) + 1;
                one_item(level, &input, (item, start..end), &out, scratch);
            }
        }
    });
}

/// Cuts the rows into pieces: up to [`ROWS`] neighbouring rows of one sequence, one KV head. Gives the work.
fn plan(input: &Input<'_>, group: usize, items: &mut Vec<Item>) -> usize {
    items.clear();
    let (mut first, mut before) = (0, 0);
    for rows in input.sights.chunk_by(|a, b| a.seq == b.seq).flat_map(|rows| rows.chunks(ROWS)) {
        let work: usize = rows.iter().map(|r| r.len() + TILE).sum();
        for kv_head in 0..input.shape.kv_heads {
            items.push(Item { first, rows: rows.len(), kv_head, before, work });
            before += work * group;
        }
        first += rows.len();
    }
    before
}

#[inline(always)]
fn one_item_body<I: Isa>(
    isa: I,
    input: &Input<'_>,
    (item, heads): (&Item, Range<usize>),
    out: &Disjoint<'_, f32>,
    scratch: &mut ThreadScratch,
) {
    let shape = input.shape;
    let group = shape.heads / shape.kv_heads;
    let sights = &input.sights[item.first..item.first + item.rows];
    // Where the query of a row and a head starts, and the result.
    let at = |row: usize, h: usize| {
        ((item.first + row) * shape.heads + item.kv_head * group + h) * shape.head_dim
    };
    let ThreadScratch { tile, folding } = scratch;
    let slots = (0..item.rows).flat_map(|row| heads.clone().map(move |h| (row, h)));
    let values = slots.map(|(row, h)| &input.q[at(row, h)..][..shape.head_dim]);
    folding.start((item.rows * heads.len(), shape.head_dim), values);
    let longest = sights.iter().map(Sight::len).max().unwrap_or(0);
    // The row whose prefix reaches furthest stands for all rows that see a tile through their
    // prefix.
    let furthest = sights.iter().max_by_key(|s| s.prefix);
    for start in (0..longest).step_by(TILE) {
        let seen = |sight: &Sight| TILE.min(sight.len().saturating_sub(start));
        let through_prefix = |sight: &Sight| start + seen(sight) <= sight.prefix;
        let queries = |row: usize, sight: &Sight, folding: &mut Folding| {
            for i in 0..heads.len() {
                folding.queries.push(Query { slot: row * heads.len() + i, count: seen(sight) });
            }
        };
        folding.queries.clear();
        for (row, sight) in sights.iter().enumerate() {
            if seen(sight) > 0 && through_prefix(sight) {
                queries(row, sight, folding);
            }
        }
        if let (false, Some(furthest)) = (folding.queries.is_empty(), furthest) {
            let end = (start + TILE).min(furthest.prefix);
            tile.read(isa, input, item.kv_head, furthest, start..end);
            folding.fold(isa, shape.scale, tile);
        }
        for (row, sight) in sights.iter().enumerate() {
            if seen(sight) > 0 && !through_prefix(sight) {
                folding.queries.clear();
                queries(row, sight, folding);
                tile.read(isa, input, item.kv_head, sight, start..start + seen(sight));
                folding.fold(isa, shape.scale, tile);
            }
        }
    }
    for row in 0..item.rows {
        for (i, h) in heads.clone().enumerate() {
            // SAFETY: each (row, head) belongs to one thread, and each is written once.
            let out = unsafe { out.part(at(row, h), shape.head_dim) };
            folding.result(row * heads.len() + i, out);
        }
    }
}
super::level::dispatch! {
    fn one_item(
        input: &Input<'_>,
        part: (&Item, Range<usize>),
        out: &Disjoint<'_, f32>,
        scratch: &mut ThreadScratch,
    ) = one_item_body
}
