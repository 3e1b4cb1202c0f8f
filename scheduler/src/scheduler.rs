//! The scheduler's state, and the calls that do not make up a step.

use crate::budget::RoundView;
use crate::roster::{Roster, Slot};
use crate::{
    Config, ConfigError, Done, FillSpan, Finish, Finished, Offer, Rank, Request, SeqId, Sequence,
    SubmitError,
};
use redline_kv_cache::{BlockCopy, KvCache};

/// A lane that is at most this many positions behind is filled in the same step as it drafts.
/// More is an investment, and asked for.
pub const INLINE_FILL_MAX: usize = 8;

/// Counts since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Steps planned.
    pub steps: u64,
    /// Requests taken into the queue.
    pub submitted: u64,
    /// Admissions to the batch; more than requests if some were preempted.
    pub admitted: u64,
    /// Preemptions.
    pub preempted: u64,
    /// Requests that ended, however.
    pub finished: u64,
    /// Steps abandoned.
    pub abandoned: u64,
    /// Tokens committed.
    pub tokens: u64,
    /// Positions found in the prefix cache or in a sibling's blocks, by all admissions.
    pub cached_tokens: u64,
    /// Admissions that forked a sibling's blocks.
    pub forked: u64,
    /// Sequences whose deadline passed.
    pub expired: u64,
}

/// Who computes how many tokens in each step.
///
/// A step is `plan`, `settle`, `commit`; `abandon` if anything in between failed. `submit` and
/// `cancel` may come at any time, between `plan` and `commit` too. Every call must be given the
/// same cache.
#[derive(Debug)]
pub struct Scheduler {
    pub(crate) config: Config,
    pub(crate) roster: Roster,
    /// The number of the current step.
    pub(crate) step: u64,
    /// Whether the current step was planned and neither committed nor abandoned.
    pub(crate) open: bool,
    pub(crate) paused: bool,
    draining: bool,
    /// No deadline is earlier.
    next_deadline: u64,
    pub(crate) stats: Stats,
    /// Ended sequences, readable until the next plan.
    pub(crate) ended: Vec<(Sequence, Finish)>,
    pub(crate) done: Done,
    pub(crate) failed: Vec<Finished>,
    pub(crate) scratch: Scratch,
}

/// Buffers of a step. They hold nothing between calls; kept so that a step allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// By slot of the roster.
    pub(crate) offers: Vec<Option<Offer>>,
    /// One per round of the plan.
    pub(crate) views: Vec<RoundView>,
    pub(crate) grants: Vec<usize>,
    /// By slot of the roster.
    pub(crate) fills: Vec<Option<FillSpan>>,
    pub(crate) copies: Vec<BlockCopy>,
    /// By block.
    pub(crate) held: Vec<u32>,
}

