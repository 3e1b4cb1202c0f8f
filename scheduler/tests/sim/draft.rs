//! Mock drafters of every quality. Those with a lane read and write it like a model.
use super::memory::{Memory, Read};
use super::rng::Rng;
use redline_scheduler::{FillSpan, Lane, Sequence, TokenId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Never offers.
    None,
    /// Random trees, no lane.
    Random,
    /// What its lane says comes next: always right, if its lane is.
    Perfect,
    /// The same, wrong now and then, in trees.
    Sloppy,
}

impl Kind {
    pub(crate) fn pick(rng: &mut Rng) -> Self {
        [Self::None, Self::Random, Self::Perfect, Self::Sloppy][rng.below(4)]
    }

    pub(crate) fn lane(self) -> Option<Lane> {
        match self {
            Self::None | Self::Random => None,
            Self::Perfect => Some(Lane(1)),
            Self::Sloppy => Some(Lane(2)),
        }
    }
}

/// A token tree in parent order.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) parents: Vec<Option<usize>>,
    /// Leading nodes that the drafter fed to its own lane.
    pub(crate) fed: usize,
}

impl Tree {
    /// Random parents, random tokens.
    fn random(nodes: usize, rng: &mut Rng) -> Self {
        let mut tree = Self::default();
        for i in 0..nodes {
            tree.tokens.push(rng.below(2) as TokenId);
            let back = rng.below(i.min(3) + 1);
            tree.parents.push((i > back).then(|| i - 1 - back));
        }
        tree
    }

    /// Does what a drafter with a lane does: fills, then drafts `nodes` nodes from its last row.
    pub(crate) fn from_lane(
        memory: &mut Memory,
        seq: &Sequence,
        fill: &FillSpan,
        nodes: usize,
        (kind, rng): (Kind, &mut Rng),
    ) -> Self {
        let (table, lane) = (seq.kv().table(), fill.lane);
        let mut read = memory.read(table, fill.start, lane);
        for slot in fill.start..fill.start + fill.len {
            let value = read.value(seq.tokens()[slot]);
            memory.at(table, slot)[lane.index()] = value;
            read = read.slot(value);
        }
        let context = seq.tokens().len();
        if fill.start + fill.len < context {
            return Self::default();
        }
        let mut tree = match kind {
            Kind::Perfect => Self::default(),
            _ => Self::random(nodes, rng),
        };
        // The last node need not be fed to draft it.
        tree.fed = rng.within(nodes.saturating_sub(1), nodes);
        let mut reads: Vec<Read> = Vec::new();
        for i in 0..nodes {
            if kind == Kind::Perfect {
                tree.parents.push(i.checked_sub(1));
                tree.tokens.push(reads.last().unwrap_or(&read).next_token());
            }
            let before = tree.parents[i].map_or(read, |parent| reads[parent]);
            if kind == Kind::Sloppy && !rng.one_in(4) {
                tree.tokens[i] = before.next_token();
            }
            let value = before.value(tree.tokens[i]);
            reads.push(before.slot(value));
            if i < tree.fed {
                memory.at(table, context + i)[lane.index()] = value;
            }
        }
        tree
    }

    pub(crate) fn without_lane(nodes: usize, rng: &mut Rng) -> Self {
        Self::random(nodes, rng)
    }
}
