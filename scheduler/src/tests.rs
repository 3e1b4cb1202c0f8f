//! Tests that need the inside of the crate. What the public API shows is tested in `tests/`.

use crate::{Config, NoDrafts, Outcome, Request, Scan, Scheduler, SeqId, StepPlan, StopRule};
use redline_kv_cache::{KvCache, KvConfig, MAX_LANES, TokenId};

struct Never;

impl StopRule for Never {
    fn scan(&mut self, _: SeqId, _: TokenId) -> Scan {
        Scan::Go
    }
}

/// Nothing in this crate shares a half-full block yet, so one is shared here behind its back.
#[test]
fn a_copy_that_an_abandoned_step_may_not_have_made_is_dropped() {
    let mut kv = KvCache::new(&KvConfig {
        blocks: 8,
        block_size: 4,
        lanes: 1,
        prefix_cache: true,
        hash_key: [0; 32],
        with_target_lanes: [false; MAX_LANES],
    })
    .unwrap();
    let mut scheduler = Scheduler::new(Config::default()).unwrap();
    let prompt = (0..6).collect();
    let request =
        Request { id: SeqId(1), prompt, max_tokens: 9, priority: 0, salt: 0, draft_cap: None };
    scheduler.submit(request, &kv).unwrap();
    let mut plan = StepPlan::default();
    scheduler.plan(&mut kv, &mut NoDrafts, &[], &mut plan);
    let round = [Outcome::Round { path: vec![], tokens: vec![7], draft_fed: 0 }];
    scheduler.commit(&mut kv, &plan, &round, &mut Never);
    let other = scheduler.roster.get_mut(0).kv.fork(&mut kv);

    scheduler.plan(&mut kv, &mut NoDrafts, &[], &mut plan);
    assert_eq!((plan.copies.len(), plan.copies[0].from), (1, other.table()[1]));
    scheduler.abandon(&mut kv, &plan);
    let seq = scheduler.get(SeqId(1)).unwrap();
    assert_eq!((seq.computed(), seq.tokens().len()), (4, 7), "back to the block before");
    scheduler.plan(&mut kv, &mut NoDrafts, &[], &mut plan);
    assert_eq!((plan.spans[0].start, plan.spans[0].len, plan.copies.len()), (4, 3, 0));
    other.release(&mut kv);
    scheduler.audit(&kv).unwrap();
    scheduler.clear(&mut kv);
}
