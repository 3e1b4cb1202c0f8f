//! What needs no engine thread: text to tokens, parameters to a checked request.

use std::sync::Arc;
use std::time::Duration;

use redline_scheduler::SubmitError;
use redline_spec::{Constraint, Sampling, SamplingError, TokenId};
use thiserror::Error;

use crate::constraint::{RequestConstraint, combine};
use crate::grammar::{Grammar, GrammarError, Grammars};
use crate::logprobs::{Logprobs, TOP_LOGPROBS_MAX};
use crate::random::random_u64;
use crate::request::{GenerateRequest, Prompt};
use crate::text::{
    ChatError, ChatOptions, ChatTemplate, Encode, EncodeError, StopError, StopStrings, TextState,
    Tokenizer,
};

/// Why a request was refused at the door. Nothing of it is kept.
#[derive(Debug, Error)]
pub enum SubmitRefused {
    /// A sampling parameter is out of its range.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// The prompt could not be tokenized.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The conversation could not be rendered.
    #[error(transparent)]
    Template(#[from] ChatError),
    /// The stop strings are too many or too long.
    #[error(transparent)]
    Stop(#[from] StopError),
    /// Text was given to an engine without a tokenizer, or messages to a model without a template.
    #[error("{0}")]
    NoText(&'static str),
    /// A token of the prompt, of the bans or of the bias is not in the vocabulary.
    #[error("token {token} ({place}) is not in the vocabulary of {vocab} entries")]
    UnknownToken {
        /// The token.
        token: TokenId,
        /// Where it was given.
        place: &'static str,
        /// Entries of the vocabulary.
        vocab: usize,
    },
    /// A text that was to name one token.
    #[error("`{text}` is {tokens} tokens, not one")]
    NotOneToken {
        /// The text.
        text: String,
        /// How many tokens it is.
        tokens: usize,
    },
    /// Even alone it would run out of KV cache before its end.
    #[error(
        "the request needs up to {needed} bytes of KV cache, there are {total}: give --kv-memory {needed} or ask \
         for fewer tokens"
    )]
    KvTooSmall {
        /// Bytes at its longest.
        needed: u64,
        /// Bytes of the whole cache.
        total: u64,
    },
    /// No sample, or too many.
    #[error("samples is {0}, must be 1 to {SAMPLES_MAX}")]
    Samples(usize),
    /// The grammar can't be used.
    #[error(transparent)]
    Grammar(#[from] GrammarError),
    /// More alternatives than there can be.
    #[error("{0} top logprobs; at most {TOP_LOGPROBS_MAX} are given")]
    TopLogprobs(usize),
    /// The scheduler can't take it.
    #[error(transparent)]
    Scheduler(SubmitError),
}

/// A request whose text is tokens and whose parameters are checked; ready for [`Engine::submit_prepared`].
pub struct Prepared {
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) samples: usize,
    pub(crate) timeout: Option<Duration>,
    pub(crate) max_tokens: usize,
    pub(crate) sampling: Sampling,
    pub(crate) seed: u64,
    pub(crate) eos: Vec<TokenId>,
    pub(crate) text: Option<TextState>,
    pub(crate) constraint: Option<Box<dyn Constraint>>,
    pub(crate) logprobs: Option<Logprobs>,
    /// For the text of the alternatives.
    pub(crate) tokenizer: Option<Arc<Tokenizer>>,
    pub(crate) priority: i32,
    pub(crate) salt: u64,
    pub(crate) draft_cap: Option<usize>,
    pub(crate) pin: Option<usize>,
}

impl Prepared {
    /// How many continuations it asks for.
    pub fn samples(&self) -> usize {
        self.samples
    }
}

/// The most samples a request may ask for.
pub const SAMPLES_MAX: usize = 1024;

/// Text in, tokens out: what a request needs before it meets the engine. Shared between threads.
pub struct Frontend {
    pub(crate) tokenizer: Option<Arc<Tokenizer>>,
    pub(crate) template: Option<ChatTemplate>,
    pub(crate) vocab: usize,
    pub(crate) grammars: Grammars,
}

impl Frontend {
    /// Checks and tokenizes a request.
    ///
    /// # Errors
    /// [`SubmitRefused`] names what is wrong with it.
    pub fn prepare(&self, request: GenerateRequest) -> Result<Prepared, SubmitRefused> {
        request.sampling.validate()?;
        if request.samples == 0 || request.samples > SAMPLES_MAX {
            return Err(SubmitRefused::Samples(request.samples));
        }
        if let Some(Logprobs { top, .. }) = request.logprobs.filter(|l| l.top > TOP_LOGPROBS_MAX) {
            return Err(SubmitRefused::TopLogprobs(top));
        }
        let tokens = self.tokens(&request.prompt)?;
        self.check_ids(&tokens, "in the prompt")?;
        self.check_ids(&request.banned, "among the banned tokens")?;
        let biased: Vec<_> = request.sampling.logit_bias.iter().map(|&(id, _)| id).collect();
        self.check_ids(&biased, "in the logit bias")?;
        let text = match &self.tokenizer {
            Some(tokenizer) => {
                let stops = StopStrings::new(&request.stop)?;
                Some(TextState::new(tokenizer.detokenizer(false), stops))
            }
            None if !request.stop.is_empty() => {
                return Err(SubmitRefused::NoText("stop strings need a tokenizer"));
            }
            None => None,
        };
        let eos = match &self.tokenizer {
            Some(tokenizer) if !request.ignore_eos => tokenizer.end_tokens().to_vec(),
            _ => Vec::new(),
        };
        let constraint = self.constraint(request.constraint, request.ignore_eos)?;
        Ok(Prepared {
            tokens,
            samples: request.samples,
            timeout: request.timeout,
            max_tokens: request.max_tokens,
            sampling: request.sampling,
            seed: request.seed.unwrap_or_else(random_u64),
            eos,
            text,
            logprobs: request.logprobs,
            tokenizer: self.tokenizer.clone().filter(|_| request.logprobs.is_some()),
            constraint: combine(constraint, request.banned),
            priority: request.priority,
            salt: request.salt,
            pin: request.speculation.pin(),
            draft_cap: request.speculation.cap(),
        })
    }

