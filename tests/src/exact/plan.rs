//! Drafters of every shape, for the oracle.
//!
//! Each decision (how many children, drawn how, whether at all) is a fixed scramble of the tokens on the path. So trees are
//! uneven, origins are mixed, and drafting stops early for reasons that look at tokens which will be verified: all that the
//! rules allow, and nothing more.

use redline::TokenId;
use redline::spec::{Builder, Choices, ProposalError};

use crate::random::Random;
use crate::sampling::drafts::likeliest;

use super::hostile::Pair;

/// How children are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Make {
    /// At random, with replacement.
    With,
    /// At random, without.
    Without,
    /// The likeliest.
    Point,
    /// Any of them, by node.
    Mixed,
}

/// A drafter.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// How children are made.
    pub make: Make,
    /// Tokens of the longest path.
    pub depth: usize,
    /// Children at most.
    pub width: usize,
    /// Nodes at most.
    pub limit: usize,
    /// Decides by node; `None`: full width and depth everywhere.
    salt: Option<u64>,
}

impl Plan {
    /// Full width and depth.
    pub fn full(make: Make, depth: usize, width: usize) -> Self {
        Self { make, depth, width, limit: 64, salt: None }
    }

    /// One of at most `width` children whose number of branches stays within reason for `vocab` tokens.
    pub fn random(vocab: usize, width: usize, random: &mut Random) -> Self {
        let most = match (width, vocab) {
            (1, _) => 3,
            (_, 0..=2) => 7,
            (_, 3) => 5,
            (_, 4) => 4,
            _ => 3,
        };
        let makes = [Make::With, Make::Without, Make::Point, Make::Mixed];
        let make = makes[random.below(makes.len())];
        let salt = (make == Make::Mixed || random.below(4) > 0).then(|| random.next_u64());
        Self {
            make,
            depth: random.below(4),
            width: 1 + random.below(width),
            limit: 1 + random.below(most),
            salt,
        }
    }

    fn scramble(&self, path: &[TokenId], what: u64) -> Option<u64> {
        let step =
            |h: u64, t: u64| (h ^ (t + 1)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        self.salt.map(|salt| path.iter().fold(step(salt, what), |h, &t| step(h, u64::from(t))) >> 7)
    }

    /// Children to draw after `path`.
    pub fn children(&self, path: &[TokenId]) -> usize {
        if path.len() >= self.depth {
            return 0;
        }
        // One path in six ends early; other widths are as likely as each other.
        match self.scramble(path, 1) {
            Some(h) if h % 6 == 0 => 0,
            Some(h) => 1 + (h / 6) as usize % self.width,
            None => self.width,
        }
    }

    /// How they are made.
    pub fn make_at(&self, path: &[TokenId]) -> Make {
        let each = [Make::With, Make::Without, Make::Point];
        match self.make {
            Make::Mixed => each[self.scramble(path, 2).unwrap_or(0) as usize % each.len()],
            make => make,
        }
    }

    /// Fills a proposal.
    ///
    /// # Errors
    /// The builder's.
    pub fn draft(
        &self,
        pair: &Pair,
        builder: &mut Builder<'_>,
        choices: &mut dyn Choices,
    ) -> Result<(), ProposalError> {
        let mut open = std::collections::VecDeque::from([None]);
        let mut path = Vec::new();
        while let Some(parent) = open.pop_front() {
            builder.proposal().path_tokens(parent, &mut path);
            let width = self.children(&path).min(builder.room());
            if width == 0 {
                continue;
            }
            let q = pair.q(&path);
            match self.make_at(&path) {
                Make::Point | Make::Mixed => {
                    for token in likeliest(&q, width) {
                        open.push_back(Some(builder.point(parent, token)?));
                    }
                }
                make => {
                    let replacement = make == Make::With;
                    let drawn = builder.sample(parent, q, width, replacement, choices)?;
                    open.extend(drawn.map(Some));
                }
            }
        }
        Ok(())
    }
}
