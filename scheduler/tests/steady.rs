//! A step allocates nothing once warm, however many sequences there are and however long they are.
//! What it costs in time, `redline-bench schedule` shows.
#![allow(clippy::unwrap_used, reason = "a test may")]
#![allow(unsafe_code, reason = "counting allocations takes an allocator of one's own")]

use redline_kv_cache::{KvConfig, MAX_LANES};
use redline_scheduler::{
    Config, DraftBudget, KvCache, Lane, Offer, Outcome, Request, Room, RoundView, Scan, Scheduler,
    SeqId, StepPlan, StopRule, TokenId,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promised.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Grants without keeping what it saw.
struct All;

impl DraftBudget for All {
    fn allot(&mut self, rounds: &[RoundView], _: Room, grants: &mut Vec<usize>) {
        grants.extend(rounds.iter().map(|round| round.nodes));
    }

    fn invest(&mut self, _: &RoundView) -> bool {
        true
    }
}

struct Never;

impl StopRule for Never {
    fn scan(&mut self, _: SeqId, _: TokenId) -> Scan {
        Scan::Go
    }
}

const BLOCK_SIZE: usize = 32;
const NODES: usize = 5;
const WARM_UP: usize = 20;

/// Sequences that draft, half of them with a lane, in a pool that is full of what may be reused.
struct Steady {
    kv: KvCache,
    scheduler: Scheduler,
    plan: StepPlan,
    offers: Vec<Offer>,
    shapes: Vec<usize>,
    outcomes: Vec<Outcome>,
    steps: usize,
    allocations: usize,
}

impl Steady {
    fn new(sequences: usize, context: usize, steps: usize) -> Self {
        let room = context + (NODES + 1) * (steps + WARM_UP + 4);
        let blocks = sequences * room.div_ceil(BLOCK_SIZE);
        let kv = KvConfig {
            blocks: blocks as u32,
            block_size: BLOCK_SIZE as u32,
            lanes: 2,
            prefix_cache: true,
            hash_key: [0; 32],
            with_target_lanes: [false; MAX_LANES],
        };
        let config = Config {
            max_seqs: sequences,
            token_budget: blocks * BLOCK_SIZE + sequences,
            chunk_max: blocks * BLOCK_SIZE,
            queue_len: sequences,
            max_model_len: blocks * BLOCK_SIZE,
            ..Config::default()
        };
        let offer = |id: usize| Offer {
            seq: SeqId(id as u64),
            nodes: NODES,
            lane: id.is_multiple_of(2).then_some(Lane(1)),
            draft_context: usize::MAX,
        };
        let mut steady = Self {
            kv: KvCache::new(&kv).unwrap(),
            scheduler: Scheduler::new(config).unwrap(),
            plan: StepPlan::default(),
            offers: (0..sequences).map(offer).collect(),
            shapes: Vec::with_capacity(sequences),
            outcomes: Vec::with_capacity(sequences),
            steps: 0,
            allocations: 0,
        };
        steady.submit(1 << 20, blocks * BLOCK_SIZE - 1, 1);
        steady.step();
        assert_eq!(steady.kv.usage().cached, blocks - 1, "nothing is free but what is cached");
        (0..sequences as u64).for_each(|id| steady.submit(id, context, room - context));
        steady
    }

    /// Prompts differ from the first token on.
    fn submit(&mut self, id: u64, prompt: usize, max_tokens: usize) {
        let tokens = (0..prompt).map(|at| id as TokenId + 7 + at as TokenId % 5).collect();
        self.scheduler.submit(Request::new(SeqId(id), tokens, max_tokens), &self.kv).unwrap();
    }

    /// Counts what `plan`, `settle` and `commit` allocate.
    fn step(&mut self) {
        let before = ALLOCATIONS.with(Cell::get);
        self.scheduler.plan(&mut self.kv, &mut All, &self.offers, &mut self.plan);
        let planned = ALLOCATIONS.with(Cell::get) - before;
        self.shapes.clear();
        self.shapes.extend(self.plan.spans.iter().map(|span| span.drafts));
        self.outcomes.clear();
        for (i, span) in self.plan.spans.iter().enumerate() {
            let accepted = if span.drafts == NODES { [0, 3, 5][(i + self.steps) % 3] } else { 0 };
            self.outcomes.push(Outcome::Round {
                path: (0..accepted as u32).collect(),
                tokens: vec![1; accepted + 1],
                draft_fed: NODES,
            });
        }
        let before = ALLOCATIONS.with(Cell::get);
        let _ = self.scheduler.settle(&mut self.kv, &mut self.plan, &self.shapes);
        self.scheduler.commit(&mut self.kv, &self.plan, &self.outcomes, &mut Never);
        self.allocations = planned + ALLOCATIONS.with(Cell::get) - before;
        self.steps += 1;
    }
}

/// Runs `steps` steps after those to warm up, all of them alike.
fn allocates_nothing(sequences: usize, context: usize, steps: usize) {
    let mut steady = Steady::new(sequences, context, steps);
    (0..WARM_UP).for_each(|_| steady.step());
    let tokens = steady.scheduler.stats().tokens;
    for _ in 0..steps {
        steady.step();
        assert_eq!(steady.allocations, 0, "in step {}", steady.steps);
        assert_eq!(steady.plan.drafts(), sequences * NODES, "all draft");
    }
    let tokens = (steady.scheduler.stats().tokens - tokens) as usize;
    assert!(tokens > 3 * steps * sequences, "{tokens} tokens: blocks fill up and new ones come");
    assert_eq!(steady.scheduler.stats().preempted, 0);
    steady.scheduler.audit(&steady.kv).unwrap();
    steady.scheduler.clear(&mut steady.kv);
}

#[test]
fn a_step_allocates_nothing_once_warm() {
    allocates_nothing(1, 40, 200);
    allocates_nothing(16, 40, 200);
    allocates_nothing(256, 1000, 60);
}

#[test]
fn not_for_512_sequences_of_32k_tokens_either() {
    allocates_nothing(512, 32 * 1024, 40);
}
