//! A scheduler with a cache and a model that always says 1, for tests of single rules.
#![allow(dead_code, reason = "each test file uses what it needs")]

use redline_kv_cache::{KvConfig, MAX_LANES};
use redline_scheduler::{
    Commit, Config, DraftBudget, Finish, KvCache, Lane, Offer, Outcome, Request, Room, RoundView,
    Scan, Scheduler, SeqId, Span, StepPlan, StopRule, SubmitError, TokenId,
};

pub(crate) const DRAFT: Lane = Lane(1);
const PLANS_MAX: usize = 10_000;

/// Grants all that is asked for.
#[derive(Default)]
pub(crate) struct Generous {
    pub(crate) invest: bool,
    pub(crate) seen: Vec<RoundView>,
    pub(crate) asked: Vec<RoundView>,
    pub(crate) slots: usize,
    pub(crate) other_rows: usize,
}

impl DraftBudget for Generous {
    fn allot(&mut self, rounds: &[RoundView], room: Room, grants: &mut Vec<usize>) {
        self.seen = rounds.to_vec();
        self.slots = room.slots;
        self.other_rows = room.other_rows;
        grants.extend(rounds.iter().map(|round| round.nodes));
    }

    fn invest(&mut self, round: &RoundView) -> bool {
        self.asked.push(*round);
        self.invest
    }
}

/// Stops at the one token, if any.
#[derive(Default)]
pub(crate) struct StopAt(pub(crate) Option<TokenId>);

impl StopRule for StopAt {
    fn scan(&mut self, _: SeqId, token: TokenId) -> Scan {
        if Some(token) == self.0 { Scan::Stop } else { Scan::Go }
    }
}

pub(crate) struct Rig {
    pub(crate) kv: KvCache,
    pub(crate) scheduler: Scheduler,
    pub(crate) plan: StepPlan,
    pub(crate) budget: Generous,
    pub(crate) offers: Vec<Offer>,
    pub(crate) stops: StopAt,
    /// Drafts accepted per round, at most; the drafter feeds all it drafts.
    pub(crate) accept: usize,
    /// For these the model says 2.
    differing: Vec<SeqId>,
    /// Plans so far. A test that would not end is cut short.
    plans: usize,
    pub(crate) commits: Vec<Commit>,
    pub(crate) ended: Vec<(SeqId, Finish)>,
}

pub(crate) fn config() -> Config {
    Config {
        max_seqs: 4,
        token_budget: 16,
        prefill_floor: 4,
        chunk_max: 8,
        queue_len: 8,
        max_model_len: 64,
        ageing_steps: 10,
        retries: 1,
    }
}

pub(crate) fn request(id: u64, prompt: usize, max_tokens: usize) -> Request {
    // Prompts of different requests differ from the first token on.
    let prompt = (0..prompt).map(|i| 1000 + id as u32 * 100 + i as u32).collect();
    Request::new(SeqId(id), prompt, max_tokens)
}

pub(crate) fn offer(id: u64, nodes: usize, lane: Option<Lane>) -> Offer {
    Offer { seq: SeqId(id), nodes, lane, draft_context: usize::MAX }
}

impl Rig {
    /// Blocks of four slots, two lanes.
    pub(crate) fn new(blocks: u32, config: Config) -> Self {
        Self::with(blocks, config, true)
    }

    pub(crate) fn without_prefix_cache(blocks: u32, config: Config) -> Self {
        Self::with(blocks, config, false)
    }

