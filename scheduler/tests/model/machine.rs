//! Which call may come when, as far as that can be known without knowing what was planned.

use crate::choices::{Choices, choices};
use proptest::prelude::*;
use proptest_state_machine::ReferenceStateMachine;
use redline_scheduler::{Config, Request, SeqId};
use std::collections::BTreeSet;

/// Where a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Between,
    Planned,
    Settled,
    /// Its moves may fail yet.
    Committed,
}

#[derive(Debug, Clone)]
pub(crate) struct Outline {
    pub(crate) config: Config,
    pub(crate) blocks: u32,
    pub(crate) prefix_cache: bool,
    pub(crate) phase: Phase,
    paused: bool,
    draining: bool,
    now: u64,
    /// Offered at some time and not cancelled since.
    known: BTreeSet<SeqId>,
}

#[derive(Debug, Clone)]
pub(crate) enum Call {
    Submit(Request),
    Cancel(SeqId),
    CancelSamples(SeqId),
    Expire(u64),
    Preempt(SeqId),
    /// All sequences of a request, or lets them go on.
    Hold(SeqId, bool),
    Pause,
    Drain,
    Resume,
    /// A whole step. One call, so that what fails can be cut down step by step.
    Step(Choices),
    Plan(Choices),
    Settle(Choices),
    Commit(Choices),
    Abandon,
}

const IDS: u64 = 12;

/// Prompts are few, so that prefixes are often shared.
fn request() -> impl Strategy<Value = Request> {
    let prompt = prop_oneof![
        1 => Just(0usize),
        20 => 1..12usize,
        8 => 12..40usize,
        1 => 40..70usize,
    ];
    let tokens = prop_oneof![1 => Just(0usize), 20 => 1..20usize, 3 => 20..90usize];
    let cap = prop_oneof![3 => Just(None), 1 => (0..5usize).prop_map(Some)];
    let deadline = prop_oneof![3 => Just(None), 1 => (0..60u64).prop_map(Some)];
    let samples = prop_oneof![8 => Just(1usize), 6 => 2..5usize, 1 => Just(0usize), 1 => 5..9usize];
    let small = (0..IDS, 0..3u32, -1..3i32, prop::bool::weighted(0.2));
    (prompt, tokens, cap, deadline, samples, small).prop_map(
        |(prompt, max_tokens, draft_cap, deadline, samples, (id, kind, priority, other))| {
            let prompt = (0..prompt).map(|at| if at < 9 { 10 } else { 10 + kind }).collect();
            Request {
                samples,
                priority,
                salt: u64::from(other),
                draft_cap,
                deadline,
                ..Request::new(SeqId(id), prompt, max_tokens)
            }
        },
    )
}

impl Outline {
    fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Planned | Phase::Settled)
    }
}

impl ReferenceStateMachine for Outline {
    type State = Self;
    type Transition = Call;

    fn init_state() -> BoxedStrategy<Self> {
        let bounds = (1..5usize, 1..6usize, 0..12usize, 1..12usize, 2..12u64, 0..3u32);
        (4..24u32, prop::bool::weighted(0.8), bounds)
            .prop_map(|(blocks, prefix_cache, (seqs, floor, more, chunk, ageing, retries))| Self {
                config: Config {
                    max_seqs: seqs,
                    token_budget: seqs + floor + more,
                    prefill_floor: floor,
                    chunk_max: chunk,
                    queue_len: 6,
                    max_model_len: 64,
                    ageing_steps: ageing,
                    retries,
                },
                blocks,
                prefix_cache,
                phase: Phase::Between,
                paused: false,
                draining: false,
                now: 0,
                known: BTreeSet::new(),
            })
            .boxed()
    }

    fn transitions(state: &Self) -> BoxedStrategy<Call> {
        let step = || choices().prop_map(Call::Step);
        let plan = || choices().prop_map(Call::Plan);
        let step = match state.phase {
            Phase::Between => prop_oneof![step(), plan()].boxed(),
            Phase::Planned => prop_oneof![
                6 => choices().prop_map(Call::Settle),
                3 => choices().prop_map(Call::Commit),
                1 => Just(Call::Abandon),
            ]
            .boxed(),
            Phase::Settled => prop_oneof![
                12 => choices().prop_map(Call::Commit),
                1 => Just(Call::Abandon),
            ]
            .boxed(),
            Phase::Committed => prop_oneof![
                10 => step(),
                10 => plan(),
                1 => Just(Call::Abandon),
            ]
            .boxed(),
        };
        let submit = request().prop_map(Call::Submit);
        let known: Vec<_> = state.known.iter().copied().collect();
        if known.is_empty() && !state.is_open() {
            return submit.boxed();
        }
        if known.is_empty() {
            return prop_oneof![step, submit].boxed();
        }
        let id = || prop::sample::select(known.clone());
        prop_oneof![
            100 => step,
            16 => submit,
            2 => id().prop_map(Call::Cancel),
            1 => id().prop_map(Call::CancelSamples),
            4 => id().prop_map(Call::Preempt),
            2 => id().prop_map(|id| Call::Hold(id, true)),
            4 => id().prop_map(|id| Call::Hold(id, false)),
            2 => (state.now..state.now + 9).prop_map(Call::Expire),
            1 => prop_oneof![Just(Call::Pause), Just(Call::Drain)],
            if state.paused || state.draining { 30 } else { 1 } => Just(Call::Resume),
        ]
        .boxed()
    }

    /// Nothing that may not be called, and nothing that is sure to do nothing.
    fn preconditions(state: &Self, call: &Call) -> bool {
        match call {
            Call::Submit(_) => true,
            Call::Cancel(id) | Call::CancelSamples(id) | Call::Preempt(id) | Call::Hold(id, _) => {
                state.known.contains(id)
            }
            Call::Expire(now) => *now > state.now,
            Call::Pause => !state.paused,
            Call::Drain => !state.draining,
            Call::Resume => state.paused || state.draining,
            Call::Step(_) | Call::Plan(_) => !state.is_open() && !state.known.is_empty(),
            Call::Settle(_) => state.phase == Phase::Planned,
            Call::Commit(_) => state.is_open(),
            Call::Abandon => state.phase != Phase::Between,
        }
    }

    fn apply(mut state: Self, call: &Call) -> Self {
        match call {
            Call::Submit(request) => {
                let ids = (0..request.samples).map(|sample| request.sample_id(sample));
                state.known.extend(ids);
            }
            Call::Cancel(id) => {
                state.known.remove(id);
            }
            Call::CancelSamples(_) | Call::Preempt(_) | Call::Hold(..) => {}
            Call::Expire(now) => state.now = *now,
            Call::Pause => state.paused = true,
            Call::Drain => state.draining = true,
            Call::Resume => (state.paused, state.draining) = (false, false),
            Call::Plan(_) => state.phase = Phase::Planned,
            Call::Settle(_) => state.phase = Phase::Settled,
            Call::Step(_) | Call::Commit(_) => state.phase = Phase::Committed,
            Call::Abandon => state.phase = Phase::Between,
        }
        state
    }
}
