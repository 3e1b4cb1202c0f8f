//! Drafts kept on average of three families of laws, by every rule and shape.

use redline::TokenId;
use redline::spec::{Block, RatioRule, Token, Traversal};

use crate::sampling::race::child;

use super::hostile::Pair;
use super::plan::{Make, Plan};
use super::round;

/// A name, and weights of p and q by context.
pub type Family = (&'static str, [([f64; 3], [f64; 3]); 4]);

/// (p, q) by context: close to each other; far apart; q knows nothing.
pub const FAMILIES: [Family; 3] = [
    (
        "near",
        [
            ([0.5, 0.3, 0.2], [0.45, 0.35, 0.2]),
            ([0.1, 0.8, 0.1], [0.15, 0.7, 0.15]),
            ([0.3, 0.3, 0.4], [0.3, 0.4, 0.3]),
            ([0.6, 0.1, 0.3], [0.5, 0.2, 0.3]),
        ],
    ),
    (
        "far",
        [
            ([0.6, 0.4, 0.0], [0.1, 0.2, 0.7]),
            ([0.05, 0.9, 0.05], [0.6, 0.0, 0.4]),
            ([0.2, 0.3, 0.5], [0.5, 0.3, 0.2]),
            ([0.0, 0.5, 0.5], [0.9, 0.05, 0.05]),
        ],
    ),
    (
        "flat",
        [
            ([0.5, 0.3, 0.2], [1.0, 1.0, 1.0]),
            ([0.1, 0.8, 0.1], [1.0, 1.0, 1.0]),
            ([0.25, 0.5, 0.25], [1.0, 1.0, 1.0]),
            ([0.7, 0.2, 0.1], [1.0, 1.0, 1.0]),
        ],
    ),
];

/// Drafts kept on average by `rule`, of a chain of three and of a tree of two levels with two children each (drawn without
/// replacement, or first in the race), by family. `None` where the rule does not take the shape.
pub fn kept(rule: &str, tree: bool) -> Option<[f64; 3]> {
    let (depth, width) = if tree { (2, 2) } else { (3, 1) };
    let of = |(_, laws): Family| {
        let pair = Pair::of_three(laws);
        let plan = Plan::full(Make::Without, depth, width);
        let checked: &dyn RatioRule = match rule {
            "token" => &Token,
            "block" => &Block,
            "traversal" => &Traversal,
            _ => return coupled(&pair, &mut Vec::new(), depth, width),
        };
        round(checked, &pair, &plan).0.accepted()
    };
    (!(tree && rule == "block")).then(|| FAMILIES.map(of))
}

/// With the same noise: at each level the target's sample is one of the first `width`.
fn coupled(pair: &Pair, path: &mut Vec<TokenId>, depth: usize, width: usize) -> f64 {
    if depth == 0 {
        return 0.0;
    }
    let (p, q) = (pair.p(path), pair.q(path));
    let mut sum = 0.0;
    for token in 0..pair.vocab() as TokenId {
        let kept: f64 = (0..width).map(|ahead| child(&p, &q, pair.vocab(), token, ahead)).sum();
        if kept > 0.0 {
            path.push(token);
            sum += kept * (1.0 + coupled(pair, path, depth - 1, width));
            path.pop();
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact::shared;
    use redline::spec::{Coupled, Draws, Round, Verdict, Verifier};

    /// The first two from an implementation in another language.
    #[test]
    fn what_is_kept_is_known() {
        let near = |rule, tree| kept(rule, tree).unwrap()[0];
        assert!((near("block", false) - 2.632).abs() < 1e-12);
        assert!((near("traversal", true) - 1.953_178_733_031_676).abs() < 1e-12);
        assert_eq!(kept("block", true), None);
    }

    #[test]
    fn coupled_keeps_its_closed_form() {
        let pair = Pair::of_three(FAMILIES[1].1);
        let mut kept_now = 0;
        let samples = 40_000;
        for seed in 0..samples {
            let draws = Draws { seed, sample: 0 };
            let proposal = shared(&pair, (2, 2), draws, 7);
            let mut rows = crate::exact::Rows { pair: &pair, proposal: &proposal, law: None };
            let mut verdict = Verdict::default();
            Coupled
                .verify(&Round { proposal: &proposal, base: 7, draws }, &mut rows, &mut verdict)
                .unwrap();
            kept_now += verdict.path.len();
        }
        let (found, expected) =
            (kept_now as f64 / samples as f64, kept("coupled", true).unwrap()[1]);
        assert!((found - expected).abs() < 0.02, "{found} {expected}");
    }
}
