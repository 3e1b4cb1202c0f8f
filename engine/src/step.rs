//! One step of the engine. **Start reading here.**
//!
//! A step plans who computes what, lets the drafter propose, runs one pass of the target over committed and draft
//! tokens alike, verifies, commits what was accepted and rolls the rest back. This is where `scheduler` and `spec`
//! meet; neither knows the other.

use std::time::Instant;

use redline_kv_cache::KvCache;
use redline_scheduler::{Outcome, Request, Scheduler, SeqId, StepPlan, SubmitError, Violation};
use tracing::{debug_span, warn};

use crate::batch::{RowMap, assemble};
use crate::budget::Budget;
use crate::drafting::Drafters;
use crate::error::{RequestError, StepError, chain};
use crate::live::{Live, LiveRequests};
use crate::request::Event;
use crate::runner::{Batch, ModelRunner, Rows};
use crate::verify::Verification;

/// Everything a step works on, and the buffers that are reused from step to step.
pub(crate) struct Core {
    scheduler: Scheduler,
    kv: KvCache,
    budget: Budget,
    drafters: Drafters,
    target: Box<dyn ModelRunner>,
    verification: Verification,
    live: LiveRequests,
    plan: StepPlan,
    batch: Batch,
    map: RowMap,
    rows: Rows,
    outcomes: Vec<Outcome>,
    events: Vec<Event>,
}

/// The parts a [`Core`] is made of.
pub(crate) struct Parts {
    pub(crate) scheduler: Scheduler,
    pub(crate) kv: KvCache,
    pub(crate) budget: Budget,
    pub(crate) drafters: Drafters,
    pub(crate) target: Box<dyn ModelRunner>,
    pub(crate) verification: Verification,
}

impl Core {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { scheduler, kv, budget, drafters, target, verification } = parts;
        Self {
            scheduler,
            kv,
            budget,
            drafters,
            target,
            verification,
            live: LiveRequests::default(),
            plan: StepPlan::default(),
            batch: Batch::default(),
            map: RowMap::default(),
            rows: Rows::default(),
            outcomes: Vec::new(),
            events: Vec::new(),
        }
    }

    /// One step, and what happened in it. A pass that fails is taken back and tried again; requests that keep
    /// failing end by name. The engine goes on in any case.
    pub(crate) fn step(&mut self) -> Vec<Event> {
        let span = debug_span!("step").entered();
        if let Err(error) = self.try_step() {
            self.abandon(&error);
        }
        self.collect_ended();
        drop(span);
        #[cfg(debug_assertions)]
        self.assert_sound();
        std::mem::take(&mut self.events)
    }

    fn try_step(&mut self) -> Result<(), StepError> {
        let Self { scheduler, kv, budget, drafters, target, verification, live, plan, .. } = self;

        let started = Instant::now();
        let span = debug_span!("plan").entered();
        drafters.offer(scheduler); // what the drafter has ready
        scheduler.plan(kv, budget, drafters.offers(), plan); // prefill chunks, rounds, lane fill; draft budgets
        live.mark_started(plan);
        target.relocate(&plan.copies, &[]).map_err(StepError::Relocate)?; // copy-on-write of what will be written
        drafters.relocate(&plan.copies, &[])?;
        drop(span);
        if plan.is_empty() {
            return Ok(()); // only cancellations to tell
        }

        let drafting = Instant::now();
        let span = debug_span!("propose").entered();
        drafters.propose(plan, scheduler, live, verification.rule().draw_mode()); // a tree per round, may be empty
        drop(span);
        let draft_s = drafting.elapsed().as_secs_f64();

        let span = debug_span!("settle").entered();
        let copies = scheduler.settle(kv, plan, drafters.shapes()); // final shapes: spare slots back
        target.relocate(copies, &[]).map_err(StepError::Relocate)?;
        assemble(plan, drafters.proposals(), scheduler, &mut self.batch, &mut self.map);
        drop(span);

        let span = debug_span!("forward", rows = self.batch.rows.len()).entered();
        target.forward(&self.batch, &mut self.rows).map_err(StepError::Target)?; // one pass; logits of wanted rows
        drop(span);

        let span = debug_span!("verify").entered();
        let (seen, rows) =
            ((&*plan, &*scheduler), (&self.rows, &self.map, target.info().vocab_size));
        verification.run(seen, drafters, live, rows, &mut self.outcomes); // pure: accepted path + one more token
        drop(span);

        let span = debug_span!("commit").entered();
        scheduler.commit(kv, plan, &self.outcomes, live); // stop rules, roll back, free; KV moves
        let done = scheduler.done();
        for (commit, proposal) in done.commits.iter().zip(drafters.proposals()) {
            live.take(commit, proposal.len(), &mut self.events); // text, statistics, origin
        }
        // What is committed stays committed and has been told, even if the moves fail.
        target.relocate(&[], &done.moves).map_err(StepError::Relocate)?; // tree compaction
        drafters.relocate(&[], &done.moves)?;
        drafters.observe(scheduler, done);
        let rest_s = started.elapsed().as_secs_f64() - draft_s;
        budget.observe(plan, done, drafters.proposals(), (draft_s, rest_s)); // acceptance, measured times
        drop(span);
        Ok(())
    }

    /// Nothing of the planned step counts. Its requests fall back to what was committed and are tried again;
    /// those that have failed too often end with the error.
    fn abandon(&mut self, error: &StepError) {
        let message = chain(error);
        warn!(error = message, "a step failed and was taken back");
        let finished = self.scheduler.abandon(&mut self.kv, &self.plan);
        for ended in finished {
            self.live.fail(ended.seq, RequestError::Forward { message: message.clone() });
        }
    }

    /// Says of every request that ended since the last plan how it ended.
    fn collect_ended(&mut self) {
        for (sequence, finish) in self.scheduler.ended() {
            if let Some(event) = self.live.finish(sequence, finish) {
                self.events.push(event);
                self.drafters.forget(sequence.id());
                self.budget.forget(sequence.id());
            }
        }
    }

    /// Takes a request in; `pin` fixes the drafts of its rounds.
    pub(crate) fn submit(
        &mut self,
        request: Request,
        state: Live,
        pin: Option<usize>,
    ) -> Result<(), SubmitError> {
        let seq = request.id;
        self.scheduler.submit(request, &self.kv)?;
        self.live.insert(seq, state);
        if let Some(length) = pin {
            self.budget.pin(seq, length);
        }
        Ok(())
    }

    pub(crate) fn cancel(&mut self, seq: SeqId) -> bool {
        let known = self.scheduler.cancel(&mut self.kv, seq);
        self.collect_ended();
        known
    }

    pub(crate) fn has_work(&self) -> bool {
        self.scheduler.has_work() || !self.events.is_empty()
    }

    pub(crate) fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    pub(crate) fn kv(&self) -> &KvCache {
        &self.kv
    }

    pub(crate) fn audit(&self) -> Result<(), Violation> {
        self.scheduler.audit(&self.kv)
    }

    #[cfg(debug_assertions)]
    fn assert_sound(&self) {
        let verdict = self.audit();
        assert!(verdict.is_ok(), "the audit after a step found: {verdict:?}");
    }
}
