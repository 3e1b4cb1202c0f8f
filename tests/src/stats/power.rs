//! How small a deviation a test would have seen: the noncentral chi-square law.
//!
//! Counts whose law is shifted by δ have a statistic of non-centrality λ = n Σ δ²/p. A shift of total variation ε
//! has Σ |δ| = 2ε, so by Cauchy and Schwarz λ ≥ 4nε², whatever its direction and the law.

use super::chi_square_tail;

/// The statistic that is exceeded with probability `alpha`.
pub fn critical(alpha: f64, freedom: usize) -> f64 {
    let (mut low, mut high) = (0.0, freedom as f64 + 40.0 * (2.0 * freedom as f64).sqrt() + 200.0);
    for _ in 0..80 {
        let middle = (low + high) / 2.0;
        if chi_square_tail(middle, freedom) > alpha { low = middle } else { high = middle }
    }
    high
}

/// Upper tail of the noncentral chi-square law at `x`: a Poisson mixture of central ones.
pub fn noncentral_tail(x: f64, freedom: usize, lambda: f64) -> f64 {
    if x <= 0.0 {
        return 1.0;
    }
    let (mean, half) = (lambda / 2.0, freedom as f64 / 2.0);
    // ln of (x/2)^(k/2 + j) e^(-x/2) / Γ(k/2 + j + 1): what two more degrees of freedom add to the tail.
    let mut ln_term = half * (x / 2.0).ln() - x / 2.0 - ln_gamma_half(freedom + 2);
    let mut ln_weight = -mean;
    let (mut tail, mut sum) = (chi_square_tail(x, freedom), 0.0);
    let last = (mean + 12.0 * mean.sqrt() + 40.0) as usize;
    for j in 0..=last {
        sum += ln_weight.exp() * tail;
        tail = (tail + ln_term.exp()).min(1.0);
        ln_term += (x / 2.0).ln() - (half + j as f64 + 1.0).ln();
        ln_weight += mean.ln() - (j as f64 + 1.0).ln();
    }
    sum.min(1.0)
}

/// The non-centrality at which a test at level `alpha` rejects with probability `power`.
pub fn noncentrality(freedom: usize, alpha: f64, power: f64) -> f64 {
    if freedom == 0 {
        return f64::INFINITY;
    }
    let x = critical(alpha, freedom);
    let (mut low, mut high) = (0.0, x + 100.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if noncentral_tail(x, freedom, middle) < power { low = middle } else { high = middle }
    }
    high
}

/// ln Γ(k/2), from Γ(1/2) = √π or Γ(1) = 1 upwards.
fn ln_gamma_half(k: usize) -> f64 {
    let odd = k % 2 == 1;
    let (start, first) = if odd { (std::f64::consts::PI.ln() / 2.0, 1) } else { (0.0, 2) };
    start + (first..k).step_by(2).map(|j| (j as f64 / 2.0).ln()).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// n = λ / (4 · 0.01²) for even laws over k cells, from an implementation in another language.
    #[test]
    fn samples_needed_match_an_independent_table() {
        let table = [
            (2, 0.05, 0.8, 19.6e3),
            (8, 0.01, 0.9, 60.6e3),
            (32, 0.001, 0.99, 171e3),
            (128, 0.001, 0.99, 282e3),
            (1024, 0.05, 0.8, 295e3),
            (1024, 0.001, 0.99, 681e3),
        ];
        for (cells, alpha, power, expected) in table {
            let n = noncentrality(cells - 1, alpha, power) / 4e-4;
            assert!((n / expected - 1.0).abs() < 5e-3, "{cells} {alpha} {power}: {n}");
        }
    }

    #[test]
    fn without_a_shift_the_law_is_the_central_one() {
        for (x, freedom) in [(3.0, 1), (20.0, 9), (140.0, 100)] {
            let (a, b) = (noncentral_tail(x, freedom, 1e-12), chi_square_tail(x, freedom));
            assert!((a - b).abs() < 1e-9, "{a} {b}");
        }
    }
}
