//! What the engine keeps for each running request besides what the scheduler knows: its law, its
//! noise, its text, its statistics.
//!
//! [`LiveRequests`] is the scheduler's [`StopRule`]: `commit` asks it about every token in order, so
//! tokens, text, usage, statistics and KV are all cut at the same index.

use std::sync::Arc;
use std::time::Instant;

use redline_scheduler::{Commit, Finish, Scan, SeqId, Sequence, StepPlan, StopRule};
use redline_spec::{Constraint, Draws, History, Sampling, TokenId, TokenLogprobs};
use rustc_hash::FxHashMap;

use crate::error::RequestError;
use crate::logprobs::{Logprobs, LogprobsOutput, TokenLogprob};
use crate::request::{
    Event, FinishReason, Origin, RequestId, RequestOutput, SpeculationStats, Timing, TokenEvent,
    Usage,
};
use crate::text::{TextState, Tokenizer};

/// Engine-side state of one sample of a request.
pub(crate) struct Live {
    /// What its events are called by.
    name: (RequestId, usize),
    pub(crate) sampling: Sampling,
    pub(crate) draws: Draws,
    pub(crate) history: History,
    pub(crate) constraint: Option<Box<dyn Constraint>>,
    /// Ids that end the request; empty when it ignores them.
    pub(crate) eos: Vec<TokenId>,
    /// `None` for an engine without a tokenizer (mock targets).
    pub(crate) text: Option<TextState>,
    pub(crate) error: Option<RequestError>,
    pub(crate) seed: u64,
    pub(crate) logprobs: Option<Logprobs>,
    /// What they are for the tokens of the round that was verified last; a commit may cut them short.
    pub(crate) found: Vec<(TokenId, TokenLogprobs)>,
    tokenizer: Option<Arc<Tokenizer>>,
    token_logprobs: Vec<TokenLogprob>,
    /// Tokens of this step as `commit` scanned them, with the text each made certain.
    scanned: Vec<(TokenId, String)>,
    token_ids: Vec<TokenId>,
    output: String,
    stats: SpeculationStats,
    submitted: Instant,
    started: Option<Instant>,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
}

impl Live {
    pub(crate) fn new(id: RequestId, sampling: Sampling, draws: Draws, history: History) -> Self {
        Self {
            name: (id, draws.sample as usize),
            sampling,
            draws,
            history,
            constraint: None,
            eos: Vec::new(),
            text: None,
            error: None,
            seed: draws.seed,
            logprobs: None,
            found: Vec::new(),
            tokenizer: None,
            token_logprobs: Vec::new(),
            scanned: Vec::new(),
            token_ids: Vec::new(),
            output: String::new(),
            stats: SpeculationStats::default(),
            submitted: Instant::now(),
            started: None,
            first_token: None,
            last_token: None,
        }
    }

    /// Has the sample tell log-probabilities, with the texts of this tokenizer.
    pub(crate) fn ask_logprobs(
        &mut self,
        wanted: Option<Logprobs>,
        tokenizer: Option<&Arc<Tokenizer>>,
    ) {
        self.logprobs = wanted;
        self.tokenizer = tokenizer.cloned();
    }

    /// The log-probabilities of token `index` of the round.
    fn logprob(&mut self, index: usize, id: TokenId) -> Option<Box<TokenLogprob>> {
        self.logprobs?;
        let (token, found) = &self.found[index];
        assert_eq!(*token, id, "log-probabilities line up with the tokens");
        let logprob = TokenLogprob::new(id, found, self.tokenizer.as_deref());
        self.token_logprobs.push(logprob.clone());
        Some(Box::new(logprob))
    }

    fn scan(&mut self, token: TokenId) -> Scan {
        let mut stopped = self.eos.contains(&token);
        let mut delta = String::new();
        if let Some(text) = self.text.as_mut().filter(|_| !stopped) {
            let pushed = text.push(token);
            delta = pushed.text;
            stopped = pushed.stopped;
        }
        self.scanned.push((token, delta));
        if stopped { Scan::Stop } else { Scan::Go }
    }

    /// Takes over what a commit kept and says it as events. The first `accepted` are drafts.
    fn take(&mut self, commit: &Commit, drafted: usize) -> Vec<TokenEvent> {
        let now = Instant::now();
        self.first_token.get_or_insert(now);
        self.last_token = Some(now);
        self.stats.rounds += 1;
        self.stats.drafted += drafted;
        self.stats.accepted += commit.accepted;
        let histogram = &mut self.stats.acceptance_histogram;
        if histogram.len() <= commit.accepted {
            histogram.resize(commit.accepted + 1, 0);
        }
        histogram[commit.accepted] += 1;
        assert_eq!(self.scanned.len(), commit.kept, "every kept token is scanned exactly once");
        let mut events = Vec::with_capacity(self.scanned.len());
        let mut scanned = std::mem::take(&mut self.scanned);
        for (index, (id, text)) in scanned.drain(..).enumerate() {
            self.history.push(id);
            // Nothing follows the token that ended the request, so it need not fit the constraint.
            let ended = commit.finish.is_some() && index + 1 == commit.kept;
            let constraint = self.constraint.as_mut().filter(|_| !ended);
            if let Some(Err(source)) = constraint.map(|constraint| constraint.advance(id)) {
                self.error.get_or_insert(RequestError::Constraint { token: id, source });
            }
            self.token_ids.push(id);
            self.output.push_str(&text);
            let origin = if index < commit.accepted { Origin::Draft } else { Origin::Target };
            let logprob = self.logprob(index, id);
            events.push(TokenEvent { id, text, origin, logprob });
        }
        self.scanned = scanned;
        events
    }

