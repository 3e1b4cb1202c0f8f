//! Picking the likeliest tokens without sorting the vocabulary.

use crate::TokenId;
use crate::draws::GROUP;
use std::cmp::Ordering;

/// Larger values first, lower ids first among equals.
pub(crate) fn by_rank(values: &[f32], a: u32, b: u32) -> Ordering {
    values[b as usize].total_cmp(&values[a as usize]).then(a.cmp(&b))
}

/// Leaves in `out` the ids of the `k` largest values above −∞, in no order; lower ids win ties. `tops` has the largest
/// of each group of values.
///
/// One pass that keeps candidates above a rising threshold, cut back to `k` whenever they reach
/// twice as many, and passes groups by that have none: O(V) amortised even for adversarial orders, because each cut is
/// linear and removes half; on others hardly more than looking at `tops`.
pub(crate) fn top_k(values: &[f32], tops: &[f32], k: usize, out: &mut Vec<u32>) {
    out.clear();
    let limit = k.saturating_mul(2).max(64);
    let mut threshold = f32::NEG_INFINITY;
    for ((group, values_of), &top) in (0_u32..).zip(values.chunks(GROUP as usize)).zip(tops) {
        if top <= threshold {
            continue;
        }
        for (id, &value) in (group * GROUP..).zip(values_of) {
            // Strictly above: ids ascend, so an equal value has lost to the k-th already kept.
            if value > threshold {
                out.push(id);
                if out.len() >= limit {
                    threshold = cut(values, k, out);
                }
            }
        }
    }
    if out.len() > k {
        cut(values, k, out);
    }
}

/// Cuts `out` to the best `k` and returns the value of the last of them.
fn cut(values: &[f32], k: usize, out: &mut Vec<u32>) -> f32 {
    let (_, &mut last, _) = out.select_nth_unstable_by(k - 1, |&a, &b| by_rank(values, a, b));
    out.truncate(k);
    values[last as usize]
}

/// Number of binades of an f64.
const BINADES: usize = 2048;

/// Copies to `out` (ids ascending, weights) the likeliest of the tokens `from` until their mass reaches
/// `goal`. Lower ids win ties; at least one token stays.
///
/// `from` has the ids and non-negative weights. Masses are summed by power of two
/// first; only the tokens of the one binade in which the sum crosses the goal are sorted.
pub(crate) fn top_p(
    (ids, weights): (&[TokenId], &[f64]),
    goal: f64,
    order: &mut Vec<u32>,
    out: (&mut Vec<TokenId>, &mut Vec<f64>),
) {
    let mut masses = [0.0_f64; BINADES];
    for &w in weights {
        masses[binade(w)] += w;
    }
    let mut above = 0.0;
    let mut edge = 0;
    for (index, &mass) in masses.iter().enumerate().rev() {
        edge = index;
        if mass > 0.0 && above + mass >= goal {
            break;
        }
        above += mass;
    }
    order.clear();
    let in_edge = |&(_, &w): &(usize, &f64)| w > 0.0 && binade(w) == edge;
    order.extend(weights.iter().enumerate().filter(in_edge).map(|(index, _)| index as u32));
    order.sort_unstable_by(|&a, &b| {
        weights[b as usize].total_cmp(&weights[a as usize]).then(a.cmp(&b))
    });
    // A token stays iff the mass before it is below the goal.
    let mut last = None;
    for &index in order.iter() {
        if above >= goal && last.is_some() {
            break;
        }
        last = Some(index as usize);
        above += weights[index as usize];
    }
    let Some(last) = last else { return };
    let cutoff = weights[last];
    for (index, &w) in weights.iter().enumerate() {
        if w > cutoff || (w == cutoff && index <= last) {
            out.0.push(ids[index]);
            out.1.push(w);
        }
    }
}

/// The biased exponent: weights of one binade are within a factor of two of each other.
fn binade(w: f64) -> usize {
    (w.to_bits() >> 52) as usize & (BINADES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive_order(weights: &[f64]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..weights.len()).filter(|&i| weights[i] > 0.0).collect();
        order.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]).then(a.cmp(&b)));
        order
    }

    proptest! {
        #[test]
        fn top_k_is_the_head_of_the_sorted_row(
            values in prop::collection::vec(
                prop_oneof![
                    4 => (-9i8..9).prop_map(f32::from),
                    1 => Just(f32::NEG_INFINITY),
                    // Close together: whatever is taken for another group's is missed.
                    4 => 8.0..8.1f32,
                ],
                1..900,
            ),
            k in 1usize..80,
        ) {
            let mut expected: Vec<u32> = (0..values.len() as u32)
                .filter(|&i| values[i as usize] > f32::NEG_INFINITY)
                .collect();
            expected.sort_by(|&a, &b| by_rank(&values, a, b));
            expected.truncate(k);
            expected.sort_unstable();
            let mut got = Vec::new();
            let mut tops = Vec::new();
            crate::row::scan(&values, &mut tops).unwrap();
            top_k(&values, &tops, k, &mut got);
            got.sort_unstable();
            prop_assert_eq!(got, expected);
        }

        #[test]
        fn top_p_is_the_shortest_head_that_reaches_the_mass(
            exponents in prop::collection::vec((-12i32..1, 0u8..4), 1..120),
            p in 0.01f64..1.0,
        ) {
            // Quarters of powers of two: sums are exact, so ties with the goal mean the same to
            // both.
            let weights: Vec<f64> =
                exponents.iter().map(|&(e, q)| 2f64.powi(e) * f64::from(q) / 4.0).collect();
            prop_assume!(weights.iter().any(|&w| w > 0.0));
            let goal = p * weights.iter().sum::<f64>();
            let mut expected = Vec::new();
            let mut mass = 0.0;
            for i in naive_order(&weights) {
                if mass >= goal && !expected.is_empty() {
                    break;
                }
                mass += weights[i];
                expected.push(i as u32);
            }
            expected.sort_unstable();
            let (mut ids, mut kept) = (Vec::new(), Vec::new());
            let all: Vec<u32> = (0..weights.len() as u32).collect();
            top_p((&all, &weights), goal, &mut Vec::new(), (&mut ids, &mut kept));
            prop_assert_eq!(ids, expected);
        }
    }
}
