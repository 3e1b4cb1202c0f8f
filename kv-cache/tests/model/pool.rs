//! The pool against counts in a `Vec` and free blocks in a `VecDeque`.

use crate::cases;
use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use redline_kv_cache::{BlockId, BlockPool, Lane};
use std::collections::VecDeque;

#[derive(Debug, Clone)]
struct Naive {
    refs: Vec<u32>,
    /// The front is reused first.
    free: VecDeque<u32>,
    /// What the last `Take` gave.
    taken: Option<u32>,
}

#[derive(Debug, Clone)]
enum Op {
    Take,
    Retain { block: u32 },
    Release { block: u32, worth_keeping: bool },
}

impl ReferenceStateMachine for Naive {
    type State = Self;
    type Transition = Op;

    fn init_state() -> BoxedStrategy<Self> {
        let new = |blocks| Self {
            refs: vec![0; blocks as usize],
            free: (0..blocks).collect(),
            taken: None,
        };
        (1..7u32).prop_map(new).boxed()
    }

    fn transitions(state: &Self) -> BoxedStrategy<Op> {
        let block = || 0..state.refs.len() as u32;
        prop_oneof![
            3 => Just(Op::Take),
            2 => block().prop_map(|block| Op::Retain { block }),
            4 => (block(), any::<bool>())
                .prop_map(|(block, worth_keeping)| Op::Release { block, worth_keeping }),
        ]
        .boxed()
    }

    fn preconditions(state: &Self, op: &Op) -> bool {
        match *op {
            Op::Take => true,
            Op::Retain { block } => (block as usize) < state.refs.len(),
            Op::Release { block, .. } => state.refs.get(block as usize).is_some_and(|&n| n > 0),
        }
    }

    fn apply(mut state: Self, op: &Op) -> Self {
        match *op {
            Op::Take => {
                state.taken = state.free.pop_front();
                if let Some(block) = state.taken {
                    state.refs[block as usize] = 1;
                }
            }
            Op::Retain { block } => {
                state.free.retain(|&free| free != block);
                state.refs[block as usize] += 1;
            }
            Op::Release { block, worth_keeping } => {
                state.refs[block as usize] -= 1;
                if state.refs[block as usize] == 0 {
                    if worth_keeping {
                        state.free.push_back(block);
                    } else {
                        state.free.push_front(block);
                    }
                }
            }
        }
        state
    }
}

struct Pool;

impl StateMachineTest for Pool {
    type SystemUnderTest = BlockPool;
    type Reference = Naive;

    fn init_test(naive: &Naive) -> BlockPool {
        BlockPool::new(naive.refs.len() as u32, 4)
    }

    fn apply(mut pool: BlockPool, naive: &Naive, op: Op) -> BlockPool {
        match op {
            Op::Take => {
                let taken = pool.take();
                assert_eq!(taken, naive.taken.map(BlockId));
                assert!(taken.is_none_or(|block| pool.fill(block, Lane::TARGET) == 0));
            }
            Op::Retain { block } => pool.retain(BlockId(block)),
            Op::Release { block, worth_keeping } => pool.release(BlockId(block), worth_keeping),
        }
        pool
    }

    fn check_invariants(pool: &BlockPool, naive: &Naive) {
        let refs = (0..pool.len() as u32).map(|block| pool.refs(BlockId(block)));
        assert!(refs.eq(naive.refs.iter().copied()), "not {:?}", naive.refs);
        assert_eq!(pool.free(), naive.free.len());
        assert!(!pool.is_empty() && pool.block_size() == 4);
    }

    /// The free list to its end: every block in the right order.
    fn teardown(mut pool: BlockPool, naive: Naive) {
        let rest: Vec<_> = std::iter::from_fn(|| pool.take()).map(|block| block.0).collect();
        assert_eq!(rest, Vec::from(naive.free));
    }
}

prop_state_machine! {
    #![proptest_config(cases(1000))]

    #[test]
    fn the_pool_is_counts_and_a_queue(sequential 1..60 => Pool);
}
