//! Matrix times activations over the thread pool.

use super::activations::Activations;
use super::disjoint::Disjoint;
use super::dot::{WEIGHT_ROWS, dots, float_dots};
use super::isa::{Isa, LANES};
use super::pool::{Pool, share};
use super::unpack::{self, Ahead, Unpacked, has_min, is_quantised};
use super::{AlignedBytes, Level};
use crate::gguf::TensorType;

/// A weight matrix of `rows` rows (outputs) of `cols` values (inputs), in the file's own bytes: one
/// copy.
#[derive(Debug)]
pub struct Weights {
    dtype: TensorType,
    rows: usize,
    cols: usize,
    row_bytes: usize,
    bytes: AlignedBytes,
}

/// Bytes that do not make the matrix they are said to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{rows} x {cols} of {dtype:?} does not take {bytes} bytes")]
pub struct WeightsError {
    dtype: TensorType,
    rows: usize,
    cols: usize,
    bytes: usize,
}

impl Weights {
    /// A matrix out of its bytes, row after row.
    ///
    /// # Errors
    /// [`WeightsError`] if the size does not fit or rows are not whole blocks.
    pub fn new(
        dtype: TensorType,
        rows: usize,
        cols: usize,
        bytes: AlignedBytes,
    ) -> Result<Self, WeightsError> {
        let row_bytes = cols / dtype.block_len() * dtype.block_bytes();
        let len = bytes.as_slice().len();
        if !cols.is_multiple_of(dtype.block_len()) || rows.checked_mul(row_bytes) != Some(len) {
            return Err(WeightsError { dtype, rows, cols, bytes: len });
        }
        Ok(Self { dtype, rows, cols, row_bytes, bytes })
    }

    /// Outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes in memory.
    pub fn byte_len(&self) -> usize {
        self.bytes.as_slice().len()
    }

    /// How values are stored.
    pub fn dtype(&self) -> TensorType {
        self.dtype
    }

    fn row(&self, row: usize) -> &[u8] {
        &self.bytes.as_slice()[row * self.row_bytes..][..self.row_bytes]
    }

    /// Row `row` as f32 (an embedding).
    pub fn dequantise_row(&self, level: Level, row: usize, out: &mut [f32]) {
        unpack::dequantise(level, self.dtype, self.row(row), out, &mut Unpacked::default());
    }
}

/// One linear layer of a joint call: `out[m * rows + n] = weights[n] · x[m] + bias[n]`.
pub struct Linear<'a> {
    /// The matrix.
    pub weights: &'a Weights,
    /// Added to each output row.
    pub bias: Option<&'a [f32]>,
    /// Row-major `[x.rows, weights.rows]`.
    pub out: &'a mut [f32],
}

/// What each thread unpacks weight rows into.
#[derive(Debug, Default)]
struct ThreadScratch {
    codes: [Unpacked; WEIGHT_ROWS],
    floats: [Vec<f32>; WEIGHT_ROWS],
}

/// Buffers of linear layers, kept from call to call.
#[derive(Debug, Default)]
pub struct Scratch {
    threads: Vec<ThreadScratch>,
    x: Activations,
}

/// Several layers over the same input, in one fork and join.
///
/// # Panics
/// If an output, bias or input does not have the size that weights and rows ask for.
pub fn linears(
    level: Level,
    pool: &mut Pool,
    x: &[f32],
    layers: &mut [Linear<'_>],
    scratch: &mut Scratch,
) {
    let Some(cols) = layers.first().map(|l| l.weights.cols) else { return };
    let rows = x.len() / cols.max(1);
    for l in layers.iter() {
        assert!(
            l.weights.cols == cols && l.out.len() == rows * l.weights.rows,
            "linear layer's shape"
        );
        assert!(l.bias.is_none_or(|b| b.len() == l.weights.rows), "bias's shape");
    }
    assert!(x.len() == rows * cols, "input's shape");
    scratch.threads.resize_with(pool.threads(), ThreadScratch::default);
    if layers.iter().any(|l| is_quantised(l.weights.dtype)) {
        scratch.x.quantise(level, pool, x, cols);
    }
    if layers.iter().any(|l| !is_quantised(l.weights.dtype)) {
        scratch.x.keep_floats(x, cols);
    }
    let parts = pool.threads();
    let x = &scratch.x;
    let layers: Vec<_> = layers
        .iter_mut()
        .map(|l| Shared { weights: l.weights, bias: l.bias, out: Disjoint::new(l.out) })
        .collect();
    pool.run_each(&mut scratch.threads, |i, scratch| {
        for layer in &layers {
            let range = share(layer.weights.rows, WEIGHT_ROWS, i, parts);
            part(level, layer, x, range, scratch);
        }
    });
}

/// A layer whose output all threads write: each the columns of its own weight rows.
struct Shared<'a> {
    weights: &'a Weights,
    bias: Option<&'a [f32]>,
    out: Disjoint<'a, f32>,
}

