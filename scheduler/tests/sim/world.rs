use super::draft::{Kind, Tree};
use super::memory::{LANES, Memory, RUBBISH, Read, plain_run};
use super::rng::{Rng, mix};
use super::{Job, Jobs, Whim};
use redline_kv_cache::{KvConfig, MAX_LANES};
use redline_scheduler::{
    Config, Finish, KvCache, Lane, Offer, Outcome, Request, Scheduler, SeqId, StepPlan, SubmitError,
};

/// The size and mood of a run.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) blocks: u32,
    pub(crate) block_size: u32,
    pub(crate) config: Config,
    /// One in so many steps is abandoned; 0 for none.
    pub(crate) faults: usize,
    /// One in so many steps a request is cancelled or preempted; 0 for never.
    pub(crate) meddling: usize,
    pub(crate) waiting: usize,
}

impl Shape {
    pub(crate) fn random(rng: &mut Rng) -> Self {
        let (max_seqs, floor) = (rng.within(1, 8), rng.within(1, 4));
        Self {
            blocks: rng.within(4, 40) as u32,
            block_size: 1 << rng.below(4),
            config: Config {
                max_seqs,
                token_budget: max_seqs + floor + rng.below(40),
                prefill_floor: floor,
                chunk_max: rng.within(1, 16),
                queue_len: rng.within(1, 12),
                max_model_len: rng.within(8, 64),
                ageing_steps: rng.within(1, 20) as u64,
                retries: rng.below(3) as u32,
            },
            faults: [0, 0, 10, 40][rng.below(4)],
            meddling: [0, 0, 5, 30][rng.below(4)],
            waiting: rng.within(1, 8),
        }
    }
}

