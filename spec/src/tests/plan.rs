//! [`Plan`]: drafters of every shape, for the oracle.
//!
//! Each decision (how many children, drawn how, whether at all) is a fixed scramble of the tokens on
//! the path. So trees are uneven, origins are mixed, and drafting stops early for reasons that look
//! at tokens which will be verified: all that the rules allow, and nothing more.

use super::hostile::Pair;
use crate::{Builder, Choices, ProposalError, TokenId};
use proptest::prelude::*;

/// How children are made, where the plan does not mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Make {
    With,
    Without,
    Point,
    Shared,
    /// Any of them, by node.
    Mixed,
}

/// A drafter.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) make: Make,
    pub(super) depth: usize,
    pub(super) width: usize,
    /// Nodes at most.
    pub(super) limit: usize,
    /// Decides by node; `None`: full width and depth everywhere.
    pub(super) salt: Option<u64>,
    /// Level by level, or one child's subtree after the other: what room is left then depends on
    /// other things.
    pub(super) breadth_first: bool,
}

impl Plan {
    /// Full width and depth.
    pub(super) fn full(make: Make, depth: usize, width: usize) -> Self {
        Self { make, depth, width, limit: 64, salt: None, breadth_first: true }
    }

    fn scramble(&self, path: &[TokenId], what: u64) -> Option<u64> {
        let step =
            |h: u64, t: u64| (h ^ (t + 1)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        self.salt.map(|salt| path.iter().fold(step(salt, what), |h, &t| step(h, u64::from(t))) >> 7)
    }

    /// Children to draw after `path`: a function of tokens that are verified.
    pub(super) fn children(&self, path: &[TokenId]) -> usize {
        if path.len() >= self.depth {
            return 0;
        }
        // One in six paths ends early; other widths are as likely as each other.
        match self.scramble(path, 1) {
            Some(h) if h % 6 == 0 => 0,
            Some(h) => 1 + (h / 6) as usize % self.width,
            None => self.width,
        }
    }

    pub(super) fn make(&self, path: &[TokenId]) -> Make {
        let each = [Make::With, Make::Without, Make::Point, Make::Shared];
        match self.make {
            Make::Mixed => each[self.scramble(path, 2).unwrap_or(0) as usize % 4],
            make => make,
        }
    }

    /// Fills the proposal after `prefix`.
    pub(super) fn draft(
        &self,
        pair: &Pair,
        prefix: &[TokenId],
        builder: &mut Builder<'_>,
        choices: &mut dyn Choices,
    ) -> Result<(), ProposalError> {
        let mut open = vec![None];
        while !open.is_empty() {
            let parent = if self.breadth_first { open.remove(0) } else { open.pop().flatten() };
            let mut path = Vec::new();
            builder.proposal().path_tokens(parent, &mut path);
            let width = self.children(&path);
            let q = pair.q(&[prefix, &path].concat());
            let mut below = Vec::new();
            match self.make(&path) {
                _ if builder.room() == 0 || width == 0 => {}
                make @ (Make::With | Make::Without) => {
                    let replacement = make == Make::With;
                    below.extend(builder.sample(parent, q, width, replacement, choices)?);
                }
                make => {
                    for token in best(&q, width.min(builder.room())) {
                        below.push(match make {
                            Make::Shared => builder.shared(parent, token)?,
                            _ => builder.point(parent, token)?,
                        });
                    }
                }
            }
            if !self.breadth_first {
                below.reverse();
            }
            open.extend(below.into_iter().map(Some));
        }
        Ok(())
    }
}

/// The likeliest tokens; any fixed choice would do.
pub(super) fn best(q: &crate::Law, width: usize) -> Vec<TokenId> {
    let mut all: Vec<_> = q.iter().collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all.into_iter().take(width).map(|(id, _)| id).collect()
}

/// Plans whose number of branches stays within reason for `vocab` tokens.
pub(super) fn plan(vocab: usize, width: usize) -> impl Strategy<Value = Plan> {
    let limit: usize = match (width, vocab) {
        (1, _) => 3,
        (_, 0..=2) => 7,
        (_, 3) => 5,
        (_, 4) => 4,
        _ => 3,
    };
    let make = prop_oneof![
        3 => Just(Make::With),
        3 => Just(Make::Without),
        1 => Just(Make::Point),
        1 => Just(Make::Shared),
        3 => Just(Make::Mixed),
    ];
    let salt = prop_oneof![1 => Just(None), 3 => any::<u64>().prop_map(Some)];
    (make, 0..4usize, 1..=width, 1..=limit, salt, any::<bool>()).prop_map(
        |(make, depth, width, limit, salt, breadth_first)| {
            let salt = if make == Make::Mixed { Some(salt.unwrap_or(7)) } else { salt };
            Plan { make, depth, width, limit, salt, breadth_first }
        },
    )
}

/// A drafter and its models, over up to `vocab` tokens.
pub(super) fn planned(vocab: usize, width: usize) -> impl Strategy<Value = (Pair, Plan)> {
    (1..=vocab).prop_flat_map(move |vocab| (super::hostile::pair_of(vocab), plan(vocab, width)))
}
