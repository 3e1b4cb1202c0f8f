//! 32 values in 8 bits.
//!
//! A scale per 32 rather than per 256 keeps an outlier from drowning its neighbours, and f32 scales
//! add no rounding of their own.

use super::isa::{Isa, LANES, ROUND};
use super::tiles::{SUB, VECTORS};

/// What 32 values become: `value = scale * code`.
#[derive(Clone, Copy)]
pub(super) struct Codes {
    pub(super) codes: [[i8; 4]; VECTORS],
    pub(super) scale: f32,
    /// Sums of the first and the second 16 codes.
    pub(super) sums: [i32; 2],
}

pub(super) const EMPTY: Codes = Codes { codes: [[0; 4]; VECTORS], scale: 0.0, sums: [0; 2] };

/// Sub-blocks quantised at once: reductions over a vector cost little more for four than for one.
pub(super) const SUBS: usize = 4;

/// Quantises, and takes what the codes stand for off the values.
///
/// A value that is not finite makes the scale NaN, and so every output it reaches; the codes are then
/// whatever they are.
#[inline(always)]
pub(super) fn quantise<I: Isa>(isa: I, x: &mut [[f32; SUB]; SUBS], out: &mut [Codes; SUBS]) {
    let zero = isa.splat(0.0);
    let mut largest = [zero; SUBS];
    for (largest, x) in largest.iter_mut().zip(&*x) {
        let halves = x.as_chunks::<LANES>().0;
        let (low, high) = (isa.load(&halves[0]), isa.load(&halves[1]));
        let size = isa.larger(low, isa.sub(zero, low));
        *largest = isa.larger(size, isa.larger(high, isa.sub(zero, high)));
    }
    let largest = isa.largests(largest);
    let round = isa.splat(ROUND);
    for ((pairs, largest), out) in x
        .as_chunks_mut::<2>()
        .0
        .iter_mut()
        .zip(largest.as_chunks::<2>().0)
        .zip(out.as_chunks_mut::<2>().0)
    {
        let mut codes = [zero; 4];
        let inverse = largest.map(|largest| {
            let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
            if inverse.is_finite() { inverse } else { 0.0 }
        });
        for (i, code) in codes.iter_mut().enumerate() {
            let v = isa.load(&pairs[i / 2].as_chunks::<LANES>().0[i % 2]);
            let shifted = isa.fma(v, isa.splat(inverse[i / 2]), round);
            let bytes = out[i / 2].codes.as_flattened_mut().as_chunks_mut::<LANES>().0;
            bytes[i % 2] = isa.narrow(isa.rounded(shifted));
            *code = isa.sub(shifted, round);
        }
        // Exact: at most 16 * 127. Nothing times NaN is 0, nor is infinity times 0.
        let sums = isa.sums(codes);
        for (i, out) in out.iter_mut().enumerate() {
            let halves = [sums[2 * i], sums[2 * i + 1]];
            out.scale = largest[i] / 127.0 + (halves[0] + halves[1]) * 0.0;
            out.sums = halves.map(|sum| sum as i32);
        }
        for (i, code) in codes.into_iter().enumerate() {
            let half = &mut pairs[i / 2].as_chunks_mut::<LANES>().0[i % 2];
            let taken = isa.splat(-out[i / 2].scale);
            isa.store(isa.fma(code, taken, isa.load(half)), half);
        }
    }
}