    fn with(blocks: u32, config: Config, prefix_cache: bool) -> Self {
        let kv = KvConfig {
            blocks,
            block_size: 4,
            lanes: 2,
            prefix_cache,
            hash_key: [0; 32],
            with_target_lanes: [false; MAX_LANES],
        };
        Self {
            kv: KvCache::new(&kv).unwrap(),
            scheduler: Scheduler::new(config).unwrap(),
            plan: StepPlan::default(),
            budget: Generous::default(),
            offers: Vec::new(),
            stops: StopAt::default(),
            accept: usize::MAX,
            differing: Vec::new(),
            plans: 0,
            commits: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// From now on the model says 2 to the sequence.
    pub(crate) fn differ(&mut self, seq: SeqId) {
        self.differing.push(seq);
    }

    pub(crate) fn submit(&mut self, request: Request) -> Result<(), SubmitError> {
        self.scheduler.submit(request, &self.kv)
    }

    pub(crate) fn plan(&mut self) -> &StepPlan {
        self.plans += 1;
        assert!(self.plans < PLANS_MAX, "it does not end");
        self.scheduler.plan(&mut self.kv, &mut self.budget, &self.offers, &mut self.plan);
        self.scheduler.audit(&self.kv).unwrap();
        &self.plan
    }

    pub(crate) fn outcome(&self, span: &Span) -> Outcome {
        if !span.round {
            return Outcome::Chunk;
        }
        let accepted = span.drafts.min(self.accept);
        let path = (0..accepted as u32).collect();
        let token = if self.differing.contains(&span.seq) { 2 } else { 1 };
        Outcome::Round { path, tokens: vec![token; accepted + 1], draft_fed: span.drafts }
    }

    /// Settles for what was granted and commits.
    pub(crate) fn finish_step(&mut self) {
        let shapes: Vec<_> = self.plan.spans.iter().map(|span| span.drafts).collect();
        let _ = self.scheduler.settle(&mut self.kv, &mut self.plan, &shapes);
        let outcomes: Vec<_> = self.plan.spans.iter().map(|span| self.outcome(span)).collect();
        self.commit(&outcomes);
    }

    pub(crate) fn commit(&mut self, outcomes: &[Outcome]) {
        let done = self.scheduler.commit(&mut self.kv, &self.plan, outcomes, &mut self.stops);
        self.commits.clone_from(&done.commits);
        self.note_ended();
    }

    pub(crate) fn abandon(&mut self) -> usize {
        let failed = self.scheduler.abandon(&mut self.kv, &self.plan).len();
        self.note_ended();
        failed
    }

    fn note_ended(&mut self) {
        self.ended.extend(self.scheduler.ended().map(|(seq, finish)| (seq.id(), finish)));
        self.scheduler.audit(&self.kv).unwrap();
    }

    pub(crate) fn step(&mut self) -> &StepPlan {
        self.plan();
        self.finish_step();
        &self.plan
    }

    pub(crate) fn steps(&mut self, steps: usize) {
        for _ in 0..steps {
            self.step();
        }
    }

    /// Steps until the sequence decodes.
    pub(crate) fn until_decoding(&mut self, id: u64) {
        let decodes = |rig: &Self| {
            let seq = rig.scheduler.get(SeqId(id));
            seq.is_some_and(|seq| seq.is_running() && !seq.generated().is_empty())
        };
        for _ in 0..100 {
            if decodes(self) {
                return;
            }
            self.step();
        }
        unreachable!("sequence {id} never decodes");
    }

    /// Steps until all have ended; how many steps it took.
    pub(crate) fn drain(&mut self) -> usize {
        for steps in 0..10_000 {
            if !self.scheduler.has_work() {
                assert_eq!(self.kv.usage().used, 0, "nothing leaked");
                return steps;
            }
            self.step();
        }
        unreachable!("it does not end");
    }

    pub(crate) fn span(&self, id: u64) -> Option<Span> {
        self.plan.spans.iter().find(|span| span.seq == SeqId(id)).copied()
    }

    pub(crate) fn running(&self) -> Vec<u64> {
        self.scheduler.running().map(|seq| seq.id().0).collect()
    }

    pub(crate) fn waiting(&self) -> Vec<u64> {
        self.scheduler.waiting().map(|seq| seq.id().0).collect()
    }
}
