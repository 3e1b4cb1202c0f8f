//! What a user asks for, why it may be refused at the door, and how it ends.

use redline_kv_cache::TokenId;

/// The caller's name for one sequence. It may be used again after the sequence ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqId(pub u64);

/// One prompt to be continued, once or several times.
#[derive(Debug, Clone)]
pub struct Request {
    /// The name of its first sequence; those of further samples follow. None may be in use.
    pub id: SeqId,
    /// How many sequences continue the prompt, at least one. They share the prompt's blocks and are
    /// scheduled each for itself, one after the other in rank.
    pub samples: usize,
    /// The tokens given, at least one.
    pub prompt: Vec<TokenId>,
    /// The most tokens to generate, at least one. Cut down to what the context has room for.
    pub max_tokens: usize,
    /// Higher goes first. One level is worth [`Config::ageing_steps`](crate::Config::ageing_steps)
    /// steps of waiting.
    pub priority: i32,
    /// The tenant: cached prefixes are shared among equal salts only.
    pub salt: u64,
    /// The most draft nodes a round of it may have; `None` for no cap, `Some(0)` for none at all.
    pub draft_cap: Option<usize>,
    /// When it ends at the latest, in whatever [`Scheduler::expire`](crate::Scheduler::expire) is
    /// given; `None` for never.
    pub deadline: Option<u64>,
}

impl Request {
    /// One sequence, of no special importance, that may draft as it likes and take its time.
    pub fn new(id: SeqId, prompt: Vec<TokenId>, max_tokens: usize) -> Self {
        Self {
            id,
            samples: 1,
            prompt,
            max_tokens,
            priority: 0,
            salt: 0,
            draft_cap: None,
            deadline: None,
        }
    }

    /// The name of its sequence number `sample`.
    pub fn sample_id(&self, sample: usize) -> SeqId {
        SeqId(self.id.0 + sample as u64)
    }
}

/// Why a request is refused at the door. It was not queued and will produce no event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// There is nothing to continue.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// Nothing is to be generated.
    #[error("max_tokens is 0, must be at least 1")]
    ZeroTokens,
    /// Not even one sequence is asked for.
    #[error("samples is 0, must be at least 1")]
    ZeroSamples,
    /// They would not fit into an empty queue.
    #[error("{samples} samples, at most {limit} fit the queue")]
    TooManySamples {
        /// What was asked for.
        samples: usize,
        /// The most that may wait.
        limit: usize,
    },
    /// The prompt leaves no room in the context for a single token.
    #[error("the prompt has {prompt} tokens, at most {limit} fit the context")]
    TooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// The most a prompt may have.
        limit: usize,
    },
    /// Even alone it would run out of blocks before its end.
    #[error("the request needs up to {blocks_needed} cache blocks, there are {blocks_total}")]
    NeverFits {
        /// Blocks at its longest.
        blocks_needed: usize,
        /// Blocks of the whole pool.
        blocks_total: usize,
    },
    /// Try again later.
    #[error("the queue is full ({limit} requests)")]
    QueueFull {
        /// The most that may wait.
        limit: usize,
    },
    /// Nothing new is taken in any more.
    #[error("no new requests are taken: those under way are being finished")]
    Draining,
    /// A sequence of that name has not ended yet.
    #[error("a request with this id has not ended yet")]
    DuplicateId,
}

/// How a sequence ended. Every submitted one ends in exactly one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Finish {
    /// The stop rule said so. Goes before `Length` where both hold.
    Stop,
    /// It has as many tokens as it asked for or as the context holds.
    Length,
    /// It was cancelled.
    Cancelled,
    /// Its deadline has passed.
    Expired,
    /// A step failed for it, or steps with it failed more often than is retried.
    Failed,
}
