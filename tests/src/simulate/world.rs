//! One world: the real scheduler, cache, verifier and budget around a mock target.

use redline_kv_cache::SequenceKv;
use redline_scheduler::{KvCache, Offer, Outcome, Scheduler, SeqId, StepPlan, TokenId};
use redline_spec::{Coupled, Ngram, NgramConfig, Proposal, Token, Traversal, Verdict, Verifier};

use super::grants::Granter;
use super::jobs::Jobs;
use super::memory::{Memory, Read};
use super::rng::{Rng, Stream};
use super::rule::{Broken, Check};
use super::shape::{Rule, Shape};
use super::tally::Counts;

pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) shape: Shape,
    /// Requests that do not arrive: a shrunk case leaves some out.
    pub(crate) omitted: Vec<u64>,
    pub(crate) kv: KvCache,
    pub(crate) scheduler: Scheduler,
    pub(crate) memory: Memory,
    pub(crate) verifier: Box<dyn Verifier>,
    pub(crate) granter: Granter,
    pub(crate) ngram: Ngram,
    pub(crate) jobs: Jobs,
    pub(crate) step: u64,
    /// No more arrivals and mishaps: what is inside runs to its end.
    pub(crate) draining: bool,
    /// Somebody else's blocks, and until which step.
    pub(crate) thief: SequenceKv,
    pub(crate) thief_until: u64,
    /// Requests that were offered so far.
    pub(crate) arrived: u64,
    /// Steps that were neither abandoned nor paused: the scheduler's bound on waiting counts these.
    pub(crate) good_steps: u64,
    /// What a request may go on from: the tokens of one that ended.
    pub(crate) memory_lane: Vec<TokenId>,
    pub(crate) counts: Counts,
    pub(crate) buffers: Buffers,
}

/// Kept from step to step, so that a step allocates little.
#[derive(Default)]
pub(crate) struct Buffers {
    pub(crate) plan: StepPlan,
    pub(crate) offers: Vec<Offer>,
    /// One per span; more than spans are left over from other steps.
    pub(crate) proposals: Vec<Proposal>,
    pub(crate) fed: Vec<usize>,
    pub(crate) shapes: Vec<usize>,
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) spare: Vec<(Vec<u32>, Vec<TokenId>)>,
    pub(crate) reads: Vec<Read>,
    pub(crate) path: Vec<u32>,
    pub(crate) verdict: Verdict,
    /// Who lacked only its last token before the plan was made.
    pub(crate) decoding: Vec<SeqId>,
    pub(crate) drafted: Vec<Result<Proposal, redline_spec::DraftError>>,
}

impl World {
    pub(crate) fn new(seed: u64, shape: &Shape, omitted: &[u64]) -> Check<Self> {
        let key = Rng::new(seed, Stream::Model, 0).next();
        let broken =
            |error: &dyn std::fmt::Display| Broken(format!("the shape is refused: {error}"));
        let kv = KvCache::new(&shape.cache(key)).map_err(|error| broken(&error))?;
        let scheduler = Scheduler::new(shape.scheduler()).map_err(|error| broken(&error))?;
        let sizes = NgramConfig { min_n: 2, max_n: 4, max_draft: shape.offer, window: 64 };
        Ok(Self {
            seed,
            memory: Memory::new(kv.blocks(), kv.block_size(), key),
            verifier: match shape.rule {
                Rule::Coupled => Box::new(Coupled),
                Rule::Token => Box::new(Token),
                Rule::Traversal => Box::<Traversal>::default(),
            },
            granter: Granter::new(shape.grants, seed),
            ngram: Ngram::new(sizes).map_err(|error| broken(&error))?,
            jobs: Jobs::new(shape.rule),
            shape: shape.clone(),
            omitted: omitted.to_vec(),
            kv,
            scheduler,
            step: 0,
            draining: false,
            thief: SequenceKv::new(0),
            thief_until: 0,
            arrived: 0,
            good_steps: 0,
            memory_lane: Vec::new(),
            counts: Counts::default(),
            buffers: Buffers::default(),
        })
    }

    pub(crate) fn rng(&self, stream: Stream) -> Rng {
        Rng::new(self.seed, stream, self.step)
    }

    pub(crate) fn audit(&self) -> Check {
        Ok(self.scheduler.audit_beside(&self.kv, &[&self.thief])?)
    }

    pub(crate) fn forget(&mut self, id: SeqId) {
        self.granter.forget(id);
        redline_spec::Drafter::forget(&mut self.ngram, id.0);
    }

    /// Notes who is back in the queue.
    pub(crate) fn note_queued(&mut self, id: SeqId) {
        let step = self.step;
        if let Some(job) = self.jobs.get_mut(id) {
            job.queued_at = step;
            job.passed_at = None;
        }
    }

    /// Whether somebody else holds blocks.
    pub(crate) fn is_robbed(&self) -> bool {
        !self.thief.table().is_empty()
    }
}

impl Drop for World {
    /// A world that ends in a violation goes with everything in it.
    fn drop(&mut self) {
        std::mem::replace(&mut self.thief, SequenceKv::new(0)).forget();
    }
}
