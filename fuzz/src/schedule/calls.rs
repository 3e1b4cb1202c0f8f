//! The calls that may come at any time, between a plan and its commit too.

use arbitrary::Unstructured;
use redline_scheduler::{Finish, Lane, Request, SeqId, SubmitError};

use super::memory::mix;
use super::requests::Job;
use super::world::{World, pick};

/// Few, so that names are used again, and while they are in use.
const IDS: usize = 16;

impl World<'_> {
    /// What callers do whenever they like.
    pub(super) fn meddle(&mut self) {
        let what = pick(&mut self.bytes, 16);
        let id = SeqId(pick(&mut self.bytes, IDS) as u64);
        match what {
            0 => self.cancel(id),
            1 => {
                if self.scheduler.preempt(&mut self.kv, id) {
                    assert!(self.jobs.holds(id), "only who has not ended is preempted");
                    self.void.insert(id);
                }
            }
            2 => {
                let count = self.will_end(Finish::Cancelled, |_, job| job.first == id);
                assert_eq!(self.scheduler.cancel_samples(&mut self.kv, id), count);
            }
            3 => self.expire(),
            4 => self.scheduler.pause(),
            5 => self.scheduler.drain(),
            6..=8 => self.scheduler.resume(),
            _ => self.submit(id),
        }
        self.collect();
    }

    fn cancel(&mut self, id: SeqId) {
        let known = self.will_end(Finish::Cancelled, |seq, _| seq == id) == 1;
        assert_eq!(self.scheduler.cancel(&mut self.kv, id), known);
        assert!(!self.scheduler.cancel(&mut self.kv, id), "only once");
    }

    fn expire(&mut self) {
        self.now += pick(&mut self.bytes, 8) as u64;
        let now = self.now;
        let due = |_, job: &Job| job.deadline.is_some_and(|deadline| deadline <= now);
        let count = self.will_end(Finish::Expired, due);
        let expired = self.scheduler.stats().expired + count as u64;
        assert_eq!(
            self.scheduler.expire(&mut self.kv, now),
            count,
            "all who are due, and no other"
        );
        assert_eq!(self.scheduler.stats().expired, expired);
    }

    /// Marks those who are to end with the next call. How many there are.
    pub(super) fn will_end(
        &mut self,
        finish: Finish,
        which: impl Fn(SeqId, &Job) -> bool,
    ) -> usize {
        let chosen = self.jobs.0.iter_mut().filter(|(id, job)| which(**id, job));
        chosen
            .map(|(&id, job)| {
                job.ends_as = Some(finish);
                self.void.insert(id);
            })
            .count()
    }

    fn submit(&mut self, id: SeqId) {
        let longest = self.scheduler.config().max_model_len;
        let request = request(&mut self.bytes, id, longest, self.now);
        let limit = request.prompt.len().saturating_add(request.max_tokens).min(longest);
        let (samples, deadline) = (request.samples, request.deadline);
        let fault = self.fault(&request, limit);
        let submitted = self.scheduler.submit(request, &self.kv);
        match submitted {
            Ok(()) => assert_eq!(fault, None, "what can't be served is refused"),
            Err(refused) => return assert_eq!(fault, Some(refused)),
        }
        for sample in 0..samples {
            let b = &mut self.bytes;
            let lane = pick(b, self.kv.lanes());
            let job = Job {
                first: id,
                limit,
                deadline,
                stop_after: pick(b, 24).checked_sub(1).filter(|&count| count > 0),
                lane: (lane > 0).then_some(Lane(lane as u8)),
                generated: Vec::new(),
                failures: 0,
                ends_as: None,
            };
            let id = SeqId(id.0 + sample as u64);
            let place = self.scheduler.get(id).map(|seq| (seq.first(), seq.sample()));
            assert_eq!(place, Some((job.first, sample)));
            self.jobs.0.insert(id, job);
        }
    }

    /// The first thing that is wrong with a request, if anything is.
    fn fault(&self, request: &Request, limit: usize) -> Option<SubmitError> {
        let config = self.scheduler.config();
        let (samples, prompt, queue_len) =
            (request.samples, request.prompt.len(), config.queue_len);
        let (blocks_needed, blocks_total) =
            (self.kv.blocks_for(limit.saturating_sub(1)), self.kv.blocks());
        let queued = self.scheduler.waiting().filter(|seq| seq.preemptions() == 0).count();
        let full = queued + samples > queue_len
            || self.jobs.0.len() + samples > config.max_seqs + queue_len;
        let faults = [
            (self.scheduler.is_draining(), SubmitError::Draining),
            (prompt == 0, SubmitError::EmptyPrompt),
            (request.max_tokens == 0, SubmitError::ZeroTokens),
            (samples == 0, SubmitError::ZeroSamples),
            (samples > queue_len, SubmitError::TooManySamples { samples, limit: queue_len }),
            (
                prompt >= config.max_model_len,
                SubmitError::TooLong { prompt, limit: config.max_model_len - 1 },
            ),
            (blocks_needed > blocks_total, SubmitError::NeverFits { blocks_needed, blocks_total }),
            (
                (0..samples).any(|sample| self.jobs.holds(request.sample_id(sample))),
                SubmitError::DuplicateId,
            ),
            (full, SubmitError::QueueFull { limit: queue_len }),
        ];
        faults.into_iter().find_map(|(wrong, fault)| wrong.then_some(fault))
    }
}

/// Any request, also one that can't be served. Prompts are few, so that prefixes are shared.
fn request(bytes: &mut Unstructured<'_>, id: SeqId, longest: usize, now: u64) -> Request {
    let base = pick(bytes, 3) as u64;
    let len = pick(bytes, longest + 2);
    let own = pick(bytes, 4).min(len);
    let mut prompt: Vec<_> =
        (0..len - own).map(|at| (mix(base << 32 | at as u64) & 1) as u32).collect();
    prompt.extend((0..own).map(|_| pick(bytes, 2) as u32));
    Request {
        samples: [1, 1, 1, 1, 2, 3, 5, 0][pick(bytes, 8)],
        max_tokens: match pick(bytes, 32) {
            31 => usize::MAX,
            count => count,
        },
        priority: [0, 1, -1, i32::MAX, i32::MIN][pick(bytes, 5)],
        salt: pick(bytes, 2) as u64,
        draft_cap: pick(bytes, 6).checked_sub(1),
        deadline: match pick(bytes, 8) {
            wait @ 4..7 => Some(now + 4 * (wait as u64 - 4)),
            7 => Some(u64::MAX),
            _ => None,
        },
        ..Request::new(id, prompt, 1)
    }
}
