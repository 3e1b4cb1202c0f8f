//! Activations as tiles of weights take them: 8-bit codes with an f32 scale per 32 values, rows side
//! by side.
//!
//! Inputs of few columns are kept in 16 bits: each row becomes two, the second one the rest that the
//! codes of the first leave, and outputs are the sums of both. Small models are small enough to pay
//! for it, and the noise of 8 bits shows in them.
//!
//! Rows are taken in blocks of as many as the registers hold. In a block, the 4 codes that one
//! instruction takes of each row lie next to each other, so that a kernel for `M` rows reads
//! everything at constant distances. Blocks that are multiplied together are a group, and what meets the same weights
//! lies side by side: a group is read from front to back.

use super::blocks::Blocks;
use super::input::{Input, fetch, read};
use super::isa::Isa;
use super::norms::Norms;
use super::pool::{Part, Pool};
use super::quantise::{self, EMPTY, take_off};
use super::tiles::{SUB, VECTORS};
use super::{Level, disjoint::Disjoint};

/// Sub-blocks that are quantised in one go.
const SUBS: usize = 8;
/// Values from which on quantising is split over threads.
pub(super) const PARALLEL: usize = 8192;

/// Columns below which rows are kept in 16 bits.
const NARROW: usize = 768;

/// Rows, quantised. Everything is indexed by group, sub-block, block, then row of the block.
#[derive(Debug, Default)]
pub(super) struct Columns {
    /// Rows as they are multiplied: so many for each that was given.
    pub(super) terms: usize,
    /// Rows that were given. Those behind them are zeros.
    pub(super) given: usize,
    /// Sub-blocks, padded to whole tiles.
    subs: usize,
    pub(super) blocks: Blocks,
    codes: Vec<[[i8; 4]; VECTORS]>,
    scales: Vec<f32>,
    sums: Vec<f32>,
    halves: Vec<[i32; 2]>,
    /// The first so many of `starts` are those of these rows.
    prepared: usize,
    starts: Vec<Starts>,
    norms: Norms,
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

/// The rows of one group of blocks.
#[derive(Clone, Copy)]
pub(super) struct RowBlock<'a> {
    /// `[subs][blocks][8][M]`.
    pub(super) codes: &'a [[i8; 4]],
    /// `[subs][blocks][M]`.
    pub(super) scales: &'a [f32],
    /// What a minimum is multiplied with: sums of values. `[subs][blocks][M]`.
    pub(super) sums: &'a [f32],
    /// What the whole sums start from: of a sub-block, or of its halves; anything where weights have no
    /// offset. `[subs][blocks][M]`.
    pub(super) starts: &'a [[i32; 2]],
}

/// What threads quantise together: the rows, and where the parts go.
struct Job<'a> {
    input: &'a Input<'a>,
    norms: &'a [f32],
    cols: usize,
    given: usize,
    terms: usize,
    subs: usize,
    blocks: Blocks,
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
        let given = input.len() / cols.max(1);
        let subs = cols.div_ceil(2 * SUB) * 2;
        (self.terms, self.given, self.subs) = (terms, given, subs);
        self.blocks = Blocks::new(given * terms, terms, most, subs * SUB);
        self.prepared = 0;
        let len = self.blocks.rows() * subs;
        if self.codes.len() < len {
            self.codes.resize(len, [[0; 4]; VECTORS]);
            self.scales.resize(len, 0.0);
            self.sums.resize(len, 0.0);
            self.halves.resize(len, [0; 2]);
        }
        self.norms.take(level, pool, input, cols);
        let job = Job {
            input,
            norms: self.norms.factors(),
            cols,
            given,
            terms,
            subs,
            blocks: self.blocks,
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
        starts.values.extend(self.halves[..self.blocks.rows() * self.subs].iter().map(start));
    }

    /// Strips, of a share of so many, that a thread takes at a time: two, where two are multiplied together, and more where
    /// that takes little time, or where rows come out of the third cache each time.
    pub(super) fn unit(&self, share: usize) -> usize {
        match self.blocks.chunks().nth(1) {
            Some(_) => (share / 8).next_multiple_of(2).max(2),
            None if self.blocks.are_many() => 2,
            None => 4,
        }
    }

    /// The group of blocks that starts at row `first`, `count` rows in all, for weights of a kind that is prepared.
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

/// Some sub-blocks of all rows.
#[inline(always)]
fn quantise_part_body<I: Isa>(isa: I, job: &Job<'_>, range: std::ops::Range<usize>) {
    let mut first = 0;
    while first < job.blocks.rows() {
        let count = job.blocks.count(first);
        for row in (first..first + count).step_by(job.terms) {
            ask(isa, job, row, range.start);
        }
        for sub in range.clone().step_by(SUBS) {
            let subs = sub..(sub + SUBS).min(range.end);
            // With constant counts, places are known distances apart.
            macro_rules! counts {
                ($($m:literal)*) => {
                    $(if const { $m <= I::TILE_ROWS } {
                        if count == $m {
                            super_block::<I, $m>(isa, job, first, subs.clone(), range.end);
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

/// Asks for the values of a super-block, which begins with sub-block `sub`, of a row.
#[inline(always)]
fn ask<I: Isa>(isa: I, job: &Job<'_>, row: usize, sub: usize) {
    if row / job.terms >= job.given {
        return;
    }
    let (start, end) = ((sub * SUB).min(job.cols), ((sub + SUBS) * SUB).min(job.cols));
    let row = row / job.terms * job.cols;
    fetch(isa, job.input, row + start..row + end);
}

/// Up to [`SUBS`] sub-blocks of the rows of a block; those before sub-block `until` come next.
#[inline(always)]
fn super_block<I: Isa, const M: usize>(
    isa: I,
    job: &Job<'_>,
    first: usize,
    subs: std::ops::Range<usize>,
    until: usize,
) {
    let (group, blocks) = job.blocks.group(first);
    let block = (first - group) / M;
    let (at, len) = (group * job.subs + subs.start * blocks * M, subs.len() * blocks * M);
    // SAFETY: each thread has the sub-blocks of its own range, in every block of every group, and it takes
    // one block after the other.
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
            if subs.end < until {
                ask(isa, job, first + m, subs.end);
            }
            let row = ((first + m) / job.terms, job.cols, start);
            let (to, beyond) = values.as_flattened_mut().split_at_mut(end - start);
            if row.0 < job.given {
                read(isa, (job.input, job.norms), row, to);
            } else {
                to.fill(0.0);
            }
            beyond.fill(0.0);
        }
        for (i, values) in values.as_chunks_mut::<{ quantise::SUBS }>().0.iter_mut().enumerate() {
            let (mut some, first) = ([EMPTY; quantise::SUBS], i * quantise::SUBS);
            isa.quantise(values, &mut some);
            if m % job.terms + 1 < job.terms {
                take_off(isa, &some, values);
            }
            for (s, one) in (first..subs.len()).zip(&some) {
                let s = s * blocks + block;
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
