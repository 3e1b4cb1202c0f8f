//! Drafts kept per round: published values, and an independent enumeration in another language
//! (plain dictionaries, whole laws) of the same three models.

use super::exact_law::round;
use super::hostile::Pair;
use super::plan::{Make, Plan};
use crate::{Block, Law, RatioRule, Token, Traversal};

type Laws = [([f64; 3], [f64; 3]); 4];

/// (p, q) by context: close to each other; far apart; q flat.
const NEAR: Laws = [
    ([0.5, 0.3, 0.2], [0.45, 0.35, 0.2]),
    ([0.1, 0.8, 0.1], [0.15, 0.7, 0.15]),
    ([0.3, 0.3, 0.4], [0.3, 0.4, 0.3]),
    ([0.6, 0.1, 0.3], [0.5, 0.2, 0.3]),
];
const FAR: Laws = [
    ([0.6, 0.4, 0.0], [0.1, 0.2, 0.7]),
    ([0.05, 0.9, 0.05], [0.6, 0.0, 0.4]),
    ([0.2, 0.3, 0.5], [0.5, 0.3, 0.2]),
    ([0.0, 0.5, 0.5], [0.9, 0.05, 0.05]),
];
const FLAT: [f64; 3] = [1.0, 1.0, 1.0];
const TO_FLAT: Laws = [
    ([0.5, 0.3, 0.2], FLAT),
    ([0.1, 0.8, 0.1], FLAT),
    ([0.25, 0.5, 0.25], FLAT),
    ([0.7, 0.2, 0.1], FLAT),
];

#[test]
fn drafts_kept_agree_with_an_independent_enumeration() {
    let cases: [(&dyn RatioRule, Plan); 7] = [
        (&Token, Plan::full(Make::With, 3, 1)),
        (&Block, Plan::full(Make::With, 3, 1)),
        (&Token, Plan::full(Make::With, 2, 2)),
        (&Traversal, Plan::full(Make::With, 2, 2)),
        (&Token, Plan::full(Make::Without, 2, 2)),
        (&Traversal, Plan::full(Make::Without, 2, 2)),
        (&Token, Plan::full(Make::Point, 2, 2)),
    ];
    let expected = [
        (
            NEAR,
            [
                2.5745,
                2.632,
                1.899_825,
                1.920_825,
                1.938_178_733_031_674,
                1.953_178_733_031_676,
                1.43,
            ],
        ),
        (
            FAR,
            [0.501, 0.5045, 78.54e-2, 78.54e-2, 1.094_666_666_666_667, 1.130_666_666_666_667, 0.6],
        ),
        (
            TO_FLAT,
            [
                1.771_648_148_148_147,
                1.926_018_518_518_519,
                1.574_567_901_234_565,
                1.641_975_308_641_97,
                1.674_444_444_444_445,
                1.733_333_333_333_335,
                1.475,
            ],
        ),
    ];
    for (laws, values) in expected {
        let law = |weights: [f64; 3]| Law::dense(weights.to_vec()).unwrap();
        let pair = Pair::new(3, laws.map(|(p, q)| (law(p), law(q))).to_vec());
        for ((rule, plan), value) in cases.iter().zip(values) {
            let (round, error) = round(*rule, &pair, plan);
            assert!(error < 1e-14, "{error:e}");
            let kept = round.accepted();
            assert!((kept - value).abs() < 1e-13, "{:?} {}: {kept} {value}", plan.make, plan.depth);
            print!("{kept:.6} ");
        }
        println!();
    }
}

/// Sun et al. 2025, §2: over {a, b}, two drafts; 10/9 are kept token by token, 11/9 as a block.
#[test]
fn the_papers_toy() {
    let third = |a: f64| Law::dense(vec![a, 3.0 - a]).unwrap();
    let pair = Pair::new(2, vec![(third(1.0), third(2.0))]);
    let plan = Plan::full(Make::With, 2, 1);
    for (rule, ninths) in [(&Token as &dyn RatioRule, 10.0), (&Block, 11.0), (&Traversal, 11.0)] {
        let kept = round(rule, &pair, &plan).0.accepted();
        assert!((kept - ninths / 9.0).abs() < 1e-15, "{kept}");
    }
}

/// One level, drawn with replacement (Miao et al. 2023): kept unless every draft is rejected,
/// 1 − Π (1 − Σ min(p_k, q)), p_k what earlier ones left.
#[test]
fn one_level_with_replacement_has_its_closed_form() {
    for laws in [NEAR, FAR, TO_FLAT] {
        let law = |weights: [f64; 3]| Law::dense(weights.to_vec()).unwrap();
        let pair = Pair::new(3, vec![(law(laws[0].0), law(laws[0].1))]);
        for width in 1..5 {
            let (mut p, q) = (pair.p(&[]), pair.q(&[]));
            let mut none = 1.0;
            for _ in 0..width {
                none *= 1.0 - p.iter().map(|(id, p)| p.min(q.p(id))).sum::<f64>();
                p = p.residual(&q).unwrap_or(p);
            }
            for rule in [&Token as &dyn RatioRule, &Traversal] {
                let kept = round(rule, &pair, &Plan::full(Make::With, 1, width)).0.accepted();
                assert!((kept - (1.0 - none)).abs() < 1e-14, "{kept} {none}");
            }
        }
    }
}
