//! The ratio rules: the exact law over all branches of the production code, drafting included, and
//! how many drafts are kept.

use super::hostile::{Pair, pair_of};
use super::plan::{Make, Plan, best, planned};
use crate::exact::{Emitted, distance, emitted, joint, rounds};
use crate::{Block, Builder, Choices, Law, RatioRule, Token, Traversal};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::Cell;

/// Agreement asked for; what is left is rounding.
pub(super) const TOLERANCE: f64 = 1e-12;

/// One round of `plan` under `rule`, and the error of its law.
pub(super) fn round(rule: &dyn RatioRule, pair: &Pair, plan: &Plan) -> (Emitted, f64) {
    let target = |path: &[u32]| pair.p(path);
    let round = emitted(rule, plan.limit, &target, |builder, choices| {
        plan.draft(pair, &[], builder, choices)
    })
    .unwrap();
    let len = plan.depth + 1;
    let error = distance(&round.completed(&target, len), &joint(&target, len));
    (round, error)
}

/// Ten thousand hostile cases: `check` gives the error of each, and the largest is printed.
fn every<S: Strategy>(
    name: &str,
    cases: u32,
    strategy: &S,
    check: impl Fn(&S::Value) -> Result<f64, TestCaseError>,
) {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new(config);
    let worst = Cell::new(0.0_f64);
    let run = runner.run(strategy, |case| {
        let error = check(&case)?;
        worst.set(worst.get().max(error));
        prop_assert!(error < TOLERANCE, "{error:e}");
        Ok(())
    });
    run.unwrap_or_else(|failure| panic!("{name}: {failure}"));
    println!("{name}: {cases} cases, largest error {:.1e}", worst.get());
}

/// Expected drafts kept of a chain, by the published formulas. With Q the law of the drafts:
/// `token` keeps x₁…xᵢ with mass Π min(q, p) (Leviathan et al. 2023, Theorem 3.5), `block` with
/// mass Wᵢ = min(Q(x₁…xᵢ), Wᵢ₋₁·p(xᵢ)), for Q·pᵢ obeys that recursion (Sun et al. 2025, §4).
fn kept(
    pair: &Pair,
    plan: &Plan,
    path: &mut Vec<u32>,
    (drawn, kept): (f64, f64),
    block: bool,
) -> f64 {
    if plan.children(path) == 0 || path.len() >= plan.limit {
        return 0.0;
    }
    let (p, q) = (pair.p(path), pair.q(path));
    let q = match plan.make(path) {
        Make::With | Make::Without => q,
        _ => Law::point(best(&q, 1)[0]),
    };
    let mut sum = 0.0;
    for (token, q) in q.iter() {
        let here =
            if block { (drawn * q).min(kept * p.p(token)) } else { kept * q.min(p.p(token)) };
        if here > 0.0 {
            path.push(token);
            sum += here + self::kept(pair, plan, path, (drawn * q, here), block);
            path.pop();
        }
    }
    sum
}

#[test]
fn token_is_exact_on_chains_and_keeps_what_it_should() {
    every("token, chains", 10_000, &planned(5, 1), |(pair, plan)| {
        let (token, error) = round(&Token, pair, plan);
        let formula = kept(pair, plan, &mut Vec::new(), (1.0, 1.0), false);
        Ok(error.max((token.accepted() - formula).abs()).max(token.fallbacks))
    });
}

#[test]
fn block_is_exact_on_chains_and_keeps_what_it_should() {
    every("block, chains", 10_000, &planned(5, 1), |(pair, plan)| {
        let (block, error) = round(&Block, pair, plan);
        let formula = kept(pair, plan, &mut Vec::new(), (1.0, 1.0), true);
        let by_token = kept(pair, plan, &mut Vec::new(), (1.0, 1.0), false);
        prop_assert!(formula > by_token - TOLERANCE);
        Ok(error.max((block.accepted() - formula).abs()).max(block.fallbacks))
    });
}

#[test]
fn traversal_is_block_on_chains() {
    every("traversal, chains", 2_000, &planned(4, 1), |(pair, plan)| {
        let ((block, _), (traversal, error)) =
            (round(&Block, pair, plan), round(&Traversal, pair, plan));
        prop_assert_eq!(block.outcomes, traversal.outcomes);
        Ok(error)
    });
}

