//! Reads a finished text once more and says of each of its tokens what it tells: about the output law, about the
//! drafts that were offered there, and whether it is the token that a seed had to give.

use redline_spec::{
    Draws, History, LawError, Position, Sampling, Scratch, TokenId, coupled_sample, law,
};
use thiserror::Error;

use super::draft_laws::{DraftLaws, Place};
use super::pit::{Transform, Transformed};
use super::reader::{CHUNK, Reader};
use super::rounds::RoundSeen;
use super::theory::{Expected, expected};
use crate::runner::RunnerError;

/// A text that an engine wrote.
pub(super) struct Text<'a> {
    pub(super) prompt: &'a [TokenId],
    pub(super) output: &'a [TokenId],
    pub(super) sampling: &'a Sampling,
    pub(super) seed: u64,
    /// A number of its own, for whoever keeps something by text.
    pub(super) index: u64,
}

/// A draft, or several that competed for one position, and what became of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Trial {
    /// Distance from the last committed token, from 0.
    pub(super) depth: usize,
    pub(super) accepted: bool,
    pub(super) expected: Expected,
}

/// What a text tells.
#[derive(Debug, Default)]
pub(super) struct Judged {
    /// One for each token.
    pub(super) tokens: Vec<Transformed>,
    pub(super) trials: Vec<Trial>,
    /// First token that is not what the seed, or temperature 0, had to give; where that is determined.
    pub(super) stray: Option<usize>,
}

/// Why a text could not be read again.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The pass failed.
    #[error("the independent pass failed")]
    Runner(#[from] RunnerError),
    /// A row of the target or the draft is no law.
    #[error("the independent pass gave no probability law after {position} tokens")]
    Law {
        /// Tokens before the row.
        position: usize,
        /// What is wrong with it.
        source: LawError,
    },
}

/// The independent pass and what it is turned into.
pub(super) struct Judge<'a> {
    pub(super) target: &'a mut Reader,
    pub(super) drafts: &'a mut DraftLaws,
    pub(super) rule: &'static str,
    /// Entries of the vocabulary that have a token.
    pub(super) vocab: usize,
    pub(super) transform: Transform,
    pub(super) scratch: Scratch,
}

impl Judge<'_> {
    /// Reads `text`, of which `rounds` were seen.
    ///
    /// # Errors
    /// [`ReadError`] if the models' rows can't be had.
    pub(super) fn read(
        &mut self,
        text: &Text<'_>,
        rounds: Vec<RoundSeen>,
    ) -> Result<Judged, ReadError> {
        let whole = [text.prompt, text.output].concat();
        let rounds: Vec<_> = rounds.into_iter().map(|round| round.within(whole.len())).collect();
        let mut history = History::new(text.prompt);
        let mut judged = Judged::default();
        for start in (text.prompt.len()..whole.len()).step_by(CHUNK) {
            let after = start..whole.len().min(start + CHUNK);
            self.drafts.read(&whole, after.clone())?;
            self.target.read(&whole, after.clone())?;
            for (row, position) in after.enumerate() {
                let place = Place {
                    sampling: text.sampling,
                    history: &history,
                    text: &whole[..position],
                    seq: text.index,
                };
                let at = (position, whole[position]);
                self.token((text, &rounds), at, row, &place, &mut judged)?;
                history.push(whole[position]);
            }
        }
        self.drafts.forget(text.index);
        Ok(judged)
    }

    fn token(
        &mut self,
        (text, rounds): (&Text<'_>, &[RoundSeen]),
        (position, token): (usize, TokenId),
        row: usize,
        place: &Place<'_>,
        judged: &mut Judged,
    ) -> Result<(), ReadError> {
        let no_law = |source| ReadError::Law { position, source };
        let width = self.target.width();
        let logits = self.target.logits(row).get(..self.vocab.min(width)).unwrap_or_default();
        let (sampling, history) = (text.sampling, place.history);
        let at = Position { sampling, history, path: &[], constraint: None };
        let p = law(logits, &at, &mut self.scratch).map_err(no_law)?;
        let q = self.drafts.at(place, row, &mut self.scratch).map_err(no_law)?;

        judged.tokens.push(self.transform.apply(token, &p, &q));
        for round in rounds {
            let Some(depth) = position.checked_sub(round.base) else { continue };
            if let Some(level) = round.levels.get(depth) {
                judged.trials.push(Trial {
                    depth,
                    accepted: round.accepted > depth,
                    expected: expected(self.rule, level, &p, &q),
                });
            }
        }
        let draws = Draws { seed: text.seed, sample: 0 };
        let due = if sampling.is_greedy() {
            Some(p.argmax())
        } else if self.rule == "coupled" {
            Some(coupled_sample(&p, &draws, position as u64))
        } else {
            None
        };
        if due.is_some_and(|due| due != token) {
            judged.stray.get_or_insert(position - text.prompt.len());
        }
        self.scratch.recycle(p);
        Ok(())
    }
}
