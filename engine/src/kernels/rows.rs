//! The loops of sampling over whole rows of logits, compiled for each level's instructions.
//!
//! They are written once, in [`redline_spec::rowmath`], as plain arithmetic without fused operations: the compiler makes
//! vectors of them, and no level can give other bits than another.

use redline_spec::Draws;
use redline_spec::rowmath::{RowMath, Scale, bodies};

use super::Level;
use super::isa::Isa;

#[inline(always)]
fn weights_body<I: Isa>(_: I, values: &[f32], scale: Scale, out: &mut [f64]) -> f64 {
    bodies::weights(values, scale, out)
}
super::level::dispatch! {
    fn weights(values: &[f32], scale: Scale, out: &mut [f64]) -> f64 = weights_body
}

#[inline(always)]
fn noise_body<I: Isa>(_: I, draws: &Draws, position: u64, out: &mut [[u64; 2]]) {
    bodies::noise(draws, position, out);
}
super::level::dispatch! {
    fn noise(draws: &Draws, position: u64, out: &mut [[u64; 2]]) = noise_body
}

impl RowMath for Level {
    fn weights(&self, values: &[f32], scale: Scale, out: &mut [f64]) -> f64 {
        weights(*self, values, scale, out)
    }

    fn noise(&self, draws: &Draws, position: u64, out: &mut [[u64; 2]]) {
        noise(*self, draws, position, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::tests::Random;
    use redline_spec::rowmath::Baseline;

    /// Every level, the bits of the others: whole groups and the rest, banned tokens, results too small for a normal
    /// number.
    #[test]
    fn levels_agree_bit_for_bit() {
        for (len, spread) in [(1, 1.0), (63, 9.0), (64, 30.0), (1_000, 400.0), (151_936, 8.0)] {
            let mut values: Vec<f32> =
                Random(len).vec(len as usize).iter().map(|x| x * spread).collect();
            values.iter_mut().step_by(7).for_each(|x| *x = f32::NEG_INFINITY);
            values[0] = 1.7 * spread;
            let max = f64::from(values.iter().copied().fold(f32::NEG_INFINITY, f32::max));
            for temperature in [1.0, 0.7, 1e-2, 1e9] {
                let scale = Scale { max, temperature };
                let mut expected = vec![0.0; values.len()];
                let total = Baseline.weights(&values, scale, &mut expected);
                assert!(total >= 1.0 && total.is_finite());
                for level in Level::available() {
                    let mut got = vec![0.0; values.len()];
                    let sum = level.weights(&values, scale, &mut got);
                    assert_eq!(sum.to_bits(), total.to_bits(), "{}: {len}", level.name());
                    let bits = |all: &[f64]| all.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(&got), bits(&expected), "{}: {len}", level.name());
                }
            }
        }
    }

    #[test]
    fn levels_draw_the_same_noise() {
        let draws = Draws { seed: 0x0123_4567_89AB_CDEF, sample: 3 };
        for position in [0, 77, (1 << 56) - 1] {
            let mut expected = vec![[0; 2]; 1_003];
            Baseline.noise(&draws, position, &mut expected);
            for level in Level::available() {
                let mut got = vec![[0; 2]; 1_003];
                level.noise(&draws, position, &mut got);
                assert_eq!(got, expected, "{}", level.name());
            }
        }
    }
}