    fn constraint(
        &self,
        wanted: Option<RequestConstraint>,
        ignore_eos: bool,
    ) -> Result<Option<Box<dyn Constraint>>, GrammarError> {
        let Some(wanted) = wanted else { return Ok(None) };
        if ignore_eos && wanted.grammar().is_some() {
            return Err(GrammarError::NoEnd);
        }
        wanted.start(|grammar| self.grammar(grammar)).map(Some)
    }

    /// A grammar as a constraint before the first token. The latest are kept: requests that name one that has been
    /// compiled need not wait.
    ///
    /// # Errors
    /// [`GrammarError`] says what is wrong with it.
    pub fn grammar(&self, grammar: &Grammar) -> Result<Box<dyn Constraint>, GrammarError> {
        self.grammars.start(grammar, self.tokenizer.as_deref())
    }

    /// The prompt's tokens, as they will be fed.
    ///
    /// # Errors
    /// When there is no tokenizer or template for it, or it can't be encoded.
    pub fn tokens(&self, prompt: &Prompt) -> Result<Vec<TokenId>, SubmitRefused> {
        let tokenizer =
            || self.tokenizer.as_ref().ok_or(SubmitRefused::NoText("text needs a tokenizer"));
        Ok(match prompt {
            Prompt::Tokens(tokens) => tokens.clone(),
            Prompt::Text(text) => tokenizer()?.encode(text, Encode::default())?,
            Prompt::Messages(messages) => {
                let template = self.template.as_ref().ok_or(SubmitRefused::NoText(
                    "the model has no chat template; give bare text instead",
                ))?;
                let prompt = template.render(messages, &ChatOptions::generation())?;
                tokenizer()?.encode(&prompt, Encode::default())?
            }
        })
    }

    /// The tokens that each of `texts` names: an id, or a text that is one token.
    ///
    /// # Errors
    /// Names the text that is neither.
    pub fn token_list(&self, texts: &[String]) -> Result<Vec<TokenId>, SubmitRefused> {
        let one = |text: &String| {
            if let Ok(id) = text.parse() {
                return Ok(id);
            }
            let how = Encode { bos: false, ..Encode::default() };
            let ids = match &self.tokenizer {
                Some(tokenizer) => tokenizer.encode(text, how)?,
                None => Vec::new(),
            };
            match ids[..] {
                [id] => Ok(id),
                _ => Err(SubmitRefused::NotOneToken { text: text.clone(), tokens: ids.len() }),
            }
        };
        texts.iter().map(one).collect()
    }

    fn check_ids(&self, ids: &[TokenId], place: &'static str) -> Result<(), SubmitRefused> {
        match ids.iter().find(|&&id| id as usize >= self.vocab) {
            Some(&token) => Err(SubmitRefused::UnknownToken { token, place, vocab: self.vocab }),
            None => Ok(()),
        }
    }
}
