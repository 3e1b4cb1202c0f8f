//! Mock drafters of every quality, and a real one. Those with a lane read and write it like a model.

use serde::{Deserialize, Serialize};

use redline_scheduler::{FillSpan, Lane, Sequence};
use redline_spec::{Builder, DrawMode, Law, Proposal, RoundDraws};

use super::jobs::Job;
use super::laws::{Laws, VOCAB};
use super::memory::{Memory, Read, View};
use super::rng::Rng;

/// The quality of a drafter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Never offers.
    None,
    /// Offers, then has nothing.
    Empty,
    /// Chains whose first token is wrong.
    Wrong,
    /// Chains that are right.
    Right,
    /// Random trees.
    Random,
    /// Offers far more than may be, and goes on until it is told to stop.
    Greedy,
    /// `spec`'s n-gram drafter.
    Ngram,
    /// Chains of what its lane says comes next: right, if its lane is.
    Perfect,
    /// Trees from its lane and laws that are more or less off.
    Sloppy,
}

impl Kind {
    pub(crate) const ALL: [Self; 9] = [
        Self::None,
        Self::Empty,
        Self::Wrong,
        Self::Right,
        Self::Random,
        Self::Greedy,
        Self::Ngram,
        Self::Perfect,
        Self::Sloppy,
    ];

    pub(crate) fn lane(self) -> Option<Lane> {
        match self {
            Self::Perfect => Some(Lane(1)),
            Self::Sloppy => Some(Lane(2)),
            _ => None,
        }
    }

    /// Whether all its drafts must be accepted.
    pub(crate) fn is_right(self) -> bool {
        matches!(self, Self::Right | Self::Perfect)
    }
}

/// What a drafter works with besides the memory.
pub(crate) struct Desk<'a> {
    pub(crate) job: &'a Job,
    pub(crate) laws: &'a Laws,
    /// How the verifier wants a law to be drawn from.
    pub(crate) mode: DrawMode,
    pub(crate) round: RoundDraws,
    pub(crate) rng: Rng,
    pub(crate) path: &'a mut Vec<u32>,
}

impl Desk<'_> {
    /// Proposes without a lane, at most `nodes` nodes.
    pub(crate) fn propose(&mut self, nodes: usize, proposal: &mut Proposal) {
        let builder = proposal.build(nodes);
        match self.job.kind {
            Kind::Right => self.right(builder, None),
            Kind::Wrong => self.wrong(builder),
            Kind::Random | Kind::Greedy => self.random(builder),
            _ => (),
        }
    }

    /// Does what a drafter with a lane does: fills it, then drafts from its last row. Returns how many leading nodes
    /// its lane holds.
    pub(crate) fn propose_from_lane(
        &mut self,
        memory: &mut Memory,
        (seq, fill): (&Sequence, &FillSpan),
        nodes: usize,
        proposal: &mut Proposal,
    ) -> usize {
        let view = View { table: seq.kv().table(), lane: fill.lane };
        let (tokens, end) = (seq.tokens(), fill.start + fill.len);
        let root = memory.feed(view, tokens, fill.start, end);
        if end < tokens.len() || nodes == 0 {
            return 0;
        }
        match self.job.kind {
            Kind::Perfect => {
                let lane = (&mut *memory, view, root, tokens.len());
                self.right(proposal.build(nodes), Some(lane))
            }
            _ => self.sloppy(proposal, nodes, (&mut *memory, view, root, tokens.len())),
        }
        // Who has children was fed, to draft them; the others need not be.
        let fed = proposal.nodes().iter().filter_map(|node| node.parent).max();
        let fed = fed.map_or(0, |parent| parent as usize + 1);
        let fed = self.rng.within(fed, proposal.len());
        for node in 0..fed {
            let lane = (tokens.len(), root);
            memory.feed_node(view, lane, proposal, node as u32, self.path);
        }
        fed
    }

    /// A chain drawn from the target's own laws: read in the lane, or known.
    fn right(
        &mut self,
        mut builder: Builder<'_>,
        mut lane: Option<(&mut Memory, View<'_>, Read, usize)>,
    ) {
        let (mut parent, mut read) = (None, self.job.plain);
        if let Some((_, _, root, _)) = lane {
            read = root;
        }
        while builder.room() > 0 {
            let law = self.laws.of(read, self.job.temperature).clone();
            let Ok(drawn) = builder.draw(parent, law, 1, self.mode, &self.round) else { return };
            let node = drawn.start;
            let token = builder.proposal().node(node).map_or(0, |node| node.token);
            read = match &mut lane {
                None => read.token(token),
                Some((memory, view, root, context)) => {
                    let tree = builder.proposal();
                    memory.feed_node(*view, (*context, *root), tree, node, self.path)
                }
            };
            parent = Some(node);
        }
    }

    /// A chain that cannot be accepted where the output is the plain run's.
    fn wrong(&mut self, mut builder: Builder<'_>) {
        let mut parent = None;
        let mut token = 1 - self.job.next(self.laws);
        while builder.room() > 0 {
            let Ok(node) = builder.point(parent, token) else { return };
            parent = Some(node);
            token = self.rng.below(VOCAB) as u32;
        }
    }

    /// Random tokens below random parents, until there is no room.
    fn random(&mut self, mut builder: Builder<'_>) {
        while builder.room() > 0 {
            let nodes = builder.proposal().len();
            let back = self.rng.below(nodes.min(3) + 1);
            let parent = (nodes > back).then(|| (nodes - 1 - back) as u32);
            let token = self.rng.below(VOCAB) as u32;
            let full = |parent| builder.proposal().children(parent).count() == VOCAB;
            if full(parent) {
                // The last node has no child yet.
                let _ = builder.point(nodes.checked_sub(1).map(|last| last as u32), token);
            } else if builder.point(parent, token).is_err() {
                let _ = builder.point(parent, 1 - token);
            }
        }
        let parent = builder.proposal().len().checked_sub(1).map(|last| last as u32);
        assert!(builder.point(parent, 0).is_err(), "the builder takes more than was granted");
    }

    /// A tree from the lane, drawn the verifier's way or another, from laws right and wrong.
    fn sloppy(
        &mut self,
        proposal: &mut Proposal,
        nodes: usize,
        (memory, view, root, context): (&mut Memory, View<'_>, Read, usize),
    ) {
        let mut builder = proposal.build(nodes);
        let mut parent = None;
        while builder.room() > 0 {
            let read = match parent {
                None => root,
                Some(node) => {
                    let tree = builder.proposal();
                    memory.feed_node(view, (context, root), tree, node, self.path)
                }
            };
            let law = self.law(read);
            let width = self.rng.within(1, 2);
            let mode = self.mode();
            if builder.draw(parent, law, width, mode, &self.round).is_err() {
                return;
            }
            // Every node has a child or more, so the next one in order exists.
            parent = Some(parent.map_or(0, |node| node + 1));
            if self.rng.one_in(6) {
                return;
            }
        }
    }

    fn law(&mut self, read: Read) -> Law {
        match self.rng.below(4) {
            0 => self.laws.of(read.token(0), self.job.temperature).clone(),
            1 => self.laws.of(read.token(1), super::laws::Temperature::High).clone(),
            _ => self.laws.of(read, self.job.temperature).clone(),
        }
    }

    fn mode(&mut self) -> DrawMode {
        match self.rng.below(4) {
            0 => DrawMode::Point,
            1 => DrawMode::Sampled { replacement: self.rng.one_in(2) },
            _ => self.mode,
        }
    }
}
