//! [`exp`]: e^x for weights, the same bits on every machine.
//!
//! The standard library's comes from the platform: its last bit differs from one to the next, and a call per token of
//! a vocabulary can't be turned into vector code. This one is arithmetic without branches, tables or fused operations, so
//! that a loop over it may be compiled for any width of vector and still gives what a single call gives.

/// Below this, e^x rounds to zero.
const FLOOR: f64 = -750.0;
/// 1.5 · 2^52: adding it rounds to an integer, in the low bits.
const ROUND: f64 = 6_755_399_441_055_744.0;
/// ln 2 in two parts; the first has so few bits that its products with exponents are exact.
const LN_2: [f64; 2] = [6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10];
/// (e^r − 1 − r) / r² over |r| ≤ ln 2 / 2, to a seventh of an ulp of e^r.
const SERIES: [f64; 10] = [
    0.500_000_000_000_000_1,
    0.166_666_666_666_666_69,
    0.041_666_666_666_624_094,
    0.008_333_333_333_330_06,
    0.001_388_888_891_723_072_4,
    0.000_198_412_698_630_666_96,
    2.480_152_126_953_212_2e-5,
    2.755_726_843_967_8e-6,
    2.762_010_101_209_8e-7,
    2.510_039_515_942_924_3e-8,
];
/// Results below 2^-1022 are made in two steps, so that they are rounded once.
const STEP: u64 = 64;
const STEP_BACK: f64 = 1.0 / (1_u128 << STEP) as f64;

/// e^x for x ≤ 0, −∞ included, within an ulp: 1 for 0, never above 1, 0 only where e^x is below all
/// numbers.
#[inline(always)]
pub(crate) fn exp(x: f64) -> f64 {
    let x = if x > FLOOR { x } else { FLOOR };
    let shifted = x * std::f64::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN_2[0]) - n * LN_2[1];
    let mut series = SERIES[9];
    for coefficient in SERIES.iter().rev().skip(1) {
        series = series * r + coefficient;
    }
    let fraction = 1.0 + (r + r * r * series);
    let power = f64::from_bits(shifted.to_bits().wrapping_add(STEP + 1023) << 52);
    fraction * power * STEP_BACK
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Units in the last place between two positive numbers.
    fn ulps(a: f64, b: f64) -> u64 {
        a.to_bits().abs_diff(b.to_bits())
    }

    #[test]
    fn agrees_with_the_platform_to_an_ulp() {
        let mut x = -745.2;
        while x < 0.0 {
            // The platform's own error is below an ulp, too.
            assert!(ulps(exp(x), x.exp()) <= 1, "{x}: {:e} {:e}", exp(x), x.exp());
            x += 1.37e-4;
        }
        for exponent in 1..1075 {
            let x = -(0.5_f64.powi(exponent));
            assert!(ulps(exp(x), x.exp()) <= 1, "{x:e}");
        }
    }

    #[test]
    fn the_ends_are_exact() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-0.0), 1.0);
        assert_eq!(exp(f64::NEG_INFINITY), 0.0);
        assert_eq!(exp(-745.2), 0.0);
        assert_eq!(exp(-745.0), 5e-324);
        assert!(exp(-f64::MIN_POSITIVE) == 1.0 && exp(-1e-16) <= 1.0);
    }
}
