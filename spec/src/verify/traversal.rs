//! The `traversal` rule.

use super::climb::climb;
use super::{RatioRule, Round, Verdict, Verifier, VerifyError};
use crate::{Choices, DrawMode, Proposal, Site, TargetRows};

/// Traversal verification: Weng et al., NeurIPS 2025 (arXiv 2505.12398). Any tree.
///
/// Depth first in draw order, from the leaves to the root, with a weight a per node (1 at the
/// root):
///
/// ```text
/// visit(node, a):
///   for child x in draw order:
///     visit(x, min(1, a·p(x)/q(x))); if that keeps a node, stop
///     Z = Σ (a·p − q)+;  p = (a·p − q)+ / Z;  a = Z / (Z + 1 − a)
///     without replacement: q = q without x, renormalised
///   keep this node with probability a
/// ```
///
/// The token after the node that is kept comes from what is left of p there. A node's subtree is
/// kept with the weight the node came with, whatever its shape, so depth costs nothing: at least as
/// many drafts are kept on average as under [`Token`](crate::Token) on the same tree. On a chain it
/// is [`Block`](crate::Block), on a tree of depth one it is `token`.
///
/// Children chosen without chance have q = 1 on themselves; shared-noise drafts are taken like
/// that. Trees may be uneven and mix origins.
///
/// A round costs one pass over the laws per node that is visited and rejected, and no memory beyond
/// a few numbers per level. It reads every row that it reaches with a weight above zero, so a bad
/// one among them fails the request even if it is off the path that is kept in the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traversal;

impl Verifier for Traversal {
    fn name(&self) -> &'static str {
        "traversal"
    }

    fn draw_mode(&self) -> DrawMode {
        DrawMode::Sampled { replacement: false }
    }

    fn verify(
        &self,
        round: &Round<'_>,
        rows: &mut dyn TargetRows,
        verdict: &mut Verdict,
    ) -> Result<(), VerifyError> {
        self.decide(round.proposal, rows, &mut round.draws.round(round.base), verdict)
    }
}

impl RatioRule for Traversal {
    fn decide(
        &self,
        proposal: &Proposal,
        rows: &mut dyn TargetRows,
        choices: &mut dyn Choices,
        verdict: &mut Verdict,
    ) -> Result<(), VerifyError> {
        climb(proposal, rows, choices, verdict, Site::traverse)
    }
}
