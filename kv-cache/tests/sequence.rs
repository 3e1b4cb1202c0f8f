//! What a sequence promises, one case at a time.
#![allow(clippy::unwrap_used, reason = "a test may")]
use redline_kv_cache::{
    BlockCopy, ConfigError, KvCache, KvConfig, Lane, MAX_LANES, OutOfBlocks, SequenceKv, TokenId,
    Usage,
};

const DRAFT: Lane = Lane(1);

fn config(blocks: u32) -> KvConfig {
    KvConfig {
        blocks,
        block_size: 4,
        lanes: 2,
        prefix_cache: true,
        hash_key: [3; 32],
        with_target_lanes: [false; MAX_LANES],
    }
}

fn cache(blocks: u32) -> KvCache {
    KvCache::new(&config(blocks)).unwrap()
}

fn reserve(kv: &mut KvCache, seq: &mut SequenceKv, slots: usize) -> Vec<BlockCopy> {
    let mut copies = Vec::new();
    seq.reserve(kv, slots, &mut copies).unwrap();
    copies
}

fn filled(kv: &mut KvCache, salt: u64, tokens: &[TokenId]) -> SequenceKv {
    let mut seq = SequenceKv::new(salt);
    assert_eq!(reserve(kv, &mut seq, tokens.len()), []);
    seq.commit(kv, tokens, tokens.len());
    seq
}

fn hits(kv: &mut KvCache, salt: u64, tokens: &[TokenId], max: usize) -> usize {
    let mut seq = SequenceKv::new(salt);
    let hits = seq.attach_prefix(kv, tokens, max);
    assert_eq!((seq.len(), seq.slots()), (hits, hits));
    seq.release(kv);
    hits
}

#[test]
fn impossible_shapes_are_refused_by_name() {
    let refusal = |edit: fn(&mut KvConfig)| {
        let mut config = config(4);
        edit(&mut config);
        KvCache::new(&config).map(|_| ()).unwrap_err()
    };
    assert_eq!(refusal(|c| c.blocks = 0), ConfigError::Blocks(0));
    assert_eq!(refusal(|c| c.blocks = u32::MAX), ConfigError::Blocks(u32::MAX));
    assert_eq!(refusal(|c| c.block_size = 0), ConfigError::BlockSize(0));
    assert_eq!(refusal(|c| c.block_size = 24), ConfigError::BlockSize(24));
    assert_eq!(refusal(|c| c.lanes = 0), ConfigError::Lanes(0));
    assert_eq!(refusal(|c| c.lanes = 5), ConfigError::Lanes(5));
    assert!(KvCache::new(&KvConfig { block_size: 1, lanes: 4, ..config(1) }).is_ok());
}

#[test]
fn a_reservation_that_does_not_fit_changes_nothing() {
    let mut kv = cache(3);
    let mut seq = filled(&mut kv, 0, &[1, 2, 3, 4, 5]);
    let before = (seq.table().to_vec(), seq.len(), seq.slots(), kv.usage());
    let mut copies = Vec::new();
    let error = seq.reserve(&mut kv, 13, &mut copies).unwrap_err();
    assert_eq!(error, OutOfBlocks { needed: 2, free: 1 });
    assert_eq!((seq.table().to_vec(), seq.len(), seq.slots(), kv.usage()), before);
    reserve(&mut kv, &mut seq, 12);
    assert_eq!((seq.table().len(), seq.slots()), (3, 12));
    reserve(&mut kv, &mut seq, 2);
    assert_eq!(seq.slots(), 12, "less than before changes nothing");
    kv.audit([&seq]).unwrap();
    seq.release(&mut kv);
    assert_eq!(kv.usage(), Usage { total: 3, free: 3, cached: 1, used: 0 });
}

