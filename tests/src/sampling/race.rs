//! Closed form of a race that draft and target run with the same noise.

use redline::TokenId;
use redline::spec::Law;

/// The probability that the target's sample is `token` while just `ahead` others are before it in the drafter's race: it is
/// child number `ahead`.
///
/// With E the noise, the target's sample is argmin E/p and the drafter's order that of E/q. Let E of `token` be e. It wins
/// the target's race iff E_j > e·p_j/p for all others, and j is before it in the drafter's iff E_j < e·q_j/q. For given e
/// these are independent over j, with probabilities that are sums of exponentials of e; their product integrates to
/// reciprocals. With nobody ahead this is 1 / Σ max(p_j/p, q_j/q).
pub fn child(p: &Law, q: &Law, vocab: usize, token: TokenId, ahead: usize) -> f64 {
    if p.p(token) == 0.0 || q.p(token) == 0.0 {
        return 0.0;
    }
    let others: Vec<(f64, f64)> = (0..vocab as TokenId)
        .filter(|&other| other != token)
        .map(|other| (p.p(other) / p.p(token), q.p(other) / q.p(token)))
        .collect();
    integral(&others, 1.0, ahead)
}

/// ∫ e^(−rate·e) Π …, where `ahead` of the others are to be ahead.
fn integral(others: &[(f64, f64)], rate: f64, ahead: usize) -> f64 {
    if ahead > others.len() {
        return 0.0;
    }
    let Some((&(a, b), rest)) = others.split_first() else { return 1.0 / rate };
    let behind = integral(rest, rate + a.max(b), ahead);
    if ahead == 0 || b <= a {
        return behind;
    }
    behind + integral(rest, rate + a, ahead - 1) - integral(rest, rate + b, ahead - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use redline::spec::{Draws, coupled_sample, coupled_top};

    /// Nobody ahead: the published formula. Anybody ahead: p itself. And what the races really give.
    #[test]
    fn the_closed_form_is_that_of_the_races() {
        let p = Law::dense(vec![0.4, 0.3, 0.2, 0.1]).unwrap();
        let q = Law::dense(vec![0.1, 0.5, 0.4, 0.0]).unwrap();
        let mut counts = [[0_u32; 4]; 4];
        let samples = 200_000;
        for seed in 0..samples {
            let draws = Draws { seed, sample: 0 };
            let y = coupled_sample(&p, &draws, 3);
            if let Some(ahead) = coupled_top(&q, &draws, 3, 4).iter().position(|&x| x == y) {
                counts[y as usize][ahead] += 1;
            }
        }
        for token in 0..4 {
            let first: f64 = (0..4).map(|j| (p.p(j) / p.p(token)).max(q.p(j) / q.p(token))).sum();
            assert!((child(&p, &q, 4, token, 0) - 1.0 / first).abs() < 1e-12 || token == 3);
            let sum: f64 = (0..4).map(|ahead| child(&p, &q, 4, token, ahead)).sum();
            assert!((sum - if token == 3 { 0.0 } else { p.p(token) }).abs() < 1e-12);
            for (ahead, &count) in counts[token as usize].iter().enumerate() {
                let expected = child(&p, &q, 4, token, ahead);
                let found = f64::from(count) / samples as f64;
                let error = (expected * (1.0 - expected) / samples as f64).sqrt();
                assert!((found - expected).abs() < 5.0 * error + 1e-9, "{token} {ahead}");
            }
        }
    }
}
