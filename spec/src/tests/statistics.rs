//! Goodness of fit.

/// Upper tail of the chi-square law: the regularised incomplete gamma function Q(k/2, x/2), by its
/// series below the mean and its continued fraction above (Abramowitz and Stegun 6.5.29, 6.5.31).
pub(super) fn chi_square_tail(statistic: f64, freedom: usize) -> f64 {
    if freedom == 0 || statistic <= 0.0 {
        return 1.0;
    }
    let (a, x) = (freedom as f64 / 2.0, statistic / 2.0);
    let front = (a * x.ln() - x - ln_gamma_half(freedom)).exp();
    if x < a + 1.0 {
        let (mut term, mut sum) = (1.0 / a, 1.0 / a);
        for n in 1..10_000 {
            term *= x / (a + f64::from(n));
            sum += term;
        }
        return (1.0 - front * sum).max(0.0);
    }
    // Lentz's method.
    let mut b = x + 1.0 - a;
    let mut c = 1e300;
    let mut d = 1.0 / b;
    let mut h = d;
    for n in 1..10_000 {
        let an = -f64::from(n) * (f64::from(n) - a);
        b += 2.0;
        d = 1.0 / (an * d + b);
        c = b + an / c;
        h *= d * c;
    }
    front * h
}

/// ln Γ(k/2), from Γ(1/2) = √π or Γ(1) = 1 upwards.
fn ln_gamma_half(k: usize) -> f64 {
    let start = if k % 2 == 1 { std::f64::consts::PI.ln() / 2.0 } else { 0.0 };
    let first = if k % 2 == 1 { 1 } else { 2 };
    start + (first..k).step_by(2).map(|j| (j as f64 / 2.0).ln()).sum::<f64>()
}

/// p-value of the G-test of counts against a law given as (probability, count) cells. Cells that
/// expect fewer than five are pooled; a count where nothing may fall gives zero.
pub(super) fn g_test(cells: impl IntoIterator<Item = (f64, u64)>) -> f64 {
    let mut cells: Vec<_> = cells.into_iter().collect();
    if cells.iter().any(|&(p, count)| p <= 0.0 && count > 0) {
        return 0.0;
    }
    let n = cells.iter().map(|cell| cell.1).sum::<u64>() as f64;
    cells.sort_by(|a, b| b.0.total_cmp(&a.0));
    let large = cells.partition_point(|cell| cell.0 * n >= 5.0);
    let pooled = cells.split_off(large).into_iter().fold((0.0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    cells.extend(Some(pooled).filter(|cell| cell.0 * n >= 1.0 || cell.1 > 0));
    let term = |&(p, count): &(f64, u64)| {
        let count = count as f64;
        if count > 0.0 { 2.0 * count * (count / (n * p)).ln() } else { 0.0 }
    };
    chi_square_tail(cells.iter().map(term).sum(), cells.len() - 1)
}

#[test]
fn tails_match_tables() {
    let table = [
        (3.841_459, 1, 0.05),
        (16.918_978, 9, 0.05),
        (27.877_165, 9, 0.001),
        (124.342_113, 100, 0.05),
        (23.928_127, 1, 1e-6),
        (2.0, 2, (-1.0_f64).exp()),
        (60.0, 2, (-30.0_f64).exp()),
    ];
    for (statistic, freedom, expected) in table {
        let p = chi_square_tail(statistic, freedom);
        assert!((p / expected - 1.0).abs() < 1e-4, "{statistic} {freedom}: {p}");
    }
}
