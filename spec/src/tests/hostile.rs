//! Laws that break careless code, and context-dependent models made of them.

use crate::{Law, TokenId};
use proptest::prelude::*;

/// A target and a drafter: for each context, given by the tokens since the root, a pair of laws.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    vocab: usize,
    laws: Vec<(Law, Law)>,
}

impl Pair {
    pub(super) fn new(vocab: usize, laws: Vec<(Law, Law)>) -> Self {
        Self { vocab, laws }
    }

    /// Contexts share the given pairs by a fixed scramble, so different paths meet different laws.
    fn at(&self, path: &[TokenId]) -> &(Law, Law) {
        let index = path.iter().fold(0, |h, &t| h * (self.vocab + 1) + t as usize + 1);
        &self.laws[index % self.laws.len()]
    }

    pub(super) fn p(&self, path: &[TokenId]) -> Law {
        self.at(path).0.clone()
    }

    pub(super) fn q(&self, path: &[TokenId]) -> Law {
        self.at(path).1.clone()
    }
}

fn law(vocab: usize) -> impl Strategy<Value = Law> {
    let weight = prop_oneof![
        2 => Just(0.0),
        6 => 0.001..1.0f64,
        1 => Just(1e-300),
        1 => Just(1e-17),
        1 => Just(3e-310),
        1 => Just(5e-324),
        1 => (-40.0..0.0f64).prop_map(f64::exp),
    ];
    // Where nothing has any weight, a point: filtering would reject too much.
    let any = prop::collection::vec(weight, vocab)
        .prop_map(|weights| Law::dense(weights).unwrap_or_else(|_| Law::point(0)));
    let point = (0..vocab as TokenId).prop_map(Law::point);
    prop_oneof![5 => any, 1 => point]
}

/// The same values with some of them nudged by an ulp or so.
fn nearly(law: &Law, vocab: usize) -> Law {
    let weights = (0..vocab as TokenId).map(|id| law.p(id) * (1.0 + f64::from(id % 3) * 2e-16));
    Law::dense(weights.collect()).unwrap()
}

/// Splits a law's support between two laws; one that cannot be split stays as it is.
fn disjoint(law: &Law) -> (Law, Law) {
    let half = |odd: usize| {
        let kept = law.iter().enumerate().filter(|&(i, _)| i % 2 == odd).map(|(_, entry)| entry);
        let (ids, weights) = kept.unzip();
        Law::sparse(ids, weights).unwrap_or_else(|_| law.clone())
    };
    (half(0), half(1))
}

fn laws(vocab: usize) -> impl Strategy<Value = (Law, Law)> {
    let two = (law(vocab), law(vocab));
    prop_oneof![
        6 => two,
        1 => law(vocab).prop_map(|p| (p.clone(), p)),
        1 => law(vocab).prop_map(move |p| { let q = nearly(&p, vocab); (p, q) }),
        1 => law(vocab).prop_map(|p| disjoint(&p)),
    ]
}

/// A pair of hostile models over `vocab` tokens.
pub(super) fn pair_of(vocab: usize) -> impl Strategy<Value = Pair> {
    prop::collection::vec(laws(vocab), 1..6).prop_map(move |laws| Pair::new(vocab, laws))
}

/// A pair of hostile models over 1 to `vocab_max` tokens.
pub(super) fn pair(vocab_max: usize) -> impl Strategy<Value = Pair> {
    (1..=vocab_max).prop_flat_map(pair_of)
}