#[test]
fn truncate_gives_back_blocks_wholly_above() {
    let mut kv = cache(4);
    let mut seq = filled(&mut kv, 0, &[1; 9]);
    reserve(&mut kv, &mut seq, 16);
    for (slots, blocks, len) in [(13, 4, 9), (12, 3, 9), (9, 3, 9), (8, 2, 8), (5, 2, 5), (4, 1, 4)]
    {
        seq.truncate(&mut kv, slots);
        let now = (seq.slots(), seq.table().len(), seq.len());
        assert_eq!(now, (slots, blocks, len));
        kv.audit([&seq]).unwrap();
    }
    seq.truncate(&mut kv, 100);
    assert_eq!(seq.slots(), 4);
    seq.truncate(&mut kv, 0);
    assert_eq!((seq.table().len(), seq.is_empty()), (0, true));
    seq.release(&mut kv);
}

#[test]
fn full_committed_blocks_are_found_again_even_after_release() {
    let mut kv = cache(4);
    let tokens: Vec<_> = (0..11).collect();
    let seq = filled(&mut kv, 0, &tokens);
    assert_eq!(hits(&mut kv, 0, &tokens, 11), 8, "while in use");
    seq.release(&mut kv);
    assert_eq!(kv.usage().cached, 2);
    assert_eq!(hits(&mut kv, 0, &tokens, 11), 8, "freed but not reused");
    assert_eq!(hits(&mut kv, 0, &tokens, 7), 4, "never more than asked for");
    assert_eq!(hits(&mut kv, 0, &tokens[..8], 7), 4, "so the last token is left to compute");
    assert_eq!(hits(&mut kv, 1, &tokens, 11), 0, "another tenant");
    assert_eq!(hits(&mut kv, 0, &[0, 1, 2, 3, 4, 5, 6, 8], 8), 4, "as far as the tokens agree");
    assert_eq!(hits(&mut kv, 0, &tokens[4..], 7), 0, "the same block after other tokens");
}

#[test]
fn reserved_or_half_committed_blocks_are_not_found() {
    let mut kv = cache(4);
    let mut seq = SequenceKv::new(0);
    reserve(&mut kv, &mut seq, 8);
    assert_eq!(hits(&mut kv, 0, &[1; 8], 8), 0);
    seq.commit(&mut kv, &[1; 8], 7);
    assert_eq!(hits(&mut kv, 0, &[1; 8], 8), 4);
    seq.release(&mut kv);
}

#[test]
fn without_a_prefix_cache_nothing_is_found() {
    let mut kv = KvCache::new(&KvConfig { prefix_cache: false, ..config(4) }).unwrap();
    filled(&mut kv, 0, &[1; 8]).release(&mut kv);
    assert_eq!((hits(&mut kv, 0, &[1; 8], 8), kv.usage().cached), (0, 0));
    assert!(!SequenceKv::new(0).would_fit(&mut kv, &[1; 20], 19, 20));
}

#[test]
fn the_least_useful_block_is_reused_first() {
    let mut kv = cache(4);
    let old = filled(&mut kv, 0, &[1; 8]);
    let new = filled(&mut kv, 0, &[2; 5]);
    let scrap = new.table()[1];
    old.release(&mut kv);
    new.release(&mut kv);
    let mut seq = SequenceKv::new(9);
    reserve(&mut kv, &mut seq, 1);
    assert_eq!(seq.table(), [scrap], "a block that holds no prefix");
    assert_eq!(hits(&mut kv, 0, &[1; 8], 8), 8);
    reserve(&mut kv, &mut seq, 5);
    assert_eq!(hits(&mut kv, 0, &[2; 4], 4), 0, "then the one unused for longest");
    reserve(&mut kv, &mut seq, 9);
    assert_eq!(hits(&mut kv, 0, &[1; 8], 8), 4, "of one sequence the tail before the head");
    kv.audit([&seq]).unwrap();
    seq.release(&mut kv);
}