impl Scheduler {
    /// A scheduler with nothing to do.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            config,
            roster: Roster::default(),
            step: 0,
            open: false,
            paused: false,
            draining: false,
            next_deadline: u64::MAX,
            stats: Stats::default(),
            ended: Vec::new(),
            done: Done::default(),
            failed: Vec::new(),
            scratch: Scratch::default(),
        })
    }

    /// Takes a request into the queue, all its samples or none, or says why not.
    pub fn submit(&mut self, request: Request, kv: &KvCache) -> Result<(), SubmitError> {
        if self.draining {
            return Err(SubmitError::Draining);
        }
        if request.prompt.is_empty() {
            return Err(SubmitError::EmptyPrompt);
        }
        if request.max_tokens == 0 {
            return Err(SubmitError::ZeroTokens);
        }
        let samples = request.samples;
        if samples == 0 {
            return Err(SubmitError::ZeroSamples);
        }
        if samples > self.config.queue_len {
            return Err(SubmitError::TooManySamples { samples, limit: self.config.queue_len });
        }
        let prompt = request.prompt.len();
        if prompt >= self.config.max_model_len {
            let limit = self.config.max_model_len - 1;
            return Err(SubmitError::TooLong { prompt, limit });
        }
        let limit = prompt.saturating_add(request.max_tokens).min(self.config.max_model_len);
        // The last token is never fed, so it needs no slot.
        let (blocks_needed, blocks_total) = (kv.blocks_for(limit - 1), kv.blocks());
        if blocks_needed > blocks_total {
            return Err(SubmitError::NeverFits { blocks_needed, blocks_total });
        }
        let ids_end = request.id.0.checked_add(samples as u64);
        if ids_end.is_none() || (0..samples).any(|i| self.get(request.sample_id(i)).is_some()) {
            return Err(SubmitError::DuplicateId);
        }
        let inside = self.roster.occupied() + samples;
        if self.queued() + samples > self.config.queue_len || inside > self.config.inside_max() {
            return Err(SubmitError::QueueFull { limit: self.config.queue_len });
        }
        self.next_deadline = self.next_deadline.min(request.deadline.unwrap_or(u64::MAX));
        for sample in 0..samples {
            let (arrival, priority) = (self.stats.submitted, request.priority);
            let rank = Rank::new(self.step, arrival, priority, self.config.ageing_steps);
            self.stats.submitted += 1;
            self.roster.enter(Sequence::new(&request, sample, limit, rank));
        }
        Ok(())
    }

    /// Ends a sequence wherever it is, as [`Finish::Cancelled`]. False if there is none of that id.
    /// If a plan that holds it is under way, its outcome will be ignored.
    pub fn cancel(&mut self, kv: &mut KvCache, id: SeqId) -> bool {
        let Some(slot) = self.roster.find(id) else { return false };
        self.end(kv, slot, Finish::Cancelled);
        true
    }

    /// [`Self::cancel`] for all sequences of requests whose first was called `first`. How many there
    /// were.
    pub fn cancel_samples(&mut self, kv: &mut KvCache, first: SeqId) -> usize {
        self.end_where(kv, Finish::Cancelled, |seq| seq.first() == first)
    }

    /// Ends whoever had to end by `now`, as [`Finish::Expired`]. How many there were. Costs nothing
    /// while no deadline has come.
    pub fn expire(&mut self, kv: &mut KvCache, now: u64) -> usize {
        if now < self.next_deadline {
            return 0;
        }
        let due = |seq: &Sequence| seq.deadline().is_some_and(|deadline| deadline <= now);
        let ended = self.end_where(kv, Finish::Expired, due);
        self.stats.expired += ended as u64;
        let deadlines = self.roster.iter().filter_map(Sequence::deadline);
        self.next_deadline = deadlines.min().unwrap_or(u64::MAX);
        ended
    }

    /// Plans nothing until [`Self::resume`]. The running keep their blocks; requests may come, be
    /// cancelled or expire meanwhile. A step that is under way is finished as usual.
    pub fn pause(&mut self) {
        self.paused = true;
    }

    /// Refuses new requests from now on, until [`Self::resume`]; those inside are finished.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Takes back [`Self::pause`] and [`Self::drain`].
    pub fn resume(&mut self) {
        self.paused = false;
        self.draining = false;
    }

    /// Holds a request, or lets it go on: all sequences of the request whose first was called `first`. Those that are held get
    /// no rows. They keep their blocks or their place in the queue, may be preempted, be cancelled or expire like any
    /// other, and what is under way is finished as usual. How many there are.
    ///
    /// Nothing is promised of when a held request ends, nor of when those do that wait for its blocks or its place in the
    /// batch.
    pub fn hold(&mut self, first: SeqId, held: bool) -> usize {
        let of_request = |seq: &&mut Sequence| seq.first() == first;
        self.roster.iter_mut().filter(of_request).map(|seq| seq.held = held).count()
    }

    /// Whether nothing is planned at the moment, whatever waits.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Whether new requests are refused.
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// Takes a running sequence's blocks away and queues it again at its old place. For tests and
    /// for callers that need the blocks. False if it is not running.
    pub fn preempt(&mut self, kv: &mut KvCache, id: SeqId) -> bool {
        let running = |slot: &Slot| self.roster.get(*slot).is_running();
        let Some(slot) = self.roster.find(id).filter(running) else { return false };
        self.put_back(kv, slot);
        true
    }

    /// Cancels everything, so that all blocks are free.
    pub fn clear(&mut self, kv: &mut KvCache) {
        while let Some(&slot) = self.roster.running().last() {
            self.end(kv, slot, Finish::Cancelled);
        }
        while let Some(&slot) = self.roster.waiting().first() {
            self.end(kv, slot, Finish::Cancelled);
        }
    }

    /// The sequences in the batch, best rank first.
    pub fn running(&self) -> impl Iterator<Item = &Sequence> {
        self.roster.running().iter().map(|&slot| self.roster.get(slot))
    }

    /// The sequences in the queue, best rank first.
    pub fn waiting(&self) -> impl Iterator<Item = &Sequence> {
        self.roster.waiting().iter().rev().map(|&slot| self.roster.get(slot))
    }

    /// The sequences that ended since the last plan, and how, in the order of ending. They hold no
    /// blocks. If more end without a plan in between than may be inside at once, the first are dropped.
    pub fn ended(&self) -> impl Iterator<Item = (&Sequence, Finish)> {
        self.ended.iter().map(|(seq, finish)| (seq, *finish))
    }

    /// A sequence that has not ended.
    pub fn get(&self, id: SeqId) -> Option<&Sequence> {
        self.roster.find(id).map(|slot| self.roster.get(slot))
    }

    /// Whether no sequence is inside: all have ended.
    pub fn is_empty(&self) -> bool {
        self.roster.occupied() == 0
    }

    /// Whether a step has something to do: somebody is inside who is not held, and it is not paused.
    pub fn has_work(&self) -> bool {
        !self.paused && self.roster.iter().any(|seq| !seq.held)
    }

    /// Sequences in the queue, preempted ones included.
    pub fn waiting_len(&self) -> usize {
        self.roster.waiting().len()
    }

    /// Sequences in the batch.
    pub fn running_len(&self) -> usize {
        self.roster.running().len()
    }

    /// Counts since the start.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// What the last [`Scheduler::commit`] did, until the next one.
    pub fn done(&self) -> &Done {
        &self.done
    }

    /// The bounds it works within.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Waiting requests that count against the queue's bound: a preempted one was inside already
    /// and must always find its place.
    pub(crate) fn queued(&self) -> usize {
        let preempted =
            self.roster.waiting().iter().filter(|&&s| self.roster.get(s).preemptions > 0);
        self.roster.waiting().len() - preempted.count()
    }

    /// Gives a running sequence's blocks back and queues it at its old rank.
    pub(crate) fn put_back(&mut self, kv: &mut KvCache, slot: Slot) {
        let seq = self.roster.get_mut(slot);
        seq.kv.clear(kv);
        seq.preemptions += 1;
        seq.preempted_at = self.step;
        self.roster.stop(slot);
        self.stats.preempted += 1;
    }

    /// Ends all sequences that `which` holds for, best rank first, the running before the waiting.
    fn end_where(
        &mut self,
        kv: &mut KvCache,
        finish: Finish,
        which: impl Fn(&Sequence) -> bool,
    ) -> usize {
        let inside = self.running().chain(self.waiting());
        let ids: Vec<_> = inside.filter(|seq| which(seq)).map(Sequence::id).collect();
        for &id in &ids {
            if let Some(slot) = self.roster.find(id) {
                self.end(kv, slot, finish);
            }
        }
        ids.len()
    }

    /// Gives a sequence's blocks back and takes it out for good.
    pub(crate) fn end(&mut self, kv: &mut KvCache, slot: Slot, finish: Finish) {
        let mut seq = self.roster.leave(slot);
        seq.kv.clear(kv);
        self.stats.finished += 1;
        if self.ended.len() >= self.config.inside_max() {
            self.ended.remove(0);
        }
        self.ended.push((seq, finish));
    }
}

impl Drop for Scheduler {
    /// A scheduler goes away with its cache: what its sequences hold need not be given back.
    fn drop(&mut self) {
        for seq in self.roster.drain() {
            seq.kv.forget();
        }
    }
}
