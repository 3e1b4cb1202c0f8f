//! What a caller asks for and what comes back: the vocabulary of the engine's public API.
//!
//! A [`GenerateRequest`] names a prompt and how to continue it. Events arrive while it runs
//! ([`Event`]); the last one carries the whole [`RequestOutput`].

use std::fmt;
use std::time::Duration;

use redline_spec::{Sampling, TokenId};
use serde::Serialize;

use crate::constraint::RequestConstraint;
use crate::error::FailureKind;
use crate::logprobs::{Logprobs, LogprobsOutput, TokenLogprob};

/// Identifies a request for as long as the engine lives; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request-{}", self.0)
    }
}

/// What is to be continued.
#[derive(Debug, Clone, PartialEq)]
pub enum Prompt {
    /// Bare text; special tokens written in it are recognised as such.
    Text(String),
    /// A conversation, rendered through the model's chat template.
    Messages(Vec<crate::text::Message>),
    /// Token ids, fed as they are.
    Tokens(Vec<TokenId>),
}

/// How much speculation one request wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Speculation {
    /// Whatever the engine's policy decides.
    #[default]
    Engine,
    /// At most this many draft tokens a round.
    AtMost(usize),
    /// This many a round, where the drafter, the context and the token budget allow it.
    Exactly(usize),
    /// None: every round is plain decoding.
    Off,
}

impl Speculation {
    /// The number of drafts that the engine may not choose. Who may not draft pays for nobody's exploration, so 0 is one, too.
    pub(crate) fn pin(self) -> Option<usize> {
        match self {
            Self::Exactly(length) | Self::AtMost(length @ 0) => Some(length),
            Self::Off => Some(0),
            Self::AtMost(_) | Self::Engine => None,
        }
    }

    /// Most drafts of a round.
    pub(crate) fn cap(self) -> Option<usize> {
        match self {
            Self::Engine => None,
            Self::AtMost(cap) | Self::Exactly(cap) => Some(cap),
            Self::Off => Some(0),
        }
    }
}

/// One request. `..GenerateRequest::new(prompt)` fills in the defaults: greedy, 256 tokens.
#[derive(Debug, Clone)]
pub struct GenerateRequest {
    /// What to continue.
    pub prompt: Prompt,
    /// How many continuations to generate, at least 1 (`n` of the OpenAI API). They share the
    /// prompt's part of the cache and are drawn apart; the first is the one that a single one would
    /// have been.
    pub samples: usize,
    /// Most tokens to generate; at least 1. Cut to what the context length leaves.
    pub max_tokens: usize,
    /// Temperature, truncation, penalties, bias.
    pub sampling: Sampling,
    /// Seed of the noise; `None` draws one at random and reports it in the output.
    pub seed: Option<u64>,
    /// Generation ends right before any of these strings; they are not part of the output.
    pub stop: Vec<String>,
    /// Go on past end-of-text tokens.
    pub ignore_eos: bool,
    /// Token ids that are never emitted.
    pub banned: Vec<TokenId>,
    /// Log-probabilities of the emitted tokens, if they are wanted: they cost time.
    pub logprobs: Option<Logprobs>,
    /// Which tokens may come next, if not all: a grammar, a schema, an embedder's own rule.
    pub constraint: Option<RequestConstraint>,
    /// Higher runs first.
    pub priority: i32,
    /// Requests share cached prefixes only with requests of the same salt.
    pub salt: u64,
    /// How much to speculate.
    pub speculation: Speculation,
    /// How long it may take from when the engine takes it in; then it ends with what it has, as
    /// [`FinishReason::Timeout`]. Looked at between steps.
    pub timeout: Option<Duration>,
}

impl GenerateRequest {
    /// A greedy request for up to 256 tokens.
    pub fn new(prompt: Prompt) -> Self {
        Self {
            prompt,
            samples: 1,
            max_tokens: 256,
            sampling: Sampling::default(),
            seed: None,
            stop: Vec::new(),
            ignore_eos: false,
            banned: Vec::new(),
            logprobs: None,
            constraint: None,
            priority: 0,
            salt: 0,
            speculation: Speculation::Engine,
            timeout: None,
        }
    }
}

/// Where a token came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Proposed by the drafter and accepted by the target.
    Draft,
    /// The target's own: a correction, a bonus token, or plain decoding.
    Target,
}

