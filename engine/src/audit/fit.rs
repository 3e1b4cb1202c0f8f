//! Goodness of fit at a fixed number of observations: the classical p-values beside the anytime-valid ones.
//!
//! Each function is small enough to be checked against published values, which is why none comes from a library.

/// Upper tail of the chi-square law, by the finite sums that exist for it: Q(x | k) from Q(x | k − 2).
pub(super) fn chi_square_tail(x: f64, freedom: usize) -> f64 {
    if freedom == 0 || x <= 0.0 {
        return 1.0;
    }
    let odd = freedom % 2;
    let mut tail = if odd == 1 { normal_two_sided(x.sqrt()) } else { 0.0 };
    // ln of x^(j/2) e^(−x/2) / (2^(j/2) Γ(j/2 + 1)), for j = odd, odd + 2, …
    let mut ln_term =
        if odd == 0 { -x / 2.0 } else { (2.0 * x / std::f64::consts::PI).ln() / 2.0 - x / 2.0 };
    for j in (odd..freedom - odd).step_by(2) {
        tail += ln_term.exp();
        ln_term += (x / (j as f64 + 2.0)).ln();
    }
    tail.min(1.0)
}

/// P(|Z| > z) for a standard normal Z: the series of erf near 0, the continued fraction of erfc beyond.
pub(super) fn normal_two_sided(z: f64) -> f64 {
    let z = z.abs();
    let density = (-z * z / 2.0).exp() * (2.0 / std::f64::consts::PI).sqrt();
    if z < 3.0 {
        let (mut term, mut sum) = (z, z);
        for n in 1..200 {
            term *= z * z / f64::from(2 * n + 1);
            sum += term;
        }
        return (1.0 - density * sum).clamp(0.0, 1.0);
    }
    density / (1..200).rev().fold(z, |rest, n| z + f64::from(n) / rest)
}

/// The z with P(|Z| > z) = `p`, by bisection.
pub(super) fn normal_two_sided_quantile(p: f64) -> f64 {
    let (mut low, mut high) = (0.0, 40.0);
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if normal_two_sided(middle) > p {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// p-value of Kolmogorov and Smirnov's distance `d` at `n` observations: the limit law, with Stephens' correction for n.
pub(super) fn kolmogorov_tail(d: f64, n: usize) -> f64 {
    let root = (n as f64).sqrt();
    let x = (root + 0.12 + 0.11 / root) * d;
    if n == 0 || x < 0.2 {
        return 1.0;
    }
    let term = |k: i32| (-2.0 * f64::from(k * k) * x * x).exp();
    let sum: f64 = (1..100).map(|k| if k % 2 == 1 { term(k) } else { -term(k) }).sum();
    (2.0 * sum).clamp(0.0, 1.0)
}

/// Distance between the empirical distribution function of `sorted` and the uniform one.
pub(super) fn kolmogorov_distance(sorted: &[f64]) -> f64 {
    let n = sorted.len() as f64;
    let gap = |(i, &u): (usize, &f64)| ((i as f64 + 1.0) / n - u).max(u - i as f64 / n);
    sorted.iter().enumerate().map(gap).fold(0.0, f64::max)
}

/// Pearson's statistic of counts that should all be equal.
pub(super) fn pearson_uniform(counts: &[u64]) -> f64 {
    let n = counts.iter().sum::<u64>() as f64;
    let expected = n / counts.len() as f64;
    counts.iter().map(|&count| (count as f64 - expected).powi(2) / expected).sum()
}

/// Legendre polynomials 1 to 4 at 2u − 1: orthogonal, mean 0 and variance 1/(2k + 1) under uniformity, in [−1, 1].
pub(super) fn legendre(u: f64) -> [f64; 4] {
    let x = 2.0 * u - 1.0;
    let p2 = (3.0 * x * x - 1.0) / 2.0;
    let p3 = (5.0 * x * p2 - 2.0 * x) / 3.0;
    [x, p2, p3, (7.0 * x * p3 - 3.0 * p2) / 4.0]
}

/// p-value of a sum of centred indicators with the given variance and third cumulant: the normal tail, raised by
/// what skewness may add to it. 1 where the sum is too short for a normal law.
pub(super) fn contrast_tail(sum: f64, variance: f64, third: f64) -> f64 {
    if variance < CONTRAST_VARIANCE_MIN {
        return 1.0;
    }
    let z = sum.abs() / variance.sqrt();
    let skewness = third.abs() / variance.powf(1.5);
    (normal_two_sided(z) * (skewness * z.powi(3) / 6.0).exp()).min(1.0)
}

/// Below this a sum of indicators is not taken for normal.
pub(super) const CONTRAST_VARIANCE_MIN: f64 = 25.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64, tolerance: f64) {
        assert!((a / b - 1.0).abs() < tolerance, "{a} is not {b}");
    }

    #[test]
    fn tails_match_published_tables() {
        let chi = [
            (3.841_459, 1, 0.05),
            (7.814_728, 3, 0.05),
            (9.487_729, 4, 0.05),
            (27.877_165, 9, 0.001),
            (24.995_790, 15, 0.05),
            (124.342_113, 100, 0.05),
            (23.928_127, 1, 1e-6),
        ];
        for (x, freedom, expected) in chi {
            close(chi_square_tail(x, freedom), expected, 1e-4);
        }
        for (z, expected) in [(1.959_964, 0.05), (3.290_527, 0.001), (4.891_638, 1e-6)] {
            close(normal_two_sided(z), expected, 1e-5);
            close(normal_two_sided_quantile(expected), z, 1e-6);
        }
        // Smirnov 1948: the quantiles of the limit law.
        for (x, expected) in [(1.358_1, 0.05), (1.627_6, 0.01), (1.949_5, 0.001)] {
            close(kolmogorov_tail(x / 1e4, 100_000_000), expected, 1e-3);
        }
        // Its exact 5 % point at n = 20 (Massey 1951).
        close(kolmogorov_tail(0.294, 20), 0.05, 0.03);
    }

    #[test]
    fn statistics_are_what_their_definitions_say() {
        assert!((kolmogorov_distance(&[0.25, 0.5]) - 0.5).abs() < 1e-15);
        assert!((pearson_uniform(&[6, 4]) - 0.4).abs() < 1e-15);
        for u in [0.0, 0.2, 0.77, 1.0] {
            let x: f64 = 2.0 * u - 1.0;
            let [p1, p2, p3, p4] = legendre(u);
            close(2.0 + p1, 2.0 + x, 1e-12);
            close(2.0 + p2, 2.0 + 1.5 * x * x - 0.5, 1e-12);
            close(2.0 + p3, 2.0 + 2.5 * x.powi(3) - 1.5 * x, 1e-12);
            close(1.0 + p4, 1.0 + (35.0 * x.powi(4) - 30.0 * x * x + 3.0) / 8.0, 1e-12);
        }
        assert_eq!(contrast_tail(9.0, 9.0, 0.0), 1.0, "too short to judge");
        assert!(contrast_tail(40.0, 100.0, 30.0) > normal_two_sided(4.0));
    }
}
