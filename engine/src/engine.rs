//! The engine as its embedders see it: submit requests, step, read events.
//!
//! [`Engine`] is synchronous and single-threaded; [`crate::AsyncEngine`] puts it on a thread of its own.

use std::sync::Arc;

use redline_kv_cache::KvCache;
use redline_scheduler::{Request, Scheduler, SeqId, SubmitError};
use redline_spec::{Draws, History};

use crate::frontend::{Frontend, Prepared, SubmitRefused};
use crate::live::Live;
use crate::request::{Event, GenerateRequest, RequestId};
use crate::step::Core;

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
        let id = RequestId(self.next_id);
        let history = History::new(&prepared.tokens);
        let live = |sample: usize| {
            let draws = Draws { seed: prepared.seed, sample: sample as u32 };
            let mut live = Live::new(id, prepared.sampling.clone(), draws, history.clone());
            live.eos.clone_from(&prepared.eos);
            live.ask_logprobs(prepared.logprobs, prepared.tokenizer.as_ref());
            live.text.clone_from(&prepared.text);
            live.constraint = prepared.constraint.as_ref().map(|constraint| constraint.fork());
            live
        };
        let request = Request {
            samples: prepared.samples,
            priority: prepared.priority,
            salt: prepared.salt,
            draft_cap: prepared.draft_cap,
            deadline: prepared.timeout.map(|timeout| self.core.deadline(timeout)),
            ..Request::new(SeqId(id.0), prepared.tokens, prepared.max_tokens)
        };
        self.core.submit(request, live, prepared.pin).map_err(|refused| match refused {
            // Blocks mean nothing to who chose a number of bytes.
            SubmitError::NeverFits { blocks_needed, blocks_total } => SubmitRefused::KvTooSmall {
                needed: blocks_needed as u64 * self.block_bytes,
                total: blocks_total as u64 * self.block_bytes,
            },
            other => SubmitRefused::Scheduler(other),
        })?;
        self.next_id += prepared.samples as u64;
        Ok(id)
    }

    /// Runs one step and returns what happened in it, cancellations since the last step included. A
    /// request that fails, fails alone; the engine goes on.
    pub fn step(&mut self) -> Vec<Event> {
        self.core.step()
    }

    /// Takes a request back, all its samples; their last events come with the next step. `false` if it is
    /// not under way.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        self.core.cancel(SeqId(id.0))
    }

    /// Holds a request, all its samples, or lets it go on. While it is held nothing is computed for it, but it may be preempted,
    /// be cancelled or time out like any other; until then it keeps its keys and values and its seat, and whoever waits for
    /// these waits on. `false` if it is not under way.
    pub fn hold(&mut self, id: RequestId, held: bool) -> bool {
        self.core.scheduler_mut().hold(SeqId(id.0), held) > 0
    }

    /// Computes nothing until [`Self::resume`]. Requests keep their cache and may come and go meanwhile.
    pub fn pause(&mut self) {
        self.core.scheduler_mut().pause();
    }

    /// Refuses new requests from now on, until [`Self::resume`]; those under way are finished.
    pub fn drain(&mut self) {
        self.core.scheduler_mut().drain();
    }

    /// Takes back [`Self::pause`] and [`Self::drain`].
    pub fn resume(&mut self) {
        self.core.scheduler_mut().resume();
    }

    /// How often the check that is made whenever the last request has ended found the cache's bookkeeping
    /// broken, and replaced it. Always 0, or there is a bug.
    pub fn integrity_failures(&self) -> u64 {
        self.core.integrity_failures()
    }

    /// Whether there is anything to tell, or anybody under way who is not held. Those may still have to wait for what the held
    /// have: a step then does nothing, and [`Self::run`] ends.
    pub fn has_work(&self) -> bool {
        self.core.has_work()
    }

    /// Who waits, who runs, and counts since the start.
    pub fn scheduler(&self) -> &Scheduler {
        self.core.scheduler()
    }

    /// Runs steps until nothing is left to do, or all that is left waits for what held requests have
    /// ([`Self::hold`]); hands each event to `on_event`. Timeouts are noticed by steps: those of requests that are left need
    /// more of them.
    pub fn run(&mut self, mut on_event: impl FnMut(Event)) {
        while self.has_work() {
            let events = self.step();
            if events.is_empty() && self.core.stood_still() {
                return;
            }
            events.into_iter().for_each(&mut on_event);
        }
    }

    #[cfg(test)]
    pub(crate) fn core_mut(&mut self) -> &mut Core {
        &mut self.core
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
