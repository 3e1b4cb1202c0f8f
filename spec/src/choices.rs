//! [`Choices`]: the only two ways in which a ratio test meets chance.

use crate::draws::Purpose;
use crate::{Law, TokenId};

/// Names one choice of a round. No two choices of a round may have the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site {
    /// [`Purpose::Draft`]: the index the drawn node will have. [`Purpose::Accept`],
    /// [`Purpose::Block`], [`Purpose::Traverse`]: the node that is tested. [`Purpose::Next`]: 0
    /// after the root, i + 1 after node i.
    pub node: u32,
    /// What is chosen.
    pub purpose: Purpose,
}

impl Site {
    /// Drawing the node that will have index `node`.
    #[must_use]
    pub fn draft(node: u32) -> Self {
        Self { node, purpose: Purpose::Draft }
    }

    /// Accepting or rejecting `node`.
    #[must_use]
    pub fn accept(node: u32) -> Self {
        Self { node, purpose: Purpose::Accept }
    }

    /// Keeping a chain up to `node`, under `block`.
    #[must_use]
    pub fn block(node: u32) -> Self {
        Self { node, purpose: Purpose::Block }
    }

    /// Keeping `node` after all below it was rejected, under `traversal`.
    #[must_use]
    pub fn traverse(node: u32) -> Self {
        Self { node, purpose: Purpose::Traverse }
    }

    /// Drawing the token that ends the round below `node` (`None`: the root).
    #[must_use]
    pub fn next(node: Option<u32>) -> Self {
        Self { node: node.map_or(0, |n| n.saturating_add(1)), purpose: Purpose::Next }
    }
}

/// Chance, as seen by drafters that sample and verifiers that test ratios.
///
/// In production it is [`RoundDraws`](crate::RoundDraws). The oracle [`exact`](crate::exact) puts
/// an implementation in its place that walks every outcome, so that the code that runs is the code
/// that is proved.
pub trait Choices {
    /// True with probability min(1, p/q), decided as `u·q < p` with u uniform in [0, 1): never for
    /// p = 0, always for p ≥ q > 0. Both arguments are finite and not negative.
    fn accept(&mut self, at: Site, p: f64, q: f64) -> bool;

    /// A token drawn from `law`.
    fn pick(&mut self, at: Site, law: &Law) -> TokenId;
}
