//! One step of the engine. **Start reading here.**
//!
//! A step plans who computes what, lets the drafter propose, runs one pass of the target over committed and draft
//! tokens alike, verifies, commits what was accepted and rolls the rest back. This is where `scheduler` and `spec`
//! meet; neither knows the other.

use std::time::{Duration, Instant};

use redline_kv_cache::KvCache;
use redline_scheduler::{Outcome, Request, Scheduler, SeqId, StepPlan, SubmitError, Violation};
use tracing::{debug_span, error, warn};

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
    /// Deadlines are counted from here.
    started: Instant,
    integrity_failures: u64,
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
            started: Instant::now(),
            integrity_failures: 0,
        }
    }

    /// One step, and what happened in it. A pass that fails is taken back and tried again; requests that keep
    /// failing end by name. The engine goes on in any case.
    pub(crate) fn step(&mut self) -> Vec<Event> {
        let span = debug_span!("step").entered();
        self.scheduler.expire(&mut self.kv, millis(self.started.elapsed()));
        self.collect_ended();
        if let Err(error) = self.try_step() {
            self.abandon(&error);
        }
        self.collect_ended();
        drop(span);
        #[cfg(debug_assertions)]
        self.assert_sound();
        self.check_when_idle();
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
        let mode = budget.draw_mode(verification.rule().draw_mode());
        drafters.propose(plan, scheduler, live, (mode, &*budget)); // a tree per round, may be empty
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
        let rounds = (drafters.proposals(), &*self.outcomes);
        budget.observe(plan, done, rounds, (draft_s, rest_s)); // acceptance, measured times
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

    /// Takes a request in, with the state of each of its samples; `pin` fixes the drafts of its rounds.
    pub(crate) fn submit(
        &mut self,
        request: Request,
        state: impl Fn(usize) -> Live,
        pin: Option<usize>,
    ) -> Result<(), SubmitError> {
        let names = (0..request.samples).map(|sample| request.sample_id(sample));
        let names: Vec<_> = names.collect();
        self.scheduler.submit(request, &self.kv)?;
        for (sample, &seq) in names.iter().enumerate() {
            self.live.insert(seq, state(sample));
            if let Some(length) = pin {
                self.budget.pin(seq, length);
            }
        }
        Ok(())
    }

    pub(crate) fn cancel(&mut self, first: SeqId) -> bool {
        let known = self.scheduler.cancel_samples(&mut self.kv, first) > 0;
        self.collect_ended();
        known
    }

    /// What the scheduler knows the moment in `timeout` by.
    pub(crate) fn deadline(&self, timeout: Duration) -> u64 {
        millis(self.started.elapsed().saturating_add(timeout))
    }

    /// The bookkeeping is checked whenever nobody needs it. If it is broken, which is a bug, it is replaced by
    /// an empty one: what was cached is lost and no block is.
    fn check_when_idle(&mut self) {
        if !self.scheduler.is_empty() {
            return;
        }
        let verdict = self.audit();
        if let Err(violation) = &verdict {
            error!(%violation, "the cache's bookkeeping is broken and was replaced");
            self.integrity_failures += 1;
            self.kv = self.kv.emptied();
        }
    }

    pub(crate) fn integrity_failures(&self) -> u64 {
        self.integrity_failures
    }

    pub(crate) fn scheduler_mut(&mut self) -> &mut Scheduler {
        &mut self.scheduler
    }

    pub(crate) fn has_work(&self) -> bool {
        self.scheduler.has_work() || !self.events.is_empty()
    }

    /// Whether the last step changed nothing, so that another one would neither: only time or the caller can.
    pub(crate) fn stood_still(&self) -> bool {
        self.plan.is_empty() && self.plan.preempted.is_empty()
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

fn millis(since: Duration) -> u64 {
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use redline_kv_cache::SequenceKv;

    use crate::model::tiny::Tiny;
    use crate::{
        DraftLength, EngineOptions, GenerateRequest, Prompt, RunOptions, Target, assemble, verifier,
    };

    #[test]
    fn broken_bookkeeping_is_replaced_when_nobody_needs_it() {
        let runner = Box::new(Tiny::default().build(RunOptions::default()).unwrap());
        let target = Target { runner, tokenizer: None, template: None };
        let rule = verifier("coupled").unwrap();
        let options = EngineOptions { kv_memory: Some(1 << 20), ..EngineOptions::default() };
        let mut engine = assemble(target, None, rule, DraftLength::Fixed(0), &options).unwrap();
        let request =
            GenerateRequest { max_tokens: 3, ..GenerateRequest::new(Prompt::Tokens(vec![1, 2])) };
        engine.submit(request.clone()).unwrap();
        let core = engine.core_mut();
        core.check_when_idle();
        assert_eq!(core.integrity_failures(), 0, "somebody is inside");
        engine.run(drop);

        // A block that nobody in the scheduler knows of: leaked.
        let (core, mut stray) = (engine.core_mut(), SequenceKv::new(0));
        stray.reserve(&mut core.kv, 1, &mut Vec::new()).unwrap();
        stray.forget();
        assert!(core.audit().is_err());
        core.check_when_idle();
        assert_eq!((core.integrity_failures(), core.kv().usage().used), (1, 0));
        core.check_when_idle();
        assert_eq!(core.integrity_failures(), 1);
        engine.submit(request).unwrap();
        engine.run(drop);
        engine.audit().unwrap();
    }
}
