//! [`Verifier`]: which drafts are kept, and which token follows them.

mod coupled;
mod token;

pub use coupled::Coupled;
pub use token::Token;

use crate::{Choices, DrawMode, Draws, Proposal, ProposalError, RowError, TargetRows, TokenId};
use thiserror::Error;

/// One round of one sequence, as a verifier sees it.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// The drafts.
    pub proposal: &'a Proposal,
    /// Number of committed tokens: the absolute position of the first token this round commits.
    pub base: u64,
    /// The random numbers of the sample.
    pub draws: Draws,
}

/// What a round commits: the tokens of `path`, then `next`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Accepted nodes from the root downwards; may be empty.
    pub path: Vec<u32>,
    /// The target's own token after the path.
    pub next: TokenId,
    /// How often a residual had no mass left by rounding and the target's law was used instead.
    pub fallbacks: u32,
}

impl Verdict {
    /// Empties the verdict for another round.
    pub fn clear(&mut self) {
        self.path.clear();
        self.next = 0;
        self.fallbacks = 0;
    }

    /// The committed tokens, the path's first, into `out`.
    pub fn tokens(&self, proposal: &Proposal, out: &mut Vec<TokenId>) {
        out.clear();
        out.extend(self.path.iter().filter_map(|&n| proposal.node(n)).map(|node| node.token));
        out.push(self.next);
    }
}

/// Why a round has no verdict. The request fails by this name, alone.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum VerifyError {
    /// A target row that had to be read is not a law.
    #[error(transparent)]
    Row(#[from] RowError),
    /// The rule cannot take this proposal.
    #[error("verifier {verifier} cannot take this proposal: {reason}")]
    Refused {
        /// Name of the verifier.
        verifier: &'static str,
        /// What it cannot take.
        reason: &'static str,
    },
    /// The proposal is not valid.
    #[error(transparent)]
    Proposal(#[from] ProposalError),
}

/// Turns drafts and the target's rows into tokens whose law is the target's.
///
/// A pure function of its arguments. For an implementation of your own, DESIGN.md §4 lists the laws
/// to keep; those that test ratios implement [`RatioRule`] too and can then be proved by
/// [`exact`](crate::exact).
pub trait Verifier: Send {
    /// Name, as in `--verify`.
    fn name(&self) -> &'static str;

    /// How drafters that have a law should draw.
    fn draw_mode(&self) -> DrawMode;

    /// Whether the rule can verify such a proposal.
    ///
    /// # Errors
    /// [`VerifyError::Refused`] with the reason.
    fn takes(&self, proposal: &Proposal) -> Result<(), VerifyError> {
        let _ = proposal;
        Ok(())
    }

    /// Verifies one round into `verdict`, which is cleared first. Always commits at least one
    /// token.
    ///
    /// # Errors
    /// [`VerifyError`] if a row it had to read is bad or the proposal is refused.
    fn verify(
        &self,
        round: &Round<'_>,
        rows: &mut dyn TargetRows,
        verdict: &mut Verdict,
    ) -> Result<(), VerifyError>;
}

/// A verifier that meets chance only through [`Choices`], so that every outcome can be enumerated.
pub trait RatioRule {
    /// Verifies `proposal` with the given choices; otherwise as [`Verifier::verify`].
    ///
    /// # Errors
    /// As [`Verifier::verify`].
    fn decide(
        &self,
        proposal: &Proposal,
        rows: &mut dyn TargetRows,
        choices: &mut dyn Choices,
        verdict: &mut Verdict,
    ) -> Result<(), VerifyError>;
}
