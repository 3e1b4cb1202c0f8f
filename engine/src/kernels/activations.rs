//! Activations as linear layers without tiles take them: the codes of [`quantise`](super::quantise), row
//! by row; or floats.

use super::isa::Isa;
use super::pool::{Part, Pool};
use super::quantise::{EMPTY, SUBS};
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
}

const ZERO: Block = Block { codes: [128; SUPER], scales: [0.0; SCALES] };

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
        let part = |part: Part| {
            for row in part.share(rows, 1) {
                // SAFETY: shares do not overlap, so each row's blocks go to one thread.
                let blocks = unsafe { blocks.part(row * supers, supers) };
                quantise_row(level, &x[row * cols..][..cols], blocks);
            }
        };
        if rows < PARALLEL_ROWS { part(Part::WHOLE) } else { pool.run(&part) }
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
fn quantise_row_body<I: Isa>(isa: I, x: &[f32], blocks: &mut [Block]) {
    for (x, block) in x.chunks(SUPER).zip(blocks) {
        if x.len() < SUPER {
            *block = ZERO;
        }
        for (i, x) in x.chunks(SHARED * SUBS).enumerate() {
            let mut values = [[0.0; SHARED]; SUBS];
            values.as_flattened_mut()[..x.len()].copy_from_slice(x);
            quantise_128(isa, &values, block, i * SUBS);
        }
    }
}
super::level::dispatch! {
    fn quantise_row(x: &[f32], blocks: &mut [Block]) = quantise_row_body
}

#[inline(always)]
fn quantise_128<I: Isa>(isa: I, x: &[[f32; SHARED]; SUBS], block: &mut Block, first: usize) {
    let mut all = [EMPTY; SUBS];
    isa.quantise(x, &mut all);
    for (i, out) in (first..).zip(&all) {
        let codes = &mut block.codes.as_chunks_mut::<SHARED>().0[i];
        for (to, code) in codes.iter_mut().zip(out.codes.as_flattened()) {
            *to = code.cast_unsigned() ^ 0x80;
        }
        block.scales[2 * i..2 * i + 2].fill(out.scale);
    }
}
