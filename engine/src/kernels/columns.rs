//! Activations as tiles of weights take them: 8-bit codes with an f32 scale per 32 values, rows side
//! by side.
//!
//! A scale per 32 rather than per 256 keeps an outlier from drowning its neighbours, and f32 scales
//! add no rounding of their own.
//!
//! Inputs of few columns are kept in 16 bits: each row becomes two, the second one the rest that the
//! codes of the first leave, and outputs are the sums of both. Small models are small enough to pay
//! for it, and the noise of 8 bits shows in them.
//!
//! Rows are taken in blocks of as many as the registers hold. In a block, the 4 codes that one
//! instruction takes of each row lie next to each other, so that a kernel for `M` rows reads
//! everything at constant distances.

use super::isa::Isa;
use super::pool::{Pool, share};
use super::tiles::{SUB, VECTORS};
use super::{Level, disjoint::Disjoint};

/// Sub-blocks that are quantised in one go.
const SUBS: usize = 8;
/// Rows from which on quantising is split over threads.
const PARALLEL_ROWS: usize = 4;

/// Columns below which rows are kept in 16 bits.
const NARROW: usize = 768;

/// What one row's sub-block becomes.
#[derive(Clone, Copy)]
pub(super) struct Codes {
    pub(super) codes: [[i8; 4]; VECTORS],
    pub(super) scale: f32,
    /// Of the first and the second 16.
    pub(super) sums: [i32; 2],
}

/// Rows, quantised. Everything is indexed by block, sub-block, then row of the block.
#[derive(Debug, Default)]
pub(super) struct Columns {
    /// Rows as they are multiplied: `terms` for each that was given.
    rows: usize,
    pub(super) terms: usize,
    /// Sub-blocks, padded to whole tiles.
    pub(super) subs: usize,
    /// Rows of a block, at most.
    most: usize,
    codes: Vec<[[i8; 4]; VECTORS]>,
    scales: Vec<f32>,
    sums: Vec<f32>,
    halves: Vec<[i32; 2]>,
    starts: Vec<Starts>,
}

/// Where whole sums start so that an offset of the codes of weights is taken off.
#[derive(Debug, Default)]
struct Starts {
    kind: (i32, bool),
    values: Vec<[i32; 2]>,
}

/// The rows of one block.
#[derive(Clone, Copy)]
pub(super) struct RowBlock<'a> {
    /// `[subs][8][M]`.
    pub(super) codes: &'a [[i8; 4]],
    /// `[subs][M]`.
    pub(super) scales: &'a [f32],
    /// What a minimum is multiplied with: sums of values. `[subs][M]`.
    pub(super) sums: &'a [f32],
    /// What the whole sums start from: of a sub-block, or of its halves. `[subs][M]`.
    pub(super) starts: &'a [[i32; 2]],
}

impl Columns {
    /// Takes the rows of `x` (row-major, `cols` wide). Each row's codes depend on that row alone.
    /// Blocks have at most `most` rows.
    pub(super) fn quantise(
        &mut self,
        level: Level,
        pool: &mut Pool,
        x: &[f32],
        (cols, most): (usize, usize),
    ) {
        let terms = if cols < NARROW { 2 } else { 1 };
        let rows = x.len() / cols.max(1) * terms;
        let subs = cols.div_ceil(2 * SUB) * 2;
        (self.rows, self.terms, self.subs, self.most) = (rows, terms, subs, most);
        let len = rows * subs;
        if self.codes.len() < len {
            self.codes.resize(len, [[0; 4]; VECTORS]);
            self.scales.resize(len, 0.0);
            self.sums.resize(len, 0.0);
            self.halves.resize(len, [0; 2]);
        }
        let threads = if rows >= PARALLEL_ROWS { pool.threads() } else { 1 };
        let blocks = self.block_count();
        let parts = (
            Disjoint::new(self.codes[..len].as_flattened_mut()),
            Disjoint::new(&mut self.scales[..len]),
            Disjoint::new(&mut self.sums[..len]),
            Disjoint::new(&mut self.halves[..len]),
        );
        // Threads take sub-blocks, in whole super-blocks: all of them have a part of every row.
        let part = |i: usize| {
            let range = share(subs, SUBS, i, threads);
            for block in 0..blocks {
                let (first, count) = block_of(rows, terms, blocks, block);
                for sub in range.clone().step_by(SUBS) {
                    let width = SUBS.min(range.end - sub);
                    let at = first * subs + sub * count;
                    // SAFETY: each thread has the sub-blocks of its own range, in every block.
                    let (codes, scales, sums, halves) = unsafe {
                        let len = width * count;
                        (
                            parts.0.part(at * VECTORS, len * VECTORS),
                            parts.1.part(at, len),
                            parts.2.part(at, len),
                            parts.3.part(at, len),
                        )
                    };
                    for m in (0..count).step_by(terms) {
                        let row = &x[(first + m) / terms * cols..][..cols];
                        let row = &row[(sub * SUB).min(cols)..((sub + width) * SUB).min(cols)];
                        let mut values = [[0.0; SUB]; SUBS];
                        values.as_flattened_mut()[..row.len()].copy_from_slice(row);
                        for m in m..m + terms {
                            let mut all = [EMPTY; SUBS];
                            quantise_subs(level, &mut values, &mut all);
                            for (s, one) in all[..width].iter().enumerate() {
                                let at = s * count + m;
                                for (t, four) in one.codes.iter().enumerate() {
                                    codes[(s * VECTORS + t) * count + m] = *four;
                                }
                                let sum = (one.sums[0] + one.sums[1]) as f32;
                                scales[at] = one.scale;
                                sums[at] = one.scale * sum;
                                halves[at] = one.sums;
                            }
                        }
                    }
                }
            }
        };
        if threads == 1 {
            part(0)
        } else {
            pool.run(&part)
        }
        self.starts.clear();
    }

