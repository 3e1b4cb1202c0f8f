//! The scheduler's promises, held against every plan and every commit.

use redline_scheduler::{Outcome, Sequence, Span};

use super::drafter::Kind;
use super::jobs::Jobs;
use super::rule::{Check, rule};
use super::world::World;

/// Waiting requests that the scheduler looks at per step, at least.
const LOOKED_AT: usize = 16;

impl World {
    pub(crate) fn check_plan(&self) -> Check {
        let plan = &self.buffers.plan;
        rule!(plan.rows() <= self.shape.token_budget, "a step has no more rows than the budget");
        self.check_progress()?;
        self.check_preempted()?;
        for (i, span) in plan.spans.iter().enumerate() {
            let once = plan.spans[..i].iter().all(|other| other.seq != span.seq);
            rule!(once, "a sequence has one span");
            self.check_span(span)?;
        }
        for fill in &plan.fills {
            let beside = plan.spans.iter().any(|span| span.seq == fill.seq && span.round);
            rule!(beside && fill.len > 0, "a lane is filled beside a round");
        }
        self.check_queue()
    }

    /// Nobody is starved: not who decodes, not who prefills, not all together.
    fn check_progress(&self) -> Check {
        let plan = &self.buffers.plan;
        let work = self.scheduler.has_work();
        rule!(work || plan.is_empty(), "nothing is computed for nobody, or in a pause");
        // Who is held may have all the blocks.
        let short = self.is_robbed() || self.scheduler.running().any(Sequence::is_held);
        rule!(!work || !plan.is_empty() || short, "some progress in every step");
        if self.scheduler.is_paused() {
            return Ok(());
        }
        let decoding = &self.buffers.decoding;
        for id in decoding.iter().filter(|id| !plan.preempted.contains(id)) {
            let round = plan.spans.iter().any(|span| span.seq == *id && span.round);
            rule!(round, "who decodes has a round in every step");
        }
        let free = self.scheduler.running().filter(|seq| !seq.is_held());
        let demand: usize = free.map(Sequence::behind).filter(|&behind| behind > 1).sum();
        let prefill = plan.spans.iter().filter(|span| !decoding.contains(&span.seq));
        let given: usize = prefill.map(|span| span.len).sum();
        let least = demand.min(self.shape.prefill_floor).min(self.shape.chunk_max);
        rule!(given >= least, "prefill gets its floor: {given} rows of {least}");
        Ok(())
    }

    /// The best of all keeps what it has.
    fn check_preempted(&self) -> Check {
        let plan = &self.buffers.plan;
        if plan.preempted.is_empty() || self.is_robbed() {
            return Ok(());
        }
        let inside = self.scheduler.running().chain(self.scheduler.waiting());
        let best = inside.min_by_key(|seq| seq.rank()).map(Sequence::id);
        let lost = best.is_some_and(|best| plan.preempted.contains(&best));
        rule!(!lost, "the best of all is never preempted");
        Ok(())
    }

    fn check_span(&self, span: &Span) -> Check {
        let Some(seq) = self.scheduler.get(span.seq).filter(|seq| seq.is_running()) else {
            rule!(false, "who has a span runs");
            return Ok(());
        };
        rule!(!seq.is_held(), "who is held gets no rows");
        rule!(span.len > 0 && span.start == seq.computed(), "a span goes on from what is computed");
        rule!(span.len <= seq.behind(), "a span feeds committed tokens");
        rule!(span.len <= self.shape.chunk_max, "a span is no longer than a chunk");
        rule!(span.round == (span.len == seq.behind()), "a round reaches the last token");
        let slots = seq.tokens().len() + span.drafts;
        rule!(seq.kv().slots() == slots, "slots for the committed tokens and the granted drafts");
        if span.drafts == 0 {
            return Ok(());
        }
        rule!(span.round, "only a round carries drafts");
        let offer = self.buffers.offers.iter().rfind(|offer| offer.seq == span.seq);
        let Some(offer) = offer else {
            rule!(false, "no drafts without an offer");
            return Ok(());
        };
        let most = offer.nodes.min(seq.draft_cap()).min(seq.remaining() - 1);
        rule!(span.drafts <= most, "no more drafts than offered, allowed and useful");
        let context = seq.tokens().len() + span.drafts;
        rule!(context <= offer.draft_context, "no more drafts than the drafter can hold");
        let mut fills = self.buffers.plan.fills.iter().filter(|fill| fill.seq == span.seq);
        let caught_up = fills.any(|fill| fill.start + fill.len == seq.tokens().len());
        rule!(offer.lane.is_none() || caught_up, "who drafts from a lane has it filled first");
        Ok(())
    }

