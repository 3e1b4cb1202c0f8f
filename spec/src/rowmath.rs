//! [`RowMath`]: the few loops that run over every logit of a row.
//!
//! They are what sampling costs. Written as plain arithmetic in a fixed order, without fused operations, they give the
//! same bits however wide the vectors are for which they are compiled. Whoever can choose instructions at run time
//! compiles them again for those, through [`bodies`], and hands them over by [`Scratch::with_math`](crate::Scratch::with_math).

use crate::Draws;
use crate::exp::exp;

/// Tokens of this many consecutive ids are looked at as one wherever a bound may rule them all out, and share a block
/// of noise.
pub(crate) const GROUP: usize = crate::draws::GROUP as usize;

/// Loops over a row of logits. Every implementation gives the same bits: those of [`bodies`].
pub trait RowMath: std::fmt::Debug + Send + Sync {
    /// See [`bodies::weights`].
    fn weights(&self, values: &[f32], scale: Scale, out: &mut [f64]) -> f64 {
        bodies::weights(values, scale, out)
    }

    /// See [`bodies::noise`].
    fn noise(&self, draws: &Draws, position: u64, out: &mut [[u64; 2]]) {
        bodies::noise(draws, position, out);
    }
}

/// The loops as they are compiled for the whole program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Baseline;

impl RowMath for Baseline {}

/// What turns a logit x into a weight: e^((x − max) / temperature).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// The largest logit.
    pub max: f64,
    /// Above zero.
    pub temperature: f64,
}

impl Scale {
    /// The weight of a logit that is not above `max`.
    #[inline(always)]
    pub(crate) fn weight(self, x: f32) -> f64 {
        exp((f64::from(x) - self.max) / self.temperature)
    }

    /// How far a logit is from the largest: zero or less.
    #[inline(always)]
    pub(crate) fn distance(self, x: f32) -> f64 {
        f64::from(x) - self.max
    }

    /// The distance at which weights are `least`, and a little more: farther off they are all smaller, however they
    /// are rounded. −∞ for 0.
    pub(crate) fn reach(self, least: f64) -> f64 {
        let log = least.ln();
        self.temperature * (log - (1.0 + log.abs()) * 1e-9)
    }
}

/// The loops themselves, to be compiled for other instructions.
pub mod bodies {
    use super::{GROUP, Scale};
    use crate::Draws;
    use crate::exp::exp;
    use std::array::from_fn;

    /// Numbers that are added or compared at once. Part of the definition: it is the order of sums.
    const LANES: usize = 8;
    const WIDE: usize = 16;

    /// The largest of each [`GROUP`] values; false if any value is NaN or +∞, and the rest then undefined.
    pub(crate) fn tops(values: &[f32], tops: &mut [f32]) -> bool {
        let (groups, rest) = values.as_chunks::<GROUP>();
        let last = if rest.is_empty() { &[][..] } else { &[padded(rest)][..] };
        let (most, one) = tops.split_at_mut(groups.len().min(tops.len()));
        tops_of(groups, most) & tops_of(last, one)
    }

    /// [`tops`] of whole groups.
    #[inline(never)]
    fn tops_of(groups: &[[f32; GROUP]], tops: &mut [f32]) -> bool {
        // Zero times a finite number is zero; −∞ is made one.
        let zero = |x: f32| larger(f32::MIN, x) * 0.0;
        let mut zeros = [0.0; WIDE];
        for (group, top) in groups.iter().zip(tops) {
            let (a, b) = (&group[..WIDE], &group[WIDE..2 * WIDE]);
            let (c, d) = (&group[2 * WIDE..3 * WIDE], &group[3 * WIDE..]);
            let wide: [f32; WIDE] = from_fn(|i| larger(larger(a[i], b[i]), larger(c[i], d[i])));
            for i in 0..WIDE {
                zeros[i] += (zero(a[i]) + zero(b[i])) + (zero(c[i]) + zero(d[i]));
            }
            let half: [f32; 8] = from_fn(|i| larger(wide[i], wide[i + 8]));
            let half: [f32; 4] = from_fn(|i| larger(half[i], half[i + 4]));
            *top = larger(larger(half[0], half[2]), larger(half[1], half[3]));
        }
        zeros.iter().all(|&zero| zero == 0.0)
    }

    /// `b` where one is NaN.
    #[inline(always)]
    fn larger(a: f32, b: f32) -> f32 {
        if a > b { a } else { b }
    }