#[test]
fn a_fork_shares_full_blocks_and_copies_the_one_it_will_write() {
    let mut kv = cache(8);
    let mut parent = filled(&mut kv, 0, &[1, 2, 3, 4, 5, 6]);
    parent.set_filled(&mut kv, DRAFT, 5);
    reserve(&mut kv, &mut parent, 12);
    let (mut child, mut copies) = (SequenceKv::new(0), Vec::new());
    child.attach_fork(&mut kv, &parent, 6, 9, &mut copies).unwrap();
    let copy = BlockCopy { from: parent.table()[1], to: child.table()[1], slots: 2 };
    assert_eq!(copies, [copy]);
    assert_eq!((parent.slots(), parent.table().len()), (12, 3), "reserved slots are kept");
    assert_eq!((child.len(), child.slots(), child.table().len()), (6, 9, 3));
    assert_eq!(parent.table()[0], child.table()[0], "full blocks are shared");
    assert_eq!((child.filled(&kv, Lane::TARGET), child.filled(&kv, DRAFT)), (6, 5));
    assert_eq!(kv.fill(child.table()[1], DRAFT), 1, "fills are copied");
    kv.audit([&parent, &child]).unwrap();
    child.commit(&mut kv, &[1, 2, 3, 4, 5, 6, 7, 8], 8);
    assert_eq!(hits(&mut kv, 0, &[1, 2, 3, 4, 5, 6, 7, 8], 8), 8, "and its own are indexed");
    kv.audit([&parent, &child]).unwrap();
    parent.release(&mut kv);
    child.release(&mut kv);
    assert_eq!(kv.usage().free, 8);
}

#[test]
fn a_fork_at_a_block_boundary_copies_nothing() {
    let mut kv = cache(4);
    let parent = filled(&mut kv, 0, &[1; 6]);
    let (mut child, mut copies) = (SequenceKv::new(0), Vec::new());
    child.attach_fork(&mut kv, &parent, 4, 5, &mut copies).unwrap();
    assert_eq!((copies.len(), child.table().len(), kv.usage().free), (0, 2, 1));
    assert_eq!(SequenceKv::fork_needs(&kv, 4, 5), 1);
    kv.audit([&parent, &child]).unwrap();
    parent.release(&mut kv);
    child.release(&mut kv);
}

#[test]
fn a_fork_that_does_not_fit_changes_nothing() {
    let mut kv = cache(2);
    let parent = filled(&mut kv, 0, &[1; 6]);
    let (mut child, mut copies) = (SequenceKv::new(0), Vec::new());
    let error = child.attach_fork(&mut kv, &parent, 6, 7, &mut copies).unwrap_err();
    assert_eq!(error, OutOfBlocks { needed: 1, free: 0 });
    assert_eq!((child.table().len(), child.len(), copies.len()), (0, 0, 0));
    kv.audit([&parent, &child]).unwrap();
    parent.release(&mut kv);
    child.release(&mut kv);
}

#[test]
fn who_was_cut_within_a_shared_block_writes_to_a_copy() {
    let mut kv = cache(8);
    let mut parent = filled(&mut kv, 0, &[1; 8]);
    parent.set_filled(&mut kv, DRAFT, 7);
    let mut child = SequenceKv::new(0);
    child.attach_fork(&mut kv, &parent, 8, 8, &mut Vec::new()).unwrap();
    child.truncate(&mut kv, 6);
    let shared = parent.table()[1];
    assert_eq!(child.table()[1], shared, "cut, but not written yet");
    let copies = reserve(&mut kv, &mut child, 8);
    assert_eq!(copies, [BlockCopy { from: shared, to: child.table()[1], slots: 2 }]);
    assert_eq!(child.filled(&kv, DRAFT), 6);
    assert_eq!(hits(&mut kv, 0, &[1; 8], 8), 8, "the other one is still found");
    kv.audit([&parent, &child]).unwrap();
    parent.release(&mut kv);
    child.release(&mut kv);
    assert_eq!(kv.usage().free, 8);
}

#[test]
fn a_copy_that_does_not_fit_changes_nothing() {
    let mut kv = cache(2);
    let parent = filled(&mut kv, 0, &[1; 8]);
    let mut child = SequenceKv::new(0);
    child.attach_fork(&mut kv, &parent, 8, 8, &mut Vec::new()).unwrap();
    child.truncate(&mut kv, 6);
    let error = child.reserve(&mut kv, 7, &mut Vec::new()).unwrap_err();
    assert_eq!(error, OutOfBlocks { needed: 1, free: 0 });
    assert_eq!(child.table(), parent.table());
    kv.audit([&parent, &child]).unwrap();
    parent.release(&mut kv);
    assert_eq!(reserve(&mut kv, &mut child, 7), []);
    child.release(&mut kv);
}

