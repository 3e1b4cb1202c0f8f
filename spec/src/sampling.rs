//! [`Sampling`]: how a request wants its tokens drawn.

use crate::TokenId;
use thiserror::Error;

/// Sampling parameters of one request, with vLLM's names, ranges and meaning.
///
/// The default is greedy decoding with every processor off. The order in which they apply is that
/// of [`law`](crate::law()).
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits. 0 is greedy: the argmax after bias, constraint and penalties, the lowest
    /// id among equals. Finite, at least 0.
    pub temperature: f64,
    /// Keeps the `top_k` likeliest tokens, lowest ids first among equals (vLLM's reference sampler
    /// would keep every token tied with the last). 0 is off.
    pub top_k: u32,
    /// Keeps the smallest set of likeliest tokens whose mass reaches `top_p`. In (0, 1]; 1 is off.
    pub top_p: f64,
    /// Drops tokens less likely than `min_p` times the likeliest one. In [0, 1]; 0 is off.
    pub min_p: f64,
    /// Divides positive and multiplies other logits of every token seen in prompt or output.
    /// Finite, above 0; 1 is off.
    pub repetition_penalty: f64,
    /// Subtracted once from every token seen in the output. In [−2, 2]; 0 is off.
    pub presence_penalty: f64,
    /// Subtracted from a token for each time it occurs in the output. In [−2, 2]; 0 is off.
    pub frequency_penalty: f64,
    /// Added to the logits of the given tokens, each in [−100, 100], each token at most once. A
    /// token outside the vocabulary has no effect.
    pub logit_bias: Vec<(TokenId, f32)>,
}

/// A sampling parameter outside its range.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("{field} = {value} is not allowed: {allowed}")]
pub struct SamplingError {
    /// Name of the field.
    pub field: &'static str,
    /// Its value (for a doubled `logit_bias` entry, the token id).
    pub value: f64,
    /// What would have been allowed.
    pub allowed: &'static str,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
        }
    }
}

impl Sampling {
    /// Checks every field against its range. Meant for the door: once per request.
    ///
    /// # Errors
    /// The first field out of range, its value and what is allowed.
    pub fn validate(&self) -> Result<(), SamplingError> {
        self.check_scalars()?;
        for (index, &(token, bias)) in self.logit_bias.iter().enumerate() {
            if !(-100.0..=100.0).contains(&bias) {
                return Err(SamplingError {
                    field: "logit_bias",
                    value: f64::from(bias),
                    allowed: "between -100 and 100",
                });
            }
            if self.logit_bias[..index].iter().any(|&(other, _)| other == token) {
                return Err(SamplingError {
                    field: "logit_bias",
                    value: f64::from(token),
                    allowed: "each token at most once",
                });
            }
        }
        Ok(())
    }

    /// The part of [`Sampling::validate`] that is cheap enough to run for every row.
    pub(crate) fn check_scalars(&self) -> Result<(), SamplingError> {
        let finite = |x: f64| x.is_finite();
        let checks = [
            (
                "temperature",
                self.temperature,
                finite(self.temperature) && self.temperature >= 0.0,
                "a finite number, at least 0",
            ),
            ("top_p", self.top_p, self.top_p > 0.0 && self.top_p <= 1.0, "above 0, at most 1"),
            ("min_p", self.min_p, (0.0..=1.0).contains(&self.min_p), "between 0 and 1"),
            (
                "repetition_penalty",
                self.repetition_penalty,
                finite(self.repetition_penalty) && self.repetition_penalty > 0.0,
                "a finite number above 0",
            ),
            (
                "presence_penalty",
                self.presence_penalty,
                (-2.0..=2.0).contains(&self.presence_penalty),
                "between -2 and 2",
            ),
            (
                "frequency_penalty",
                self.frequency_penalty,
                (-2.0..=2.0).contains(&self.frequency_penalty),
                "between -2 and 2",
            ),
        ];
        match checks.into_iter().find(|&(.., ok, _)| !ok) {
            Some((field, value, _, allowed)) => Err(SamplingError { field, value, allowed }),
            None => Ok(()),
        }
    }

    /// Whether the target's argmax is all that can be emitted.
    #[must_use]
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    /// Whether any penalty needs the [`History`](crate::History).
    #[must_use]
    pub fn has_penalties(&self) -> bool {
        self.repetition_penalty != 1.0
            || self.presence_penalty != 0.0
            || self.frequency_penalty != 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_is_greedy_and_valid() {
        let sampling = Sampling::default();
        assert!(sampling.is_greedy() && !sampling.has_penalties());
        assert_eq!(sampling.validate(), Ok(()));
    }

    #[test]
    fn every_field_is_checked_by_name() {
        let d = Sampling::default;
        let bad = [
            ("temperature", Sampling { temperature: -1.0, ..d() }),
            ("temperature", Sampling { temperature: f64::NAN, ..d() }),
            ("temperature", Sampling { temperature: f64::INFINITY, ..d() }),
            ("top_p", Sampling { top_p: 0.0, ..d() }),
            ("top_p", Sampling { top_p: 1.5, ..d() }),
            ("top_p", Sampling { top_p: f64::NAN, ..d() }),
            ("min_p", Sampling { min_p: -0.1, ..d() }),
            ("min_p", Sampling { min_p: f64::NAN, ..d() }),
            ("repetition_penalty", Sampling { repetition_penalty: 0.0, ..d() }),
            ("repetition_penalty", Sampling { repetition_penalty: f64::NAN, ..d() }),
            ("presence_penalty", Sampling { presence_penalty: 2.1, ..d() }),
            ("frequency_penalty", Sampling { frequency_penalty: f64::NAN, ..d() }),
            ("logit_bias", Sampling { logit_bias: vec![(1, 101.0)], ..d() }),
            ("logit_bias", Sampling { logit_bias: vec![(1, f32::NAN)], ..d() }),
            ("logit_bias", Sampling { logit_bias: vec![(7, 1.0), (7, 2.0)], ..d() }),
        ];
        for (field, sampling) in bad {
            assert_eq!(sampling.validate().unwrap_err().field, field);
        }
        let text = Sampling { top_p: 0.0, ..d() }.validate().unwrap_err().to_string();
        assert_eq!(text, "top_p = 0 is not allowed: above 0, at most 1");
    }
}
