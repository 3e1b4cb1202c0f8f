//! Element-wise operations and norms over rows of activations.

use super::Level;
use super::isa::{Isa, LANES, ROUND};

/// `e^x`, the same bits on every level, within 2 units in the last place. Arguments are limited to
/// ±87, so that neither infinity nor a denormal comes out; NaN stays NaN.
#[inline(always)]
pub(super) fn exp<I: Isa>(isa: I, x: I::V) -> I::V {
    let c = |x: f32| isa.splat(x);
    let x = isa.larger(c(-87.0), isa.smaller(c(87.0), x));
    let shifted = isa.fma(x, c(std::f32::consts::LOG2_E), c(ROUND));
    let n = isa.sub(shifted, c(ROUND));
    // ln 2 in two parts, so that the remainder is exact.
    let r = isa.fma(n, c(-0.693_359_4), x);
    let r = isa.fma(n, c(2.121_944_4e-4), r);
    let mut p = c(1.987_569_1e-4);
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_66, 0.5] {
        p = isa.fma(p, r, c(coefficient));
    }
    let p = isa.add(isa.fma(p, isa.mul(r, r), r), c(1.0));
    isa.mul(p, isa.power_of_two(shifted))
}

/// Values whose squares are summed before the sums are.
pub(super) const SQUARES: usize = 256;

/// What an RMS norm multiplies a row of `len` values by, from the sums of the squares of each [`SQUARES`] of them.
#[inline(always)]
pub(super) fn rms_scale(sums: impl Iterator<Item = f32>, len: usize, eps: f32) -> f32 {
    let sum = sums.fold(0.0, |a, b| a + b);
    1.0 / (sum / len as f32 + eps).sqrt()
}

#[inline(always)]
fn scale_of<I: Isa>(isa: I, x: &[f32], eps: f32) -> f32 {
    rms_scale(x.chunks(SQUARES).map(|x| squares(isa, x)), x.len(), eps)
}

/// Sum of the squares of a few values.
#[inline(always)]
pub(super) fn squares<I: Isa>(isa: I, x: &[f32]) -> f32 {
    let mut acc = isa.splat(0.0);
    let (chunks, tail) = x.as_chunks::<LANES>();
    for chunk in chunks {
        let v = isa.load(chunk);
        acc = isa.fma(v, v, acc);
    }
    let mut last = [0.0; LANES];
    last[..tail.len()].copy_from_slice(tail);
    let v = isa.load(&last);
    isa.sum(isa.fma(v, v, acc))
}

#[inline(always)]
fn rms_norm_body<I: Isa>(isa: I, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let scale = scale_of(isa, x, eps);
    for ((out, &x), &w) in out.iter_mut().zip(x).zip(weight) {
        *out = x * scale * w;
    }
}
super::level::dispatch! {
    /// `x / rms(x) * weight` of one row.
    fn rms_norm_row(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) = rms_norm_body
}

#[inline(always)]
fn rms_norm_in_place_body<I: Isa>(isa: I, x: &mut [f32], weight: &[f32], eps: f32) {
    let scale = scale_of(isa, x, eps);
    for (x, &w) in x.iter_mut().zip(weight) {
        *x = *x * scale * w;
    }
}
super::level::dispatch! {
    fn rms_norm_in_place_row(x: &mut [f32], weight: &[f32], eps: f32) = rms_norm_in_place_body
}

/// `silu(gate) * up`.
#[inline(always)]
pub(super) fn silu_times<I: Isa>(isa: I, gate: &[f32], up: &[f32], out: &mut [f32]) {
    let (gates, gate) = gate.as_chunks::<LANES>();
    let (ups, up) = up.as_chunks::<LANES>();
    let (outs, out) = out.as_chunks_mut::<LANES>();
    for ((gate, up), out) in gates.iter().zip(ups).zip(outs) {
        silu_times_vector(isa, gate, up, out);
    }
    if !out.is_empty() {
        let [mut last_gate, mut last_up, mut last_out] = [[0.0; LANES]; 3];
        last_gate[..gate.len()].copy_from_slice(gate);
        last_up[..up.len()].copy_from_slice(up);
        silu_times_vector(isa, &last_gate, &last_up, &mut last_out);
        out.copy_from_slice(&last_out[..out.len()]);
    }
}

#[inline(always)]
fn silu_times_vector<I: Isa>(
    isa: I,
    gate: &[f32; LANES],
    up: &[f32; LANES],
    out: &mut [f32; LANES],
) {
    let gate = isa.load(gate);
    let divisor = isa.add(isa.splat(1.0), exp(isa, isa.sub(isa.splat(0.0), gate)));
    isa.store(isa.mul(isa.div(gate, divisor), isa.load(up)), out);
}

/// RMS norm of each row of `weight.len()` values.
pub fn rms_norm(level: Level, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let width = weight.len().max(1);
    for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        rms_norm_row(level, x, weight, eps, out);
    }
}

/// RMS norm in place.
pub fn rms_norm_in_place(level: Level, x: &mut [f32], weight: &[f32], eps: f32) {
    for x in x.chunks_exact_mut(weight.len().max(1)) {
        rms_norm_in_place_row(level, x, weight, eps);
    }
}

/// Which values a rotation pairs up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairing {
    /// Neighbours: `2i` and `2i + 1` (llama in GGUF, whose q and k rows are stored permuted).
    Neighbours,
    /// Halves: `i` and `i + n / 2` (qwen).
    Halves,
}

#[inline(always)]
fn rotate_body<I: Isa>(
    _: I,
    x: &mut [f32],
    head_dim: usize,
    (cos, sin): (&[f32], &[f32]),
    pairing: Pairing,
) {
    for head in x.chunks_exact_mut(head_dim.max(1)) {
        match pairing {
            Pairing::Neighbours => {
                for (pair, (&c, &s)) in
                    head.as_chunks_mut::<2>().0.iter_mut().zip(cos.iter().zip(sin))
                {
                    let [a, b] = *pair;
                    *pair = [a * c - b * s, a * s + b * c];
                }
            }
            Pairing::Halves => {
                let (first, second) = head.split_at_mut(cos.len());
                for ((a, b), (&c, &s)) in first.iter_mut().zip(second).zip(cos.iter().zip(sin)) {
                    (*a, *b) = (*a * c - *b * s, *a * s + *b * c);
                }
            }
        }
    }
}
super::level::dispatch! {
    /// Rotates the first `2 * cos.len()` values of each head of a row by the angles whose cosines and sines these are.
    pub fn rotate(
        x: &mut [f32],
        head_dim: usize,
        angles: (&[f32], &[f32]),
        pairing: Pairing,
    ) = rotate_body
}
