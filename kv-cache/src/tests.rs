//! Tests that need the inside of the crate: hashes made weak on purpose, and an audit of states
//! broken on purpose. What the public API shows is tested in `tests/`.

use crate::prefix::ROOT;
use crate::{
    BlockId, BlockPool, Insert, KvCache, KvConfig, Lane, MAX_LANES, PrefixIndex, PrefixKey,
    SequenceKv,
};

const DRAFT: Lane = Lane(1);

fn config(blocks: u32, block_size: u32) -> KvConfig {
    KvConfig {
        blocks,
        block_size,
        lanes: 2,
        prefix_cache: true,
        hash_key: [1; 32],
        with_target_lanes: [false; MAX_LANES],
    }
}

fn cache(blocks: u32, block_size: u32) -> KvCache {
    KvCache::new(&config(blocks, block_size)).unwrap()
}

fn filled(kv: &mut KvCache, tokens: &[u32]) -> SequenceKv {
    let mut seq = SequenceKv::new(0);
    seq.reserve(kv, tokens.len(), &mut Vec::new()).unwrap();
    seq.commit(kv, tokens, tokens.len());
    seq
}

#[test]
fn the_pool_hands_out_the_front_and_takes_back_at_either_end() {
    let mut pool = BlockPool::new(4, 2);
    let blocks: Vec<_> = (0..4).map(|_| pool.take().unwrap()).collect();
    assert_eq!(blocks, [BlockId(0), BlockId(1), BlockId(2), BlockId(3)]);
    assert_eq!((pool.take(), pool.free()), (None, 0));
    pool.release(BlockId(1), true);
    pool.release(BlockId(2), true);
    pool.release(BlockId(0), false);
    let order = |pool: &BlockPool| pool.free_list().map(|(block, _)| block.0).collect::<Vec<_>>();
    assert_eq!(order(&pool), [0, 1, 2]);
    pool.retain(BlockId(1));
    assert_eq!((order(&pool), pool.refs(BlockId(1))), (vec![0, 2], 1), "out of the middle");
    pool.demote(BlockId(2));
    assert_eq!(order(&pool), [2, 0]);
    pool.retain(BlockId(1));
    pool.release(BlockId(1), false);
    assert_eq!((pool.free(), pool.refs(BlockId(1))), (2, 1), "held once more");
}

#[test]
fn a_fresh_block_has_no_fill_and_a_retained_one_keeps_its_own() {
    let mut pool = BlockPool::new(2, 4);
    let block = pool.take().unwrap();
    pool.raise_fill(block, DRAFT, 3);
    pool.raise_fill(block, DRAFT, 2);
    assert_eq!(pool.fill(block, DRAFT), 3, "never lowered");
    pool.release(block, true);
    pool.retain(block);
    assert_eq!(pool.fill(block, DRAFT), 3);
    pool.clip_fills(block, 1);
    assert_eq!((pool.fill(block, DRAFT), pool.fill(block, Lane::TARGET)), (1, 0));
    pool.release(block, false);
    assert_eq!((pool.take(), pool.fill(block, DRAFT)), (Some(block), 0));
}

#[test]
fn releasing_twice_is_caught() {
    let mut pool = BlockPool::new(2, 4);
    let block = pool.take().unwrap();
    pool.release(block, false);
    let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        pool.release(block, false);
    }));
    assert!(again.is_err());
}

#[test]
fn hashes_depend_on_key_parent_salt_tokens_and_their_order() {
    let mut index = PrefixIndex::new(2, 2, [1; 32]);
    let base = index.hash(0, 0, &[1, 2]);
    let others = [
        index.hash(1, 0, &[1, 2]),
        index.hash(0, 1, &[1, 2]),
        index.hash(0, 0, &[2, 1]),
        index.hash(0, 0, &[1, 3]),
        PrefixIndex::new(2, 2, [2; 32]).hash(0, 0, &[1, 2]),
    ];
    assert!(others.iter().all(|&other| other != base));
    assert_eq!(index.hash(0, 0, &[1, 2]), base);
}

