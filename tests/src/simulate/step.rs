//! One step of a world, in the order of `engine/src/step.rs`, with everything that may go wrong in between, and audited
//! twice: after planning, with the plan still open, and at its end.

use redline_scheduler::{Finish, Outcome};

use super::jobs::Jobs;
use super::memory::LANES;
use super::rng::{Rng, Stream, mix};
use super::rule::{Check, rule};
use super::world::World;

impl World {
    /// One step.
    pub(crate) fn step(&mut self) -> Check {
        self.step += 1;
        self.counts.steps += 1;
        self.meddle(0)?;
        self.arrivals()?;
        self.steal()?;
        self.pause();
        self.offer();
        self.plan()?;
        self.check_plan()?;
        self.check_passed()?;
        self.audit()?;
        let mut faults = self.rng(Stream::Faults);
        let mishaps = if self.draining { Default::default() } else { self.shape.mishaps };
        let copied = !faults.one_in(mishaps.copies);
        if copied {
            self.memory.copy(&self.buffers.plan.copies);
        }
        self.scribble();
        if !copied {
            return self.abandon();
        }
        self.rot();
        self.propose()?;
        self.settle();
        self.meddle(1)?;
        if faults.one_in(mishaps.passes) {
            return self.abandon();
        }
        self.forward(&mut faults)?;
        self.meddle(2)?;
        self.commit(faults.one_in(mishaps.moves))
    }

    fn plan(&mut self) -> Check {
        let buffers = &mut self.buffers;
        buffers.decoding.clear();
        let decoding = self.scheduler.running().filter(|seq| seq.behind() == 1 && !seq.is_held());
        buffers.decoding.extend(decoding.map(|seq| seq.id()));
        let mut grants = self.granter.at(&self.jobs, self.step);
        self.scheduler.plan(&mut self.kv, &mut grants, &buffers.offers, &mut buffers.plan);
        if let Some(broken) = grants.broken {
            return Err(broken);
        }
        for i in 0..self.buffers.plan.preempted.len() {
            self.note_queued(self.buffers.plan.preempted[i]);
        }
        let plan = &self.buffers.plan;
        self.counts.running += self.scheduler.running_len() as u64;
        self.counts.copies += plan.copies.len() as u64;
        Ok(())
    }

    /// Overwrites whatever may be written, in every lane.
    fn scribble(&mut self) {
        for seq in self.scheduler.running() {
            let kv = seq.kv();
            self.memory.scribble(kv.table(), seq.computed(), kv.slots());
        }
    }

    /// Perhaps spoils a slot that somebody will read.
    fn rot(&mut self) {
        let mut rng = Rng::new(self.seed, Stream::Rot, self.step);
        let Some(seq) = self.scheduler.running().next().filter(|seq| seq.computed() > 0) else {
            return;
        };
        if rng.one_in(self.shape.mishaps.rot) {
            let slot = rng.below(seq.computed());
            self.memory.scribble(seq.kv().table(), slot, slot + 1);
        }
    }

    fn settle(&mut self) {
        let buffers = &mut self.buffers;
        let copies = self.scheduler.settle(&mut self.kv, &mut buffers.plan, &buffers.shapes);
        self.memory.copy(copies);
        let drafts = buffers.plan.drafts();
        self.counts.drafted += drafts as u64;
        self.counts.steps_with_drafts += u64::from(drafts > 0);
    }

    fn commit(&mut self, lost: bool) -> Check {
        let buffers = &mut self.buffers;
        let (kv, plan) = (&mut self.kv, &buffers.plan);
        let done = self.scheduler.commit(kv, plan, &buffers.outcomes, &mut self.jobs);
        if let Some(broken) = self.jobs.broken.take() {
            return Err(broken);
        }
        self.counts.moves += done.moves.len() as u64;
        for commit in &done.commits {
            self.counts.tokens += commit.kept as u64;
            self.counts.accepted += commit.accepted as u64;
        }
        let passes = self.shape.lanes > 1;
        let told = (plan, done, self.step);
        self.granter.observe(told, &buffers.proposals, passes);
        if lost && !done.moves.is_empty() {
            self.check_commits()?;
            return self.abandon();
        }
        self.memory.relocate(&done.moves);
        self.check_commits()?;
        self.good_steps += u64::from(!self.scheduler.is_paused());
        self.end_step()
    }

    fn abandon(&mut self) -> Check {
        self.counts.abandoned += 1;
        let failed = self.scheduler.abandon(&mut self.kv, &self.buffers.plan);
        for ended in failed {
            rule!(ended.finish == Finish::Failed, "an abandoned step fails requests");
        }
        self.end_step()
    }

    fn end_step(&mut self) -> Check {
        self.collect()?;
        self.audit()?;
        self.check_memory()?;
        self.check_waiting()?;
        let stats = self.scheduler.stats();
        let before = std::mem::replace(&mut self.counts.preemptions, stats.preempted);
        self.counts.steps_with_preemption += u64::from(stats.preempted > before);
        self.trace();
        Ok(())
    }

