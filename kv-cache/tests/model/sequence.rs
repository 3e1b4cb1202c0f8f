//! Sequences against lists of tokens with a length per lane.
//!
//! The reference knows no blocks. What it lets happen fits even if nothing is shared, so that it
//! need not know what is. How full the pool really is shows in what is asked for beside.

use crate::cases;
use crate::memory::{LANES, Memory, config};
use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use redline_kv_cache::{KvConfig, Lane, SequenceKv, TokenId};
use std::collections::BTreeSet;

#[derive(Debug, Clone)]
struct Seq {
    salt: u64,
    /// As many as are committed.
    tokens: Vec<TokenId>,
    reserved: usize,
    /// How far each lane is filled at least; more, if others that share the blocks filled them.
    lanes: [usize; LANES],
}

#[derive(Debug, Clone)]
struct Naive {
    blocks: usize,
    block_size: usize,
    prefix_cache: bool,
    /// Whether lane 1 can only be filled with the target's.
    with_target: bool,
    seqs: Vec<Seq>,
}

/// Slots and lengths count from 0; `seq` is a place in the list.
#[derive(Debug, Clone)]
enum Op {
    /// A new sequence computes what it does not find of its tokens, or of the first `max`.
    Start {
        salt: u64,
        tokens: Vec<TokenId>,
        max: usize,
    },
    Reserve {
        seq: usize,
        slots: usize,
    },
    Commit {
        seq: usize,
        tokens: Vec<TokenId>,
    },
    Fill {
        seq: usize,
        lane: usize,
        upto: usize,
    },
    Truncate {
        seq: usize,
        slots: usize,
    },
    Fork {
        seq: usize,
        len: usize,
        slots: usize,
    },
    /// It loses its blocks and computes what it does not find of them.
    Restart {
        seq: usize,
    },
    Release {
        seq: usize,
    },
    /// Asks for all that is free, and for more. What it got goes back.
    Exhaust {
        seq: usize,
    },
    /// Like `Start` and `Fork`, but perhaps of too much; what it got goes back.
    TryStart {
        salt: u64,
        tokens: Vec<TokenId>,
        max: usize,
    },
    TryFork {
        seq: usize,
        len: usize,
        slots: usize,
    },
}

fn tokens(max: usize) -> impl Strategy<Value = Vec<TokenId>> {
    prop::collection::vec(0..2u32, 1..max)
}

impl Naive {
    /// Blocks that hold everything if nothing is shared, `slots` more slots included.
    fn fits(&self, other_than: Option<usize>, slots: usize) -> bool {
        let others = self.seqs.iter().enumerate().filter(|(i, _)| Some(*i) != other_than);
        let slots = others.map(|(_, seq)| seq.reserved).chain([slots]);
        slots.map(|slots| slots.div_ceil(self.block_size)).sum::<usize>() <= self.blocks
    }
}

impl ReferenceStateMachine for Naive {
    type State = Self;
    type Transition = Op;

    fn init_state() -> BoxedStrategy<Self> {
        (2..12usize, 0..3u32, prop::bool::weighted(0.9), prop::bool::weighted(0.2))
            .prop_map(|(blocks, shift, prefix_cache, with_target)| Self {
                blocks,
                block_size: 1 << shift,
                prefix_cache,
                with_target,
                seqs: Vec::new(),
            })
            .boxed()
    }

    fn transitions(state: &Self) -> BoxedStrategy<Op> {
        let longest = state.blocks * state.block_size + 1;
        let start = || (0..2u64, tokens(longest.min(20)), 0..20usize);
        let start = prop_oneof![
            3 => start().prop_map(|(salt, tokens, max)| Op::Start { salt, tokens, max }),
            1 => start().prop_map(|(salt, tokens, max)| Op::TryStart { salt, tokens, max }),
        ];
        if state.seqs.is_empty() {
            return start.boxed();
        }
        let seq = || 0..state.seqs.len();
        let fork = || (seq(), 0..longest, 0..longest);
        prop_oneof![
            8 => start,
            4 => (seq(), 1..longest).prop_map(|(seq, slots)| Op::Reserve { seq, slots }),
            6 => (seq(), tokens(9)).prop_map(|(seq, tokens)| Op::Commit { seq, tokens }),
            6 => (seq(), 1..LANES, 1..longest)
                .prop_map(|(seq, lane, upto)| Op::Fill { seq, lane, upto }),
            4 => (seq(), 0..longest).prop_map(|(seq, slots)| Op::Truncate { seq, slots }),
            4 => fork().prop_map(|(seq, len, slots)| Op::Fork { seq, len, slots }),
            2 => seq().prop_map(|seq| Op::Restart { seq }),
            1 => seq().prop_map(|seq| Op::Release { seq }),
            2 => seq().prop_map(|seq| Op::Exhaust { seq }),
            2 => fork().prop_map(|(seq, len, slots)| Op::TryFork { seq, len, slots }),
        ]
        .boxed()
    }