#[test]
fn finding_a_prefix_says_what_attaching_it_gives() {
    let mut kv = cache(8);
    let seq = filled(&mut kv, 3, &[1; 9]);
    let mut asking = SequenceKv::new(3);
    assert_eq!(asking.find_prefix(&mut kv, &[1; 12], 11), 8);
    assert_eq!(asking.find_prefix(&mut kv, &[1; 12], 7), 4);
    assert_eq!(SequenceKv::new(4).find_prefix(&mut kv, &[1; 12], 11), 0, "another tenant");
    assert_eq!(asking.attach_prefix(&mut kv, &[1; 12], 11), 8);
    asking.release(&mut kv);
    seq.release(&mut kv);
}

#[test]
fn other_tokens_in_a_cut_block_take_it_out_of_the_index_and_reset_its_fills() {
    let mut kv = cache(4);
    let mut seq = filled(&mut kv, 0, &[1; 8]);
    seq.set_filled(&mut kv, DRAFT, 8);
    seq.truncate(&mut kv, 6);
    assert_eq!(seq.filled(&kv, DRAFT), 6);
    assert_eq!(hits(&mut kv, 0, &[1; 8], 8), 8, "cut, but not overwritten yet");
    assert_eq!(reserve(&mut kv, &mut seq, 8), [], "nobody else holds it");
    assert_eq!(hits(&mut kv, 0, &[1; 8], 8), 4);
    let tokens = [1, 1, 1, 1, 1, 1, 2, 2];
    seq.commit(&mut kv, &tokens, 8);
    assert_eq!(seq.filled(&kv, DRAFT), 6, "the lane does not hold the new tokens");
    assert_eq!(hits(&mut kv, 0, &tokens, 8), 8);
    kv.audit([&seq]).unwrap();
    seq.release(&mut kv);
}

#[test]
fn a_cut_block_that_someone_found_in_between_is_copied() {
    let mut kv = cache(4);
    let mut seq = filled(&mut kv, 0, &[1; 4]);
    seq.truncate(&mut kv, 2);
    let mut other = SequenceKv::new(0);
    assert_eq!(other.attach_prefix(&mut kv, &[1; 5], 4), 4);
    let copies = reserve(&mut kv, &mut seq, 4);
    assert_eq!(copies.len(), 1);
    assert_eq!((copies[0].from, copies[0].slots), (other.table()[0], 2));
    kv.audit([&seq, &other]).unwrap();
    seq.release(&mut kv);
    other.release(&mut kv);
}

#[test]
fn lane_fill_survives_release_and_serves_whoever_attaches() {
    let mut kv = cache(4);
    let mut seq = filled(&mut kv, 0, &[1; 10]);
    seq.set_filled(&mut kv, DRAFT, 7);
    assert_eq!(seq.filled(&kv, DRAFT), 7);
    seq.set_filled(&mut kv, DRAFT, 3);
    assert_eq!(seq.filled(&kv, DRAFT), 7, "never lowered");
    seq.release(&mut kv);
    let (mut a, mut b) = (SequenceKv::new(0), SequenceKv::new(0));
    a.attach_prefix(&mut kv, &[1; 10], 9);
    b.attach_prefix(&mut kv, &[1; 10], 9);
    assert_eq!((a.filled(&kv, DRAFT), b.filled(&kv, DRAFT)), (7, 7));
    a.set_filled(&mut kv, DRAFT, 8);
    assert_eq!(b.filled(&kv, DRAFT), 8, "filled once for all that share it");
    kv.audit([&a, &b]).unwrap();
    a.release(&mut kv);
    b.release(&mut kv);
}

