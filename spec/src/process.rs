//! [`law()`]: from a row of logits to the law that is sampled.

use crate::law::{Law, LawError};
use crate::race;
use crate::row::{Row, scan};
use crate::rowmath::{Baseline, RowMath};
use crate::{Constraint, Draws, History, Sampling, TokenId, TokenMask};

/// Where a row stands: whose parameters, and which tokens come before the one it predicts.
#[derive(Clone, Copy)]
pub struct Position<'a> {
    /// Parameters of the request.
    pub sampling: &'a Sampling,
    /// Counts of the committed tokens.
    pub history: &'a History,
    /// Draft tokens between the committed ones and this row: for the row of a tree node, the tokens
    /// on the way from the root to that node, its own included. They count as output.
    pub path: &'a [TokenId],
    /// The constraint, already advanced along `path`.
    pub constraint: Option<&'a dyn Constraint>,
}

/// Buffers that [`law()`] uses again from row to row.
#[derive(Debug)]
pub struct Scratch {
    math: &'static dyn RowMath,
    logits: Vec<f32>,
    tops: Vec<f32>,
    mask: TokenMask,
    /// Of a race: bounds of the groups' weights, and their noise.
    pub(crate) bounds: Vec<f64>,
    pub(crate) noise: Vec<[u64; 2]>,
    pub(crate) order: Vec<u32>,
    spare_ids: Vec<Vec<TokenId>>,
    spare_weights: Vec<Vec<f64>>,
    /// Of [`LogitRows`](crate::LogitRows), lent to the one that is in use.
    pub(crate) path: Vec<TokenId>,
    pub(crate) made: Vec<(Option<u32>, Law)>,
}

/// Laws kept for reuse at most; more than a round needs at once is never held.
const SPARES_MAX: usize = 64;

impl Default for Scratch {
    fn default() -> Self {
        Self::with_math(&Baseline)
    }
}

impl Scratch {
    /// Empty buffers; loops over whole rows by `math`.
    #[must_use]
    pub fn with_math(math: &'static dyn RowMath) -> Self {
        Self {
            math,
            logits: Vec::new(),
            tops: Vec::new(),
            mask: TokenMask::default(),
            bounds: Vec::new(),
            noise: Vec::new(),
            order: Vec::new(),
            spare_ids: Vec::new(),
            spare_weights: Vec::new(),
            path: Vec::new(),
            made: Vec::new(),
        }
    }

    pub(crate) fn math(&self) -> &'static dyn RowMath {
        self.math
    }

    /// Takes the buffers of a law that is no longer needed.
    pub fn recycle(&mut self, law: Law) {
        let (ids, weights) = law.into_parts();
        self.keep(ids, weights);
    }

    pub(crate) fn keep(&mut self, ids: Option<Vec<TokenId>>, weights: Vec<f64>) {
        if self.spare_weights.len() < SPARES_MAX {
            self.spare_weights.push(weights);
        }
        if let Some(ids) = ids.filter(|_| self.spare_ids.len() < SPARES_MAX) {
            self.spare_ids.push(ids);
        }
    }

    pub(crate) fn ids(&mut self) -> Vec<TokenId> {
        let mut ids = self.spare_ids.pop().unwrap_or_default();
        ids.clear();
        ids
    }

    pub(crate) fn weights(&mut self) -> Vec<f64> {
        let mut weights = self.spare_weights.pop().unwrap_or_default();
        weights.clear();
        weights
    }
}

/// The law that a position's token is drawn from: **the one function** for draft, verify and bonus
/// rows, so that they cannot differ.
///
/// `logits` holds one finite value per token of the vocabulary; −∞ bans a token. Cut off padding
/// before. The steps and their order are vLLM's (`vllm/v1/sample/sampler.py`, `Sampler.forward` and
/// `Sampler.sample`; `vllm/model_executor/layers/utils.py`, `apply_penalties`;
/// `vllm/v1/sample/logits_processor/builtin.py`; `vllm/v1/sample/ops/topk_topp_sampler.py`):
///
/// 1. logit bias is added, and what the constraint forbids becomes −∞;
/// 2. penalties: a token seen in prompt or output has a positive logit divided by the repetition
///    penalty, any other multiplied by it; then frequency penalty × occurrences in the output is
///    subtracted, then the presence penalty if there is one at all;
/// 3. temperature 0: the law is the point at the largest value, the lowest id among equals. Else
///    the values are divided by the temperature and exponentiated;
/// 4. min-p drops tokens below `min_p` times the likeliest;
/// 5. top-k keeps the `top_k` likeliest;
/// 6. top-p keeps, of the law so far renormalised, the likeliest tokens until their mass reaches
///    `top_p`: a token stays iff the mass of those before it is below `top_p`.
///
/// Steps 1 and 2 are computed in f32 as in vLLM, the rest in f64. Where vLLM differs: its top-k
/// keeps all tokens tied with the k-th, here exactly k stay; temperatures below 1e-5 are greedy
/// there.
///
/// A weight is e^((x − max)/temperature), within an ulp, the same bits on every machine.
///
/// Cost for a vocabulary of V: greedy, one pass and no exponential; top-k, one pass and a
/// selection; min-p, one pass; else V exponentials. Nothing sorts the vocabulary.
///
/// # Errors
/// [`LawError::NotFinite`] if any logit is NaN or +∞, banned or not, or becomes so;
/// [`LawError::NoMass`] if every token is banned; [`LawError::Sampling`]; [`LawError::Constraint`].
pub fn law(logits: &[f32], at: &Position<'_>, scratch: &mut Scratch) -> Result<Law, LawError> {
    with_row(logits, at, scratch, |row, scratch| row.law(scratch))
}