    /// The weight of each value, into `out`; returns their sum, in eight interleaved parts.
    #[inline(always)]
    pub fn weights(values: &[f32], scale: Scale, out: &mut [f64]) -> f64 {
        let mut parts = [0.0; LANES];
        let (groups, rest) = values.as_chunks::<GROUP>();
        let (whole, last) = out.as_chunks_mut::<GROUP>();
        if scale.temperature == 1.0 {
            for (group, out) in groups.iter().zip(whole) {
                weigh(group, |x| exp(scale.distance(x)), out, &mut parts);
            }
        } else {
            for (group, out) in groups.iter().zip(whole) {
                weigh(group, |x| scale.weight(x), out, &mut parts);
            }
        }
        let mut group = [0.0; GROUP];
        weigh(&padded(rest), |x| scale.weight(x), &mut group, &mut parts);
        last.iter_mut().zip(group).for_each(|(out, weight)| *out = weight);
        parts.iter().sum()
    }

    #[inline(always)]
    fn weigh(
        group: &[f32; GROUP],
        weight: impl Fn(f32) -> f64,
        out: &mut [f64; GROUP],
        parts: &mut [f64; LANES],
    ) {
        for (out, &x) in out.iter_mut().zip(group) {
            *out = weight(x);
        }
        for chunk in out.as_chunks::<LANES>().0 {
            for lane in 0..LANES {
                parts[lane] += chunk[lane];
            }
        }
    }

    /// A last group, filled up with banned tokens, whose weights are zero.
    #[inline(always)]
    fn padded(rest: &[f32]) -> [f32; GROUP] {
        let mut group = [f32::NEG_INFINITY; GROUP];
        group.iter_mut().zip(rest).for_each(|(to, &x)| *to = x);
        group
    }

    /// The random bits of the noise of groups `0..`: those of the least, and those of who has it.
    #[inline(always)]
    pub fn noise(draws: &Draws, position: u64, out: &mut [[u64; 2]]) {
        for (group, out) in (0..).zip(out) {
            *out = draws.group_words(position, group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_what_one_token_at_a_time_gives() {
        for len in [0_usize, 1, 7, 8, 9, 63, 64, 65, 127, 128, 300] {
            let values: Vec<f32> = (0..len)
                .map(|i| if i % 5 == 2 { f32::NEG_INFINITY } else { -((i * 37 % 90) as f32) * 3.3 })
                .collect();
            for temperature in [1.0, 0.35, 7.0] {
                let scale = Scale { max: 0.0, temperature };
                let mut out = vec![-1.0; len];
                let total = Baseline.weights(&values, scale, &mut out);
                let expected: Vec<f64> =
                    values.iter().map(|&x| exp(f64::from(x) / temperature)).collect();
                assert_eq!(out, expected);
                assert_eq!(total, crate::law::sum(&expected));
            }
        }
    }

    #[test]
    fn tops_are_of_groups_and_see_what_is_no_logit() {
        for len in [1_usize, 63, 64, 65, 191, 300] {
            let values: Vec<f32> = (0..len).map(|i| (i * 53 % 97) as f32 - 40.0).collect();
            let mut tops = vec![0.0; len.div_ceil(GROUP)];
            assert!(bodies::tops(&values, &mut tops));
            let top = |group: &[f32]| group.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(tops, values.chunks(GROUP).map(top).collect::<Vec<_>>());
            for at in 0..len {
                let with = |x: f32| {
                    let mut values = values.clone();
                    values[at] = x;
                    values
                };
                for fine in [f32::NEG_INFINITY, f32::MIN, f32::MAX, 1e-45, -0.0] {
                    assert!(bodies::tops(&with(fine), &mut tops), "{fine} at {at} of {len}");
                    assert_eq!(tops, with(fine).chunks(GROUP).map(top).collect::<Vec<_>>());
                }
                for bad in [f32::NAN, -f32::NAN, f32::INFINITY] {
                    assert!(!bodies::tops(&with(bad), &mut tops), "{bad} at {at} of {len}");
                }
            }
        }
    }

    #[test]
    fn the_reach_of_a_weight_is_beyond_all_that_have_it() {
        for temperature in [1e-3, 0.7, 1.0, 1e9] {
            let scale = Scale { max: 3.0, temperature };
            for x in [3.0, 2.999, 2.0, -4.5, -100.0, -700.0] {
                let weight = scale.weight(x);
                assert!(weight == 0.0 || scale.distance(x) >= scale.reach(weight));
                assert!(scale.distance(x) >= scale.reach(weight * 0.999_999_999));
            }
            assert_eq!(scale.reach(0.0), f64::NEG_INFINITY);
        }
    }
}