#[test]
fn a_block_not_filled_in_a_lane_that_cannot_catch_up_is_a_miss() {
    let mut with_target_lanes = [false; MAX_LANES];
    with_target_lanes[1] = true;
    let mut kv = KvCache::new(&KvConfig { with_target_lanes, ..config(8) }).unwrap();
    let mut first = filled(&mut kv, 0, &[1; 8]);
    first.set_filled(&mut kv, DRAFT, 4);
    assert_eq!(hits(&mut kv, 0, &[1; 8], 8), 4);
    // The same tokens again: the new block takes the place of the one that is a miss.
    let mut second = filled(&mut kv, 0, &[1; 8]);
    second.set_filled(&mut kv, DRAFT, 8);
    assert_eq!(hits(&mut kv, 0, &[1; 8], 8), 8);
    kv.audit([&first, &second]).unwrap();
    second.release(&mut kv);
    first.release(&mut kv);
    kv.audit([]).unwrap();
    // And of a block that is cached rather than held.
    let third = filled(&mut kv, 0, &[2; 4]);
    third.release(&mut kv);
    let mut fourth = filled(&mut kv, 0, &[2; 4]);
    kv.audit([&fourth]).unwrap();
    assert_eq!(hits(&mut kv, 0, &[2; 4], 4), 0);
    fourth.set_filled(&mut kv, DRAFT, 4);
    assert_eq!(hits(&mut kv, 0, &[2; 4], 4), 4);
    fourth.release(&mut kv);
}

#[test]
fn what_would_fit_does_fit() {
    let mut kv = cache(6);
    let tokens = [1; 21];
    let seq = filled(&mut kv, 0, &tokens[..16]);
    let mut other = SequenceKv::new(0);
    assert!(other.would_fit(&mut kv, &tokens, 20, 21), "four of six blocks are shared");
    assert!(!other.would_fit(&mut kv, &tokens, 11, 21), "two are not enough");
    assert!(!other.would_fit(&mut kv, &[2; 21], 20, 21));
    assert!(other.would_fit(&mut kv, &[2; 21], 20, 8));
    assert_eq!(other.attach_prefix(&mut kv, &tokens, 20), 16);
    reserve(&mut kv, &mut other, 21);
    seq.release(&mut kv);
    other.release(&mut kv);
    // Cached blocks come out of the free ones: they are no gain.
    let mut holder = SequenceKv::new(5);
    reserve(&mut kv, &mut holder, 4);
    let mut third = SequenceKv::new(0);
    assert!(!third.would_fit(&mut kv, &tokens, 20, 21));
    assert!(third.would_fit(&mut kv, &tokens, 20, 20));
    holder.release(&mut kv);
}

#[test]
fn discarded_blocks_are_not_found() {
    let mut kv = cache(4);
    let seq = filled(&mut kv, 0, &[1; 8]);
    kv.discard(seq.table()[1]);
    assert_eq!(hits(&mut kv, 0, &[1; 8], 8), 4);
    let head = seq.table()[0];
    kv.audit([&seq]).unwrap();
    seq.release(&mut kv);
    kv.discard(head);
    kv.audit([]).unwrap();
    assert_eq!((hits(&mut kv, 0, &[1; 8], 8), kv.usage().cached), (0, 0));
}

#[test]
fn misuse_is_caught() {
    type Misuse = fn(&mut KvCache, &mut SequenceKv);
    let cases: &[Misuse] = &[
        |kv, seq| seq.commit(kv, &[1; 9], 9),
        |kv, seq| seq.commit(kv, &[1; 9], 5),
        |kv, seq| seq.commit(kv, &[1; 7], 8),
        |kv, seq| seq.set_filled(kv, DRAFT, 7),
        |kv, seq| seq.set_filled(kv, Lane::TARGET, 6),
        |kv, seq| seq.set_filled(kv, Lane(2), 1),
        |kv, seq| {
            seq.filled(kv, Lane(2));
        },
        |kv, seq| {
            seq.attach_prefix(kv, &[1; 8], 8);
        },
    ];
    for (i, misuse) in cases.iter().enumerate() {
        let caught = std::panic::catch_unwind(|| {
            let mut kv = cache(4);
            let mut seq = filled(&mut kv, 0, &[1; 6]);
            reserve(&mut kv, &mut seq, 8);
            misuse(&mut kv, &mut seq);
            seq.release(&mut kv);
        });
        assert!(caught.is_err(), "case {i}");
    }
}

#[test]
#[cfg(debug_assertions)]
fn dropping_blocks_is_caught_in_debug_builds() {
    let caught = std::panic::catch_unwind(|| {
        let mut kv = cache(4);
        drop(filled(&mut kv, 0, &[1; 6]));
    });
    assert!(caught.is_err());
}
