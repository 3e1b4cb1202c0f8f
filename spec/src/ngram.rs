//! [`Ngram`]: drafts what followed the last time the same tokens came up.

mod index;

use crate::{DraftError, DraftJob, Drafter, Proposal, TokenId};
use index::Index;
use rustc_hash::FxHashMap;
use thiserror::Error;

/// Sizes of an [`Ngram`] drafter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NgramConfig {
    /// Shortest suffix that is looked up. At least 1.
    pub min_n: usize,
    /// Longest suffix that is looked up; longer ones are tried first. At most [`MAX_N`].
    pub max_n: usize,
    /// Tokens drafted at most. At least 1.
    pub max_draft: usize,
    /// Positions remembered: at least this many of the latest, at most twice as many. Memory per
    /// sequence is at most `32 · window` bytes for each suffix length. At least 16.
    pub window: usize,
}

/// Longest suffix that may be asked for.
pub const MAX_N: usize = 16;

impl Default for NgramConfig {
    fn default() -> Self {
        Self { min_n: 2, max_n: 4, max_draft: 16, window: 32_768 }
    }
}

/// An [`NgramConfig`] that makes no sense.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("n-gram sizes need 1 <= min_n <= max_n <= {MAX_N}, max_draft >= 1, window >= 16")]
pub struct NgramError;

/// Prompt-lookup drafting: finds the latest earlier occurrence of the sequence's last tokens, the
/// longest suffix first, and proposes what followed it.
///
/// After Saxena, "Prompt lookup decoding", 2023, with an index in place of its scan, the *latest*
/// occurrence in place of the first, and one difference more: where what followed reaches the end
/// of the sequence, the copy goes on into itself, so a loop of any period is drafted at full
/// length.
///
/// Each sequence has its own index, filled with its own tokens: nothing passes between requests. A
/// token costs a constant number of table operations whatever the context; probes are bounded, so
/// no prompt can make it slow.
#[derive(Debug, Default)]
pub struct Ngram {
    config: NgramConfig,
    sequences: FxHashMap<u64, Index>,
}

impl Ngram {
    /// A drafter of these sizes.
    ///
    /// # Errors
    /// [`NgramError`] if a size is out of range.
    pub fn new(config: NgramConfig) -> Result<Self, NgramError> {
        let order = 1 <= config.min_n && config.min_n <= config.max_n && config.max_n <= MAX_N;
        if !order || config.max_draft == 0 || config.window < 16 {
            return Err(NgramError);
        }
        Ok(Self { config, sequences: FxHashMap::default() })
    }

    /// Bytes held for all sequences.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.sequences.values().map(Index::bytes).sum()
    }

    /// Brings the index up to date and finds where the continuation starts.
    fn continuation(&mut self, seq: u64, tokens: &[TokenId]) -> Option<usize> {
        let config = self.config;
        self.sequences.entry(seq).or_insert_with(|| Index::new(&config)).continuation(tokens)
    }

    fn draft(&mut self, job: &DraftJob<'_>, proposal: &mut Proposal) -> Result<(), DraftError> {
        let mut builder = proposal.build(job.budget.min(self.config.max_draft));
        let Some(from) = self.continuation(job.seq, job.tokens) else { return Ok(()) };
        let period = job.tokens.len() - from;
        let mut constraint = job.constraint.map(|c| c.fork());
        let mut parent = None;
        for i in 0..builder.room() {
            // `from + i` runs past the end into the copy itself, which repeats with this period.
            let token = job.tokens[from + i % period];
            // What the constraint forbids cannot be accepted: a free draft ends there.
            if constraint.as_mut().is_some_and(|c| c.advance(token).is_err()) {
                break;
            }
            parent = Some(builder.point(parent, token)?);
        }
        Ok(())
    }
}

impl Drafter for Ngram {
    fn name(&self) -> &str {
        "ngram"
    }

    fn offer(&mut self, seq: u64, tokens: &[TokenId]) -> usize {
        self.continuation(seq, tokens).map_or(0, |_| self.config.max_draft)
    }

    fn propose(&mut self, jobs: &[DraftJob<'_>], out: &mut [Result<Proposal, DraftError>]) {
        for (job, slot) in jobs.iter().zip(out) {
            let mut proposal = std::mem::replace(slot, Ok(Proposal::new())).unwrap_or_default();
            *slot = self.draft(job, &mut proposal).map(|()| proposal);
        }
    }

    fn forget(&mut self, seq: u64) {
        self.sequences.remove(&seq);
    }
}

#[cfg(test)]
mod tests;