#[test]
fn token_and_traversal_are_exact_on_trees_and_traversal_keeps_no_less() {
    every("token and traversal, trees", 10_000, &planned(5, 3), |(pair, plan)| {
        let ((token, a), (traversal, b)) =
            (round(&Token, pair, plan), round(&Traversal, pair, plan));
        let gain = traversal.accepted() - token.accepted();
        prop_assert!(gain > -TOLERANCE, "{gain:e}");
        // Without anything below the children there is nothing to gain.
        let level = if plan.depth <= 1 { gain } else { 0.0 };
        Ok(a.max(b).max(token.fallbacks).max(traversal.fallbacks).max(level))
    });
}

/// The joint law over several rounds of uneven trees that stop early.
#[test]
fn several_rounds_keep_the_joint_law() {
    let rules: [&dyn RatioRule; 3] = [&Token, &Block, &Traversal];
    let cases = (pair_of(2), super::plan::plan(2, 2), 0..3usize);
    every("all rules, six tokens", 400, &cases, |(pair, plan, rule)| {
        let plan = Plan { width: if *rule == 1 { 1 } else { plan.width }, ..plan.clone() };
        let target = |path: &[u32]| pair.p(path);
        let draft = |prefix: &[u32], builder: &mut Builder<'_>, choices: &mut dyn Choices| {
            plan.draft(pair, prefix, builder, choices)
        };
        let runs = rounds(rules[*rule], plan.limit.min(4), &target, draft, 6).unwrap();
        Ok(distance(&runs, &joint(&target, 6)))
    });
}

/// Larger than what ten thousand cases can be: five tokens, three levels, seven nodes.
#[test]
fn large_trees_are_exact() {
    let law = |weights: [f64; 5]| Law::dense(weights.to_vec()).unwrap();
    let pair = Pair::new(
        5,
        vec![
            (law([0.4, 0.3, 0.2, 0.1, 0.0]), law([0.1, 0.2, 0.1, 0.3, 0.3])),
            (law([0.05, 0.8, 0.05, 0.1, 0.0]), law([0.6, 0.0, 0.4, 0.0, 0.0])),
            (law([0.2, 0.2, 0.2, 0.2, 0.2]), law([0.7, 0.1, 0.1, 0.05, 0.05])),
            (law([0.0, 0.0, 1e-9, 0.5, 0.5]), law([1e-9, 0.5, 0.0, 0.0, 0.5])),
        ],
    );
    for (make, limit) in [(Make::Without, 7), (Make::Mixed, 7), (Make::With, 5)] {
        // The first scramble that gives the root two children and each of them some.
        let plan = |salt| Plan { limit, salt: Some(salt), ..Plan::full(make, 3, 3) };
        let uneven = |plan: &Plan| {
            plan.children(&[]) == 2 && (0..5).all(|token| plan.children(&[token]) > 0)
        };
        let plan = (0..).map(plan).find(uneven).unwrap();
        let ((token, a), (traversal, b)) =
            (round(&Token, &pair, &plan), round(&Traversal, &pair, &plan));
        assert!(a < TOLERANCE && b < TOLERANCE, "{make:?}: {a:e}, {b:e}");
        assert!(traversal.accepted() > token.accepted() + 1e-6, "{make:?}");
    }
}

/// After the first draft the rest of q is so small that its inverse is infinite.
#[test]
fn what_is_left_of_q_may_be_denormal() {
    let law = |weights: [f64; 4]| Law::dense(weights.to_vec()).unwrap();
    for rest in [3e-310, 1e-300, 1e-17] {
        let pair = Pair::new(
            4,
            vec![
                (law([0.0, 0.8, 0.1, 0.1]), law([1.0, rest, rest, 2.0 * rest])),
                (law([0.5, 0.3, 0.2, rest]), law([rest, rest, 1.0, 0.0])),
            ],
        );
        for rule in [&Token as &dyn RatioRule, &Traversal] {
            for (make, depth, width) in [(Make::Without, 1, 4), (Make::Without, 2, 2)] {
                let (round, error) = round(rule, &pair, &Plan::full(make, depth, width));
                assert!(error < TOLERANCE, "{rest:e} {depth}: {error:e}");
                assert!(round.fallbacks < TOLERANCE);
            }
        }
    }
}