/// The race with the shared noise at `position` under the row's [`law()`], as [`race::run`] has it, for as many
/// places as `best` has. Without truncation hardly any weight has to be known for it, nor the law.
pub(crate) fn race(
    logits: &[f32],
    at: &Position<'_>,
    scratch: &mut Scratch,
    (draws, position): (&Draws, u64),
    best: &mut [(f64, TokenId)],
) -> Result<(), LawError> {
    with_row(logits, at, scratch, |row, scratch| {
        if row.is_whole() {
            race::run_row(&row, scratch, (draws, position), best);
        } else {
            let law = row.law(scratch)?;
            race::run(&law, draws, position, best);
            scratch.recycle(law);
        }
        Ok(())
    })
}

/// Checks and edits a row, and hands it over.
fn with_row<T>(
    logits: &[f32],
    at: &Position<'_>,
    scratch: &mut Scratch,
    then: impl FnOnce(Row<'_>, &mut Scratch) -> Result<T, LawError>,
) -> Result<T, LawError> {
    at.sampling.check_scalars()?;
    // The buffers are taken out so that the rest of the scratch may be used beside them.
    let (mut buffer, mut tops) =
        (std::mem::take(&mut scratch.logits), std::mem::take(&mut scratch.tops));
    let row = prepare(logits, at, (&mut buffer, &mut tops), &mut scratch.mask);
    let done = row.and_then(|row| then(row, scratch));
    (scratch.logits, scratch.tops) = (buffer, tops);
    done
}

fn prepare<'a>(
    logits: &'a [f32],
    at: &Position<'a>,
    (buffer, tops): (&'a mut Vec<f32>, &'a mut Vec<f32>),
    mask: &mut TokenMask,
) -> Result<Row<'a>, LawError> {
    // What is not finite stays so through bias and penalties. A ban would hide it.
    if !is_edited(at) {
        let max = scan(logits, tops)?;
        return Row::new(logits, (tops, max), at.sampling);
    }
    if at.constraint.is_some() {
        scan(logits, tops)?;
    }
    edit(logits, at, buffer, mask)?;
    match scan(buffer, tops) {
        Ok(max) => Row::new(buffer, (tops, max), at.sampling),
        // The row's own fault is named before one of its edits.
        Err(error) => scan(logits, tops).and(Err(error)),
    }
}

fn is_edited(at: &Position<'_>) -> bool {
    !at.sampling.logit_bias.is_empty() || at.constraint.is_some() || at.sampling.has_penalties()
}

/// Bias, constraint and penalties.
fn edit(
    logits: &[f32],
    at: &Position<'_>,
    values: &mut Vec<f32>,
    mask: &mut TokenMask,
) -> Result<(), LawError> {
    values.clear();
    values.extend_from_slice(logits);
    for &(token, bias) in &at.sampling.logit_bias {
        if let Some(value) = values.get_mut(token as usize) {
            *value += bias;
        }
    }
    if at.sampling.has_penalties() {
        penalise(values, at);
    }
    if let Some(constraint) = at.constraint {
        mask.reset(logits.len());
        constraint.mask(mask)?;
        // A ban is −∞, which no bias or penalty changes: it may as well come last.
        mask.apply(values);
    }
    Ok(())
}

/// Penalties over the committed counts and, on top, the draft path.
fn penalise(values: &mut [f32], at: &Position<'_>) {
    let on_path = |token| at.path.iter().filter(|&&t| t == token).count() as u32;
    for (token, count) in at.history.iter() {
        // Tokens of the path are done below, once each, with both counts.
        if !at.path.contains(&token) {
            penalise_one(values, at.sampling, token, count.output);
        }
    }
    for (index, &token) in at.path.iter().enumerate() {
        if !at.path[..index].contains(&token) {
            let output = at.history.count(token).output.saturating_add(on_path(token));
            penalise_one(values, at.sampling, token, output);
        }
    }
}

/// Penalises one token that has been seen, `output` times in the output.
fn penalise_one(values: &mut [f32], sampling: &Sampling, token: TokenId, output: u32) {
    let Some(value) = values.get_mut(token as usize) else { return };
    let repetition = sampling.repetition_penalty as f32;
    *value = if *value > 0.0 { *value / repetition } else { *value * repetition };
    if output > 0 {
        *value -= sampling.frequency_penalty as f32 * output as f32;
        *value -= sampling.presence_penalty as f32;
    }
}
