//! What every round proposed and kept, seen from inside: the rule under audit, in a wrapper that takes notes.

use std::sync::{Arc, Mutex, PoisonError};

use redline_spec::{
    Drafter, DrawMode, Origin, Proposal, Round, TargetRows, TokenId, Verdict, Verifier, VerifyError,
};
use rustc_hash::FxHashMap;

/// One round of one request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RoundSeen {
    /// Committed tokens before it.
    pub(super) base: usize,
    /// Drafts on the longest path.
    pub(super) depth: usize,
    /// Drafts kept.
    pub(super) accepted: usize,
    /// What was offered below the root and below each node kept, as far down as something was.
    pub(super) levels: Vec<Level>,
}

/// The drafts that competed for one position.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Level {
    pub(super) origin: Origin,
    pub(super) tokens: Vec<TokenId>,
}

/// Notes of all rounds, by the seed of the request. Shared by the rule and the audit.
#[derive(Debug, Clone, Default)]
pub(super) struct RoundLog(Arc<Mutex<FxHashMap<u64, Vec<RoundSeen>>>>);

impl RoundLog {
    /// The rounds of the request with this seed, which are then forgotten.
    pub(super) fn take(&self, seed: u64) -> Vec<RoundSeen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&seed).unwrap_or_default()
    }

    fn add(&self, seed: u64, round: RoundSeen) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rounds = log.entry(seed).or_default();
        // A step that was taken back is run again.
        rounds.retain(|earlier| earlier.base < round.base);
        rounds.push(round);
    }
}

/// A rule that takes notes.
pub(super) struct Watched {
    pub(super) rule: Box<dyn Verifier>,
    pub(super) log: RoundLog,
}

impl Verifier for Watched {
    fn name(&self) -> &'static str {
        self.rule.name()
    }

    fn draw_mode(&self) -> DrawMode {
        self.rule.draw_mode()
    }

    fn takes_trees(&self) -> bool {
        self.rule.takes_trees()
    }

    fn admits(&self, drafter: &dyn Drafter) -> Result<(), VerifyError> {
        self.rule.admits(drafter)
    }

    fn takes(&self, proposal: &Proposal) -> Result<(), VerifyError> {
        self.rule.takes(proposal)
    }

    fn verify(
        &self,
        round: &Round<'_>,
        rows: &mut dyn TargetRows,
        verdict: &mut Verdict,
    ) -> Result<(), VerifyError> {
        self.rule.verify(round, rows, verdict)?;
        self.log.add(round.draws.seed, seen(round, &verdict.path));
        Ok(())
    }
}

fn seen(round: &Round<'_>, path: &[u32]) -> RoundSeen {
    let proposal = round.proposal;
    let level = |node: Option<u32>| {
        let token = |child| proposal.node(child).map(|node| node.token);
        let tokens = proposal.children(node).filter_map(token).collect();
        proposal.origin(node).map(|origin| Level { origin, tokens })
    };
    let stops = std::iter::once(None).chain(path.iter().copied().map(Some));
    RoundSeen {
        base: round.base as usize,
        depth: proposal.nodes().iter().map(|node| node.depth as usize).max().unwrap_or(0),
        accepted: path.len(),
        levels: stops.map_while(level).collect(),
    }
}

impl RoundSeen {
    /// The round as far as it lies within a text of `len` tokens: what a stop cut off says nothing about drafts.
    pub(super) fn within(mut self, len: usize) -> Self {
        let room = len.saturating_sub(self.base);
        if self.accepted >= room {
            self.accepted = room;
            self.levels.truncate(room);
            self.depth = self.depth.min(room);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redline_spec::Coupled;

    #[test]
    fn a_round_that_is_run_again_is_noted_once_and_a_cut_one_up_to_the_cut() {
        let log = RoundLog::default();
        let level = |token| Level { origin: Origin::PointMass, tokens: vec![token] };
        let round = |base, accepted| RoundSeen {
            base,
            depth: 3,
            accepted,
            levels: (0..=accepted.min(2) as u32).map(level).collect(),
        };
        for (base, accepted) in [(4, 0), (5, 2), (5, 1), (7, 3)] {
            log.add(1, round(base, accepted));
        }
        let rounds = log.take(1);
        assert_eq!(rounds, [round(4, 0), round(5, 1), round(7, 3)]);
        assert!(log.take(1).is_empty());
        // Three drafts and one token more from position 7: a text of 9 keeps two of the drafts.
        let cut = rounds[2].clone().within(9);
        assert_eq!((cut.accepted, cut.depth, cut.levels.len()), (2, 2, 2));
        assert_eq!(rounds[2].clone().within(11), rounds[2]);
        let rejected = rounds[1].clone().within(7);
        assert_eq!(rejected, rounds[1], "its own end, not a cut");
        let watched = Watched { rule: Box::new(Coupled), log };
        assert!(watched.takes_trees() && watched.name() == "coupled");
    }
}