    /// Takes leave of who ended, and looks at what they have to show.
    fn collect(&mut self) -> Check {
        let mut kept = std::mem::take(&mut self.memory_lane);
        for (seq, finish) in self.scheduler.ended() {
            if matches!(finish, Finish::Cancelled | Finish::Expired) {
                continue;
            }
            let id = seq.id();
            let Some(job) = self.jobs.remove(id) else {
                rule!(false, "a request that is not inside has ended");
                continue;
            };
            rule!(seq.generated().len() == job.generated, "every token went by the stop rule");
            let start = super::memory::Read::start(self.memory.key());
            let plain = seq.tokens().iter().fold(start, |read, &token| read.token(token));
            rule!(plain == job.plain, "a request ends with its prompt and what was generated");
            let full = job.stop_after.unwrap_or(usize::MAX).min(job.count);
            let stopped = job.stop_after.is_some_and(|stop| stop <= job.count);
            let right = match finish {
                Finish::Stop => stopped && job.generated == full,
                Finish::Length => !stopped && job.generated == full,
                Finish::Failed => job.generated < full,
                Finish::Cancelled | Finish::Expired => false,
            };
            rule!(right, "{finish:?} after {} of {full} tokens", job.generated);
            if finish == Finish::Failed {
                self.counts.failed += 1;
            } else {
                self.counts.finished += 1;
                kept.clear();
                kept.extend_from_slice(seq.tokens());
            }
            self.granter.forget(id);
            redline_spec::Drafter::forget(&mut self.ngram, id.0);
        }
        self.memory_lane = kept;
        Ok(())
    }

    /// Every slot that counts as filled holds what plain decoding would have put there.
    fn check_memory(&self) -> Check {
        for seq in self.scheduler.running() {
            let kv = seq.kv();
            let mut filled = [0; LANES];
            for (lane, filled) in filled.iter_mut().enumerate().take(self.kv.lanes()) {
                *filled = kv.filled(&self.kv, redline_scheduler::Lane(lane as u8));
            }
            rule!(filled[0] == seq.computed(), "the target's fill is the committed length");
            let right = self.memory.is_right(kv.table(), seq.tokens(), filled);
            rule!(
                right,
                "a slot of request {} holds something else than its fill says",
                seq.id().0
            );
        }
        Ok(())
    }

    /// Folds what this step decided into the hash of the run.
    fn trace(&mut self) {
        let mut hash = self.counts.trace;
        let plan = &self.buffers.plan;
        let usage = self.kv.usage();
        hash = mix(hash ^ (usage.free as u64) << 32 ^ usage.cached as u64);
        for (span, commit) in plan.spans.iter().zip(&self.scheduler.done().commits) {
            let span =
                span.seq.0 << 20 ^ (span.start as u64) << 8 ^ (span.len + span.drafts) as u64;
            hash = mix(hash ^ span) ^ (commit.kept as u64) << 8 ^ commit.accepted as u64;
        }
        self.counts.trace = hash;
    }

    /// Runs until everything that is inside has ended, or throws it all out; then nothing may be left.
    pub(crate) fn drain(&mut self) -> Check {
        self.draining = true;
        self.thief.clear(&mut self.kv);
        self.scheduler.resume();
        self.release();
        self.scheduler.drain();
        let id = self.jobs.fresh_id();
        self.arrive(id, false, 1)?;
        if Rng::new(self.seed, Stream::Thefts, u64::MAX).one_in(8) {
            self.scheduler.clear(&mut self.kv);
            rule!(self.scheduler.is_empty(), "nothing is left after a clear");
            self.jobs = Jobs::new(self.shape.rule);
        }
        let inside = (self.scheduler.running_len() + self.scheduler.waiting_len()) as u64;
        let mut left = inside * self.scheduler.config().service_steps();
        while !self.scheduler.is_empty() {
            rule!(left > 0, "every request ends after a bounded number of steps");
            left -= 1;
            self.step()?;
        }
        rule!(self.jobs.len() == 0, "every request ends");
        rule!(self.kv.usage().free == self.kv.blocks(), "every block comes back");
        self.audit()?;
        let stats = self.scheduler.stats();
        rule!(stats.submitted == stats.finished, "every request ends once");
        rule!(stats.tokens == self.counts.tokens, "tokens are counted right");
        self.counts.cached_tokens = stats.cached_tokens;
        self.counts.forked = stats.forked;
        Ok(())
    }
}

/// Rows that an outcome which will be ignored stands for.
pub(crate) fn ignored(round: bool) -> Outcome {
    if round {
        Outcome::Round { path: Vec::new(), tokens: vec![0], draft_fed: 0 }
    } else {
        Outcome::Chunk
    }
}
