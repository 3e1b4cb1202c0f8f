//! [`TargetRows`]: the target's laws as a verifier asks for them.

use crate::law::{Law, LawError};
use crate::process::{self, Position, Scratch};
use crate::race::NOBODY;
use crate::{Constraint, Draws, History, Proposal, Sampling, TokenId, coupled_sample};
use thiserror::Error;

/// The target's rows of one round, read lazily: a verifier asks only for rows it needs, so a bad
/// row off the emitted path hurts nobody.
pub trait TargetRows {
    /// The law of the token after `node` (`None`: after the last committed token). Asking again for
    /// the same row gives the same law.
    ///
    /// # Errors
    /// [`RowError`] if the row is not a law; the request then fails with it.
    fn law(&mut self, node: Option<u32>) -> Result<&Law, RowError>;

    /// The token that [`coupled_sample`] draws at `position` from the law of a row. Who can tell it
    /// without the law may do so.
    ///
    /// # Errors
    /// As [`TargetRows::law`].
    fn coupled(
        &mut self,
        node: Option<u32>,
        draws: &Draws,
        position: u64,
    ) -> Result<TokenId, RowError> {
        Ok(coupled_sample(self.law(node)?, draws, position))
    }
}

/// A target row that is not a law.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum RowError {
    /// The row does not exist.
    #[error("the target returned no row for {}", name(*node))]
    Missing {
        /// Node of the row, `None` for the root.
        node: Option<u32>,
    },
    /// The row's values are not a law.
    #[error("the target's row for {} is unusable: {source}", name(*node))]
    Bad {
        /// Node of the row, `None` for the root.
        node: Option<u32>,
        /// What is wrong with it.
        source: LawError,
    },
}

fn name(node: Option<u32>) -> String {
    node.map_or_else(|| "the last committed token".into(), |n| format!("draft node {n}"))
}

/// [`TargetRows`] over the logits of one target pass.
///
/// Each row's law is made with the history *and the draft path* it stands on, and with the
/// constraint advanced along that path, as plain decoding would have made it after those tokens.
pub struct LogitRows<'a> {
    /// `1 + proposal.len()` rows of `vocab` logits: the root row, then one per node.
    logits: &'a [f32],
    vocab: usize,
    /// Leading logits of a row that belong to tokens.
    used: usize,
    proposal: &'a Proposal,
    sampling: &'a Sampling,
    history: &'a History,
    constraint: Option<&'a dyn Constraint>,
    scratch: &'a mut Scratch,
    path: Vec<TokenId>,
    /// Rows asked for so far: those on a path under most rules, at most one per node.
    made: Vec<(Option<u32>, Law)>,
}

impl<'a> LogitRows<'a> {
    /// Rows of a round: `logits` is row-major `[1 + proposal.len(), vocab]`, the root row first.
    pub fn new(
        (logits, vocab): (&'a [f32], usize),
        proposal: &'a Proposal,
        (sampling, history): (&'a Sampling, &'a History),
        constraint: Option<&'a dyn Constraint>,
        scratch: &'a mut Scratch,
    ) -> Self {
        let (path, made) = (std::mem::take(&mut scratch.path), std::mem::take(&mut scratch.made));
        let used = vocab;
        Self { logits, vocab, used, proposal, sampling, history, constraint, scratch, path, made }
    }

    /// Takes only the first `used` logits of a row: the rest are padding, without tokens.
    #[must_use]
    pub fn without_padding(mut self, used: usize) -> Self {
        self.used = used.min(self.vocab);
        self
    }

    /// What `then` makes of a row and the place it stands at.
    fn at<T>(
        &mut self,
        node: Option<u32>,
        then: impl FnOnce(&[f32], &Position<'_>, &mut Scratch) -> Result<T, LawError>,
    ) -> Result<T, RowError> {
        let row = node.map_or(0, |n| n as usize + 1);
        let start = row.checked_mul(self.vocab);
        let logits = start
            .and_then(|start| self.logits.get(start..)?.get(..self.vocab)?.get(..self.used))
            .ok_or(RowError::Missing { node })?;
        self.proposal.path_tokens(node, &mut self.path);
        let bad = |source| RowError::Bad { node, source };
        let mut forked = None;
        if let Some(constraint) = self.constraint.filter(|_| !self.path.is_empty()) {
            let mut fork = constraint.fork();
            for &token in &self.path {
                fork.advance(token).map_err(|error| bad(error.into()))?;
            }
            forked = Some(fork);
        }
        let at = Position {
            sampling: self.sampling,
            history: self.history,
            path: &self.path,
            constraint: forked.as_deref().or(self.constraint),
        };
        then(logits, &at, self.scratch).map_err(bad)
    }
}

impl TargetRows for LogitRows<'_> {
    fn law(&mut self, node: Option<u32>) -> Result<&Law, RowError> {
        let at = match self.made.iter().position(|(n, _)| *n == node) {
            Some(at) => at,
            None => {
                let law = self.at(node, process::law)?;
                self.made.push((node, law));
                self.made.len() - 1
            }
        };
        Ok(&self.made[at].1)
    }

    fn coupled(
        &mut self,
        node: Option<u32>,
        draws: &Draws,
        position: u64,
    ) -> Result<TokenId, RowError> {
        if let Some((_, law)) = self.made.iter().find(|(made, _)| *made == node) {
            return Ok(coupled_sample(law, draws, position));
        }
        self.at(node, |logits, at, scratch| {
            let mut best = [NOBODY];
            process::race(logits, at, scratch, (draws, position), &mut best)?;
            let [(_, first)] = best;
            Ok(first)
        })
    }
}

impl Drop for LogitRows<'_> {
    fn drop(&mut self) {
        for (_, law) in self.made.drain(..) {
            self.scratch.recycle(law);
        }
        self.scratch.made = std::mem::take(&mut self.made);
        self.scratch.path = std::mem::take(&mut self.path);
    }
}