    /// Nothing that does nothing, and nothing that may not fit.
    fn preconditions(state: &Self, op: &Op) -> bool {
        let seq = |i: usize| state.seqs.get(i);
        match op {
            Op::Start { tokens, .. } => state.fits(None, tokens.len()),
            Op::TryStart { .. } => true,
            Op::Reserve { seq: i, slots } => {
                seq(*i).is_some_and(|seq| seq.reserved < *slots) && state.fits(Some(*i), *slots)
            }
            Op::Commit { seq: i, tokens } => seq(*i).is_some_and(|seq| {
                state.fits(Some(*i), seq.reserved.max(seq.tokens.len() + tokens.len()))
            }),
            Op::Fill { seq: i, lane, upto } => {
                seq(*i).is_some_and(|seq| seq.lanes[*lane] < *upto && *upto <= seq.tokens.len())
            }
            Op::Truncate { seq: i, slots } => seq(*i).is_some_and(|seq| *slots < seq.reserved),
            Op::Fork { seq: i, len, slots } => {
                let inside = seq(*i).is_some_and(|seq| *len <= seq.tokens.len() && len <= slots);
                inside && state.fits(None, *slots)
            }
            Op::TryFork { seq: i, len, slots } => {
                seq(*i).is_some_and(|seq| *len <= seq.tokens.len() && len <= slots)
            }
            Op::Restart { seq: i } | Op::Release { seq: i } | Op::Exhaust { seq: i } => {
                *i < state.seqs.len()
            }
        }
    }

    fn apply(mut state: Self, op: &Op) -> Self {
        match op {
            Op::Start { salt, tokens, .. } => {
                let (tokens, reserved) = (tokens.clone(), tokens.len());
                state.seqs.push(Seq { salt: *salt, tokens, reserved, lanes: [0; LANES] });
            }
            Op::Reserve { seq, slots } => state.seqs[*seq].reserved = *slots,
            Op::Commit { seq, tokens } => {
                let seq = &mut state.seqs[*seq];
                seq.tokens.extend(tokens);
                seq.reserved = seq.reserved.max(seq.tokens.len());
            }
            Op::Fill { seq, lane, upto } => state.seqs[*seq].lanes[*lane] = *upto,
            Op::Truncate { seq, slots } => {
                let seq = &mut state.seqs[*seq];
                seq.tokens.truncate(*slots);
                seq.reserved = *slots;
                seq.lanes = seq.lanes.map(|filled| filled.min(*slots));
            }
            Op::Fork { seq, len, slots } => {
                let mut fork = state.seqs[*seq].clone();
                fork.tokens.truncate(*len);
                fork.reserved = *slots;
                fork.lanes = fork.lanes.map(|filled| filled.min(*len));
                state.seqs.push(fork);
            }
            Op::Restart { seq } => {
                let seq = &mut state.seqs[*seq];
                seq.reserved = seq.tokens.len();
                seq.lanes = [0; LANES];
            }
            Op::Release { seq } => {
                state.seqs.remove(*seq);
            }
            Op::Exhaust { .. } | Op::TryStart { .. } | Op::TryFork { .. } => {}
        }
        state
    }
}

struct Cache {
    memory: Memory,
    seqs: Vec<SequenceKv>,
}

impl Cache {
    /// Starts from what is found; whether all of `tokens` got room.
    fn start(&mut self, seq: &mut SequenceKv, tokens: &[TokenId], max: usize) -> bool {
        let (kv, max) = (&mut self.memory.kv, max.min(tokens.len()));
        let promised = seq.would_fit(kv, tokens, max, tokens.len());
        let found = seq.find_prefix(kv, tokens, max);
        assert_eq!(seq.attach_prefix(kv, tokens, max), found, "find_prefix says what is attached");
        assert!(found <= max && found.is_multiple_of(kv.block_size()));
        let fits = self.memory.reserve(seq, tokens.len());
        assert_eq!(fits, promised, "would_fit says what reserve will say");
        fits
    }

