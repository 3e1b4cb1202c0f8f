//! The `token` rule.

use super::left::{Family, Left};
use super::{RatioRule, Round, Verdict, Verifier, VerifyError};
use crate::{Choices, DrawMode, Law, Proposal, Site, TargetRows, TokenId};

/// Where the walk goes from a node.
enum Step {
    Descend(u32),
    Emit(TokenId),
}

/// Token-by-token rejection sampling.
///
/// * Chains of sampled drafts: Leviathan, Kalman, Matias 2023 (arXiv 2211.17192), Algorithm 1; Chen
///   et al. 2023 (arXiv 2302.01318), Algorithm 2. Accept x with min(1, p(x)/q(x)), else emit from
///   (p − q)+; after the last draft, one more token from p.
/// * Trees of sampled drafts: recursive rejection, with replacement as in SpecInfer (Miao et al.
///   2023, arXiv 2305.09781, Algorithm 2), without as in Sequoia (Chen et al. 2024, arXiv
///   2402.12374, Algorithm 2): each sibling in draw order is tested against what the earlier ones
///   left of p, and of q if drawn without replacement.
/// * Drafts chosen without chance: q is a point mass, so the rule becomes: draw y from p, keep the
///   child that is y, if any. Shared-noise drafts are taken the same way: their noise is
///   independent of this rule's, so the law is exact, but `coupled` accepts more of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Token;

impl Verifier for Token {
    fn name(&self) -> &'static str {
        "token"
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

impl RatioRule for Token {
    fn decide(
        &self,
        proposal: &Proposal,
        rows: &mut dyn TargetRows,
        choices: &mut dyn Choices,
        verdict: &mut Verdict,
    ) -> Result<(), VerifyError> {
        verdict.clear();
        let mut node = None;
        loop {
            let p = rows.law(node)?;
            let family = Family::below(proposal, node);
            let step = if family.is_sampled() {
                siblings(p, &family, choices, verdict)
            } else {
                // No child, or children that chance had no part in.
                let y = choices.pick(Site::next(node), p);
                proposal.child(node, y).map_or(Step::Emit(y), Step::Descend)
            };
            match step {
                Step::Descend(child) => {
                    verdict.path.push(child);
                    node = Some(child);
                }
                Step::Emit(token) => {
                    verdict.next = token;
                    return Ok(());
                }
            }
        }
    }
}

/// Recursive rejection among sampled children: descends to the first that is accepted, or emits
/// from what is left of p.
fn siblings(
    p: &Law,
    family: &Family<'_>,
    choices: &mut dyn Choices,
    verdict: &mut Verdict,
) -> Step {
    let mut left = Left::all(1.0);
    let buffers = &mut verdict.buffers;
    while let Some((child, p_k, q_k)) = left.next(p, family, &mut buffers.tokens) {
        if choices.accept(Site::accept(child), p_k, q_k) {
            return Step::Descend(child);
        }
        if !left.reject(p, family, &mut buffers.tokens) {
            // Rejected though nowhere p > q: rounding. What is left of p is the honest answer.
            verdict.fallbacks = verdict.fallbacks.saturating_add(1);
        }
    }
    Step::Emit(left.draw(p, family, buffers, choices))
}
