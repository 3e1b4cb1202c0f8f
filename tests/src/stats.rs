//! Goodness of fit, and which of many p-values count.

pub mod power;

/// How counts fit a law.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// The G statistic, with Williams' correction: its mean is that of the chi-square law although the cells are
    /// small, so that tails far out can be used.
    pub statistic: f64,
    /// Degrees of freedom.
    pub freedom: usize,
    /// How probable a statistic at least as large is.
    pub p: f64,
}

impl Fit {
    /// Nothing to fit.
    pub const NONE: Self = Self { statistic: 0.0, freedom: 0, p: 1.0 };

    /// Of a statistic that has the chi-square law.
    pub fn of(statistic: f64, freedom: usize) -> Self {
        Self { statistic, freedom, p: chi_square_tail(statistic, freedom) }
    }

    /// The fit of two independent sets of counts taken together.
    pub fn and(self, other: Self) -> Self {
        if self.statistic.is_infinite() || other.statistic.is_infinite() {
            return IMPOSSIBLE;
        }
        Self::of(self.statistic + other.statistic, self.freedom + other.freedom)
    }

    /// The fit of a sum of centred terms of known variance: two-sided.
    pub fn of_sum(sum: f64, variance: f64) -> Self {
        if variance > 0.0 { Self::of(sum * sum / variance, 1) } else { Self::NONE }
    }
}

/// Something was counted that cannot happen.
const IMPOSSIBLE: Fit = Fit { statistic: f64::INFINITY, freedom: 1, p: 0.0 };

/// p-value of the G-test of counts against a law, given as (probability, count) cells. Cells that expect fewer
/// than five are pooled; a count where nothing may fall gives zero.
pub fn g_test(cells: impl IntoIterator<Item = (f64, u64)>) -> f64 {
    fit(cells).p
}

/// The G-test of counts against a law: see [`g_test`].
pub fn fit(cells: impl IntoIterator<Item = (f64, u64)>) -> Fit {
    let mut cells: Vec<_> = cells.into_iter().collect();
    if cells.iter().any(|&(p, count)| p <= 0.0 && count > 0) {
        return IMPOSSIBLE;
    }
    let n = cells.iter().map(|cell| cell.1).sum::<u64>() as f64;
    cells.sort_by(|a, b| b.0.total_cmp(&a.0));
    let small = cells.split_off(cells.partition_point(|cell| cell.0 * n >= 5.0));
    let rest = small.iter().fold((0.0, 0), |sum, cell| (sum.0 + cell.0, sum.1 + cell.1));
    if rest.0 * n >= 5.0 {
        cells.push(rest);
    } else if let Some(last) = cells.last_mut() {
        *last = (last.0 + rest.0, last.1 + rest.1);
    }
    if cells.len() < 2 {
        return Fit::NONE;
    }
    let freedom = cells.len() - 1;
    let g = cells.iter().filter(|cell| cell.1 > 0).map(|&(p, count)| {
        let count = count as f64;
        2.0 * count * (count / (n * p)).ln()
    });
    let inverse: f64 = cells.iter().map(|cell| 1.0 / cell.0).sum();
    let correction = 1.0 + (inverse - 1.0) / (6.0 * n * freedom as f64);
    Fit::of(g.sum::<f64>() / correction, freedom)
}

/// Which of the p-values are rejected with a family error of `alpha`: Holm's step-down.
pub fn holm(p_values: &[f64], alpha: f64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&a, &b| p_values[a].total_cmp(&p_values[b]));
    let left = |at: usize| (p_values.len() - at) as f64;
    let rejected = order.iter().enumerate().take_while(|&(at, &i)| p_values[i] * left(at) < alpha);
    rejected.map(|(_, &i)| i).collect()
}

