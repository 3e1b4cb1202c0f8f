//! Where the rows come from that a linear layer multiplies.
//!
//! Norms and activation functions are not passes of their own: they happen to a few values at a time
//! on their way to being quantised, on the thread that quantises them.

use std::ops::Range;

use super::Level;
use super::isa::{Isa, LANES};
use super::norms::Norms;
use super::pool::Pool;
use super::vector::silu_times;

/// Rows, row-major, perhaps with something still to be done to them.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// As they are.
    Rows(&'a [f32]),
    /// To be divided by their root mean square and multiplied by weights, as many as a row has values.
    Norm {
        /// The rows.
        x: &'a [f32],
        /// Weights of the norm.
        weight: &'a [f32],
        /// Added to the mean square.
        eps: f32,
    },
    /// `silu(gate) * up`.
    Silu {
        /// Goes through the function.
        gate: &'a [f32],
        /// Is multiplied.
        up: &'a [f32],
    },
}

impl Input<'_> {
    /// Values of all rows together.
    pub fn len(&self) -> usize {
        match self {
            Self::Rows(x) | Self::Norm { x, .. } | Self::Silu { gate: x, .. } => x.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Asserts that the parts fit together, for rows of `cols` values.
    pub(super) fn check(&self, cols: usize) {
        assert!(self.len().is_multiple_of(cols), "input's shape");
        match self {
            Self::Rows(_) => {}
            Self::Norm { weight, .. } => assert_eq!(weight.len(), cols, "norm's shape"),
            Self::Silu { gate, up } => assert_eq!(gate.len(), up.len(), "gate's and up's shapes"),
        }
    }
}

/// Rows with everything done to them.
#[derive(Debug, Default)]
pub(super) struct Plain {
    pub(super) rows: Vec<f32>,
    norms: Norms,
}

impl Plain {
    /// All of it, for layers that want it as it is.
    pub(super) fn take(&mut self, level: Level, pool: &mut Pool, input: &Input<'_>, cols: usize) {
        self.norms.take(level, pool, input, cols);
        self.rows.resize(input.len(), 0.0);
        read_all(level, (input, self.norms.factors()), cols, &mut self.rows);
    }
}

/// Asks for values that will be read.
#[inline(always)]
pub(super) fn fetch<I: Isa>(isa: I, input: &Input<'_>, values: Range<usize>) {
    let (first, second): (&[f32], &[f32]) = match input {
        Input::Rows(x) | Input::Norm { x, .. } => (&x[values], &[]),
        Input::Silu { gate, up } => (&gate[values.clone()], &up[values]),
    };
    for line in first.chunks(LANES).chain(second.chunks(LANES)) {
        isa.fetch(line.as_ptr().cast());
    }
}

/// Values `from..from + to.len()` of row `row`.
#[inline(always)]
pub(super) fn read<I: Isa>(
    isa: I,
    (input, scales): (&Input<'_>, &[f32]),
    (row, cols, from): (usize, usize, usize),
    to: &mut [f32],
) {
    let at = row * cols + from..row * cols + from + to.len();
    match input {
        Input::Rows(x) => to.copy_from_slice(&x[at]),
        Input::Norm { x, weight, .. } => {
            let (scale, weight) = (scales[row], &weight[from..from + to.len()]);
            for ((to, &x), &w) in to.iter_mut().zip(&x[at]).zip(weight) {
                *to = x * scale * w;
            }
        }
        Input::Silu { gate, up } => {
            silu_times(isa, &gate[at.clone()], &up[at], to);
        }
    }
}

#[inline(always)]
fn read_all_body<I: Isa>(isa: I, input: (&Input<'_>, &[f32]), cols: usize, to: &mut [f32]) {
    for (row, values) in to.chunks_exact_mut(cols).enumerate() {
        read(isa, input, (row, cols, 0), values);
    }
}
super::level::dispatch! {
    fn read_all(input: (&Input<'_>, &[f32]), cols: usize, to: &mut [f32]) = read_all_body
}
