//! Activations as the linear layers take them: 8-bit codes with an f32 scale per 32 values.
//!
//! A scale per 32 rather than per 256 keeps an outlier from drowning its neighbours (the error on
//! rows with 30-fold outliers is less than half), and f32 scales add no rounding of their own.

use super::isa::Isa;
use super::pool::{Pool, share};
use super::unpack::{SCALES, SUB, SUPER};
use super::{Level, disjoint::Disjoint};

/// Values that share a scale.
const SHARED: usize = 32;
/// Rows from which on quantising is split over threads.
const PARALLEL_ROWS: usize = 8;

/// One row's super-block of 256 values: `value[i] = scale[i / 16] * (codes[i] - 128)`.
#[derive(Debug, Clone)]
pub(super) struct Block {
    /// Codes plus 128, in 1..=255; 128 stands for 0.
    pub(super) codes: [u8; SUPER],
    pub(super) scales: [f32; SCALES],
    /// Sum of the 16 values that share an entry: what a weight's minimum is multiplied with.
    pub(super) sums: [f32; SCALES],
}

const ZERO: Block = Block { codes: [128; SUPER], scales: [0.0; SCALES], sums: [0.0; SCALES] };

/// Activation rows, as they are and quantised.
#[derive(Debug, Default)]
pub struct Activations {
    pub(super) rows: usize,
    pub(super) cols: usize,
    supers: usize,
    blocks: Vec<Block>,
    /// Rows as f32, each padded with zeros to a multiple of 16: what float weights are multiplied
    /// with.
    pub(super) floats: Vec<f32>,
}

impl Activations {
    /// Takes `rows` rows of `cols` values out of `x` (row-major). Each row's codes depend on that
    /// row alone.
    pub fn quantise(&mut self, level: Level, pool: &mut Pool, x: &[f32], cols: usize) {
        self.set_shape(x.len() / cols.max(1), cols);
        let (supers, rows) = (self.supers, self.rows);
        let blocks = Disjoint::new(&mut self.blocks[..rows * supers]);
        let threads = if rows >= PARALLEL_ROWS { pool.threads() } else { 1 };
        let part = |i: usize| {
            for row in share(rows, 1, i, threads) {
                // SAFETY: shares do not overlap, so each row's blocks go to one thread.
                let blocks = unsafe { blocks.part(row * supers, supers) };
                quantise_row(level, &x[row * cols..][..cols], blocks);
            }
        };
        if threads == 1 { part(0) } else { pool.run(&part) }
    }

    /// Keeps rows as floats, for float weights.
    pub fn keep_floats(&mut self, x: &[f32], cols: usize) {
        self.rows = x.len() / cols.max(1);
        self.cols = cols;
        let padded = cols.next_multiple_of(SUB);
        self.floats.clear();
        self.floats.resize(self.rows * padded, 0.0);
        for (row, to) in
            x.chunks_exact(cols.max(1)).zip(self.floats.chunks_exact_mut(padded.max(1)))
        {
            to[..cols].copy_from_slice(row);
        }
    }

    pub(super) fn row(&self, row: usize) -> &[Block] {
        &self.blocks[row * self.supers..][..self.supers]
    }

    fn set_shape(&mut self, rows: usize, cols: usize) {
        (self.rows, self.cols, self.supers) = (rows, cols, cols.div_ceil(SUPER));
        if self.blocks.len() < rows * self.supers {
            self.blocks.resize(rows * self.supers, ZERO);
        }
    }
}

#[inline(always)]
fn quantise_row_body<I: Isa>(_: I, x: &[f32], blocks: &mut [Block]) {
    for (x, block) in x.chunks(SUPER).zip(blocks) {
        if x.len() < SUPER {
            *block = ZERO;
        }
        for (i, x) in x.chunks(SHARED).enumerate() {
            let mut values = [0.0; SHARED];
            values[..x.len()].copy_from_slice(x);
            quantise_32(&values, block, i);
        }
    }
}
super::level::dispatch! {
    fn quantise_row(x: &[f32], blocks: &mut [Block]) = quantise_row_body
}

/// Rounds to the nearest integer, ties to even, for |x| < 2^22, without leaving the vector unit.
#[inline(always)]
fn round(x: f32) -> i32 {
    const MAGIC: f32 = 12_582_912.0; // 1.5 * 2^23: adding it leaves the integer in the low bits
    (x + MAGIC).to_bits().cast_signed().wrapping_sub(MAGIC.to_bits().cast_signed())
}

#[inline(always)]
fn quantise_32(x: &[f32; SHARED], block: &mut Block, i: usize) {
    let mut largest = 0.0f32;
    // A NaN is no maximum here; it makes the scale NaN below, and so every output it reaches.
    let mut check = 0.0f32;
    for &v in x {
        largest = if v.abs() > largest { v.abs() } else { largest };
        check += v * 0.0;
    }
    let scale = largest / 127.0 + check;
    let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
    let inverse = if inverse.is_finite() { inverse } else { 0.0 };
    let codes = &mut block.codes.as_chunks_mut::<SHARED>().0[i];
    let mut all = [0; SHARED];
    for ((all, code), &v) in all.iter_mut().zip(codes).zip(x) {
        *all = round(v * inverse).clamp(-127, 127);
        *code = all.wrapping_add(128) as u8;
    }
    let add = |half: &[i32]| half.iter().fold(0_i32, |sum, &q| sum.wrapping_add(q));
    let sums = [add(&all[..SUB]), add(&all[SUB..])];
    for (half, sum) in sums.into_iter().enumerate() {
        block.scales[2 * i + half] = scale;
        block.sums[2 * i + half] = scale * sum as f32;
    }
}