impl Shared<'_> {
    #[inline(always)]
    fn write(&self, m: usize, first: usize, values: [f32; WEIGHT_ROWS]) {
        let rows = self.weights.rows;
        let count = WEIGHT_ROWS.min(rows - first);
        // SAFETY: only the thread whose share holds weight rows `first..` writes these columns.
        let to = unsafe { self.out.part(m * rows + first, count) };
        for (i, to) in to.iter_mut().enumerate() {
            *to = values[i] + self.bias.map_or(0.0, |b| b[first + i]);
        }
    }
}

type Range = std::ops::Range<usize>;

#[inline(always)]
fn part_body<I: Isa>(
    isa: I,
    layer: &Shared<'_>,
    x: &Activations,
    range: Range,
    scratch: &mut ThreadScratch,
) {
    if is_quantised(layer.weights.dtype) {
        quantised_part(isa, layer, x, range, &mut scratch.codes);
    } else {
        float_part(isa, layer, x, range, &mut scratch.floats);
    }
}
super::level::dispatch! {
    fn part(
        layer: &Shared<'_>,
        x: &Activations,
        range: Range,
        scratch: &mut ThreadScratch,
    ) = part_body
}

/// Calls `$f::<I, R>` over all activation rows, as many at once as the registers hold.
macro_rules! all_rows {
    ($isa:ident, $x:ident, $layer:ident, $n:ident, $f:ident($($arg:expr),*)) => {
        let mut m = 0;
        while m < $x.rows {
            match ($x.rows - m).min(I::ROWS) {
                1 => all_rows!(@one $isa, $x, $layer, $n, m, $f, 1, $($arg),*),
                2 => all_rows!(@one $isa, $x, $layer, $n, m, $f, 2, $($arg),*),
                3 => all_rows!(@one $isa, $x, $layer, $n, m, $f, 3, $($arg),*),
                _ => all_rows!(@one $isa, $x, $layer, $n, m, $f, 4, $($arg),*),
            }
        }
    };
    (@one $isa:ident, $x:ident, $layer:ident, $n:ident, $m:ident, $f:ident, $count:literal,
     $($arg:expr),*) => {{
        let values = $f::<I, $count>($isa, $($arg,)* $x, $m);
        for (r, values) in values.into_iter().enumerate() {
            $layer.write($m + r, $n, values);
        }
        $m += $count;
    }};
}

#[inline(always)]
fn quantised_part<I: Isa>(
    isa: I,
    layer: &Shared<'_>,
    x: &Activations,
    range: Range,
    codes: &mut [Unpacked; WEIGHT_ROWS],
) {
    let w = layer.weights;
    let min = has_min(w.dtype);
    codes.iter_mut().for_each(|c| c.resize(w.cols));
    for n in range.step_by(WEIGHT_ROWS) {
        // The rows after these two arrive from memory while these are unpacked and multiplied.
        let next = w.bytes.as_slice().get((n + WEIGHT_ROWS) * w.row_bytes..).unwrap_or_default();
        let next = &next[..next.len().min(WEIGHT_ROWS * w.row_bytes)];
        let mut ahead = Ahead::new(next, (WEIGHT_ROWS + 1) * codes[0].codes.len());
        for (i, codes) in codes.iter_mut().enumerate() {
            // An odd last row is computed twice and written once.
            unpack::unpack(isa, w.dtype, w.row((n + i).min(w.rows - 1)), codes, &mut ahead);
        }
        all_rows!(isa, x, layer, n, dots(codes, min, &mut ahead));
    }
}

#[inline(always)]
fn float_part<I: Isa>(
    isa: I,
    layer: &Shared<'_>,
    x: &Activations,
    range: Range,
    floats: &mut [Vec<f32>; WEIGHT_ROWS],
) {
    let w = layer.weights;
    for f in floats.iter_mut() {
        f.clear();
        f.resize(w.cols.next_multiple_of(LANES), 0.0);
    }
    for n in range.step_by(WEIGHT_ROWS) {
        for (i, floats) in floats.iter_mut().enumerate() {
            unpack::unpack_floats(isa, w.dtype, w.row((n + i).min(w.rows - 1)), floats);
        }
        all_rows!(isa, x, layer, n, float_dots(floats));
    }
}
