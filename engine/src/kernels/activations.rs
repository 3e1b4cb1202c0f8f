//! Activations as linear layers without tiles take them: the codes of [`columns`](super::columns), row
//! by row; or floats.

use super::columns::{EMPTY, quantise_sub};
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
            quantise_32(&mut values, block, i);
        }
    }
}
super::level::dispatch! {
    fn quantise_row(x: &[f32], blocks: &mut [Block]) = quantise_row_body
}

#[inline(always)]
fn quantise_32(x: &mut [f32; SHARED], block: &mut Block, i: usize) {
    let mut out = EMPTY;
    quantise_sub(x, &mut out);
    let codes = &mut block.codes.as_chunks_mut::<SHARED>().0[i];
    for (to, code) in codes.iter_mut().zip(out.codes.as_flattened()) {
        *to = code.cast_unsigned() ^ 0x80;
    }
    for (half, sum) in out.sums.into_iter().enumerate() {
        block.scales[2 * i + half] = out.scale;
        block.sums[2 * i + half] = out.scale * sum as f32;
    }
}
