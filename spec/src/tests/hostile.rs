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

/// A pair of hostile models over 1 to `vocab_max` tokens.
pub(super) fn pair(vocab_max: usize) -> impl Strategy<Value = Pair> {
    (1..=vocab_max).prop_flat_map(|vocab| {
        prop::collection::vec(laws(vocab), 1..6).prop_map(move |laws| Pair::new(vocab, laws))
    })
}

/// How trees of sampled drafts are grown: per depth, the number of children, or none to stop there.
/// The first child of a level gets the full next level, the others one that is narrower: uneven
/// trees.
pub(super) fn grow(
    pair: &Pair,
    widths: &[usize],
    replacement: bool,
    builder: &mut crate::Builder<'_>,
    choices: &mut dyn crate::Choices,
) -> Result<(), crate::ProposalError> {
    fn below(
        pair: &Pair,
        (parent, widths): (Option<u32>, &[usize]),
        replacement: bool,
        builder: &mut crate::Builder<'_>,
        choices: &mut dyn crate::Choices,
    ) -> Result<(), crate::ProposalError> {
        let Some((&width, rest)) = widths.split_first() else { return Ok(()) };
        let mut path = Vec::new();
        builder.proposal().path_tokens(parent, &mut path);
        if builder.room() == 0 || width == 0 {
            return Ok(());
        }
        let drawn = builder.sample(parent, pair.q(&path), width, replacement, choices)?;
        for (rank, child) in drawn.enumerate() {
            let rest: Vec<usize> = rest.iter().map(|w| w.saturating_sub(rank)).collect();
            below(pair, (Some(child), &rest), replacement, builder, choices)?;
        }
        Ok(())
    }
    below(pair, (None, widths), replacement, builder, choices)
}