#[test]
fn a_colliding_block_is_told_apart_by_tokens_salt_and_parent() {
    let mut index = PrefixIndex::new(4, 2, [1; 32]);
    let first = PrefixKey { hash: 7, parent: ROOT, salt: 0, tokens: &[1, 2] };
    let Insert::New { serial } = index.insert(BlockId(0), &first) else {
        unreachable!("the index is empty")
    };
    assert_eq!(index.find(&first), Some((BlockId(0), serial)));
    for other in [
        PrefixKey { tokens: &[2, 1], ..first },
        PrefixKey { salt: 1, ..first },
        PrefixKey { parent: 9, ..first },
    ] {
        assert_eq!(index.find(&other), None);
        assert_eq!(index.insert(BlockId(1), &other), Insert::Collision);
    }
    assert_eq!(index.insert(BlockId(1), &first), Insert::Same { serial, block: BlockId(0) });
    assert_eq!(index.find(&PrefixKey { hash: 8, ..first }), None);
    assert!(index.remove(BlockId(0)) && !index.remove(BlockId(0)));
    assert!(index.is_empty() && index.find(&first).is_none());
    let Insert::New { serial: next } = index.insert(BlockId(0), &first) else {
        unreachable!("the index is empty")
    };
    assert_ne!(next, serial, "serials are not used twice: old children stay unreachable");
}

#[test]
fn a_hash_of_one_bit_never_gives_a_wrong_hit() {
    let mut kv = cache(64, 1);
    if let Some(index) = kv.index.as_mut() {
        index.weaken(1);
    }
    // All sequences of four tokens over two, twice: the second time some are found.
    let mut hits = 0;
    for round in 0..32u32 {
        let tokens: Vec<_> = (0..5).map(|i| round >> i & 1).collect();
        let mut seq = SequenceKv::new(u64::from(round & 1));
        let attached = seq.attach_prefix(&mut kv, &tokens, 4);
        assert!(seq.holds_prefix_of(&kv, &tokens), "round {round}");
        hits += attached;
        seq.reserve(&mut kv, 5, &mut Vec::new()).unwrap();
        seq.commit(&mut kv, &tokens, 5);
        kv.audit([&seq]).unwrap();
        assert!(kv.index.as_ref().unwrap().len() <= 2, "there are no more hashes");
        seq.release(&mut kv);
    }
    assert!(hits > 0, "collisions cost hits, not all of them");
    kv.audit([]).unwrap();
}

#[test]
fn who_made_room_before_grows_in_place() {
    for prefix_cache in [true, false] {
        let config = KvConfig { prefix_cache, ..config(20, 4) };
        let (mut kv, mut seq) = (KvCache::new(&config).unwrap(), SequenceKv::new(0));
        seq.preallocate(&kv, 41);
        let lists =
            |seq: &SequenceKv| (seq.table.capacity(), seq.chain.capacity(), seq.hashes.capacity());
        let before = lists(&seq);
        assert!(before.0 >= 11 && (before.1 >= 11 && before.2 >= 11 || !prefix_cache));
        for len in 1..=41 {
            seq.reserve(&mut kv, len, &mut Vec::new()).unwrap();
            seq.commit(&mut kv, &[7; 41], len);
        }
        assert_eq!((lists(&seq), seq.table.len()), (before, 11));
        // Room for as much as there is in it already is no more room.
        seq.preallocate(&kv, 41);
        assert_eq!(lists(&seq), before);
        seq.release(&mut kv);
    }
}

