//! Matrix times activations over the thread pool.

use super::Level;
use super::activations::Activations;
use super::claims::Claims;
use super::columns::Columns;
use super::disjoint::Disjoint;
use super::dot::{WEIGHT_ROWS, dots, float_dots};
use super::input::{Input, Plain};
use super::isa::{Isa, LANES};
use super::pool::{Part, Pool};
use super::strips::{strips_of, tile_rows};
use super::tiles::{ROWS, Tile, is_tiled, with_tile};
use super::unpack::{self, Ahead, Unpacked, is_quantised};
use super::weights::Weights;
use crate::gguf::TensorType;

/// One linear layer of a joint call: `out[m * rows + n] = weights[n] · x[m] + bias[n]`, or `+=`.
pub struct Linear<'a> {
    /// The matrix.
    pub weights: &'a Weights,
    /// Added to each output row.
    pub bias: Option<&'a [f32]>,
    /// Row-major `[x.rows, weights.rows]`.
    pub out: &'a mut [f32],
    /// Whether what is there stays and is added to.
    pub add: bool,
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
    plain: Plain,
    x: Activations,
    columns: Columns,
    claims: Claims,
}

/// Several layers over the same input, in one fork and join.
///
/// # Panics
/// If an output, bias or input does not have the size that weights and rows ask for.
pub fn linears<const N: usize>(
    level: Level,
    pool: &mut Pool,
    input: Input<'_>,
    layers: [Linear<'_>; N],
    scratch: &mut Scratch,
) {
    let Some(cols) = layers.first().map(|l| l.weights.cols()).filter(|&cols| cols > 0) else {
        return;
    };
    input.check(cols);
    let rows = input.len() / cols;
    for l in &layers {
        assert!(
            l.weights.cols() == cols && l.out.len() == rows * l.weights.rows(),
            "linear layer's shape"
        );
        assert!(l.bias.is_none_or(|b| b.len() == l.weights.rows()), "bias's shape");
    }
    scratch.threads.resize_with(pool.threads(), ThreadScratch::default);
    take(level, pool, &input, (cols, &layers), scratch);
    let layers = layers.map(|l| Shared {
        weights: l.weights,
        bias: l.bias,
        add: l.add,
        out: Disjoint::new(l.out),
    });
    multiply(level, pool, &layers, scratch);
}

/// The layers, whatever their number: generic, it would be compiled, with all formats and levels, again for every crate
/// that runs a model.
fn multiply(level: Level, pool: &mut Pool, layers: &[Shared<'_>], scratch: &mut Scratch) {
    scratch.claims.reset(layers.len(), scratch.threads.len());
    let (x, claims) = ((&scratch.x, &scratch.columns), &scratch.claims);
    pool.run_each(&mut scratch.threads, |mine, scratch| {
        for owner in (0..mine.of).map(|i| Part { index: (mine.index + i) % mine.of, ..mine }) {
            for (i, layer) in layers.iter().enumerate() {
                let strips = layer.weights.rows().div_ceil(ROWS);
                let share = owner.share(strips, 1);
                let size = if is_tiled(layer.weights.dtype()) { x.1.unit(share.len()) } else { 1 };
                let units = share.len().div_ceil(size);
                while let Some(unit) = claims.next((i, owner.index), units, owner == mine) {
                    let first = share.start + unit * size;
                    let strips = first..share.end.min(first + size);
                    some_strips(level, layer, x, strips, scratch);
                }
            }
        }
    });
}

/// Some of a layer's outputs, in strips of 16.
fn some_strips(
    level: Level,
    layer: &Shared<'_>,
    x: (&Activations, &Columns),
    strips: Range,
    scratch: &mut ThreadScratch,
) {
    let dtype = layer.weights.dtype();
    if is_tiled(dtype) {
        with_tile!(dtype, T => strips_of::<T>(level, layer, x.1, strips), else ());
    } else {
        let rows = strips.start * ROWS..layer.weights.rows().min(strips.end * ROWS);
        part(level, layer, x.0, rows, scratch);
    }
}

/// Turns the input into what the layers' types multiply.
fn take(
    level: Level,
    pool: &mut Pool,
    input: &Input<'_>,
    (cols, layers): (usize, &[Linear<'_>]),
    scratch: &mut Scratch,
) {
    let dtypes = || layers.iter().map(|l| l.weights.dtype());
    if dtypes().any(is_tiled) {
        scratch.columns.quantise(level, pool, input, (cols, tile_rows(level)));
        for dtype in dtypes() {
            with_tile!(dtype, T => prepare::<T>(&mut scratch.columns), else ());
        }
    }
    let mut rest = dtypes().filter(|&dtype| !is_tiled(dtype)).peekable();
    if rest.peek().is_none() {
        return;
    }
    let x = if let Input::Rows(x) = input {
        x
    } else {
        scratch.plain.take(level, pool, input, cols);
        &scratch.plain.rows[..]
    };
    for dtype in rest {
        if is_quantised(dtype) {
            scratch.x.quantise(level, pool, x, cols);
        } else {
            scratch.x.keep_floats(x, cols);
        }
    }
}

/// A layer whose output all threads write: each the columns of the weight rows it has claimed.
pub(super) struct Shared<'a> {
    pub(super) weights: &'a Weights,
    bias: Option<&'a [f32]>,
    add: bool,
    out: Disjoint<'a, f32>,
}

impl Shared<'_> {
    #[inline(always)]
    pub(super) fn write(&self, m: usize, first: usize, values: &[f32]) {
        let rows = self.weights.rows();
        let count = values.len().min(rows - first);
        // SAFETY: only the thread that has claimed the weight rows `first..` writes these columns.
        let to = unsafe { self.out.part(m * rows + first, count) };
        match (to.first_chunk_mut::<LANES>(), values.first_chunk::<LANES>()) {
            // Of a size that is known here: nothing is called to copy so little.
            (Some(to), Some(values)) => self.put(to, values, first),
            _ => self.put(to, &values[..count], first),
        }
    }

    #[inline(always)]
    fn put(&self, to: &mut [f32], values: &[f32], first: usize) {
        match (self.bias, self.add) {
            (None, false) => to.copy_from_slice(values),
            (None, true) => to.iter_mut().zip(values).for_each(|(to, value)| *to += value),
            (Some(bias), add) => {
                for ((to, value), bias) in to.iter_mut().zip(values).zip(&bias[first..]) {
                    *to = value + bias + if add { *to } else { 0.0 };
                }
            }
        }
    }
}

type Range = std::ops::Range<usize>;

fn prepare<T: Tile>(x: &mut Columns) {
    x.prepare(T::KIND);
}

#[inline(always)]
fn part_body<I: Isa>(
    isa: I,
    layer: &Shared<'_>,
    x: &Activations,
    range: Range,
    scratch: &mut ThreadScratch,
) {
    if is_quantised(layer.weights.dtype()) {
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
            $layer.write($m + r, $n, &values);
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
    codes.iter_mut().for_each(|c| c.resize(w.cols()));
    for n in range.step_by(WEIGHT_ROWS) {
        // The rows after these two arrive from memory while these are unpacked and multiplied.
        let next = w.bytes().get((n + WEIGHT_ROWS) * w.row_bytes()..).unwrap_or_default();
        let next = &next[..next.len().min(WEIGHT_ROWS * w.row_bytes())];
        let mut ahead = Ahead::new(next, (WEIGHT_ROWS + 1) * codes[0].codes.len());
        for (i, codes) in codes.iter_mut().enumerate() {
            // An odd last row is computed twice and written once.
            unpack::unpack(isa, w.dtype(), w.row((n + i).min(w.rows() - 1)), codes, &mut ahead);
        }
        all_rows!(isa, x, layer, n, dots(codes, &mut ahead));
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
        f.resize(w.cols().next_multiple_of(LANES), 0.0);
    }
    for n in range.step_by(WEIGHT_ROWS) {
        for (i, floats) in floats.iter_mut().enumerate() {
            unpack::unpack_floats(isa, w.dtype(), w.row((n + i).min(w.rows() - 1)), floats);
        }
        all_rows!(isa, x, layer, n, float_dots(floats));
    }
}
