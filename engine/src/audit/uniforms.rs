//! The audit's own random numbers: for the randomised transform, and seeds for requests.
//!
//! They come from another generator than the engine's, so that no flaw of that one can hide behind itself.

/// SplitMix64 (Steele, Lea, Flood 2014): a counter, mixed by a bijection, so that no state is met twice.
#[derive(Debug, Clone)]
pub(super) struct Uniforms(u64);

impl Uniforms {
    pub(super) fn new(seed: u64) -> Self {
        Self(mix(seed ^ 0x5eed_0fa0_d170))
    }

    /// A number in [0, 1) with 53 random bits.
    pub(super) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (mix(self.0) >> 11) as f64 * (-53_f64).exp2()
    }
}

/// A seed for request number `index` of an audit: distinct for distinct indices.
pub(super) fn seed(audit: u64, index: u64) -> u64 {
    mix(mix(audit).wrapping_add(index))
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_differ_and_numbers_fill_the_unit_interval() {
        let mut seeds: Vec<_> = (0..10_000).map(|index| seed(7, index)).collect();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 10_000);
        let mut random = Uniforms::new(3);
        let numbers: Vec<_> = (0..10_000).map(|_| random.next()).collect();
        assert!(numbers.iter().all(|u| (0.0..1.0).contains(u)));
        let mean = numbers.iter().sum::<f64>() / 1e4;
        assert!((mean - 0.5).abs() < 0.0116, "four standard deviations: {mean}");
    }
}
