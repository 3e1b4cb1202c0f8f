//! One request on its way: its tokens, its blocks, its place in line.

use crate::{Rank, Request, SeqId};
use redline_kv_cache::{SequenceKv, TokenId};

/// Where a sequence is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// In the queue, holding no blocks.
    Waiting,
    /// In the batch. The number is never used twice: a plan names it, so that what comes back
    /// after a preemption, a cancel or a reuse of the id is not mistaken for an answer.
    Running {
        /// Number of the admission.
        admission: u64,
    },
}

/// A sequence, read-only to all but the scheduler.
#[derive(Debug)]
pub struct Sequence {
    id: SeqId,
    /// The id of the first sequence of its request.
    first: SeqId,
    /// How many sequences its request had.
    samples: usize,
    deadline: Option<u64>,
    priority: i32,
    draft_cap: usize,
    /// Committed tokens: the prompt, then what was generated.
    pub(crate) tokens: Vec<TokenId>,
    prompt_len: usize,
    /// The most tokens it may have, prompt included.
    limit: usize,
    pub(crate) rank: Rank,
    pub(crate) phase: Phase,
    pub(crate) kv: SequenceKv,
    /// Set by the first admission.
    pub(crate) cached: Option<usize>,
    pub(crate) preemptions: u32,
    /// Step of the last preemption, 0 without one: it is not admitted again in the same step.
    pub(crate) preempted_at: u64,
    /// Since when it could have been passed in the queue because it did not fit.
    pub(crate) passed_since: Option<u64>,
    /// Failed steps in a row.
    pub(crate) failures: u32,
    pub(crate) held: bool,
}

impl Sequence {
    /// Number `sample` of the request's sequences.
    pub(crate) fn new(request: &Request, sample: usize, limit: usize, rank: Rank) -> Self {
        assert!(request.prompt.len() < limit, "room for at least one token");
        Self {
            id: request.sample_id(sample),
            first: request.id,
            samples: request.samples,
            deadline: request.deadline,
            priority: request.priority,
            draft_cap: request.draft_cap.unwrap_or(usize::MAX),
            prompt_len: request.prompt.len(),
            tokens: request.prompt.clone(),
            limit,
            rank,
            phase: Phase::Waiting,
            kv: SequenceKv::new(request.salt),
            cached: None,
            preemptions: 0,
            preempted_at: 0,
            passed_since: None,
            failures: 0,
            held: false,
        }
    }

    /// The caller's name for it.
    pub fn id(&self) -> SeqId {
        self.id
    }

    /// The name of the first sequence that continues the same request's prompt: its own, if there is
    /// but one.
    pub fn first(&self) -> SeqId {
        self.first
    }

    /// Which of its request's sequences it is, counted from 0.
    pub fn sample(&self) -> usize {
        (self.id.0 - self.first.0) as usize
    }

    /// When it ends at the latest.
    pub fn deadline(&self) -> Option<u64> {
        self.deadline
    }

    /// The number of its request, shared by its samples and by nobody else, ever: the name of one
    /// that ended may be in use again.
    pub(crate) fn family(&self) -> u64 {
        self.rank.arrival() - (self.id.0 - self.first.0)
    }

    /// Whether the other continues the same request's prompt.
    pub(crate) fn is_sibling_of(&self, other: &Self) -> bool {
        self.family() == other.family() && self.id != other.id
    }

    /// Whether it had siblings, ended or not.
    pub(crate) fn has_siblings(&self) -> bool {
        self.samples > 1
    }

    /// Whether siblings had better wait for it: it is still about to compute what they share.
    pub(crate) fn is_computing_prompt(&self) -> bool {
        self.computed() + 1 < self.prompt_len
    }

    /// All committed tokens, the prompt first.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// Tokens of the prompt.
    pub fn prompt_len(&self) -> usize {
        self.prompt_len
    }

    /// The committed tokens that were generated.
    pub fn generated(&self) -> &[TokenId] {
        &self.tokens[self.prompt_len..]
    }

    /// How many committed tokens have target keys and values in the cache.
    pub fn computed(&self) -> usize {
        self.kv.len()
    }

    /// Committed tokens still to be computed: 1 while it decodes.
    pub fn behind(&self) -> usize {
        self.tokens.len() - self.kv.len()
    }

    /// The most tokens it may have, prompt included.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Tokens it may still generate. 0 only once it ended.
    pub fn remaining(&self) -> usize {
        self.limit - self.tokens.len()
    }

    /// Its blocks.
    pub fn kv(&self) -> &SequenceKv {
        &self.kv
    }

    /// Tokens of the prompt that were found in the cache when it was first admitted.
    pub fn cached_tokens(&self) -> usize {
        self.cached.unwrap_or(0)
    }

    /// How often it lost its blocks and had to be computed again.
    pub fn preemptions(&self) -> u32 {
        self.preemptions
    }

    /// As requested: higher goes first.
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// The most draft nodes a round of it may have.
    pub fn draft_cap(&self) -> usize {
        self.draft_cap
    }

    /// Its place in the order of all requests.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Whether it gets no rows for the time being ([`crate::Scheduler::hold`]).
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// Whether it is in the batch (else it waits, or has ended).
    pub fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running { .. })
    }
}