/// One emitted token.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenEvent {
    /// Its id.
    pub id: TokenId,
    /// The text that became certain with it; may be empty while a character or a possible stop
    /// string is incomplete.
    pub text: String,
    /// Draft or target.
    pub origin: Origin,
    /// Its log-probability, if the request asked.
    pub logprob: Option<Box<TokenLogprob>>,
}

/// What happened to one request in one step.
#[derive(Debug, Clone)]
pub enum Event {
    /// Tokens committed in this step, in order.
    Tokens {
        /// The request.
        id: RequestId,
        /// Which of its samples, counted from 0.
        sample: usize,
        /// At least one token.
        tokens: Vec<TokenEvent>,
    },
    /// A sample ended; no event of it follows. The request has ended when all its samples have.
    Finished {
        /// The request.
        id: RequestId,
        /// Which of its samples, counted from 0.
        sample: usize,
        /// Everything it produced.
        output: Box<RequestOutput>,
    },
}

impl Event {
    /// The request the event belongs to.
    pub fn id(&self) -> RequestId {
        self.name().0
    }

    /// The request it belongs to, and which of its samples.
    pub fn name(&self) -> (RequestId, usize) {
        match self {
            Self::Tokens { id, sample, .. } | Self::Finished { id, sample, .. } => (*id, *sample),
        }
    }
}

/// Why a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// An end-of-text token or a stop string.
    Stop,
    /// `max_tokens` or the context length.
    Length,
    /// The caller took it back, or stopped reading.
    Cancelled,
    /// It took longer than [`GenerateRequest::timeout`] allows.
    Timeout,
    /// It failed; [`RequestOutput::error`] says why.
    Error,
}

/// Token counts, named as in the OpenAI API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens generated, the end-of-text token included.
    pub completion_tokens: usize,
    /// Prompt tokens whose KV came from the prefix cache or from another sample.
    pub cached_tokens: usize,
}

/// What speculation did for one request, counted after truncation at a stop.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct SpeculationStats {
    /// Target passes that committed tokens.
    pub rounds: usize,
    /// Draft tokens verified.
    pub drafted: usize,
    /// Draft tokens that became output.
    pub accepted: usize,
    /// Tokens per round, the target's own included.
    pub mean_acceptance_length: f64,
    /// `acceptance_histogram[j]` = rounds in which exactly `j` drafts became output.
    pub acceptance_histogram: Vec<usize>,
}

/// Where the time went, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Timing {
    /// From submission to the first step that computed anything for it.
    pub queue_s: f64,
    /// From submission to the first token.
    pub ttft_s: f64,
    /// From the first token to the last.
    pub decode_s: f64,
    /// Tokens after the first, per second of `decode_s`; 0 with fewer than two tokens.
    pub tokens_per_s: f64,
}

/// Everything that one sample of a finished request produced.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RequestOutput {
    /// Which of the request's samples it is, counted from 0.
    pub sample: usize,
    /// The generated text, without stop strings and special tokens.
    pub text: String,
    /// The generated ids, the end-of-text token included.
    pub token_ids: Vec<TokenId>,
    /// Log-probabilities of these tokens, if the request asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<LogprobsOutput>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// What went wrong, in a line, if `finish_reason` is `error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Of what kind that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureKind>,
    /// The seed that reproduces it.
    pub seed: u64,
    /// Token counts.
    pub usage: Usage,
    /// Rounds, drafts, acceptance.
    pub speculation: SpeculationStats,
    /// Seconds.
    pub timing: Timing,
}

#[cfg(test)]
mod tests {
    use super::Speculation::{AtMost, Engine, Exactly, Off};

    #[test]
    fn who_may_not_draft_leaves_the_engine_no_choice() {
        for speculation in [Off, AtMost(0), Exactly(0)] {
            assert_eq!((speculation.pin(), speculation.cap()), (Some(0), Some(0)));
        }
        assert_eq!((Exactly(3).pin(), Exactly(3).cap()), (Some(3), Some(3)));
        assert_eq!((AtMost(3).pin(), AtMost(3).cap()), (None, Some(3)));
        assert_eq!((Engine.pin(), Engine.cap()), (None, None));
    }
}
