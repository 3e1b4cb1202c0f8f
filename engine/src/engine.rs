//! The engine as its embedders see it: submit requests, step, read events.
//!
//! [`Engine`] is synchronous and single-threaded; [`crate::AsyncEngine`] puts it on a thread of its own.
//! [`Frontend`] is the part that needs no engine thread: text to tokens, parameters to a checked request.

use std::sync::Arc;

use redline_kv_cache::KvCache;
use redline_scheduler::{Request, Scheduler, SeqId, SubmitError};
use redline_spec::{Constraint, Draws, History, Sampling, SamplingError, TokenId};
use thiserror::Error;

use crate::constraint::combine;
use crate::live::Live;
use crate::random::random_u64;
use crate::request::{Event, GenerateRequest, Prompt, RequestId, Speculation};
use crate::step::Core;
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
    /// The scheduler can't take it.
    #[error(transparent)]
    Scheduler(SubmitError),
}

/// A request whose text is tokens and whose parameters are checked; ready for [`Engine::submit_prepared`].
pub struct Prepared {
    tokens: Vec<TokenId>,
    max_tokens: usize,
    sampling: Sampling,
    seed: u64,
    eos: Vec<TokenId>,
    text: Option<TextState>,
    constraint: Option<Box<dyn Constraint>>,
    priority: i32,
    salt: u64,
    draft_cap: Option<usize>,
    pin: Option<usize>,
}

/// Text in, tokens out: what a request needs before it meets the engine. Shared between threads.
pub struct Frontend {
    pub(crate) tokenizer: Option<Arc<Tokenizer>>,
    pub(crate) template: Option<ChatTemplate>,
    pub(crate) vocab: usize,
}

impl Frontend {
    /// Checks and tokenizes a request.
    ///
    /// # Errors
    /// [`SubmitRefused`] names what is wrong with it.
    pub fn prepare(&self, request: GenerateRequest) -> Result<Prepared, SubmitRefused> {
        request.sampling.validate()?;
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
        Ok(Prepared {
            tokens,
            max_tokens: request.max_tokens,
            sampling: request.sampling,
            seed: request.seed.unwrap_or_else(random_u64),
            eos,
            text,
            constraint: combine(request.constraint, request.banned),
            priority: request.priority,
            salt: request.salt,
            pin: match request.speculation {
                Speculation::Exactly(length) => Some(length),
                _ => None,
            },
            draft_cap: match request.speculation {
                Speculation::Engine => None,
                Speculation::AtMost(cap) | Speculation::Exactly(cap) => Some(cap),
                Speculation::Off => Some(0),
            },
        })
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

/// A synchronous engine: one step at a time, on the caller's thread.
pub struct Engine {
    core: Core,
    frontend: Arc<Frontend>,
    next_id: u64,
    /// Bytes of a block over all lanes.
    block_bytes: u64,
}

impl Engine {
    pub(crate) fn new(core: Core, frontend: Frontend, block_bytes: u64) -> Self {
        Self { core, frontend: Arc::new(frontend), next_id: 0, block_bytes }
    }

    /// The part that turns requests into tokens; may be used from other threads.
    pub fn frontend(&self) -> Arc<Frontend> {
        Arc::clone(&self.frontend)
    }

    /// Takes a request in. It runs as the following steps get to it.
    ///
    /// # Errors
    /// [`SubmitRefused`] when it can't be served; the engine is as it was.
    pub fn submit(&mut self, request: GenerateRequest) -> Result<RequestId, SubmitRefused> {
        let prepared = self.frontend.prepare(request)?;
        self.submit_prepared(prepared)
    }

    /// Like [`Self::submit`], for a request prepared elsewhere.
    ///
    /// # Errors
    /// [`SubmitRefused::Scheduler`] when it can't be served.
    pub fn submit_prepared(&mut self, prepared: Prepared) -> Result<RequestId, SubmitRefused> {
        let id = SeqId(self.next_id);
        let history = History::new(&prepared.tokens);
        let draws = Draws { seed: prepared.seed, sample: 0 };
        let mut live = Live::new(prepared.sampling, draws, history, prepared.seed);
        live.eos = prepared.eos;
        live.text = prepared.text;
        live.constraint = prepared.constraint;
        let request = Request {
            id,
            prompt: prepared.tokens,
            max_tokens: prepared.max_tokens,
            priority: prepared.priority,
            salt: prepared.salt,
            draft_cap: prepared.draft_cap,
        };
        self.core.submit(request, live, prepared.pin).map_err(|refused| match refused {
            // Blocks mean nothing to who chose a number of bytes.
            SubmitError::NeverFits { blocks_needed, blocks_total } => SubmitRefused::KvTooSmall {
                needed: blocks_needed as u64 * self.block_bytes,
                total: blocks_total as u64 * self.block_bytes,
            },
            other => SubmitRefused::Scheduler(other),
        })?;
        self.next_id += 1;
        Ok(RequestId(id.0))
    }

    /// Runs one step and returns what happened in it, cancellations since the last step included. A
    /// request that fails, fails alone; the engine goes on.
    pub fn step(&mut self) -> Vec<Event> {
        self.core.step()
    }

    /// Takes a request back; its last event comes with the next step. `false` if it is not under way.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        self.core.cancel(SeqId(id.0))
    }

    /// Whether a step would do anything.
    pub fn has_work(&self) -> bool {
        self.core.has_work()
    }

    /// Who waits, who runs, and counts since the start.
    pub fn scheduler(&self) -> &Scheduler {
        self.core.scheduler()
    }

    /// Runs steps until nothing is left to do, handing each event to `on_event`.
    pub fn run(&mut self, mut on_event: impl FnMut(Event)) {
        while self.has_work() {
            self.step().into_iter().for_each(&mut on_event);
        }
    }

    /// Checks every invariant of scheduler and cache; for tests, and for idle moments in production.
    ///
    /// # Errors
    /// Names the invariant that does not hold.
    pub fn audit(&self) -> Result<(), redline_scheduler::Violation> {
        self.core.audit()
    }

    /// The cache's bookkeeping, for metrics.
    pub fn kv(&self) -> &KvCache {
        self.core.kv()
    }
}
