//! Goodness of fit.

/// p-value of the G-test of counts against a law, given as (probability, count) cells. Cells that expect fewer
/// than five are pooled; a count where nothing may fall gives zero.
pub fn g_test(cells: impl IntoIterator<Item = (f64, u64)>) -> f64 {
    let mut cells: Vec<_> = cells.into_iter().collect();
    if cells.iter().any(|&(p, count)| p <= 0.0 && count > 0) {
        return 0.0;
    }
    let n = cells.iter().map(|cell| cell.1).sum::<u64>() as f64;
    cells.sort_by(|a, b| b.0.total_cmp(&a.0));
    let small = cells.split_off(cells.partition_point(|cell| cell.0 * n >= 5.0));
    let rest = small.iter().fold((0.0, 0), |sum, cell| (sum.0 + cell.0, sum.1 + cell.1));
    if rest.0 > 0.0 {
        cells.push(rest);
    }
    let g = cells.iter().filter(|cell| cell.1 > 0).map(|&(p, count)| {
        let count = count as f64;
        2.0 * count * (count / (n * p)).ln()
    });
    chi_square_tail(g.sum(), cells.len() - 1)
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
    }
}
