//! The prefix index against a list of what was entered, searched from end to end.

use crate::cases;
use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use redline_kv_cache::{BlockId, Insert, PrefixIndex, PrefixKey, TokenId};

const BLOCK: usize = 2;

/// One entry ever made: the whole prefix up to and including its block, and the entry before it. An
/// entry made anew after its block left is another one: what was entered behind the old one stays
/// unreachable.
#[derive(Debug, Clone)]
struct Entry {
    salt: u64,
    prefix: Vec<TokenId>,
    parent: Option<usize>,
    /// `None` once it left the index.
    block: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    Nothing,
    New,
    Same { entry: usize },
    Collision,
    Removed(bool),
}

#[derive(Debug, Clone)]
struct Naive {
    blocks: u32,
    entries: Vec<Entry>,
    answer: Answer,
}

/// `behind` picks among all entries ever made, those that left included; `None` starts a prefix.
#[derive(Debug, Clone)]
enum Op {
    Insert { block: u32, behind: Option<usize>, salt: u64, tokens: Vec<TokenId> },
    Remove { block: u32 },
}

impl Naive {
    fn holder(&self, block: u32) -> Option<usize> {
        self.entries.iter().position(|entry| entry.block == Some(block))
    }

    /// The salt and the whole prefix of a block of `tokens` behind an entry.
    fn prefix(&self, behind: Option<usize>, salt: u64, tokens: &[TokenId]) -> (u64, Vec<TokenId>) {
        let Some(parent) = behind.map(|at| &self.entries[at]) else {
            return (salt, tokens.to_vec());
        };
        (parent.salt, [&parent.prefix, tokens].concat())
    }

    /// An entry in the index with that tenant and prefix. There is never a second one.
    fn like(&self, salt: u64, prefix: &[TokenId]) -> Option<usize> {
        let like =
            |entry: &Entry| entry.block.is_some() && entry.salt == salt && entry.prefix == prefix;
        self.entries.iter().position(like)
    }

    fn insert(&mut self, block: u32, behind: Option<usize>, salt: u64, tokens: &[TokenId]) {
        let (salt, prefix) = self.prefix(behind, salt, tokens);
        self.answer = match self.like(salt, &prefix) {
            Some(entry) if self.entries[entry].parent == behind => Answer::Same { entry },
            Some(_) => Answer::Collision,
            None => {
                self.entries.push(Entry { salt, prefix, parent: behind, block: Some(block) });
                Answer::New
            }
        };
    }
}

impl ReferenceStateMachine for Naive {
    type State = Self;
    type Transition = Op;

    fn init_state() -> BoxedStrategy<Self> {
        let new = |blocks| Self { blocks, entries: Vec::new(), answer: Answer::Nothing };
        (1..9u32).prop_map(new).boxed()
    }

    fn transitions(state: &Self) -> BoxedStrategy<Op> {
        let blocks = 0..state.blocks;
        let entries = state.entries.len();
        let behind = prop_oneof![1 => Just(None), 3 => (0..entries.max(1)).prop_map(Some)];
        let tokens = prop::collection::vec(0..2u32, BLOCK);
        let insert = (blocks.clone(), behind, 0..2u64, tokens)
            .prop_map(|(block, behind, salt, tokens)| Op::Insert { block, behind, salt, tokens });
        prop_oneof![3 => insert, 1 => blocks.prop_map(|block| Op::Remove { block })].boxed()
    }

    fn preconditions(state: &Self, op: &Op) -> bool {
        match *op {
            Op::Insert { block, behind, .. } => {
                let known = behind.is_none_or(|behind| behind < state.entries.len());
                block < state.blocks && known && state.holder(block).is_none()
            }
            Op::Remove { block } => block < state.blocks,
        }
    }

    fn apply(mut state: Self, op: &Op) -> Self {
        match op {
            Op::Insert { block, behind, salt, tokens } => {
                state.insert(*block, *behind, *salt, tokens);
            }
            Op::Remove { block } => {
                let holder = state.holder(*block);
                if let Some(entry) = holder {
                    state.entries[entry].block = None;
                }
                state.answer = Answer::Removed(holder.is_some());
            }
        }
        state
    }
}

struct Index {
    index: PrefixIndex,
    /// Per entry of the reference its hash and serial.
    known: Vec<(u128, u64)>,
}

impl Index {
    fn parent(&self, behind: Option<usize>) -> (u128, u64) {
        behind.map_or((0, 0), |at| self.known[at])
    }
}

struct Prefix;

impl StateMachineTest for Prefix {
    type SystemUnderTest = Index;
    type Reference = Naive;

    fn init_test(naive: &Naive) -> Index {
        let index = PrefixIndex::new(naive.blocks, BLOCK as u32, [7; 32]);
        Index { index, known: Vec::new() }
    }

    fn apply(mut sut: Index, naive: &Naive, op: Op) -> Index {
        let answer = match op {
            Op::Insert { block, behind, salt, tokens } => {
                let salt = behind.map_or(salt, |at| naive.entries[at].salt);
                let (above, parent) = sut.parent(behind);
                let hash = sut.index.hash(above, salt, &tokens);
                let key = PrefixKey { hash, parent, salt, tokens: &tokens };
                match sut.index.insert(BlockId(block), &key) {
                    Insert::New { serial } => {
                        assert!(sut.known.iter().all(|&(_, known)| known != serial));
                        sut.known.push((hash, serial));
                        Answer::New
                    }
                    Insert::Same { serial, block } => {
                        let entry = naive.holder(block.0).unwrap();
                        assert_eq!(sut.known[entry].1, serial);
                        Answer::Same { entry }
                    }
                    Insert::Collision => Answer::Collision,
                }
            }
            Op::Remove { block } => Answer::Removed(sut.index.remove(BlockId(block))),
        };
        assert_eq!(answer, naive.answer);
        sut
    }

    fn check_invariants(sut: &Index, naive: &Naive) {
        let inside = naive.entries.iter().filter(|entry| entry.block.is_some()).count();
        assert_eq!((sut.index.len(), sut.index.is_empty()), (inside, inside == 0));
        for (entry, &(hash, _)) in naive.entries.iter().zip(&sut.known) {
            let (_, parent) = sut.parent(entry.parent);
            let tokens = &entry.prefix[entry.prefix.len() - BLOCK..];
            let key = PrefixKey { hash, parent, salt: entry.salt, tokens };
            let found = naive.like(entry.salt, &entry.prefix);
            let found = found.filter(|&at| naive.entries[at].parent == entry.parent);
            let block = |at: usize| BlockId(naive.entries[at].block.unwrap());
            let expected = found.map(|at| (block(at), sut.known[at].1));
            assert_eq!(sut.index.find(&key), expected);
        }
        for block in 0..naive.blocks {
            let holder = naive.holder(block).map(|entry| &naive.entries[entry].prefix);
            let tokens = holder.map(|prefix| &prefix[prefix.len() - BLOCK..]);
            assert_eq!(sut.index.tokens(BlockId(block)), tokens);
            assert_eq!(sut.index.holds(BlockId(block)), tokens.is_some());
        }
    }
}

prop_state_machine! {
    #![proptest_config(cases(1000))]

    #[test]
    fn the_index_is_a_list_that_is_searched(sequential 1..60 => Prefix);
}