    /// Works out where sums start for weights of a kind: the offset of their codes, and whether halves
    /// of sub-blocks are summed apart.
    pub(super) fn prepare(&mut self, kind: (i32, bool)) {
        if self.starts.iter().any(|starts| starts.kind == kind) {
            return;
        }
        let (offset, apart) = kind;
        let start = |&[a, b]: &[i32; 2]| match apart {
            true => [-offset * a, -offset * b],
            false => [-offset * (a + b), 0],
        };
        let values = self.halves[..self.rows * self.subs].iter().map(start).collect();
        self.starts.push(Starts { kind, values });
    }

    /// Blocks of rows: first row and number of rows each.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (usize, usize)> {
        let (rows, terms, blocks) = (self.rows, self.terms, self.block_count());
        (0..blocks).map(move |block| block_of(rows, terms, blocks, block))
    }

    fn block_count(&self) -> usize {
        self.rows.div_ceil((self.most / self.terms * self.terms).max(1))
    }

    /// The block of `count` rows that starts at row `first`, for weights of a kind that is prepared.
    pub(super) fn block(&self, kind: (i32, bool), first: usize, count: usize) -> RowBlock<'_> {
        let (at, len) = (first * self.subs, count * self.subs);
        let starts = self.starts.iter().find(|starts| starts.kind == kind);
        let starts = starts.map_or(&[][..], |starts| &starts.values);
        RowBlock {
            codes: self.codes[at..at + len].as_flattened(),
            scales: &self.scales[at..at + len],
            sums: &self.sums[at..at + len],
            starts: &starts[at..at + len],
        }
    }
}

/// Block `block` of as few as possible of nearly equal size; `terms` rows belong together.
fn block_of(rows: usize, terms: usize, blocks: usize, block: usize) -> (usize, usize) {
    let at = |i: usize| rows / terms * i / blocks * terms;
    (at(block), at(block + 1) - at(block))
}

pub(super) const EMPTY: Codes = Codes { codes: [[0; 4]; VECTORS], scale: 0.0, sums: [0; 2] };

#[inline(always)]
fn quantise_subs_body<I: Isa>(_: I, values: &mut [[f32; SUB]; SUBS], out: &mut [Codes; SUBS]) {
    for (values, out) in values.iter_mut().zip(out) {
        quantise_sub(values, out);
    }
}
super::level::dispatch! {
    /// Takes what the codes stand for off the values.
    fn quantise_subs(values: &mut [[f32; SUB]; SUBS], out: &mut [Codes; SUBS]) = quantise_subs_body
}

/// The largest magnitude, and 0, or NaN if any value is not finite: a NaN is no maximum, but makes the
/// scale NaN, and so every output it reaches.
#[inline(always)]
fn size(x: &[f32; SUB]) -> (f32, f32) {
    let (mut largest, mut check) = (0.0f32, 0.0f32);
    for &v in x {
        largest = if v.abs() > largest { v.abs() } else { largest };
        check += v * 0.0;
    }
    (largest, check)
}

/// Rounds to the nearest integer, ties to even, for |x| < 2^22, without leaving the vector unit.
#[inline(always)]
fn round(x: f32) -> i32 {
    const MAGIC: f32 = 12_582_912.0; // 1.5 * 2^23: adding it leaves the integer in the low bits
    (x + MAGIC).to_bits().cast_signed().wrapping_sub(MAGIC.to_bits().cast_signed())
}

/// Takes what the codes stand for off the values.
#[inline(always)]
pub(super) fn quantise_sub(x: &mut [f32; SUB], out: &mut Codes) {
    let (largest, check) = size(x);
    let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
    let inverse = if inverse.is_finite() { inverse } else { 0.0 };
    out.scale = largest / 127.0 + check;
    let mut all = [0; SUB];
    for ((all, code), v) in all.iter_mut().zip(out.codes.as_flattened_mut()).zip(x) {
        *all = round(*v * inverse).clamp(-127, 127);
        *code = *all as i8;
        *v -= *all as f32 * out.scale;
    }
    let add = |half: &[i32]| half.iter().fold(0_i32, |sum, &q| sum.wrapping_add(q));
    out.sums = [add(&all[..SUB / 2]), add(&all[SUB / 2..])];
}