#[test]
fn whose_tokens_are_not_those_that_are_indexed_is_told() {
    let mut kv = cache(4, 4);
    let seq = filled(&mut kv, &[1, 2, 3, 4, 5, 6]);
    assert!(seq.holds_prefix_of(&kv, &[1, 2, 3, 4, 5, 6, 7]));
    assert!(seq.holds_prefix_of(&kv, &[1, 2, 3, 4, 0, 0]), "what is not indexed is not known");
    assert!(!seq.holds_prefix_of(&kv, &[1, 2, 3, 0, 5, 6]));
    assert!(!seq.holds_prefix_of(&kv, &[1, 2, 3, 4, 5]), "it has more");
    seq.release(&mut kv);
}

/// What the audit says after `damage` to a cache with one sequence of six tokens in blocks of four,
/// ten slots reserved, and one cached block.
fn verdict(damage: impl FnOnce(&mut KvCache, &mut SequenceKv)) -> &'static str {
    let mut kv = cache(6, 4);
    filled(&mut kv, &[9; 4]).release(&mut kv);
    let mut seq = filled(&mut kv, &[1, 2, 3, 4, 5, 6]);
    seq.reserve(&mut kv, 10, &mut Vec::new()).unwrap();
    kv.audit([&seq]).unwrap();
    damage(&mut kv, &mut seq);
    let found = kv.audit([&seq]);
    seq.forget();
    found.map_or_else(|violation| violation.rule, |()| "nothing")
}

#[test]
fn the_audit_sees_every_kind_of_damage() {
    type Damage = fn(&mut KvCache, &mut SequenceKv);
    let cases: &[(&str, Damage)] = &[
        ("nothing", |_, _| ()),
        ("references are table entries", |kv, seq| kv.pool.retain(seq.table[0])),
        ("references are table entries", |kv, seq| kv.release(seq.table[0])),
        ("writable slots are not indexed", |_, seq| seq.table[1] = seq.table[0]),
        ("the target's fill covers what is committed", |_, seq| seq.table[1] = seq.table[2]),
        ("the table holds the reserved slots and no more", |_, seq| {
            seq.table.pop();
        }),
        ("committed slots are reserved slots", |_, seq| seq.reserved = 5),
        ("only full committed blocks are chained", |_, seq| seq.chain.push(3)),
        ("an indexed block is what its table says", |_, seq| seq.chain[0] += 1),
        ("an indexed block is committed in full", |kv, seq| {
            kv.pool.clip_fills(seq.table[0], 3);
            seq.full_blocks = [0; MAX_LANES];
            seq.len = 3;
            seq.reserved = 3;
            seq.chain.clear();
            while seq.table.len() > 1 {
                kv.release(seq.table.pop().unwrap());
            }
        }),
        ("the target's fill covers what is committed", |kv, seq| {
            kv.pool.clip_fills(seq.table[1], 1);
        }),
        ("nothing counts as filled where slots are writable", |kv, seq| {
            kv.pool.raise_fill(seq.table[1], DRAFT, 3);
        }),
        ("nothing counts as filled where slots are writable", |kv, seq| {
            kv.pool.raise_fill(seq.table[2], Lane::TARGET, 1);
        }),
        ("blocks remembered as full are full", |_, seq| seq.full_blocks[1] = 1),
        ("blocks worth nothing come first", |kv, _| {
            let cached = kv.pool.free_list_back().unwrap();
            kv.pool.demote(cached);
        }),
        ("cached blocks are counted right", |kv, _| {
            let cached = kv.pool.free_list_back().unwrap();
            kv.index.as_mut().unwrap().remove(cached);
        }),
        ("an indexed block is found by its hash", |kv, seq| {
            kv.index.as_mut().unwrap().misfile(seq.table[0]);
        }),
        ("writable slots are private", |kv, seq| kv.pool.retain(seq.table[1])),
        ("writable slots are not indexed", |kv, seq| {
            let key = PrefixKey { hash: 1, parent: ROOT, salt: 0, tokens: &[0; 4] };
            kv.index.as_mut().unwrap().insert(seq.table[1], &key);
        }),
    ];
    for (i, (rule, damage)) in cases.iter().enumerate() {
        let found = verdict(damage);
        assert_eq!(found, *rule, "case {i}");
    }
}
