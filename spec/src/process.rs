//! [`law()`]: from a row of logits to the law that is sampled.

use crate::law::{Law, LawError};
use crate::select;
use crate::{Constraint, History, Sampling, TokenId, TokenMask};

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
#[derive(Debug, Default)]
pub struct Scratch {
    logits: Vec<f32>,
    mask: TokenMask,
    pub(crate) order: Vec<u32>,
    spare_ids: Vec<Vec<TokenId>>,
    spare_weights: Vec<Vec<f64>>,
    /// Of [`LogitRows`](crate::LogitRows), lent to the one that is in use.
    pub(crate) path: Vec<TokenId>,
    pub(crate) made: Vec<(Option<u32>, Law)>,
}

/// Laws kept for reuse at most; more than a round needs at once is never held.
const SPARES_MAX: usize = 64;

impl Scratch {
    /// Takes the buffers of a law that is no longer needed.
    pub fn recycle(&mut self, law: Law) {
        let (ids, weights) = law.into_parts();
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
/// Cost for a vocabulary of V: greedy, one pass and no exponential; top-k, one pass and a
/// selection; min-p, one pass; else V exponentials, and for top-p two more passes. Nothing sorts
/// the vocabulary.
///
/// # Errors
/// [`LawError::NotFinite`] if any logit is NaN or +∞, banned or not, or becomes so;
/// [`LawError::NoMass`] if every token is banned; [`LawError::Sampling`]; [`LawError::Constraint`].
pub fn law(logits: &[f32], at: &Position<'_>, scratch: &mut Scratch) -> Result<Law, LawError> {
    at.sampling.check_scalars()?;
    let mut max = largest(logits)?;
    let edited = edit(logits, at, scratch)?;
    // The buffer is taken out so that the selection may use the rest of the scratch.
    let buffer = std::mem::take(&mut scratch.logits);
    let values = if edited { &buffer[..] } else { logits };
    if edited {
        max = largest(values)?;
    }
    let law = if max == f32::NEG_INFINITY {
        Err(LawError::NoMass)
    } else if at.sampling.is_greedy() {
        Ok(point(values, max))
    } else {
        sampled(values, max, at.sampling, scratch)
    };
    scratch.logits = buffer;
    law
}

/// The largest value; an error if any is NaN or +∞. −∞ if there is nothing else.
pub(crate) fn largest(values: &[f32]) -> Result<f32, LawError> {
    const LANES: usize = 16;
    // Lanes without dependence on each other: the compiler turns the loop into vector code.
    let mut max = [f32::NEG_INFINITY; LANES];
    let mut bad = [false; LANES];
    let chunks = values.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for lane in 0..LANES {
            let x = chunk[lane];
            bad[lane] |= not_a_logit(x);
            max[lane] = if x > max[lane] { x } else { max[lane] };
        }
    }
    if bad.contains(&true) || rest.iter().any(|&x| not_a_logit(x)) {
        let at = values.iter().position(|&x| not_a_logit(x)).unwrap_or_default();
        return Err(LawError::NotFinite { token: at as TokenId, value: f64::from(values[at]) });
    }
    Ok(max.iter().chain(rest).fold(f32::NEG_INFINITY, |a, &x| if x > a { x } else { a }))
}

fn not_a_logit(x: f32) -> bool {
    x.is_nan() || x == f32::INFINITY
}

/// Bias, constraint and penalties, into `scratch.logits`. False if there is nothing to do.
fn edit(logits: &[f32], at: &Position<'_>, scratch: &mut Scratch) -> Result<bool, LawError> {
    let penalised = at.sampling.has_penalties();
    if at.sampling.logit_bias.is_empty() && at.constraint.is_none() && !penalised {
        return Ok(false);
    }
    let values = &mut scratch.logits;
    values.clear();
    values.extend_from_slice(logits);
    for &(token, bias) in &at.sampling.logit_bias {
        if let Some(value) = values.get_mut(token as usize) {
            *value += bias;
        }
    }
    if penalised {
        penalise(values, at);
    }
    if let Some(constraint) = at.constraint {
        scratch.mask.reset(logits.len());
        constraint.mask(&mut scratch.mask)?;
        // A ban is −∞, which no bias or penalty changes: it may as well come last.
        scratch.mask.apply(values);
    }
    Ok(true)
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

/// Greedy: the point at the first of the largest values.
fn point(values: &[f32], max: f32) -> Law {
    let token = values.iter().position(|&x| x == max).unwrap_or_default() as TokenId;
    Law::point(token)
}

/// Temperature above zero: min-p, top-k and top-p, from whichever of them spares the most work.
fn sampled(
    values: &[f32],
    max: f32,
    sampling: &Sampling,
    scratch: &mut Scratch,
) -> Result<Law, LawError> {
    let max = f64::from(max);
    let weight = |x: f32| ((f64::from(x) - max) / sampling.temperature).exp();
    let mut weights = scratch.weights();
    let top_k = sampling.top_k as usize;
    // Min-p and top-k both keep a prefix of the tokens by likelihood, whichever comes first.
    let ids = if top_k > 0 && top_k < values.len() {
        let mut ids = scratch.ids();
        select::top_k(values, top_k, &mut scratch.order);
        ids.extend(
            scratch.order.iter().filter(|&&id| weight(values[id as usize]) >= sampling.min_p),
        );
        ids.sort_unstable();
        weights.extend(ids.iter().map(|&id| weight(values[id as usize])));
        Some(ids)
    } else if sampling.min_p > 0.0 {
        let mut ids = scratch.ids();
        // Far below the threshold no exponential is needed; near it, the exact comparison decides.
        let floor = max + sampling.temperature * (sampling.min_p.ln() - 1e-6) - 1e-6 * max.abs();
        for (id, &x) in values.iter().enumerate() {
            if f64::from(x) >= floor {
                let w = weight(x);
                if w >= sampling.min_p && w > 0.0 {
                    ids.push(id as TokenId);
                    weights.push(w);
                }
            }
        }
        Some(ids)
    } else {
        weights.extend(values.iter().map(|&x| weight(x)));
        None
    };
    if sampling.top_p < 1.0 {
        let mut kept = scratch.ids();
        let mut masses = scratch.weights();
        let from = (ids.as_deref(), &weights[..]);
        select::top_p(from, sampling.top_p, &mut scratch.order, (&mut kept, &mut masses));
        scratch.spare_weights.push(weights);
        scratch.spare_ids.extend(ids);
        return Law::scaled(Some(kept), masses);
    }
    Law::scaled(ids, weights)
}
