//! `token`: the exact law over all branches of the production code.

use super::hostile::{Pair, grow, pair};
use crate::exact::{distance, emitted, joint};
use crate::{Law, Token};
use proptest::prelude::*;

/// Agreement asked for; what is left is rounding.
const TOLERANCE: f64 = 1e-12;

/// Σ over depths of the probability that the chain gets that far: Leviathan et al. 2023, with the
/// acceptance of each context, β(c) = Σ min(p, q).
fn accepted_by_formula(pair: &Pair, depth: usize, path: &mut Vec<u32>) -> f64 {
    if depth == 0 {
        return 0.0;
    }
    let (p, q) = (pair.p(path), pair.q(path));
    let mut sum = 0.0;
    for (token, p) in p.iter() {
        let both = p.min(q.p(token));
        if both > 0.0 {
            path.push(token);
            sum += both * (1.0 + accepted_by_formula(pair, depth - 1, path));
            path.pop();
        }
    }
    sum
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn chains_emit_the_targets_law(pair in pair(5), depth in 0usize..4, stop_at in 0usize..4) {
        let target = |path: &[u32]| pair.p(path);
        // Stopping early by a rule that looks at the law only, before anything is drawn from it.
        let round = emitted(&Token, 3, &target, |builder, choices| {
            let mut parent = None;
            for i in 0..depth {
                let mut path = Vec::new();
                builder.proposal().path_tokens(parent, &mut path);
                let q = pair.q(&path);
                if i >= stop_at && q.support_len() > 2 {
                    break;
                }
                parent = builder.sample(parent, q, 1, true, choices)?.next();
            }
            Ok(())
        }).unwrap();
        let len = depth + 1;
        let error = distance(&round.completed(&target, len), &joint(&target, len));
        prop_assert!(error < TOLERANCE, "{error:e}");
        if stop_at >= depth {
            let formula = accepted_by_formula(&pair, depth, &mut Vec::new());
            prop_assert!((round.accepted() - formula).abs() < TOLERANCE);
        }
        prop_assert!(round.fallbacks < TOLERANCE, "{}", round.fallbacks);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    #[test]
    fn sampled_trees_emit_the_targets_law(
        pair in pair(3),
        first in 1usize..4,
        second in 0usize..3,
        limit in 1usize..6,
        replacement in any::<bool>(),
    ) {
        let target = |path: &[u32]| pair.p(path);
        let round = emitted(&Token, limit, &target, |builder, choices| {
            grow(&pair, &[first, second], replacement, builder, choices)
        }).unwrap();
        let error = distance(&round.completed(&target, 3), &joint(&target, 3));
        prop_assert!(error < TOLERANCE, "{error:e}");
    }

    #[test]
    fn free_trees_emit_the_targets_law(
        pair in pair(5),
        nodes in prop::collection::vec((any::<u8>(), 0u32..5), 0..7),
        shared in any::<bool>(),
    ) {
        let target = |path: &[u32]| pair.p(path);
        let mut hit = 0.0;
        let round = emitted(&Token, 7, &target, |builder, _| {
            hit = 0.0;
            for &(parent, token) in &nodes {
                let len = builder.proposal().len();
                let parent = (parent as usize % (len + 1)).checked_sub(1).map(|n| n as u32);
                // A token that is there already is refused; that is all the tree needs.
                let added = match shared {
                    true => builder.shared(parent, token),
                    false => builder.point(parent, token),
                };
                if let Ok(node) = added {
                    // Each node is reached iff the target draws its path.
                    let mut path = Vec::new();
                    builder.proposal().path_tokens(Some(node), &mut path);
                    hit += (0..path.len()).map(|i| pair.p(&path[..i]).p(path[i])).product::<f64>();
                }
            }
            Ok(())
        }).unwrap();
        let error = distance(&round.completed(&target, 4), &joint(&target, 4));
        prop_assert!(error < TOLERANCE, "{error:e}");
        prop_assert!((round.accepted() - hit).abs() < TOLERANCE);
    }
}

#[test]
fn three_rounds_in_a_row_keep_the_joint_law() {
    let law = |weights: [f64; 3]| Law::dense(weights.to_vec()).unwrap();
    let pair = Pair::new(
        3,
        vec![
            (law([0.5, 0.3, 0.2]), law([0.1, 0.2, 0.7])),
            (law([0.05, 0.9, 0.05]), law([0.6, 0.0, 0.4])),
            (law([0.3, 0.3, 0.4]), law([0.3, 0.3, 0.4])),
            (law([0.0, 0.5, 0.5]), law([0.9, 0.05, 0.05])),
        ],
    );
    // The walk itself: each round starts where the last one ended.
    fn rounds(pair: &Pair, left: usize, prefix: &[u32], p: f64, runs: &mut crate::exact::Runs) {
        let target = |path: &[u32]| pair.p(&[prefix, path].concat());
        let draft = |builder: &mut crate::Builder<'_>, choices: &mut dyn crate::Choices| {
            let q = |path: &[u32]| pair.q(&[prefix, path].concat());
            let first = builder.sample(None, q(&[]), 1, true, choices)?.start;
            let token = builder.proposal().nodes()[0].token;
            builder.sample(Some(first), q(&[token]), 1, true, choices).map(|_| ())
        };
        let round = emitted(&Token, 2, &target, draft).unwrap();
        if left == 1 {
            let tail = round.completed(&target, 9 - prefix.len());
            for (tokens, q) in tail {
                let run = [prefix, &tokens[..]].concat();
                *runs.entry(run[..4].to_vec()).or_default() += p * q;
            }
            return;
        }
        for ((_, tokens), q) in &round.outcomes {
            rounds(pair, left - 1, &[prefix, tokens].concat(), p * q, runs);
        }
    }
    let mut runs = crate::exact::Runs::new();
    rounds(&pair, 2, &[], 1.0, &mut runs);
    let target = |path: &[u32]| pair.p(path);
    assert!(distance(&runs, &joint(&target, 4)) < TOLERANCE);
}
