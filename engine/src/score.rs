//! Teacher forcing: what a model says about tokens it is given.
//!
//! Uses the target's runner directly, with a block table of its own and no speculation: the reference that
//! everything else is compared with.

use std::sync::Arc;

use redline_kv_cache::BlockId;
use serde::Serialize;
use thiserror::Error;

use crate::loader::BLOCK_SIZE;
use crate::runner::{Batch, ModelRunner, Rows, RunnerError};
use crate::text::{Encode, EncodeError, Tokenizer};

/// Rows whose logits are held at a time.
const CHUNK: usize = 64;

/// Why a sequence could not be scored.
#[derive(Debug, Error)]
pub enum ScoreError {
    /// Nothing to predict.
    #[error("there are no tokens to score")]
    Empty,
    /// Longer than the model's context.
    #[error("{tokens} tokens are more than the model's context of {limit}")]
    TooLong {
        /// Tokens given.
        tokens: usize,
        /// The model's context length.
        limit: usize,
    },
    /// A token that the model does not have.
    #[error("token {token} is not in the vocabulary of {vocab} entries")]
    UnknownToken {
        /// The token.
        token: u32,
        /// Entries of the vocabulary.
        vocab: usize,
    },
    /// The model's output at a position is no law.
    #[error("the logits after {position} tokens are not finite")]
    NotFinite {
        /// Tokens before the prediction.
        position: usize,
    },
    /// The pass failed.
    #[error("the forward pass failed")]
    Runner(#[from] RunnerError),
}

/// Predictions for one sequence of n tokens; entry i predicts token i + 1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scored {
    /// n − 1 natural-log probabilities of the tokens that follow.
    pub logprob: Vec<f64>,
    /// n predicted next tokens; the lowest id among equals.
    pub argmax: Vec<u32>,
    /// n differences between the best and the second-best logit.
    pub margin: Vec<f32>,
    /// exp of the mean negative log-probability; 1 for a single token.
    pub perplexity: f64,
}

/// A model, its tokenizer, and room for one sequence.
pub struct Scorer {
    runner: Box<dyn ModelRunner>,
    tokenizer: Arc<Tokenizer>,
    table: Vec<BlockId>,
}

impl Scorer {
    /// A scorer; memory is taken as sequences need it.
    pub fn new(runner: Box<dyn ModelRunner>, tokenizer: Arc<Tokenizer>) -> Self {
        Self { runner, tokenizer, table: Vec::new() }
    }

    /// Token ids of a text, special tokens recognised.
    ///
    /// # Errors
    /// When it can't be encoded.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, EncodeError> {
        self.tokenizer.encode(text, Encode::default())
    }

    /// Scores one sequence.
    ///
    /// # Errors
    /// [`ScoreError`] names what is wrong with it.
    pub fn score(&mut self, ids: &[u32]) -> Result<Scored, ScoreError> {
        let (limit, vocab) = (self.runner.info().context_length, self.runner.info().vocab_size);
        if ids.is_empty() {
            return Err(ScoreError::Empty);
        }
        if ids.len() > limit {
            return Err(ScoreError::TooLong { tokens: ids.len(), limit });
        }
        if let Some(&token) = ids.iter().find(|&&id| id as usize >= vocab) {
            return Err(ScoreError::UnknownToken { token, vocab });
        }
        self.make_room(ids.len())?;
        let mut scored =
            Scored { logprob: vec![], argmax: vec![], margin: vec![], perplexity: 1.0 };
        let (mut batch, mut rows) = (Batch::default(), Rows::default());
        for start in (0..ids.len()).step_by(CHUNK) {
            let end = ids.len().min(start + CHUNK);
            self.fill(&mut batch, ids, start, end);
            self.runner.forward(&batch, &mut rows)?;
            for position in start..end {
                let logits = rows.row(position - start, vocab);
                if logits.iter().any(|x| x.is_nan() || *x == f32::INFINITY) {
                    return Err(ScoreError::NotFinite { position: position + 1 });
                }
                scored.add(logits, ids.get(position + 1).copied());
            }
        }
        if !scored.logprob.is_empty() {
            let mean = scored.logprob.iter().sum::<f64>() / scored.logprob.len() as f64;
            scored.perplexity = (-mean).exp();
        }
        Ok(scored)
    }

    /// Blocks for a sequence of `tokens`; what was cached before is not needed any more.
    fn make_room(&mut self, tokens: usize) -> Result<(), RunnerError> {
        let blocks = tokens.div_ceil(BLOCK_SIZE as usize) as u32;
        if blocks as usize > self.table.len() {
            self.runner.allocate(blocks, BLOCK_SIZE)?;
            self.table = (0..blocks).map(BlockId).collect();
        }
        Ok(())
    }

    fn fill(&self, batch: &mut Batch, ids: &[u32], start: usize, end: usize) {
        batch.clear();
        batch.push_seq(&self.table);
        for (position, &id) in (start as u32..).zip(&ids[start..end]) {
            let row = batch.push_row(id, position);
            batch.want.push(row);
        }
    }
}

impl Scored {
    fn add(&mut self, logits: &[f32], next: Option<u32>) {
        let (mut best, mut second, mut argmax) = (f32::NEG_INFINITY, f32::NEG_INFINITY, 0);
        for (id, &logit) in logits.iter().enumerate() {
            if logit > best {
                (second, best, argmax) = (best, logit, id as u32);
            } else if logit > second {
                second = logit;
            }
        }
        self.argmax.push(argmax);
        self.margin.push(best - second);
        if let Some(next) = next {
            let sum: f64 = logits.iter().map(|&x| f64::from(x - best).exp()).sum();
            self.logprob.push(f64::from(logits[next as usize] - best) - sum.ln());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Scored;

    #[test]
    fn a_row_gives_its_argmax_margin_and_the_log_softmax_of_the_next_token() {
        let mut scored =
            Scored { logprob: vec![], argmax: vec![], margin: vec![], perplexity: 1.0 };
        scored.add(&[0.0, 2.0, 2.0, 1.0], Some(3));
        assert_eq!((scored.argmax[0], scored.margin[0]), (1, 0.0));
        let sum = 1.0 + 2.0 * 2_f64.exp() + 1_f64.exp();
        assert!((scored.logprob[0] - (1.0 - sum.ln())).abs() < 1e-12);
    }
}
