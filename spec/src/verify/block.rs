//! The `block` rule.

use super::climb::climb;
use super::{RatioRule, Round, Verdict, Verifier, VerifyError};
use crate::{Choices, DrawMode, Proposal, Site, TargetRows};

/// Block verification: Sun et al., ICLR 2025 (arXiv 2403.10444v3), Algorithm 2. Chains only.
///
/// With p₀ = 1 and pᵢ = min(1, pᵢ₋₁·p(xᵢ)/q(xᵢ)) along a chain of γ drafts,
///
/// ```text
/// Zᵢ = Σ (pᵢ·p(·|x≤i) − q(·|x≤i))+     hᵢ = Zᵢ / (Zᵢ + 1 − pᵢ) for i < γ, 0/0 = 1     h_γ = p_γ
/// τ = max {0} ∪ {i : ηᵢ < hᵢ}, η independent;   the token after x_τ from (p_τ·p − q)+ / Z_τ
/// ```
///
/// and from p itself if τ = γ. **τ is the last success, not the one before the first failure**: the
/// drafts are searched from the end. What is kept up to i has the mean of pᵢ as probability, and
/// the mean of Σ pᵢ drafts are kept, at least as many as under [`Token`](crate::Token), and no rule that sees
/// this chain alone can keep more (Theorem 2). With one draft it is `token`.
///
/// The η are named by the round's base position: a round reads all of them but commits fewer
/// tokens, so named by absolute position some would come back, conditioned, in the next round.
///
/// A draft chosen without chance has q = 1 on itself, which makes Zᵢ = pᵢ·(1 − p(xᵢ₊₁)) and the
/// residual the target's law without it. Shared-noise drafts are taken like that.
///
/// A round costs one pass over the laws per draft that is taken back, and no memory. A tree is
/// refused: [`VerifyError::Refused`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Block;

impl Verifier for Block {
    fn name(&self) -> &'static str {
        "block"
    }

    fn draw_mode(&self) -> DrawMode {
        DrawMode::Sampled { replacement: false }
    }

    fn takes_trees(&self) -> bool {
        false
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

impl RatioRule for Block {
    fn decide(
        &self,
        proposal: &Proposal,
        rows: &mut dyn TargetRows,
        choices: &mut dyn Choices,
        verdict: &mut Verdict,
    ) -> Result<(), VerifyError> {
        verdict.clear();
        self.takes(proposal)?;
        climb(proposal, rows, choices, verdict, Site::block)
    }
}
