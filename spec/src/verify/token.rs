//! The `token` rule.

use super::{RatioRule, Round, Verdict, Verifier, VerifyError};
use crate::{Choices, DrawMode, Law, Origin, Proposal, Site, TargetRows, TokenId};

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

/// Where the walk goes from a node.
enum Step {
    Descend(u32),
    Emit(TokenId),
}

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
            let step = match (proposal.origin(node), proposal.drawn_from(node)) {
                (Some(Origin::Sampled { replacement }), Some(q)) => {
                    let siblings = Siblings { proposal, node, replacement };
                    siblings.test(p, q, choices, &mut verdict.fallbacks)
                }
                // No child, or children that chance had no part in.
                _ => {
                    let y = choices.pick(Site::next(node), p);
                    proposal.child(node, y).map_or(Step::Emit(y), Step::Descend)
                }
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

/// Sampled children of one node.
struct Siblings<'a> {
    proposal: &'a Proposal,
    node: Option<u32>,
    replacement: bool,
}

impl Siblings<'_> {
    /// Recursive rejection: descends to the first child accepted, or emits from what is left of p.
    fn test(&self, p: &Law, q: &Law, choices: &mut dyn Choices, fallbacks: &mut u32) -> Step {
        // Owned only once something has been rejected.
        let (mut p_left, mut q_left): (Option<Law>, Option<Law>) = (None, None);
        for child in self.proposal.children(self.node) {
            let (p, q) = (p_left.as_ref().unwrap_or(p), q_left.as_ref().unwrap_or(q));
            let Some(x) = self.proposal.node(child).map(|node| node.token) else { break };
            if choices.accept(Site::accept(child), p.p(x), q.p(x)) {
                return Step::Descend(child);
            }
            // Residual first, with the q that x was drawn from; only then is x taken out of q.
            let residual = p.residual(q);
            let rest = if self.replacement { None } else { q.without(x) };
            if residual.is_none() {
                // Rejected though nowhere p > q: rounding. What is left of p is the honest answer.
                *fallbacks = fallbacks.saturating_add(1);
                break;
            }
            p_left = residual;
            if rest.is_some() {
                q_left = rest;
            }
        }
        Step::Emit(choices.pick(Site::next(self.node), p_left.as_ref().unwrap_or(p)))
    }
}