    /// A request that could run is not kept waiting, unless somebody before it has waited for so long that the queue
    /// may wait behind it.
    fn check_queue(&self) -> Check {
        let plan = &self.buffers.plan;
        let seats = self.scheduler.running_len() < self.shape.max_seqs;
        let seats = seats && !self.scheduler.is_paused();
        // Fills of lanes that are far behind get what is left after that.
        let rows = plan.rows() < self.shape.token_budget;
        if !seats || !rows {
            return Ok(());
        }
        let free = self.kv.usage().free;
        for seq in self.scheduler.waiting().take(LOOKED_AT) {
            let Some(job) = self.jobs.get(seq.id()) else { continue };
            let later = seq.is_held() || self.may_wait(seq);
            let just_preempted = plan.preempted.contains(&seq.id());
            let fits = self.kv.blocks_for(seq.tokens().len()) <= free;
            let waits = fits && !later && !just_preempted;
            rule!(!waits, "a request that fits is not kept waiting");
            if self.step - job.queued_at >= self.shape.ageing_steps {
                break;
            }
        }
        Ok(())
    }

    /// It may wait for what a sibling is computing. (Or for one that has the name of a sibling that ended.)
    fn may_wait(&self, seq: &Sequence) -> bool {
        let computes = |other: &Sequence| {
            other.first() == seq.first() && other.computed() + 1 < other.prompt_len()
        };
        self.scheduler.running().any(computes)
    }

    /// A request that does not fit is passed by others, but not for longer than it takes to age.
    pub(crate) fn check_passed(&mut self) -> Check {
        let admitted = &self.buffers.plan.admitted;
        let ranks = admitted.iter().filter_map(|&id| self.scheduler.get(id)).map(Sequence::rank);
        let Some(last) = ranks.max() else { return Ok(()) };
        for seq in self.scheduler.waiting().take_while(|seq| seq.rank() < last) {
            let later = seq.is_held() || self.may_wait(seq);
            let Some(job) = self.jobs.get_mut(seq.id()).filter(|_| !later) else { continue };
            let since = *job.passed_at.get_or_insert(self.step);
            let patient = self.step - since < self.shape.ageing_steps;
            rule!(patient, "the queue waits behind a request that was passed for long enough");
        }
        Ok(())
    }

    /// Nobody waits for longer than the scheduler's bound says. It counts good steps, and on nobody taking blocks away or
    /// being held.
    pub(crate) fn check_waiting(&self) -> Check {
        let mishaps = self.shape.mishaps;
        if mishaps.preemptions > 0 || mishaps.thefts > 0 || mishaps.holds > 0 {
            return Ok(());
        }
        let service = self.scheduler.config().service_steps();
        for job in self.jobs.iter() {
            let waited = self.good_steps - job.since;
            rule!(waited <= (job.ahead + 1) * service, "a request ends within the bound");
        }
        Ok(())
    }

    pub(crate) fn check_commits(&self) -> Check {
        let (plan, done) = (&self.buffers.plan, self.scheduler.done());
        rule!(done.commits.len() == plan.spans.len(), "one commit per span");
        let spans = plan.spans.iter().zip(&self.buffers.outcomes);
        for (commit, (span, outcome)) in done.commits.iter().zip(spans) {
            rule!(commit.seq == span.seq, "commits come in the order of spans");
            let Outcome::Round { path, tokens, .. } = outcome else {
                rule!(commit.kept == 0 && commit.accepted == 0, "only a round gives tokens");
                continue;
            };
            rule!(commit.kept <= tokens.len(), "no more tokens are kept than were given");
            rule!(
                commit.accepted == commit.kept.min(path.len()),
                "accepted drafts are kept drafts"
            );
            let Some(job) = self.jobs.get(span.seq).filter(|_| commit.kept > 0) else { continue };
            let whole = commit.kept == tokens.len();
            rule!(whole || commit.finish.is_some(), "a run is cut only where the request ends");
            if whole && job.kind.is_right() {
                rule!(commit.accepted == span.drafts, "drafts that are right are accepted");
            }
            if job.kind == Kind::Wrong && Jobs::is_exact(self.shape.rule, job) {
                rule!(commit.accepted == 0, "drafts that are wrong are not accepted");
            }
        }
        Ok(())
    }
}
