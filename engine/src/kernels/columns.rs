//! Activations as tiles of weights take them: 8-bit codes with an f32 scale per 32 values, rows side
//! by side.
//!
//! Inputs of few columns are kept in 16 bits: each row becomes two, the second one the rest that the
//! codes of the first leave, and outputs are the sums of both. Small models are small enough to pay
//! for it, and the noise of 8 bits shows in them.
//!
//! Rows are taken in blocks of as many as the registers hold. In a block, the 4 codes that one
//! instruction takes of each row lie next to each other, so that a kernel for `M` rows reads
//! everything at constant distances.

use super::input::{Input, read, row_scales};
use super::isa::Isa;
use super::pool::{Part, Pool};
use super::quantise::{self, EMPTY, quantise};
use super::tiles::{SUB, VECTORS};
use super::{Level, disjoint::Disjoint};

/// Sub-blocks that are quantised in one go.
const SUBS: usize = 8;
/// Values from which on quantising is split over threads.
const PARALLEL: usize = 8192;

/// Bytes of codes that share the second cache with the weights that go by.
const CHUNK_BYTES: usize = 3 << 18;

/// Columns below which rows are kept in 16 bits.
const NARROW: usize = 768;

/// Rows, quantised. Everything is indexed by block, sub-block, then row of the block.
#[derive(Debug, Default)]
pub(super) struct Columns {
    /// Rows as they are multiplied: `terms` for each that was given.
    rows: usize,
    pub(super) terms: usize,
    /// Sub-blocks, padded to whole tiles.
    subs: usize,
    /// Rows of a block, at most.
    most: usize,
    codes: Vec<[[i8; 4]; VECTORS]>,
    scales: Vec<f32>,
    sums: Vec<f32>,
    halves: Vec<[i32; 2]>,
    /// The first so many of `starts` are those of these rows.
    prepared: usize,
    starts: Vec<Starts>,
    /// What a norm multiplies each row by.
    norms: Vec<f32>,
}

/// What a kind of weights wants where its whole sums start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kind {
    /// Minus so many times the sum of activations, and `bias` more.
    pub(super) offset: i32,
    pub(super) bias: i32,
    /// Whether halves of sub-blocks are summed apart.
    pub(super) apart: bool,
}

/// Where whole sums start so that an offset of the codes of weights is taken off.
#[derive(Debug, Default)]
struct Starts {
    kind: Kind,
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
    /// What the whole sums start from: of a sub-block, or of its halves; anything where weights have no
    /// offset. `[subs][M]`.
    pub(super) starts: &'a [[i32; 2]],
}

/// What threads quantise together: the rows, and where the parts go.
struct Job<'a> {
    input: &'a Input<'a>,
    norms: &'a [f32],
    cols: usize,
    terms: usize,
    rows: usize,
    subs: usize,
    most: usize,
    codes: Disjoint<'a, [[i8; 4]; VECTORS]>,
    scales: Disjoint<'a, f32>,
    sums: Disjoint<'a, f32>,
    halves: Disjoint<'a, [i32; 2]>,
}

impl Columns {
    /// Takes the rows of `input`, `cols` wide. Each row's codes depend on that row alone. Blocks have at
    /// most `most` rows.
    pub(super) fn quantise(
        &mut self,
        level: Level,
        pool: &mut Pool,
        input: &Input<'_>,
        (cols, most): (usize, usize),
    ) {
        let terms = if cols < NARROW { 2 } else { 1 };
        let rows = input.len() / cols.max(1) * terms;
        let subs = cols.div_ceil(2 * SUB) * 2;
        let most = (most / terms * terms).max(terms);
        (self.rows, self.terms, self.subs, self.most) = (rows, terms, subs, most);
        self.prepared = 0;
        let len = rows * subs;
        if self.codes.len() < len {
            self.codes.resize(len, [[0; 4]; VECTORS]);
            self.scales.resize(len, 0.0);
            self.sums.resize(len, 0.0);
            self.halves.resize(len, [0; 2]);
        }
        scales(level, input, cols, &mut self.norms);
        let job = Job {
            input,
            norms: &self.norms,
            cols,
            terms,
            rows,
            subs,
            most,
            codes: Disjoint::new(&mut self.codes[..len]),
            scales: Disjoint::new(&mut self.scales[..len]),
            sums: Disjoint::new(&mut self.sums[..len]),
            halves: Disjoint::new(&mut self.halves[..len]),
        };
        // Threads take sub-blocks, in whole super-blocks: all of them have a part of every row.
        let part = |part: Part| quantise_part(level, &job, part.share(subs, SUBS));
        if input.len() < PARALLEL { part(Part::WHOLE) } else { pool.run(&part) }
    }

    /// Works out where sums start for weights of a kind.
    pub(super) fn prepare(&mut self, kind: Kind) {
        let Kind { offset, bias, apart } = kind;
        if offset == 0 || self.starts[..self.prepared].iter().any(|starts| starts.kind == kind) {
            return;
        }
        if self.starts.len() == self.prepared {
            self.starts.push(Starts::default());
        }
        let starts = &mut self.starts[self.prepared];
        self.prepared += 1;
        starts.kind = kind;
        starts.values.clear();
        let start = |&[a, b]: &[i32; 2]| match apart {
            true => [bias - offset * a, bias - offset * b],
            false => [bias - offset * (a + b), 0],
        };
        starts.values.extend(self.halves[..self.rows * self.subs].iter().map(start));
    }

