//! What chance decides within one call: numbers that shrink to the simplest choice, 0.

use proptest::prelude::*;
use redline_scheduler::{DraftBudget, Room, RoundView};

#[derive(Debug, Clone)]
pub(crate) struct Choices {
    numbers: Vec<u8>,
    at: usize,
}

impl Choices {
    /// Always the simplest.
    pub(crate) fn simplest() -> Self {
        Self { numbers: vec![0], at: 0 }
    }

    /// One of `0..n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        let number = self.numbers[self.at % self.numbers.len()];
        self.at += 1;
        usize::from(number) % n
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) + 1 == n
    }
}

pub(crate) fn choices() -> impl Strategy<Value = Choices> {
    prop::collection::vec(any::<u8>(), 1..12).prop_map(|numbers| Choices { numbers, at: 0 })
}

/// Grants at will, sometimes more than there is or less often than asked.
pub(crate) struct Whim<'a>(pub(crate) &'a mut Choices);

impl DraftBudget for Whim<'_> {
    fn allot(&mut self, rounds: &[RoundView], room: Room, grants: &mut Vec<usize>) {
        assert!(grants.is_empty() && !rounds.is_empty());
        for round in rounds {
            if self.0.one_in(9) {
                return;
            }
            assert!(round.rows > 0 && round.nodes < round.remaining.max(1));
            grants.push(if self.0.one_in(4) { self.0.below(9) } else { round.nodes });
        }
        assert!(room.slots < 1 << 20);
    }

    fn invest(&mut self, round: &RoundView) -> bool {
        assert!(round.lane_gap > redline_scheduler::INLINE_FILL_MAX && round.nodes > 0);
        !self.0.one_in(3)
    }
}
