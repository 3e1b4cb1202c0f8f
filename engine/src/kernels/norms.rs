//! What RMS norms multiply rows by, for rows that are normed on their way to being quantised.
//!
//! Each thread sums the squares of those columns that it will quantise, and mostly has written: what is in the cache of
//! another core takes longer to come than to be summed.

use super::Level;
use super::columns::PARALLEL;
use super::disjoint::Disjoint;
use super::input::Input;
use super::isa::Isa;
use super::pool::{Part, Pool};
use super::vector::{SQUARES, rms_scale, squares};

/// A factor for each row, kept from call to call.
#[derive(Debug, Default)]
pub(super) struct Norms {
    /// Sums of the squares of [`SQUARES`] columns, of row after row, then of the next columns.
    squares: Vec<f32>,
    factors: Vec<f32>,
}

impl Norms {
    /// Works out the factors of rows `cols` wide; there are none if the input has no norm.
    pub(super) fn take(&mut self, level: Level, pool: &mut Pool, input: &Input<'_>, cols: usize) {
        self.factors.clear();
        let Input::Norm { x, eps, .. } = *input else { return };
        if x.is_empty() {
            return;
        }
        let (rows, pieces) = (x.len() / cols, cols.div_ceil(SQUARES));
        self.squares.clear();
        self.squares.resize(rows * pieces, 0.0);
        let sums = Disjoint::new(&mut self.squares);
        let part = |part: Part| {
            let share = part.share(pieces, 1);
            // SAFETY: shares of different parts do not overlap.
            let sums = unsafe { sums.part(share.start * rows, share.len() * rows) };
            squares_of(level, x, cols, share.start, sums);
        };
        if x.len() < PARALLEL {
            part(Part::WHOLE)
        } else {
            pool.run(&part)
        }
        for row in 0..rows {
            let sums = self.squares[row..].iter().step_by(rows).copied();
            self.factors.push(rms_scale(sums, cols, eps));
        }
    }

    /// A factor for each row.
    pub(super) fn factors(&self) -> &[f32] {
        &self.factors
    }
}

/// Sums over pieces of all rows, the first of which is piece `first`.
#[inline(always)]
fn squares_of_body<I: Isa>(isa: I, x: &[f32], cols: usize, first: usize, sums: &mut [f32]) {
    for (piece, sums) in (first..).zip(sums.chunks_exact_mut(x.len() / cols)) {
        let columns = piece * SQUARES..cols.min((piece + 1) * SQUARES);
        for (row, sum) in x.chunks_exact(cols).zip(sums) {
            *sum = squares(isa, &row[columns.clone()]);
        }
    }
}
super::level::dispatch! {
    fn squares_of(x: &[f32], cols: usize, first: usize, sums: &mut [f32]) = squares_of_body
}
