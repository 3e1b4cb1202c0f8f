//! What goes on in a world besides steps: requests are cancelled, expire, lose their blocks, are held; planning is paused;
//! and somebody else takes blocks away.

use redline_scheduler::{Finish, SeqId};

use super::rng::{Rng, Stream};
use super::rule::{Check, rule};
use super::world::World;

/// Steps that a pause lasts.
const PAUSE: u64 = 4;

impl World {
    /// Perhaps takes a request's blocks away, or cancels one, its siblings with it or not, and reuses its name.
    /// `moment` tells the times within a step apart.
    pub(crate) fn meddle(&mut self, moment: u64) -> Check {
        let mishaps = self.shape.mishaps;
        if self.draining || self.jobs.len() == 0 {
            return Ok(());
        }
        let mut rng = Rng::new(self.seed, Stream::Meddling, 4 * self.step + moment);
        if rng.one_in(4 * mishaps.preemptions) {
            let id = self.someone(&mut rng);
            let running = self.scheduler.get(id).is_some_and(|seq| seq.is_running());
            let done = self.scheduler.preempt(&mut self.kv, id);
            rule!(done == running, "who runs can be preempted, who waits can't");
            if done {
                self.note_queued(id);
            }
        }
        if rng.one_in(4 * mishaps.cancels) && self.jobs.len() > 0 {
            let id = self.someone(&mut rng);
            if rng.one_in(4) {
                self.cancel_samples(id)?;
            } else {
                self.cancel(id)?;
                if rng.one_in(3) {
                    self.arrive(id, false, 1)?;
                }
            }
        }
        if mishaps.deadlines > 0 && !rng.one_in(4) {
            self.expire()?;
        }
        if rng.one_in(4 * mishaps.holds) && self.jobs.len() > 0 {
            let id = self.someone(&mut rng);
            self.hold(id, rng.one_in(2))?;
        }
        Ok(())
    }

    /// Lets a request go on that is held; holds another, perhaps.
    fn hold(&mut self, id: SeqId, perhaps: bool) -> Check {
        let (first, family) = self.family(id);
        let was_held = self.scheduler.get(id).is_some_and(|seq| seq.is_held());
        let held = !was_held && perhaps;
        let count = self.scheduler.hold(first, held);
        rule!(count == family.len(), "all sequences of a request are held together");
        for id in family {
            let is_held = self.scheduler.get(id).map(|seq| seq.is_held());
            rule!(is_held == Some(held), "who is held says so");
        }
        Ok(())
    }

    /// Lets everybody go on.
    pub(crate) fn release(&mut self) {
        let firsts: Vec<_> = self.jobs.iter().map(|job| job.first).collect();
        for first in firsts {
            self.scheduler.hold(first, false);
        }
    }

    /// The first sequence of a request, and all of them.
    fn family(&self, id: SeqId) -> (SeqId, Vec<SeqId>) {
        let first = self.jobs.get(id).map_or(id, |job| job.first);
        let family = self.jobs.iter().filter(|job| job.first == first);
        (first, family.map(|job| job.id).collect())
    }

    fn someone(&self, rng: &mut Rng) -> SeqId {
        let at = rng.below(self.jobs.len());
        self.jobs.iter().nth(at).map_or(SeqId(u64::MAX), |job| job.id)
    }

    fn cancel(&mut self, id: SeqId) -> Check {
        if self.jobs.remove(id).is_none() {
            return Ok(());
        }
        rule!(self.scheduler.cancel(&mut self.kv, id), "a request that is inside can be cancelled");
        rule!(!self.scheduler.cancel(&mut self.kv, id), "a request is cancelled once");
        self.counts.cancelled += 1;
        self.check_gone(&[id], Finish::Cancelled)
    }

    fn cancel_samples(&mut self, id: SeqId) -> Check {
        let (first, family) = self.family(id);
        let count = self.scheduler.cancel_samples(&mut self.kv, first);
        rule!(count == family.len(), "all sequences of a request are cancelled together");
        for &id in &family {
            self.jobs.remove(id);
        }
        self.counts.cancelled += count as u64;
        self.check_gone(&family, Finish::Cancelled)
    }

    /// Time is counted in steps.
    fn expire(&mut self) -> Check {
        let now = self.step;
        let is_due = |job: &&super::jobs::Job| job.deadline.is_some_and(|deadline| deadline <= now);
        let due: Vec<_> = self.jobs.iter().filter(is_due).map(|job| job.id).collect();
        let count = self.scheduler.expire(&mut self.kv, now);
        rule!(count == due.len(), "who is due expires, and nobody else");
        for &id in &due {
            self.jobs.remove(id);
        }
        self.counts.expired += count as u64;
        self.check_gone(&due, Finish::Expired)
    }

    /// These have just ended in this way, and nothing is left of them.
    fn check_gone(&mut self, ids: &[SeqId], how: Finish) -> Check {
        let total = self.scheduler.ended().count();
        rule!(total >= ids.len(), "who ends is told to have ended");
        for (seq, finish) in self.scheduler.ended().skip(total - ids.len()) {
            rule!(ids.contains(&seq.id()) && finish == how, "who ends is told to have ended");
        }
        for &id in ids {
            rule!(self.scheduler.get(id).is_none(), "who ended is gone");
            self.forget(id);
        }
        Ok(())
    }

    /// Perhaps nothing is planned for a while.
    pub(crate) fn pause(&mut self) {
        let mut rng = Rng::new(self.seed, Stream::Pauses, self.step / PAUSE);
        if !self.draining && rng.one_in(4 * self.shape.mishaps.pauses) {
            self.scheduler.pause();
        } else if self.scheduler.is_paused() {
            self.scheduler.resume();
        }
    }

    /// Perhaps takes all blocks but a few, for a few steps: then the next allocation but so many fails.
    pub(crate) fn steal(&mut self) -> Check {
        if self.is_robbed() && (self.draining || self.step >= self.thief_until) {
            self.thief.clear(&mut self.kv);
        }
        let mut rng = self.rng(Stream::Thefts);
        let thefts = self.shape.mishaps.thefts;
        if self.draining || self.is_robbed() || !rng.one_in(2 * thefts) {
            return Ok(());
        }
        let left = rng.below(4);
        let taken = self.kv.usage().free.saturating_sub(left);
        let slots = taken * self.kv.block_size();
        let reserved = self.thief.reserve(&mut self.kv, slots, &mut Vec::new());
        rule!(reserved.is_ok(), "free blocks can be had");
        self.thief_until = self.step + rng.within(1, 3) as u64;
        Ok(())
    }
}