/// Upper tail of the chi-square law, by the finite sums that exist for it: Q(x | k) from Q(x | k - 2).
pub fn chi_square_tail(x: f64, freedom: usize) -> f64 {
    if freedom == 0 || x <= 0.0 {
        return 1.0;
    }
    let (mut tail, first) =
        if freedom.is_multiple_of(2) { (0.0, 0) } else { (normal_tail(x.sqrt()), 1) };
    // ln of x^(j/2) e^(-x/2) / (2^(j/2) Γ(j/2 + 1)), for j = first, first + 2, …
    let mut ln_term =
        if first == 0 { -x / 2.0 } else { (2.0 * x / std::f64::consts::PI).ln() / 2.0 - x / 2.0 };
    for j in (first..freedom - first.min(1)).step_by(2) {
        tail += ln_term.exp();
        ln_term += (x / (j as f64 + 2.0)).ln();
    }
    tail.min(1.0)
}

/// Two-sided tail of the normal law, by the continued fraction of erfc (Lentz) or its series near 0.
fn normal_tail(z: f64) -> f64 {
    let density = (-z * z / 2.0).exp() * (2.0 / std::f64::consts::PI).sqrt();
    if z < 3.0 {
        let (mut term, mut sum) = (z, z);
        for n in 1..200 {
            term *= z * z / f64::from(2 * n + 1);
            sum += term;
        }
        return (1.0 - density * sum).max(0.0);
    }
    let fraction = (1..200).rev().fold(z, |rest, n| z + f64::from(n) / rest);
    density / fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_match_tables() {
        let table = [
            (3.841_459, 1, 0.05),
            (7.814_728, 3, 0.05),
            (16.918_978, 9, 0.05),
            (27.877_165, 9, 0.001),
            (124.342_113, 100, 0.05),
            (23.928_127, 1, 1e-6),
            (2.0, 2, (-1.0_f64).exp()),
        ];
        for (x, freedom, expected) in table {
            let p = chi_square_tail(x, freedom);
            assert!((p / expected - 1.0).abs() < 1e-4, "{x} {freedom}: {p}");
        }
    }

    #[test]
    fn a_fit_is_told_from_a_misfit() {
        assert!(g_test([(0.5, 500), (0.5, 510), (1e-9, 0)]) > 0.1);
        assert!(g_test([(0.5, 600), (0.5, 400)]) < 1e-6);
        assert_eq!(g_test([(1.0, 10), (0.0, 1)]), 0.0);
        let two = fit([(0.5, 500), (0.5, 510)]).and(fit([(0.25, 600), (0.75, 400)]));
        assert!(two.freedom == 2 && two.p < 1e-6);
        assert!(Fit::of_sum(3.0, 9.0).p > 0.3 && Fit::of_sum(-30.0, 9.0).p < 1e-6);
    }

    /// The tail that Holm's procedure looks at is where it should be, though most cells expect hardly five.
    #[test]
    fn p_values_of_many_small_cells_are_uniform() {
        let mut random = crate::random::Random(5);
        let law: Vec<f64> = (1..=400).map(|i| f64::from(i) / 80_200.0).collect();
        let below = |bound: f64, p_values: &[f64]| {
            p_values.iter().filter(|&&p| p < bound).count() as f64 / p_values.len() as f64
        };
        let p_values: Vec<f64> = (0..4_000)
            .map(|_| {
                let mut counts = vec![0; law.len()];
                for _ in 0..3_000 {
                    let mut rest = random.uniform();
                    let at = law.iter().position(|p| {
                        rest -= p;
                        rest < 0.0
                    });
                    counts[at.unwrap_or(law.len() - 1)] += 1;
                }
                g_test(law.iter().copied().zip(counts))
            })
            .collect();
        // Standard errors: .0034 at 5 %, .0005 at one in a thousand.
        assert!((below(0.05, &p_values) - 0.05).abs() < 0.012, "{}", below(0.05, &p_values));
        assert!(below(0.001, &p_values) < 0.003, "{}", below(0.001, &p_values));
    }

    #[test]
    fn holm_steps_down() {
        assert_eq!(holm(&[0.02, 0.001, 0.3], 0.05), [1, 0]);
        assert!(holm(&[0.02, 0.03, 0.3], 0.05).is_empty());
        assert_eq!(holm(&[0.01, 0.03, 0.04], 0.05), [0]);
        assert!(holm(&[], 0.05).is_empty());
    }
}
