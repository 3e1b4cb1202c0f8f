//! 32 values in 8 bits.
//!
//! A scale per 32 rather than per 256 keeps an outlier from drowning its neighbours, and f32 scales
//! add no rounding of their own.

use super::isa::{Isa, LANES, ROUND};
use super::tiles::{SUB, VECTORS};

/// What 32 values become: `value = scale * code`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Codes {
    pub(super) codes: [[i8; 4]; VECTORS],
    pub(super) scale: f32,
    /// Sums of the first and the second 16 codes.
    pub(super) sums: [i32; 2],
}

pub(super) const EMPTY: Codes = Codes { codes: [[0; 4]; VECTORS], scale: 0.0, sums: [0; 2] };

/// Sub-blocks quantised at once: reductions over a vector cost little more for four than for one.
pub(super) const SUBS: usize = 4;

/// Quantises.
///
/// A value that is not finite makes the scale NaN, and so every output it reaches; the codes are then
/// whatever they are.
#[inline(always)]
pub(super) fn quantise<I: Isa>(isa: I, x: &[[f32; SUB]; SUBS], out: &mut [Codes; SUBS]) {
    let zero = isa.splat(0.0);
    let mut largest = [zero; SUBS];
    for (largest, x) in largest.iter_mut().zip(x) {
        let halves = x.as_chunks::<LANES>().0;
        let (low, high) = (isa.load(&halves[0]), isa.load(&halves[1]));
        let size = isa.larger(low, isa.sub(zero, low));
        *largest = isa.larger(size, isa.larger(high, isa.sub(zero, high)));
    }
    let largest = isa.largests(largest);
    let round = isa.splat(ROUND);
    for ((pairs, largest), out) in
        x.as_chunks::<2>().0.iter().zip(largest.as_chunks::<2>().0).zip(out.as_chunks_mut::<2>().0)
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
    }
}

/// Takes what the codes stand for off the values.
#[inline(always)]
pub(super) fn take_off<I: Isa>(isa: I, codes: &[Codes; SUBS], x: &mut [[f32; SUB]; SUBS]) {
    for (codes, x) in codes.iter().zip(x) {
        let taken = isa.splat(-codes.scale);
        let bytes = codes.codes.as_flattened().iter().map(|code| code.cast_unsigned());
        let mut all = [0; SUB];
        all.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
        for (half, codes) in x.as_chunks_mut::<LANES>().0.iter_mut().zip(all.as_chunks().0) {
            isa.store(isa.fma(isa.signed(codes), taken, isa.load(half)), half);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Level;
    use crate::kernels::tests::Random;

    #[inline(always)]
    fn quantised_body<I: Isa>(isa: I, x: &[[f32; SUB]; SUBS], out: &mut [Codes; SUBS]) {
        isa.quantise(x, out);
    }
    crate::kernels::level::dispatch! {
        fn quantised(x: &[[f32; SUB]; SUBS], out: &mut [Codes; SUBS]) = quantised_body
    }

    /// Every level, the bits of plain Rust: ordinary values, outliers, ties, numbers too large, too small, and none.
    #[test]
    fn levels_quantise_alike() {
        let special =
            [0.0, -0.0, 1e-44, -1e-38, 3e38, -3e38, 0.5, 126.5, -127.0, f32::MIN_POSITIVE];
        for seed in 0..400 {
            let mut random = Random(seed);
            let scale = 10_f32.powi((seed % 77) as i32 - 40);
            let mut x = [[0.0; SUB]; SUBS];
            for (values, from) in x.iter_mut().zip(random.vec(SUB * SUBS).chunks(SUB)) {
                values.iter_mut().zip(from).for_each(|(x, v)| *x = v * scale);
            }
            let at = seed as usize % SUB;
            x[0][at] = special[seed as usize % special.len()];
            x[1] = [special[seed as usize / 7 % special.len()]; SUB];
            x[2][at] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.0][seed as usize % 4];
            let mut expected = [EMPTY; SUBS];
            quantised(Level::portable(), &x, &mut expected);
            for level in Level::available() {
                let mut got = [EMPTY; SUBS];
                quantised(level, &x, &mut got);
                for (s, (got, expected)) in got.iter().zip(&expected).enumerate() {
                    let what = format!("{}, seed {seed}, sub-block {s}", level.name());
                    assert_eq!(x[s].iter().all(|v| v.is_finite()), got.scale.is_finite(), "{what}");
                    if expected.scale.is_nan() {
                        assert!(got.scale.is_nan(), "{what}");
                    } else {
                        assert_eq!(got.scale.to_bits(), expected.scale.to_bits(), "{what}");
                        assert_eq!(
                            (got.codes, got.sums),
                            (expected.codes, expected.sums),
                            "{what}"
                        );
                    }
                }
            }
        }
    }
}
