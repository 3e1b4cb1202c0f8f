//! An audit of states broken on purpose: it takes the inside of the crate to break them. What the
//! public API shows is tested in `tests/`.

use crate::sequence::Phase;
use crate::{Config, Finish, NoDrafts, Outcome, Request, Scan, Scheduler, SeqId, StepPlan};
use redline_kv_cache::{KvCache, KvConfig, MAX_LANES, SequenceKv};

fn cache(blocks: u32) -> KvCache {
    let config = KvConfig {
        blocks,
        block_size: 4,
        lanes: 1,
        prefix_cache: true,
        hash_key: [0; 32],
        with_target_lanes: [false; MAX_LANES],
    };
    KvCache::new(&config).unwrap()
}

struct Never;

impl crate::StopRule for Never {
    fn scan(&mut self, _: SeqId, _: u32) -> Scan {
        Scan::Go
    }
}

/// Sequences 1 and 2 run, with nine tokens committed of ten, 3 and 4 wait; 1 can become as long as
/// the model allows, and takes all of the pool then.
fn world() -> (Scheduler, KvCache) {
    let config = Config {
        max_seqs: 2,
        token_budget: 40,
        prefill_floor: 8,
        queue_len: 4,
        max_model_len: 33,
        ..Config::default()
    };
    let (mut scheduler, mut kv) = (Scheduler::new(config).unwrap(), cache(8));
    for id in 1..=4 {
        let max_tokens = if id == 2 { 10 } else { 24 };
        let request = Request::new(SeqId(id), vec![id as u32; 9], max_tokens);
        let request = Request { draft_cap: Some(2), ..request };
        scheduler.submit(request, &kv).unwrap();
    }
    let mut plan = StepPlan::default();
    scheduler.plan(&mut kv, &mut NoDrafts, &[], &mut plan);
    let round = Outcome::Round { path: vec![], tokens: vec![7], draft_fed: 0 };
    scheduler.commit(&mut kv, &plan, &[round.clone(), round], &mut Never);
    (scheduler, kv)
}

#[test]
fn who_is_let_in_gets_room_for_all_its_tokens_and_no_more() {
    let (mut scheduler, mut kv) = world();
    for (slot, limit) in [(0, 33), (1, 19)] {
        let seq = scheduler.roster.get(slot);
        assert_eq!((seq.tokens.capacity(), seq.limit()), (limit, limit));
    }
    scheduler.clear(&mut kv);
}

fn verdict(damage: impl FnOnce(&mut Scheduler, &mut KvCache)) -> String {
    let (mut scheduler, mut kv) = world();
    damage(&mut scheduler, &mut kv);
    let found = scheduler.audit(&kv);
    scheduler.ended.drain(..).for_each(|(seq, _)| seq.kv.forget());
    found.map_or_else(|violation| violation.to_string(), |()| "nothing".into())
}

type Damage = fn(&mut Scheduler, &mut KvCache);

