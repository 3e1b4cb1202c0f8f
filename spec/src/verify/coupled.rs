//! The `coupled` rule.

use super::{Round, Verdict, Verifier, VerifyError};
use crate::{DrawMode, TargetRows};

/// Emits what the target itself would have sampled, and accepts a draft iff it is that token.
///
/// Daliri, Musco, Suresh 2024 (arXiv 2408.07978), on trees: at each node the target's sample with
/// the noise of that absolute position; descend iff it is a child. The output is token for token
/// that of plain decoding with the same seed, whatever the drafter, the depth, the tree and the
/// schedule. Needs no draft law. A draft made with the same noise ([`DrawMode::Shared`]) is
/// accepted with probability Σᵢ 1 / Σⱼ max(pⱼ/pᵢ, qⱼ/qᵢ) on a chain.
#[derive(Clone, Copy, Debug, Default)]
pub struct Coupled;

impl Verifier for Coupled {
    fn name(&self) -> &'static str {
        "coupled"
    }

    fn draw_mode(&self) -> DrawMode {
        DrawMode::Shared
    }

    fn verify(
        &self,
        round: &Round<'_>,
        rows: &mut dyn TargetRows,
        verdict: &mut Verdict,
    ) -> Result<(), VerifyError> {
        verdict.clear();
        let mut node = None;
        loop {
            let position = round.base + verdict.path.len() as u64;
            let token = rows.coupled(node, &round.draws, position)?;
            match round.proposal.child(node, token) {
                Some(child) => {
                    verdict.path.push(child);
                    node = Some(child);
                }
                None => {
                    verdict.next = token;
                    return Ok(());
                }
            }
        }
    }
}
