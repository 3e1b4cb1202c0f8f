//! A simulator of the scheduler over a mock model: random arrivals, cancels, preemption, failures,
//! drafters; audited at every step; every output compared with the plain run.
pub(crate) mod draft;
pub(crate) mod memory;
pub(crate) mod rng;
mod world;

pub(crate) use world::World;

use redline_scheduler::{DraftBudget, Room, RoundView, Scan, SeqId, StopRule, TokenId};
use rng::Rng;
use std::collections::BTreeMap;

/// A request and what is known about it.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) prompt: Vec<TokenId>,
    /// The most it will generate.
    pub(crate) count: usize,
    pub(crate) stop_after: Option<usize>,
    pub(crate) kind: draft::Kind,
    pub(crate) generated: Vec<TokenId>,
}

#[derive(Debug, Default)]
pub(crate) struct Jobs(pub(crate) BTreeMap<SeqId, Job>);

impl StopRule for Jobs {
    fn scan(&mut self, seq: SeqId, token: TokenId) -> Scan {
        let job = self.0.get_mut(&seq).unwrap();
        job.generated.push(token);
        let stop = job.stop_after == Some(job.generated.len());
        if stop { Scan::Stop } else { Scan::Go }
    }
}

/// Grants anything, too much of it included.
pub(crate) struct Whim<'a>(pub(crate) &'a mut Rng);

impl DraftBudget for Whim<'_> {
    fn allot(&mut self, rounds: &[RoundView], room: Room, grants: &mut Vec<usize>) {
        assert!(grants.is_empty());
        for round in rounds {
            assert!(round.nodes < round.remaining && round.rows == 1);
            grants.push(match self.0.below(4) {
                0 => 0,
                1 => room.slots + round.nodes + 1,
                _ => round.nodes,
            });
        }
        if self.0.one_in(16) {
            grants.pop();
        }
    }

    fn invest(&mut self, round: &RoundView) -> bool {
        assert!(round.nodes > 0 && round.lane_gap > redline_scheduler::INLINE_FILL_MAX);
        !self.0.one_in(3)
    }
}