/// What the audit says, and what was done.
const DAMAGES: &[(&str, Damage)] = &[
    ("nothing", |_, _| ()),
    ("the batch is bounded", |s, _| s.config.max_seqs = 1),
    ("the queue is bounded", |s, _| s.config.queue_len = 1),
    ("nothing", |s, _| s.config.queue_len = 2),
    ("every sequence waits or runs", |s, _| {
        s.roster.parts().0.pop();
    }),
    ("every sequence waits or runs", |s, _| s.roster.parts().0.push(0)),
    ("every sequence has one id", |s, _| {
        s.roster.parts().2.insert(SeqId(9), 0);
    }),
    ("both lists are in order of rank", |s, _| s.roster.parts().0.swap(0, 1)),
    ("both lists are in order of rank", |s, _| s.roster.parts().1.swap(0, 1)),
    ("both lists are in order of rank", |s, _| {
        s.roster.get_mut(1).rank = s.roster.get(0).rank;
    }),
    ("both lists are in order of rank", |s, _| {
        s.roster.get_mut(3).rank = s.roster.get(2).rank;
    }),
    ("a sequence is on the list it says", |s, _| s.roster.get_mut(0).phase = Phase::Waiting),
    ("a sequence is on the list it says", |s, _| {
        s.roster.get_mut(2).phase = Phase::Running { admission: 9 };
    }),
    ("who ended holds no blocks", |s, kv| {
        s.end(kv, 3, Finish::Cancelled);
        let (mut other, mut held) = (cache(1), SequenceKv::new(0));
        held.reserve(&mut other, 1, &mut Vec::new()).unwrap();
        s.ended[0].0.kv = held;
    }),
    ("sequence 3: found under its id", |s, _| {
        s.roster.parts().2.insert(SeqId(3), 3);
    }),
    ("sequence 3: it has its prompt", |s, _| s.roster.get_mut(2).tokens.truncate(8)),
    ("sequence 3: who has all its tokens has ended", |s, _| {
        s.roster.get_mut(2).tokens.resize(33, 0);
    }),
    ("nothing", |s, _| s.roster.get_mut(2).tokens.resize(32, 0)),
    ("sequence 1: no longer than the model allows", |s, _| s.config.max_model_len = 32),
    ("sequence 1: the last token is still to be computed", |s, _| {
        s.roster.get_mut(0).tokens.truncate(9);
    }),
    ("sequence 4: who failed too often has ended", |s, _| s.roster.get_mut(3).failures = 2),
    ("nothing", |s, _| s.roster.get_mut(3).failures = 1),
    ("sequence 3: it fits the pool alone", |s, kv| {
        s.end(kv, 0, Finish::Cancelled);
        s.end(kv, 1, Finish::Cancelled);
        *kv = cache(7);
    }),
    ("sequence 1: no draft outlives its step", |s, kv| {
        s.roster.get_mut(0).kv.reserve(kv, 11, &mut Vec::new()).unwrap();
    }),
    ("nothing", |s, kv| {
        s.open = true;
        s.roster.get_mut(0).kv.reserve(kv, 12, &mut Vec::new()).unwrap();
    }),
    ("sequence 1: no more drafts than may be kept", |s, kv| {
        s.open = true;
        s.roster.get_mut(0).kv.reserve(kv, 13, &mut Vec::new()).unwrap();
    }),
    // Sequence 2 ends with 19 tokens.
    ("nothing", |s, kv| {
        s.open = true;
        let seq = s.roster.get_mut(1);
        seq.tokens.resize(17, 0);
        seq.kv.reserve(kv, 18, &mut Vec::new()).unwrap();
    }),
    ("sequence 2: no more drafts than may be kept", |s, kv| {
        s.open = true;
        let seq = s.roster.get_mut(1);
        seq.tokens.resize(17, 0);
        seq.kv.reserve(kv, 19, &mut Vec::new()).unwrap();
    }),
    ("sequence 3: who waits holds no blocks", |s, kv| {
        s.roster.get_mut(2).kv.reserve(kv, 1, &mut Vec::new()).unwrap();
    }),
    ("sequence 2: indexed blocks hold the tokens of their sequence", |s, _| {
        s.roster.get_mut(1).tokens[0] = 99;
    }),
    ("block Some(BlockId(0)), sequence None: references are table entries", |s, kv| {
        let block = s.roster.get(0).kv.table()[0];
        let mut other = SequenceKv::new(0);
        other.attach_fork(kv, &s.roster.get(0).kv, 4, 4, &mut Vec::new()).unwrap();
        assert_eq!(kv.refs(block), 2);
        other.forget();
    }),
];

#[test]
fn the_audit_sees_every_kind_of_damage() {
    for (i, (rule, damage)) in DAMAGES.iter().enumerate() {
        assert_eq!(verdict(damage), *rule, "case {i}");
    }
}