    /// Rows, in chunks of whole blocks that stay in the second cache while weights go by.
    pub(super) fn chunks(&self) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let rows = self.rows;
        let most = CHUNK_BYTES / (self.subs * SUB).max(1) / self.most * self.most;
        let most = if rows < 2 * self.most { rows } else { most.max(self.most) };
        (0..rows).step_by(most.max(1)).map(move |first| first..rows.min(first + most))
    }

    /// Rows of the block that starts at row `first`, and how many whole blocks there are from there to `end`, if as many
    /// rows, up to `most`.
    pub(super) fn next_blocks(&self, first: usize, end: usize, most: usize) -> (usize, usize) {
        let count = block_from(self.rows, self.terms, self.most, first);
        let whole = if count == self.most { (end - first) / count } else { 1 };
        (count, whole.clamp(1, most))
    }

    /// The block of `count` rows that starts at row `first`, or several blocks of as many rows together, for weights of a
    /// kind that is prepared.
    pub(super) fn block(&self, kind: Kind, first: usize, count: usize) -> RowBlock<'_> {
        let (at, len) = (first * self.subs, count * self.subs);
        let starts = self.starts[..self.prepared].iter().find(|starts| starts.kind == kind);
        let starts = starts.map_or(&self.halves, |starts| &starts.values);
        RowBlock {
            codes: self.codes[at..at + len].as_flattened(),
            scales: &self.scales[at..at + len],
            sums: &self.sums[at..at + len],
            starts: &starts[at..at + len],
        }
    }
}

/// Rows of the block that starts at row `first`: as many as can be, but two blocks are of nearly equal size. `terms`
/// rows belong together.
fn block_from(rows: usize, terms: usize, most: usize, first: usize) -> usize {
    match rows {
        _ if rows <= most => rows,
        _ if rows >= 2 * most => most.min(rows - first),
        _ if first == 0 => rows / terms / 2 * terms,
        _ => rows - first,
    }
}

#[inline(always)]
fn scales_body<I: Isa>(isa: I, input: &Input<'_>, cols: usize, scales: &mut Vec<f32>) {
    row_scales(isa, input, cols, scales);
}
super::level::dispatch! {
    fn scales(input: &Input<'_>, cols: usize, scales: &mut Vec<f32>) = scales_body
}

/// Some sub-blocks of all rows.
#[inline(always)]
fn quantise_part_body<I: Isa>(isa: I, job: &Job<'_>, range: std::ops::Range<usize>) {
    let mut first = 0;
    while first < job.rows {
        let count = block_from(job.rows, job.terms, job.most, first);
        for sub in range.clone().step_by(SUBS) {
            let subs = sub..(sub + SUBS).min(range.end);
            // With constant counts, places are known distances apart.
            macro_rules! counts {
                ($($m:literal)*) => {
                    $(if const { $m <= I::TILE_ROWS } {
                        if count == $m {
                            super_block::<I, $m>(isa, job, first, subs.clone());
                        }
                    })*
                };
            }
            counts!(1 2 3 4 5 6 7 8);
        }
        first += count;
    }
}
super::level::dispatch! {
    fn quantise_part(job: &Job<'_>, range: std::ops::Range<usize>) = quantise_part_body
}

/// Up to [`SUBS`] sub-blocks of the rows of a block.
#[inline(always)]
fn super_block<I: Isa, const M: usize>(
    isa: I,
    job: &Job<'_>,
    first: usize,
    subs: std::ops::Range<usize>,
) {
    let (at, len) = (first * job.subs + subs.start * M, subs.len() * M);
    // SAFETY: each thread has the sub-blocks of its own range, in every block.
    let (codes, scales, sums, halves) = unsafe {
        let codes = job.codes.part(at, len).as_flattened_mut();
        (codes, job.scales.part(at, len), job.sums.part(at, len), job.halves.part(at, len))
    };
    let codes: &mut [[[[i8; 4]; M]; VECTORS]] = codes.as_chunks_mut::<M>().0.as_chunks_mut().0;
    let scales: &mut [[f32; M]] = scales.as_chunks_mut().0;
    let sums: &mut [[f32; M]] = sums.as_chunks_mut().0;
    let halves: &mut [[[i32; 2]; M]] = halves.as_chunks_mut().0;
    let (start, end) = ((subs.start * SUB).min(job.cols), (subs.end * SUB).min(job.cols));
    let mut values = [[0.0; SUB]; SUBS];
    for m in 0..M {
        if m % job.terms == 0 {
            let row = ((first + m) / job.terms, job.cols, start);
            let to = &mut values.as_flattened_mut()[..end - start];
            read(isa, (job.input, job.norms), row, to);
            values.as_flattened_mut()[end - start..].fill(0.0);
        }
        for (i, values) in values.as_chunks_mut::<{ quantise::SUBS }>().0.iter_mut().enumerate() {
            let (mut some, first) = ([EMPTY; quantise::SUBS], i * quantise::SUBS);
            quantise(isa, values, &mut some);
            for (s, one) in (first..codes.len()).zip(&some) {
                for (to, four) in codes[s].iter_mut().zip(&one.codes) {
                    to[m] = *four;
                }
                scales[s][m] = one.scale;
                sums[s][m] = one.scale * (one.sums[0] + one.sums[1]) as f32;
                halves[s][m] = one.sums;
            }
        }
    }
}