pub(crate) struct World {
    pub(crate) kv: KvCache,
    pub(crate) scheduler: Scheduler,
    pub(crate) memory: Memory,
    pub(crate) jobs: Jobs,
    pub(crate) rng: Rng,
    pub(crate) shape: Shape,
    plan: StepPlan,
    trees: Vec<Tree>,
    next_id: u64,
    pub(crate) steps: u64,
    pub(crate) draft_steps: u64,
    pub(crate) moves: u64,
    /// Sequences in the batch, summed over steps.
    pub(crate) running: u64,
    pub(crate) trace: u64,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let shape = Shape::random(&mut rng);
        Self::with_shape(shape, rng)
    }

    pub(crate) fn with_shape(shape: Shape, rng: Rng) -> Self {
        let kv = KvCache::new(&KvConfig {
            blocks: shape.blocks,
            block_size: shape.block_size,
            lanes: LANES as u8,
            prefix_cache: true,
            hash_key: [5; 32],
            with_target_lanes: [false; MAX_LANES],
        })
        .unwrap();
        Self {
            memory: Memory::new(kv.blocks(), kv.block_size()),
            scheduler: Scheduler::new(shape.config.clone()).unwrap(),
            kv,
            jobs: Jobs::default(),
            rng,
            shape,
            plan: StepPlan::default(),
            trees: Vec::new(),
            next_id: 0,
            steps: 0,
            draft_steps: 0,
            moves: 0,
            running: 0,
            trace: 0,
        }
    }

    /// Offers a random request. Prompts are few, so that prefixes are often shared.
    pub(crate) fn arrive(&mut self) {
        let id = SeqId(self.next_id);
        self.next_id += 1;
        self.submit_as(id);
    }

    fn submit_as(&mut self, id: SeqId) {
        let rng = &mut self.rng;
        let base = rng.below(3) as u64;
        let longest = self.shape.config.max_model_len;
        let longest = if rng.one_in(6) { longest } else { longest / 2 };
        let len = rng.within(1, longest);
        let own = rng.below(4).min(len);
        let mut prompt: Vec<_> =
            (0..len - own).map(|i| (mix(base << 32 | i as u64) & 1) as u32).collect();
        prompt.extend((0..own).map(|_| rng.below(2) as u32));
        let request = Request {
            id,
            max_tokens: rng.within(1, 30),
            priority: rng.below(3) as i32 - 1,
            salt: u64::from(rng.one_in(4)),
            draft_cap: rng.one_in(4).then(|| rng.below(6)),
            prompt,
        };
        let limit = self.shape.config.max_model_len;
        let total = (request.prompt.len() + request.max_tokens).min(limit);
        let job = Job {
            prompt: request.prompt.clone(),
            count: total.saturating_sub(request.prompt.len()),
            stop_after: rng.one_in(4).then(|| rng.within(1, 20)),
            kind: Kind::pick(rng),
            generated: Vec::new(),
        };
        let fits = self.kv.blocks_for(total - 1) <= self.kv.blocks();
        match self.scheduler.submit(request, &self.kv) {
            Ok(()) => {
                assert!(fits && job.count > 0, "who can never fit is refused");
                self.jobs.0.insert(id, job);
            }
            Err(SubmitError::NeverFits { .. }) => assert!(!fits),
            Err(SubmitError::TooLong { .. }) => assert_eq!(job.count, 0),
            Err(SubmitError::QueueFull { limit }) => assert!(self.scheduler.waiting_len() >= limit),
            Err(error) => unreachable!("{error}"),
        }
    }

    /// Cancels, preempts, or cancels and reuses the id of, a random request.
    fn meddle(&mut self) {
        let ids: Vec<_> = self.jobs.0.keys().copied().collect();
        if ids.is_empty() {
            return;
        }
        let id = ids[self.rng.below(ids.len())];
        match self.rng.below(3) {
            0 => {
                self.scheduler.preempt(&mut self.kv, id);
            }
            again => {
                assert!(self.scheduler.cancel(&mut self.kv, id));
                assert!(!self.scheduler.cancel(&mut self.kv, id), "only once");
                self.jobs.0.remove(&id).unwrap();
                if again == 1 {
                    self.submit_as(id);
                }
            }
        }
        self.scheduler.audit(&self.kv).unwrap();
    }

    fn offers(&mut self) -> Vec<Offer> {
        let mut offers =
            vec![Offer { seq: SeqId(u64::MAX), nodes: 3, lane: None, draft_context: 9 }];
        for seq in self.scheduler.running() {
            let kind = self.jobs.0[&seq.id()].kind;
            if kind != Kind::None && !self.rng.one_in(8) {
                let draft_context = if self.rng.one_in(8) { 20 } else { usize::MAX };
                let nodes = self.rng.within(1, 7);
                offers.push(Offer { seq: seq.id(), nodes, lane: kind.lane(), draft_context });
            }
        }
        offers
    }

    pub(crate) fn step(&mut self) {
        self.steps += 1;
        let meddling = self.shape.meddling;
        if meddling > 0 && self.rng.one_in(meddling) {
            self.meddle();
        }
        let offers = self.offers();
        let before = self.decoding();
        let mut whim = Rng(self.rng.next());
        self.scheduler.plan(&mut self.kv, &mut Whim(&mut whim), &offers, &mut self.plan);
        self.check_plan(&before, &offers);
        self.running += self.scheduler.running_len() as u64;
        self.trace = mix(self.trace ^ self.plan.rows() as u64 ^ self.kv.usage().free as u64);
        let faults = self.shape.faults;
        let copied = faults == 0 || !self.rng.one_in(2 * faults);
        if copied {
            self.memory.copy(&self.plan.copies);
        }
        self.scribble();
        if !copied {
            return self.abandon();
        }
        self.draft();
        if meddling > 0 && self.rng.one_in(meddling) {
            self.meddle();
        }
        if faults > 0 && self.rng.one_in(faults) {
            return self.abandon();
        }
        self.run_and_commit();
    }

    fn run_and_commit(&mut self) {
        let outcomes: Vec<_> = (0..self.plan.spans.len()).map(|i| self.forward(i)).collect();
        if self.shape.meddling > 0 && self.rng.one_in(self.shape.meddling) {
            self.meddle();
        }
        let done = self.scheduler.commit(&mut self.kv, &self.plan, &outcomes, &mut self.jobs);
        for ((commit, span), outcome) in done.commits.iter().zip(&self.plan.spans).zip(&outcomes) {
            assert_eq!(commit.seq, span.seq);
            let Outcome::Round { path, tokens, .. } = outcome else { continue };
            assert!(commit.kept <= tokens.len() && commit.accepted <= path.len());
            let Some(job) = self.jobs.0.get(&span.seq).filter(|_| commit.kept > 0) else {
                continue;
            };
            let whole = commit.kept == tokens.len();
            assert!(whole || commit.finish.is_some(), "cut only where it ends");
            if job.kind == Kind::Perfect && whole {
                assert_eq!(commit.accepted, span.drafts, "a perfect drafter is always right");
            }
        }
        self.moves += done.moves.len() as u64;
        let lost = self.shape.faults > 0 && !done.moves.is_empty() && self.rng.one_in(20);
        if lost {
            self.scheduler.abandon(&mut self.kv, &self.plan);
        } else {
            self.memory.relocate(&done.moves);
        }
        self.collect();
        self.check_memory();
    }

    fn abandon(&mut self) {
        self.scheduler.abandon(&mut self.kv, &self.plan);
        self.collect();
        self.check_memory();
    }

    /// Takes leave of who ended, and looks at what they have to show.
    fn collect(&mut self) {
        for (seq, finish) in self.scheduler.ended() {
            if finish == Finish::Cancelled {
                continue;
            }
            let job = self.jobs.0.remove(&seq.id()).unwrap();
            assert_eq!(seq.generated(), job.generated, "every token was shown to the stop rule");
            let plain = plain_run(&job.prompt, job.count);
            let full = job.stop_after.unwrap_or(usize::MAX).min(job.count);
            let stopped = job.stop_after.is_some_and(|stop| stop <= job.count);
            match finish {
                Finish::Stop => assert!(stopped && seq.generated().len() == full),
                Finish::Length => assert!(!stopped && seq.generated().len() == full),
                Finish::Failed => assert!(self.shape.faults > 0),
                Finish::Cancelled => unreachable!("skipped above"),
            }
            assert_eq!(seq.generated(), &plain[..job.generated.len()], "the plain run's tokens");
        }
        self.scheduler.audit(&self.kv).unwrap();
    }

    /// Drafts, takes fills that could not be done out of the plan, and settles.
    fn draft(&mut self) {
        self.trees.clear();
        let mut shapes = Vec::new();
        for span in &self.plan.spans {
            let seq = self.scheduler.get(span.seq).unwrap();
            let kind = self.jobs.0[&span.seq].kind;
            let nodes = self.rng.within(span.drafts.saturating_sub(2), span.drafts);
            let at = self.plan.fills.iter().position(|fill| fill.seq == span.seq);
            let tree = match at {
                Some(at) if self.shape.faults > 0 && self.rng.one_in(10) => {
                    self.plan.fills.remove(at);
                    Tree::default()
                }
                Some(at) => {
                    let fill = self.plan.fills[at];
                    Tree::from_lane(&mut self.memory, seq, &fill, nodes, (kind, &mut self.rng))
                }
                None => Tree::without_lane(nodes, &mut self.rng),
            };
            shapes.push(tree.tokens.len());
            self.trees.push(tree);
        }
        let copies = self.scheduler.settle(&mut self.kv, &mut self.plan, &shapes);
        self.memory.copy(copies);
        self.draft_steps += u64::from(self.plan.drafts() > 0);
        self.scheduler.audit(&self.kv).unwrap();
    }

    /// The target's pass and verification for one span.
    fn forward(&mut self, i: usize) -> Outcome {
        let span = self.plan.spans[i];
        let end = span.start + span.len;
        // Gone since the plan was made: whatever came of it must be ignored.
        let Some(seq) = self.scheduler.get(span.seq).filter(|seq| seq.kv().slots() >= end) else {
            return if span.round { ignored() } else { Outcome::Chunk };
        };
        if self.shape.faults > 0 && self.rng.one_in(100) {
            return Outcome::Failed;
        }
        let (table, tokens) = (seq.kv().table(), seq.tokens());
        let mut read = self.memory.read(table, span.start, Lane::TARGET);
        for (slot, &token) in tokens.iter().enumerate().take(end).skip(span.start) {
            let value = read.value(token);
            self.memory.at(table, slot)[0] = value;
            read = read.slot(value);
        }
        if !span.round {
            return Outcome::Chunk;
        }
        let tree = &self.trees[i];
        let mut reads: Vec<Read> = Vec::new();
        for node in 0..span.drafts {
            let before = tree.parents[node].map_or(read, |parent| reads[parent]);
            let value = before.value(tree.tokens[node]);
            if end + node < seq.kv().slots() {
                self.memory.at(table, end + node)[0] = value;
            }
            reads.push(before.slot(value));
        }
        verify(tree, read, &reads)
    }

    fn decoding(&self) -> Vec<SeqId> {
        self.scheduler.running().filter(|seq| seq.behind() == 1).map(|seq| seq.id()).collect()
    }

    fn check_plan(&self, decoding: &[SeqId], offers: &[Offer]) {
        let plan = &self.plan;
        self.scheduler.audit(&self.kv).unwrap();
        assert!(plan.rows() <= self.shape.config.token_budget);
        assert_eq!(plan.is_empty(), !self.scheduler.has_work(), "some progress in every step");
        for id in decoding.iter().filter(|id| !plan.preempted.contains(id)) {
            assert!(plan.spans.iter().any(|span| span.seq == *id && span.round), "no decode gap");
        }
        let behind = self.scheduler.running().filter(|seq| seq.behind() > 1);
        let demand: usize = behind.map(|seq| seq.behind()).sum();
        let prefill = plan.spans.iter().filter(|span| !decoding.contains(&span.seq));
        let given: usize = prefill.map(|span| span.len).sum();
        let Config { chunk_max, prefill_floor, .. } = self.shape.config;
        assert!(given >= demand.min(prefill_floor).min(chunk_max), "prefill is not starved");
        for (i, span) in plan.spans.iter().enumerate() {
            assert!(plan.spans[..i].iter().all(|other| other.seq != span.seq), "one span each");
            let seq = self.scheduler.get(span.seq).unwrap();
            assert_eq!((span.start, span.round), (seq.computed(), span.len == seq.behind()));
            let slots = seq.tokens().len() + span.drafts;
            assert_eq!(seq.kv().slots(), slots, "slots for exactly what was granted");
            if span.drafts > 0 {
                let offer = offers.iter().rfind(|offer| offer.seq == span.seq).unwrap();
                assert!(span.drafts <= offer.nodes.min(seq.draft_cap()).min(seq.remaining() - 1));
                assert!(seq.tokens().len() + span.drafts <= offer.draft_context);
                let filled = |fill: &redline_scheduler::FillSpan| {
                    fill.seq == span.seq && fill.start + fill.len == seq.tokens().len()
                };
                assert!(offer.lane.is_none() || plan.fills.iter().any(filled), "lane caught up");
            }
        }
    }

    /// Overwrites whatever may be written, in every lane.
    fn scribble(&mut self) {
        for seq in self.scheduler.running() {
            for slot in seq.computed()..seq.kv().slots() {
                *self.memory.at(seq.kv().table(), slot) = [RUBBISH; LANES];
            }
        }
    }

    /// Every slot that counts as filled holds what the plain run would have put there.
    fn check_memory(&mut self) {
        for seq in self.scheduler.running() {
            let mut read = Read::default();
            let filled: Vec<_> =
                (0..LANES).map(|lane| seq.kv().filled(&self.kv, Lane(lane as u8))).collect();
            for (slot, &token) in seq.tokens().iter().enumerate().take(seq.computed()) {
                let value = read.value(token);
                read = read.slot(value);
                let found = *self.memory.at(seq.kv().table(), slot);
                for lane in (0..LANES).filter(|&lane| slot < filled[lane]) {
                    assert_eq!(found[lane], value, "lane {lane}, slot {slot} of {:?}", seq.id());
                }
            }
        }
    }

    /// Runs until everything that is inside has ended.
    pub(crate) fn drain(&mut self, steps: u64) {
        let mut left = steps;
        while self.scheduler.has_work() {
            assert!(left > 0, "it does not end");
            left -= 1;
            self.step();
        }
        assert!(self.jobs.0.is_empty(), "each ends in exactly one way");
        assert_eq!(self.kv.usage().free, self.kv.blocks(), "nothing leaked");
        let stats = self.scheduler.stats();
        assert_eq!(stats.submitted, stats.finished);
    }
}

fn ignored() -> Outcome {
    Outcome::Round { path: vec![], tokens: vec![0], draft_fed: 0 }
}

/// Follows the target's own tokens down the tree.
fn verify(tree: &Tree, root: Read, reads: &[Read]) -> Outcome {
    let (mut path, mut tokens, mut at) = (Vec::new(), Vec::new(), None);
    loop {
        let read = at.map_or(root, |node: usize| reads[node]);
        let next = read.next_token();
        tokens.push(next);
        let from = at.map_or(0, |node| node + 1);
        let child =
            (from..reads.len()).find(|&node| tree.parents[node] == at && tree.tokens[node] == next);
        let Some(child) = child else { break };
        path.push(child as u32);
        at = Some(child);
    }
    Outcome::Round { path, tokens, draft_fed: tree.fed }
}
