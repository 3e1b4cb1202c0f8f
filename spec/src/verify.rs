//! [`Verifier`]: which drafts are kept, and which token follows them.
//!
//! | rule | takes | output |
//! |---|---|---|
//! | [`Coupled`] | any tree | the very tokens of plain decoding |
//! | [`Token`] | any tree | the target's law |
//! | [`Block`] | chains | the target's law; keeps at least as many drafts as `token` |
//! | [`Traversal`] | any tree | the target's law; at least as many as `token` on the same tree |
//!
//! The last three test ratios of p to the q a draft was really drawn from ([`RatioRule`]). They
//! share what rejections do to a law (`left`), and the last two their walk (`climb`).

mod block;
mod buffers;
mod climb;
mod coupled;
mod left;
mod token;
mod traversal;

pub use block::Block;
pub use coupled::Coupled;
pub use token::Token;
pub use traversal::Traversal;

use crate::{
    Choices, Drafter, DrawMode, Draws, Proposal, ProposalError, RowError, TargetRows, TokenId,
};
use buffers::Buffers;
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
///
/// Use one for many rounds: with it the rules keep the memory they need while they decide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Accepted nodes from the root downwards; may be empty.
    pub path: Vec<u32>,
    /// The target's own token after the path.
    pub next: TokenId,
    /// How often a residual had no mass left by rounding and the target's law was used instead.
    pub fallbacks: u32,
    buffers: Buffers,
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
    /// The drafter proposes trees, the rule takes none.
    #[error(
        "verifier {verifier} takes chains of drafts only, and drafter {drafter} proposes trees"
    )]
    NoTrees {
        /// Name of the verifier.
        verifier: &'static str,
        /// Name of the drafter.
        drafter: String,
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

    /// Whether the rule can verify trees, or chains only. To be asked before any request: by
    /// [`Verifier::admits`] about a drafter, or directly where something else gives trees their
    /// shape.
    fn takes_trees(&self) -> bool {
        true
    }

    /// Whether the rule can verify what `drafter` proposes. To be asked at start.
    ///
    /// # Errors
    /// [`VerifyError::NoTrees`] with both names.
    fn admits(&self, drafter: &dyn Drafter) -> Result<(), VerifyError> {
        match self.takes_trees() || !drafter.draws_trees() {
            true => Ok(()),
            false => {
                let drafter = drafter.name().to_owned();
                Err(VerifyError::NoTrees { verifier: self.name(), drafter })
            }
        }
    }

    /// Whether the rule can verify this proposal.
    ///
    /// # Errors
    /// [`VerifyError::Refused`] with the reason.
    fn takes(&self, proposal: &Proposal) -> Result<(), VerifyError> {
        match self.takes_trees() || proposal.is_chain() {
            true => Ok(()),
            false => {
                let reason = "it is a tree, and the rule takes chains only";
                Err(VerifyError::Refused { verifier: self.name(), reason })
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DraftError, DraftJob, Ngram};

    struct Branching;

    impl Drafter for Branching {
        fn name(&self) -> &str {
            "branching"
        }

        fn draws_trees(&self) -> bool {
            true
        }

        fn offer(&mut self, _: u64, _: &[TokenId]) -> usize {
            0
        }

        fn propose(&mut self, _: &[DraftJob<'_>], _: &mut [Result<Proposal, DraftError>]) {}

        fn forget(&mut self, _: u64) {}
    }

    #[test]
    fn a_drafter_of_trees_is_refused_by_name_where_chains_are_needed() {
        assert_eq!(Block.admits(&Ngram::default()), Ok(()));
        for rule in [&Coupled as &dyn Verifier, &Token, &Traversal] {
            assert_eq!(rule.admits(&Branching), Ok(()));
        }
        let error = Block.admits(&Branching).unwrap_err();
        let words = "verifier block takes chains of drafts only, and drafter branching proposes \
                     trees";
        assert_eq!(error.to_string(), words);
    }

    #[test]
    fn buffers_are_no_part_of_a_verdict() {
        let mut verdict = Verdict::default();
        verdict.buffers.tokens.push(3);
        assert_eq!(verdict, Verdict::default());
    }
}
