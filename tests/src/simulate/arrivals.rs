//! The requests that come into a world.

use redline_scheduler::{Request, SeqId, SubmitError, TokenId};
use redline_spec::Draws;

use super::drafter::Kind;
use super::jobs::{Job, SAMPLES};
use super::memory::Read;
use super::rng::{Rng, Stream, mix};
use super::rule::{Check, rule};
use super::world::World;

/// Steps that a storm or a calm lasts.
const SPELL: u64 = 32;

impl World {
    /// Lets requests in: as many as keep the queue at its level, or in a storm as many as it takes.
    pub(crate) fn arrivals(&mut self) -> Check {
        if self.draining || self.arrived >= self.shape.requests {
            return Ok(());
        }
        let spell = self.step / SPELL;
        let storms = self.shape.mishaps.storms;
        let storm = Rng::new(self.seed, Stream::Arrivals, u64::MAX - spell).one_in(4 * storms);
        let mut rng = self.rng(Stream::Arrivals);
        let level = if storm { self.shape.queue_len + 1 } else { self.shape.waiting };
        let mut most = level;
        while self.scheduler.waiting_len() < level && most > 0 && !rng.one_in(4) {
            most -= 1;
            let id = self.jobs.fresh_id();
            self.arrive(id, storm, SAMPLES)?;
        }
        Ok(())
    }

    /// Offers the next request under the name `id`, for at most so many samples.
    pub(crate) fn arrive(&mut self, id: SeqId, storm: bool, samples: usize) -> Check {
        let number = self.arrived;
        self.arrived += 1;
        if self.omitted.contains(&number) || number >= self.shape.requests {
            return Ok(());
        }
        let rng = &mut Rng::new(self.seed, Stream::Request, number);
        let prompt = self.prompt(rng, storm);
        let mishaps = self.shape.mishaps;
        let most = samples.min(self.shape.queue_len);
        let request = Request {
            samples: if rng.one_in(2 * mishaps.samples) { rng.within(1, most) } else { 1 },
            priority: rng.pick(&[-1, 0, 0, 0, 1]),
            salt: u64::from(rng.one_in(8)),
            draft_cap: rng.one_in(8).then(|| rng.below(6)),
            deadline: rng.one_in(mishaps.deadlines).then(|| self.step + rng.below(64) as u64),
            ..Request::new(id, prompt, rng.within(1, self.shape.max_tokens))
        };
        self.submit(request, rng)
    }

    fn submit(&mut self, request: Request, rng: &mut Rng) -> Check {
        let samples = request.samples;
        let limit = self.shape.max_model_len;
        let total = (request.prompt.len() + request.max_tokens).min(limit);
        let fits = self.kv.blocks_for(total - 1) <= self.kv.blocks();
        let room = total > request.prompt.len();
        let (first, draws) = (self.job(&request, total, rng), rng.next());
        match self.scheduler.submit(request, &self.kv) {
            Ok(()) => {
                rule!(!self.draining, "nothing comes in while it drains");
                rule!(fits && room, "a request that can never be served is refused");
                for sample in 0..samples {
                    let mut job = first.clone();
                    job.id = SeqId(first.id.0 + sample as u64);
                    job.draws = Draws { seed: draws, sample: sample as u32 };
                    job.stop_after = rng.one_in(4).then(|| rng.within(1, self.shape.max_tokens));
                    self.enter(job)?;
                }
            }
            Err(SubmitError::NeverFits { .. }) => rule!(!fits, "a request that fits is taken"),
            Err(SubmitError::TooLong { .. }) => {
                rule!(!room, "a request with room for a token is taken");
            }
            Err(SubmitError::QueueFull { limit }) => {
                let full = self.scheduler.waiting_len() + samples > limit;
                rule!(full, "a request is taken while the queue has room");
            }
            Err(SubmitError::Draining) => rule!(self.draining, "a request is taken"),
            Err(error) => rule!(false, "a good request is refused: {error}"),
        }
        Ok(())
    }

    /// What is known about a request's first sequence.
    fn job(&self, request: &Request, total: usize, rng: &mut Rng) -> Job {
        let kind = rng.pick(&self.shape.drafters);
        let lanes = self.kv.lanes();
        let laneless = kind.lane().is_some_and(|lane| lane.index() >= lanes);
        let start = Read::start(self.memory.key());
        let prompt_len = request.prompt.len();
        Job {
            id: request.id,
            first: request.id,
            prompt_len,
            count: total.saturating_sub(prompt_len),
            stop_after: None,
            kind: if laneless { Kind::Right } else { kind },
            temperature: rng.pick(&self.shape.temperatures),
            draws: Draws { seed: 0, sample: 0 },
            pinned: rng.one_in(8).then(|| rng.below(6)),
            plain: request.prompt.iter().fold(start, |read, &token| read.token(token)),
            generated: 0,
            deadline: request.deadline,
            queued_at: self.step,
            passed_at: None,
            rank: None,
            ahead: 0,
            since: self.good_steps,
        }
    }

    /// Takes a sequence that was taken in into the books, and counts who goes before whom.
    fn enter(&mut self, mut job: Job) -> Check {
        let rank = self.scheduler.get(job.id).map(redline_scheduler::Sequence::rank);
        rule!(rank.is_some(), "a request that was taken is inside");
        job.rank = rank;
        for other in self.jobs.iter_mut() {
            if other.rank < rank {
                job.ahead += 1;
            } else {
                other.ahead += 1;
            }
        }
        self.jobs.insert(job);
        self.counts.requests += 1;
        Ok(())
    }

    /// Begins like one of a few stems, or like a request that ended: prefixes are often shared.
    fn prompt(&self, rng: &mut Rng, storm: bool) -> Vec<TokenId> {
        let longest = self.shape.max_model_len;
        let longest = if rng.one_in(6) { longest } else { longest.div_ceil(2) };
        let len = rng.within(1, longest);
        let own = rng.below(4).min(len);
        let stem = if storm { 0 } else { rng.below(self.shape.stems) as u64 };
        let go_on = !storm && rng.one_in(4);
        let from = if go_on { self.memory_lane.as_slice() } else { &[] };
        let shared = |i: usize| (mix(self.seed ^ (stem << 32) ^ i as u64) & 1) as TokenId;
        let mut prompt = Vec::with_capacity(len);
        prompt.extend((0..len - own).map(|i| from.get(i).copied().unwrap_or_else(|| shared(i))));
        prompt.extend((0..own).map(|_| rng.below(2) as TokenId));
        prompt
    }
}
