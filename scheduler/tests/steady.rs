//! Plan and commit allocate nothing once warm, and cost the same whatever the context.
#![allow(clippy::unwrap_used, reason = "a test may")]
#![allow(unsafe_code, reason = "counting allocations takes an allocator of one's own")]
mod rig;

use redline_scheduler::{Config, Outcome};
use rig::{DRAFT, Rig, StopAt, config, offer, request};
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

impl redline_scheduler::DraftBudget for All {
    fn allot(
        &mut self,
        rounds: &[redline_scheduler::RoundView],
        _: redline_scheduler::Room,
        grants: &mut Vec<usize>,
    ) {
        grants.extend(rounds.iter().map(|round| round.nodes));
    }

    fn invest(&mut self, _: &redline_scheduler::RoundView) -> bool {
        true
    }
}

/// Sixteen sequences that draft, half of them with a lane, for 200 steps after 20 to warm up.
#[test]
fn a_step_allocates_nothing_once_warm() {
    let config = Config { max_seqs: 16, token_budget: 256, max_model_len: 2048, ..config() };
    let mut rig = Rig::new(16 * 512, Config { queue_len: 32, ..config });
    (0..16).for_each(|id| rig.submit(request(id, 40, 2000)).unwrap());
    let offers: Vec<_> = (0..16).map(|id| offer(id, 5, (id % 2 == 0).then_some(DRAFT))).collect();
    let mut shapes = Vec::with_capacity(16);
    let mut outcomes: Vec<Outcome> = Vec::with_capacity(16);
    let rounds = [0usize, 3, 5].map(|accepted| Outcome::Round {
        path: (0..accepted as u32).collect(),
        tokens: vec![1; accepted + 1],
        draft_fed: 5,
    });
    let (mut allocations, mut drafts) = (0, 0);
    for step in 0..220 {
        let before = ALLOCATIONS.with(Cell::get);
        rig.scheduler.plan(&mut rig.kv, &mut All, &offers, &mut rig.plan);
        shapes.clear();
        shapes.extend(rig.plan.spans.iter().map(|span| span.drafts));
        let _ = rig.scheduler.settle(&mut rig.kv, &mut rig.plan, &shapes);
        let planned = ALLOCATIONS.with(Cell::get) - before;
        outcomes.clear();
        for (i, span) in rig.plan.spans.iter().enumerate() {
            let round = &rounds[if span.drafts == 5 { (i + step) % 3 } else { 0 }];
            outcomes.push(if span.round { round.clone() } else { Outcome::Chunk });
        }
        let before = ALLOCATIONS.with(Cell::get);
        rig.scheduler.commit(&mut rig.kv, &rig.plan, &outcomes, &mut StopAt(None));
        let committed = ALLOCATIONS.with(Cell::get) - before;
        if step >= 20 {
            allocations += planned + committed;
            drafts += rig.plan.drafts();
        }
    }
    assert!(drafts > 200 * 60, "{drafts} drafts");
    assert_eq!(allocations, 0);
    rig.scheduler.clear(&mut rig.kv);
}
