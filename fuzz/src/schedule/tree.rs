//! Token trees that the bytes grow and cut, and what grants them.

use arbitrary::Unstructured;
use redline_kv_cache::BlockId;
use redline_scheduler::{DraftBudget, INLINE_FILL_MAX, Lane, Outcome, Room, RoundView, TokenId};

use super::memory::{Memory, Read};
use super::world::pick;

/// A token tree in parent order.
#[derive(Default)]
pub(super) struct Tree {
    tokens: Vec<TokenId>,
    parents: Vec<Option<usize>>,
    /// Leading nodes that the drafter fed to its own lane.
    fed: usize,
}

impl Tree {
    pub(super) fn grow(bytes: &mut Unstructured<'_>, nodes: usize) -> Self {
        let mut tree = Self::default();
        for i in 0..nodes {
            tree.tokens.push(pick(bytes, 2) as TokenId);
            let back = pick(bytes, i.min(3) + 1);
            tree.parents.push((i > back).then(|| i - 1 - back));
        }
        tree
    }

    pub(super) fn nodes(&self) -> usize {
        self.tokens.len()
    }

    /// Writes the nodes to a lane from slot `context` on; `slots` are reserved.
    pub(super) fn write(
        &self,
        memory: &mut Memory,
        (table, slots): (&[BlockId], usize),
        (context, nodes): (usize, usize),
        (lane, root): (Lane, Read),
    ) {
        let mut reads: Vec<Read> = Vec::new();
        for i in 0..nodes {
            let before = self.parents[i].map_or(root, |parent| reads[parent]);
            let value = before.value(self.tokens[i]);
            assert!(context + i < slots, "a draft without a slot");
            memory.at(table, context + i)[lane.index()] = value;
            reads.push(before.slot(value));
        }
    }

    /// The drafter's own pass, over as many leading nodes as the bytes say.
    pub(super) fn feed(
        &mut self,
        bytes: &mut Unstructured<'_>,
        memory: &mut Memory,
        place: (&[BlockId], usize),
        (context, lane, root): (usize, Lane, Read),
    ) {
        self.fed = pick(bytes, self.nodes() + 1);
        self.write(memory, place, (context, self.fed), (lane, root));
    }

    /// Any path of the tree, and any token after it.
    pub(super) fn outcome(&self, bytes: &mut Unstructured<'_>) -> Outcome {
        let (mut path, mut tokens, mut at) = (Vec::new(), Vec::new(), None);
        loop {
            let from = at.map_or(0, |node| node + 1);
            let children = (from..self.nodes()).filter(|&node| self.parents[node] == at);
            let children: Vec<usize> = children.collect();
            let Some(chosen) = pick(bytes, children.len() + 1).checked_sub(1) else { break };
            at = Some(children[chosen]);
            path.push(children[chosen] as u32);
            tokens.push(self.tokens[children[chosen]]);
        }
        tokens.push(pick(bytes, 2) as TokenId);
        Outcome::Round { path, tokens, draft_fed: self.fed }
    }
}

/// Grants anything: nothing, too little, too much, to too few.
pub(super) struct Whim<'a, 'b>(pub(super) &'a mut Unstructured<'b>);

impl DraftBudget for Whim<'_, '_> {
    fn allot(&mut self, rounds: &[RoundView], _: Room, grants: &mut Vec<usize>) {
        assert!(grants.is_empty(), "grants come empty");
        for round in rounds {
            assert!(round.nodes < round.remaining && round.rows == 1, "{round:?}");
            grants.push(match pick(self.0, 4) {
                0 => 0,
                1 => round.nodes,
                2 => pick(self.0, round.nodes + 1),
                _ => usize::MAX,
            });
        }
        if pick(self.0, 8) == 7 {
            grants.pop();
        }
    }

    fn invest(&mut self, round: &RoundView) -> bool {
        assert!(round.nodes > 0 && round.lane_gap > INLINE_FILL_MAX, "{round:?}");
        pick(self.0, 2) == 1
    }
}
