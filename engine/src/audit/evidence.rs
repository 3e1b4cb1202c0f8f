//! What the tests of an audit gather: each knows its p-value at any moment, its p-value at a planned end, and the
//! smallest deviation that it sees with probability 0.99.

use super::eprocess::{BINS, NotAsLikely, NotIndependent, NotUniform, PAIR_BINS, bin};
use super::fit;

/// Standard deviations above which a normal variable lies with probability 0.01: the power that is stated is 0.99.
const POWER_Z: f64 = 2.326_348;

/// Values that must be uniform.
#[derive(Debug, Clone)]
pub(super) struct Uniformity {
    values: Vec<f64>,
    bets: NotUniform,
}

/// Ways in which [`Uniformity`] looks at the whole.
const UNIFORM_WAYS: f64 = 3.0;

impl Uniformity {
    pub(super) fn new() -> Self {
        Self { values: Vec::new(), bets: NotUniform::new() }
    }

    pub(super) fn see(&mut self, u: f64) {
        self.values.push(u);
        self.bets.see(u);
    }

    pub(super) fn values(&self) -> &[f64] {
        &self.values
    }

    /// Of equal bins.
    pub(super) fn histogram(&self, bins: usize) -> Vec<u64> {
        let mut counts = vec![0; bins];
        self.values.iter().for_each(|&u| counts[bin(u, bins)] += 1);
        counts
    }

    pub(super) fn p_anytime(&self) -> f64 {
        self.bets.fortune().p_value()
    }

    pub(super) fn p_planned(&self) -> f64 {
        let n = self.values.len();
        if n == 0 {
            return 1.0;
        }
        let mut sorted = self.values.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let distance = fit::kolmogorov_tail(fit::kolmogorov_distance(&sorted), n);
        // Neyman's smooth test: four orthogonal moments.
        let mut moments = [0.0; 4];
        for &u in &self.values {
            moments.iter_mut().zip(fit::legendre(u)).for_each(|(sum, value)| *sum += value);
        }
        let scaled =
            (1..).zip(moments).map(|(k, sum): (u32, f64)| f64::from(2 * k + 1) * sum * sum);
        let smooth = fit::chi_square_tail(scaled.sum::<f64>() / n as f64, 4);
        let bins = self.histogram(BINS);
        let pearson = match n >= 5 * BINS {
            true => fit::chi_square_tail(fit::pearson_uniform(&bins), BINS - 1),
            false => 1.0,
        };
        (UNIFORM_WAYS * distance.min(smooth).min(pearson)).min(1.0)
    }

    /// Probability moved between the halves of the unit interval: what Kolmogorov and Smirnov's distance sees.
    pub(super) fn detectable(&self, alpha: f64) -> Option<f64> {
        let critical = ((2.0 * UNIFORM_WAYS / alpha).ln() / 2.0).sqrt();
        let size = (critical + POWER_Z / 2.0) / (self.values.len() as f64).sqrt();
        Some(size).filter(|&size| size < 0.5)
    }
}

/// Events that have a probability each.
#[derive(Debug, Clone)]
pub(super) struct Contrast {
    n: u64,
    sum: f64,
    variance: f64,
    third: f64,
    bets: NotAsLikely,
}

impl Contrast {
    pub(super) fn new() -> Self {
        Self { n: 0, sum: 0.0, variance: 0.0, third: 0.0, bets: NotAsLikely::new() }
    }

    pub(super) fn see(&mut self, probability: f64, happened: bool) {
        let spread = probability * (1.0 - probability);
        self.n += 1;
        self.sum += f64::from(u8::from(happened)) - probability;
        self.variance += spread;
        self.third += spread * (1.0 - 2.0 * probability);
        self.bets.see(probability, happened);
    }

    pub(super) fn p_anytime(&self) -> f64 {
        self.bets.fortune().p_value()
    }

    /// Observations.
    pub(super) fn n(&self) -> u64 {
        self.n
    }

    pub(super) fn p_planned(&self) -> f64 {
        fit::contrast_tail(self.sum, self.variance, self.third)
    }

    pub(super) fn detectable(&self, alpha: f64) -> Option<f64> {
        let z = fit::normal_two_sided_quantile(alpha) + POWER_Z;
        let size = z * self.variance.sqrt() / self.n as f64;
        Some(size).filter(|_| self.variance >= fit::CONTRAST_VARIANCE_MIN)
    }
}

/// Successive values that must not depend on each other.
#[derive(Debug, Clone)]
pub(super) struct Pairs {
    counts: [[u64; PAIR_BINS]; PAIR_BINS],
    n: u64,
    product: f64,
    bets: NotIndependent,
}

impl Pairs {
    pub(super) fn new() -> Self {
        let counts = [[0; PAIR_BINS]; PAIR_BINS];
        Self { counts, n: 0, product: 0.0, bets: NotIndependent::new() }
    }

    pub(super) fn see(&mut self, before: f64, u: f64) {
        self.counts[bin(before, PAIR_BINS)][bin(u, PAIR_BINS)] += 1;
        self.n += 1;
        self.product += fit::legendre(before)[0] * fit::legendre(u)[0];
        self.bets.see(before, u);
    }

    pub(super) fn p_anytime(&self) -> f64 {
        self.bets.fortune().p_value()
    }

    /// Observations.
    pub(super) fn n(&self) -> u64 {
        self.n
    }

    pub(super) fn p_planned(&self) -> f64 {
        // Each factor has variance 1/3.
        let correlation = fit::normal_two_sided(3.0 * self.product / (self.n.max(1) as f64).sqrt());
        let cells = (PAIR_BINS * PAIR_BINS) as u64;
        // Each row given its sum: transitions overlap, their rows do not.
        let rows: f64 = self.counts.iter().map(|row| fit::pearson_uniform(row)).sum();
        let table = match self.n >= 10 * cells {
            true => fit::chi_square_tail(rows, PAIR_BINS * (PAIR_BINS - 1)),
            false => 1.0,
        };
        (2.0 * correlation.min(table)).min(1.0)
    }

    pub(super) fn detectable(&self, alpha: f64) -> Option<f64> {
        let z = fit::normal_two_sided_quantile(alpha / 2.0) + POWER_Z;
        Some(z / (self.n as f64).sqrt()).filter(|&size| size < 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::uniforms::Uniforms;

    #[test]
    fn contrasts_know_what_they_can_see() {
        let fill = |rate: f64, seed| {
            let mut random = Uniforms::new(seed);
            let mut contrast = Contrast::new();
            (0..4000).for_each(|_| contrast.see(0.3, random.next() < rate));
            contrast
        };
        let alpha = 5e-4;
        let size = fill(0.3, 1).detectable(alpha).unwrap();
        let seen = (0..150).filter(|&seed| fill(0.3 + size, seed).p_planned() <= alpha).count();
        assert!(seen >= 143, "{seen} of 150 at {size}");
        assert_eq!(Contrast::new().detectable(alpha), None);
    }
}
