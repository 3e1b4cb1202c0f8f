//! What is said of a few measurements: middles, and how far a mean of differences may be off.

/// The middle value; NaN of nothing.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n.is_multiple_of(2) => f64::midpoint(values[n / 2 - 1], values[n / 2]),
        n => values[n / 2],
    }
}

/// The mean; NaN of nothing.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The geometric mean; NaN of nothing.
pub(crate) fn geomean(values: impl IntoIterator<Item = f64>) -> f64 {
    let logs: Vec<_> = values.into_iter().map(f64::ln).collect();
    mean(&logs).exp()
}

/// The mean is above this bound 19 times of 20 (one-sided, by Student's law): −∞ of fewer than two values.
pub(crate) fn lower_bound(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return f64::NEG_INFINITY;
    }
    let mean = mean(values);
    let freedom = values.len() as f64 - 1.0;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / freedom;
    mean - student_quantile(0.95, freedom) * (variance / values.len() as f64).sqrt()
}

/// Quantile of Student's law, for p above one half. With t = √ν tan θ its density is that of cos^(ν−1) θ.
fn student_quantile(p: f64, freedom: f64) -> f64 {
    const STEPS: u32 = 2000;
    let width = std::f64::consts::FRAC_PI_2 / f64::from(STEPS);
    let density = |angle: f64| angle.cos().max(0.0).powf(freedom - 1.0);
    let slice = |step: u32| {
        let at = |half: u32| density((f64::from(step) + f64::from(half) / 2.0) * width);
        (at(0) + 4.0 * at(1) + at(2)) / 6.0
    };
    let slices: Vec<f64> = (0..STEPS).map(slice).collect();
    let mut left = (2.0 * p - 1.0) * slices.iter().sum::<f64>();
    for (step, slice) in (0_u32..).zip(slices) {
        if slice >= left {
            let angle = (f64::from(step) + left / slice) * width;
            return freedom.sqrt() * angle.tan();
        }
        left -= slice;
    }
    f64::INFINITY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middles() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median([]).is_nan());
        assert!((geomean([1.0, 4.0]) - 2.0).abs() < 1e-12);
    }

    #[test]
    fn quantiles_match_tables() {
        let table = [(1.0, 6.313_752), (4.0, 2.131_847), (9.0, 1.833_113), (29.0, 1.699_127)];
        for (freedom, expected) in table {
            let t = student_quantile(0.95, freedom);
            assert!((t / expected - 1.0).abs() < 1e-4, "{freedom}: {t}");
        }
    }

    #[test]
    fn a_mean_is_as_sure_as_its_values_agree() {
        // Mean 1, standard deviation 0.1, n = 10: 1 − 1.833 · 0.1 / √10.
        let ratios: Vec<f64> =
            (0..10).map(|i| 1.0 + if i % 2 == 0 { 0.1 } else { -0.1 } * 0.9_f64.sqrt()).collect();
        assert!((lower_bound(&ratios) - (1.0 - 0.057_968)).abs() < 1e-5);
        assert_eq!(lower_bound(&[1.0, 1.0]), 1.0);
        assert_eq!(lower_bound(&[1.0]), f64::NEG_INFINITY);
    }
}