    fn exhaust(&mut self, i: usize, reserved: usize) {
        let mut seq = self.seqs.remove(i);
        let (kv, size) = (&self.memory.kv, self.memory.kv.block_size());
        let partial = seq.table().get(seq.len() / size).filter(|_| !seq.len().is_multiple_of(size));
        let all = seq.table().len() + kv.usage().free;
        // Where the block it writes next is shared, its copy takes one.
        let copied = partial.is_some_and(|&block| kv.refs(block) > 1);
        let most = (all - usize::from(copied)) * size;
        if most > reserved {
            assert!(!self.memory.reserve(&mut seq, most + 1), "a block too much");
            assert!(self.memory.reserve(&mut seq, most), "all that is free can be had");
            assert_eq!(self.memory.kv.usage().free, 0);
            seq.truncate(&mut self.memory.kv, reserved);
        }
        self.seqs.insert(i, seq);
    }
}

struct Sequences;

impl StateMachineTest for Sequences {
    type SystemUnderTest = Cache;
    type Reference = Naive;

    fn init_test(naive: &Naive) -> Cache {
        let mut config = KvConfig {
            prefix_cache: naive.prefix_cache,
            ..config(naive.blocks as u32, naive.block_size as u32)
        };
        config.with_target_lanes[1] = naive.with_target;
        Cache { memory: Memory::new(&config), seqs: Vec::new() }
    }

    fn apply(mut cache: Cache, naive: &Naive, op: Op) -> Cache {
        match op {
            Op::Start { salt, tokens, max } => {
                let mut seq = SequenceKv::new(salt);
                assert!(cache.start(&mut seq, &tokens, max), "there is room");
                cache.memory.commit(&mut seq, salt, &tokens);
                cache.seqs.push(seq);
            }
            Op::TryStart { salt, tokens, max } => {
                let mut seq = SequenceKv::new(salt);
                cache.start(&mut seq, &tokens, max);
                seq.release(&mut cache.memory.kv);
            }
            Op::Reserve { seq, slots } => {
                assert!(cache.memory.reserve(&mut cache.seqs[seq], slots), "there is room");
            }
            Op::Commit { seq: i, .. } => {
                let seq = &naive.seqs[i];
                cache.memory.commit(&mut cache.seqs[i], seq.salt, &seq.tokens);
            }
            Op::Fill { seq: i, lane, upto } => {
                let seq = &naive.seqs[i];
                cache.memory.fill(&mut cache.seqs[i], lane, upto, seq.salt, &seq.tokens);
            }
            Op::Truncate { seq, slots } => cache.seqs[seq].truncate(&mut cache.memory.kv, slots),
            Op::Fork { seq, len, slots } => {
                let salt = naive.seqs[seq].salt;
                let fork = cache.memory.fork(&cache.seqs[seq], salt, len, slots);
                cache.seqs.push(fork.unwrap());
            }
            Op::TryFork { seq, len, slots } => {
                let salt = naive.seqs[seq].salt;
                if let Some(fork) = cache.memory.fork(&cache.seqs[seq], salt, len, slots) {
                    fork.release(&mut cache.memory.kv);
                }
            }
            Op::Restart { seq: i } => {
                let (naive, mut seq) = (&naive.seqs[i], cache.seqs.remove(i));
                seq.clear(&mut cache.memory.kv);
                assert!(cache.start(&mut seq, &naive.tokens, naive.tokens.len()));
                cache.memory.commit(&mut seq, naive.salt, &naive.tokens);
                cache.seqs.insert(i, seq);
            }
            Op::Release { seq } => cache.seqs.remove(seq).release(&mut cache.memory.kv),
            Op::Exhaust { seq } => cache.exhaust(seq, naive.seqs[seq].reserved),
        }
        cache
    }

    fn check_invariants(cache: &Cache, naive: &Naive) {
        let kv = &cache.memory.kv;
        kv.audit(&cache.seqs).unwrap();
        let held: BTreeSet<_> = cache.seqs.iter().flat_map(SequenceKv::table).collect();
        assert_eq!((kv.usage().used, kv.usage().total), (held.len(), naive.blocks));
        assert_eq!(cache.seqs.len(), naive.seqs.len());
        for (seq, naive) in cache.seqs.iter().zip(&naive.seqs) {
            let blocks = kv.blocks_for(naive.reserved);
            assert_eq!((seq.slots(), seq.table().len()), (naive.reserved, blocks));
            assert_eq!(seq.filled(kv, Lane::TARGET), naive.tokens.len());
            for (lane, &filled) in naive.lanes.iter().enumerate() {
                assert!(seq.filled(kv, Lane(lane as u8)) >= filled, "a fill got lost");
            }
            cache.memory.check(seq, naive.salt, &naive.tokens);
        }
    }

    fn teardown(cache: Cache, _: Naive) {
        cache.memory.finish(cache.seqs);
    }
}

prop_state_machine! {
    #![proptest_config(cases(1000))]

    #[test]
    fn sequences_are_tokens_with_a_length_per_lane(sequential 1..60 => Sequences);
}
