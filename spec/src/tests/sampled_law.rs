//! The joint law over three consecutive rounds, by sampling with the real generator and a fresh
//! seed per sample. One round cannot see a draw that is used again in the next.

use super::coupled::{Rows, draft};
use super::hostile::Pair;
use super::statistics::g_test;
use crate::exact::joint;
use crate::{
    Block, Coupled, DrawMode, Draws, Law, Proposal, Round, Token, Traversal, Verdict, Verifier,
};
use std::collections::BTreeMap;

/// Tokens compared: three rounds commit at least three, five are reached when drafts are accepted.
const LEN: usize = 5;

pub(super) fn model() -> Pair {
    let law = |weights: [f64; 3]| Law::dense(weights.to_vec()).unwrap();
    Pair::new(
        3,
        vec![
            (law([0.5, 0.5, 0.0]), law([0.85, 0.15, 0.0])),
            (law([0.2, 0.3, 0.5]), law([0.5, 0.3, 0.2])),
            (law([0.1, 0.8, 0.1]), law([0.1, 0.6, 0.3])),
            (law([0.6, 0.1, 0.3]), law([0.6, 0.1, 0.3])),
        ],
    )
}

/// p-value of the joint law of the first tokens against the target's own.
pub(super) fn p_value(
    pair: &Pair,
    verifier: &dyn Verifier,
    (mode, widths): (DrawMode, &[usize]),
    samples: u64,
) -> f64 {
    let mut counts: BTreeMap<Vec<u32>, u64> = BTreeMap::new();
    let (mut proposal, mut verdict) = (Proposal::new(), Verdict::default());
    for seed in 0..samples {
        let draws = Draws { seed: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15), sample: 0 };
        let (mut tokens, mut run) = (Vec::new(), Vec::new());
        let mut rounds = 0;
        while rounds < 3 || tokens.len() < LEN {
            draft(pair, &tokens, (draws, mode), widths, &mut proposal);
            let mut rows = Rows { pair, prefix: &tokens, proposal: &proposal, law: None };
            let round = Round { proposal: &proposal, base: tokens.len() as u64, draws };
            verifier.verify(&round, &mut rows, &mut verdict).unwrap();
            verdict.tokens(&proposal, &mut run);
            tokens.extend_from_slice(&run);
            rounds += 1;
        }
        tokens.truncate(LEN);
        *counts.entry(tokens).or_default() += 1;
    }
    let law = joint(&|path| pair.p(path), LEN);
    let stray = counts.keys().any(|run| !law.contains_key(run));
    assert!(!stray, "a run of probability zero was emitted");
    g_test(law.iter().map(|(run, &p)| (p, counts.get(run).copied().unwrap_or_default())))
}

#[test]
fn three_rounds_have_the_targets_joint_law() {
    let with = DrawMode::Sampled { replacement: true };
    let without = DrawMode::Sampled { replacement: false };
    let grid: [(&dyn Verifier, DrawMode, &[usize]); 14] = [
        (&Block, with, &[1, 1]),
        (&Block, DrawMode::Point, &[1, 1, 1]),
        (&Traversal, with, &[2, 2]),
        (&Traversal, without, &[2, 1]),
        (&Traversal, DrawMode::Point, &[2, 2]),
        (&Traversal, DrawMode::Shared, &[2, 1]),
        (&Token, with, &[1, 1]),
        (&Token, with, &[2, 2]),
        (&Token, without, &[2, 1]),
        (&Token, DrawMode::Point, &[2, 2]),
        (&Token, DrawMode::Shared, &[1, 1]),
        (&Coupled, DrawMode::Shared, &[1, 1]),
        (&Coupled, DrawMode::Shared, &[2, 2]),
        (&Coupled, without, &[2]),
    ];
    for (verifier, mode, widths) in grid {
        let p = p_value(&model(), verifier, (mode, widths), 40_000);
        // Fourteen tests with fixed seeds: a family error of 1e-4. What the test sees is measured
        // by `teeth::chance`.
        assert!(p > 7e-6, "{} {mode:?} {widths:?}: p = {p:e}", verifier.name());
    }
}