    /// The text that was held back; nothing if the request ended at a stop string.
    fn flush(&mut self) -> String {
        let rest = self.text.as_mut().map(TextState::finish).unwrap_or_default();
        self.output.push_str(&rest);
        rest
    }

    fn into_output(mut self, finish: Finish, sequence: &Sequence) -> RequestOutput {
        self.flush();
        let rounds = self.stats.rounds;
        if rounds > 0 {
            self.stats.mean_acceptance_length = self.token_ids.len() as f64 / rounds as f64;
        }
        let timing = self.timing();
        RequestOutput {
            sample: sequence.sample(),
            text: self.output,
            usage: Usage {
                prompt_tokens: sequence.prompt_len(),
                completion_tokens: self.token_ids.len(),
                cached_tokens: sequence.cached_tokens(),
            },
            token_ids: self.token_ids,
            logprobs: self.logprobs.map(|_| LogprobsOutput { content: self.token_logprobs }),
            finish_reason: match finish {
                Finish::Stop => FinishReason::Stop,
                Finish::Length => FinishReason::Length,
                Finish::Cancelled => FinishReason::Cancelled,
                Finish::Expired => FinishReason::Timeout,
                Finish::Failed => FinishReason::Error,
            },
            failure: self.error.as_ref().map(RequestError::kind),
            error: self.error.map(|error| crate::error::chain(&error)),
            seed: self.seed,
            speculation: self.stats,
            timing,
        }
    }

    fn timing(&self) -> Timing {
        let since = |mark: Option<Instant>| {
            mark.map_or(0.0, |at| at.duration_since(self.submitted).as_secs_f64())
        };
        let decode_s = since(self.last_token) - since(self.first_token);
        let after_first = self.token_ids.len().saturating_sub(1) as f64;
        Timing {
            queue_s: since(self.started),
            ttft_s: since(self.first_token),
            decode_s,
            tokens_per_s: if decode_s > 0.0 { after_first / decode_s } else { 0.0 },
        }
    }
}

/// All requests that have not ended, by sequence id. Looked up, never iterated.
#[derive(Default)]
pub(crate) struct LiveRequests {
    by_id: FxHashMap<SeqId, Live>,
}

impl StopRule for LiveRequests {
    fn scan(&mut self, seq: SeqId, token: TokenId) -> Scan {
        self.by_id.get_mut(&seq).map_or(Scan::Stop, |state| state.scan(token))
    }
}

impl LiveRequests {
    pub(crate) fn insert(&mut self, seq: SeqId, state: Live) {
        self.by_id.insert(seq, state);
    }

    pub(crate) fn get(&self, seq: SeqId) -> Option<&Live> {
        self.by_id.get(&seq)
    }

    pub(crate) fn get_mut(&mut self, seq: SeqId) -> Option<&mut Live> {
        self.by_id.get_mut(&seq)
    }

    /// Marks a request as failed; its round will be [`redline_scheduler::Outcome::Failed`].
    pub(crate) fn fail(&mut self, seq: SeqId, error: RequestError) {
        if let Some(state) = self.by_id.get_mut(&seq) {
            state.error.get_or_insert(error);
        }
    }

    /// The end of the queueing time of every request that is computed for the first time.
    pub(crate) fn mark_started(&mut self, plan: &StepPlan) {
        for seq in &plan.admitted {
            if let Some(state) = self.by_id.get_mut(seq) {
                state.started.get_or_insert_with(Instant::now);
            }
        }
    }

    /// What a commit kept, as an event.
    pub(crate) fn take(&mut self, commit: &Commit, drafted: usize, events: &mut Vec<Event>) {
        if commit.kept == 0 {
            return;
        }
        let Some(state) = self.by_id.get_mut(&commit.seq) else { return };
        let mut tokens = state.take(commit, drafted);
        if let (Some(_), Some(last)) = (commit.finish, tokens.last_mut()) {
            last.text.push_str(&state.flush());
        }
        let (id, sample) = state.name;
        events.push(Event::Tokens { id, sample, tokens });
    }

    /// The last event of a request; it is forgotten.
    pub(crate) fn finish(&mut self, sequence: &Sequence, finish: Finish) -> Option<Event> {
        let state = self.by_id.remove(&sequence.id())?;
        let output = Box::new(state.into_output(finish, sequence));
        let id = RequestId(sequence.first().0);
        Some(Event::Finished { id, sample: sequence.sample(), output })
    }
}
