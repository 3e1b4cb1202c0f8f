//! [`Proposal`]: the drafts of one round, a token tree.

use crate::{Builder, Law, Scratch, TokenId};
use thiserror::Error;

/// How the children of a node were drawn. All children of one node are drawn the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Chosen without chance from this round's law: greedy drafts, n-grams, top-k trees. Such a
    /// node is *free*: it may be pruned on anything.
    PointMass,
    /// Drawn with the target's own noise ([`Draws::exponential`](crate::Draws::exponential)). Free
    /// too.
    Shared,
    /// Drawn from the law kept with the parent, in draw order. Once drawn, a node must be verified:
    /// dropping it because of what it is would bias the output.
    Sampled {
        /// Whether a token may be drawn twice among siblings. Without replacement, each draw is
        /// from the law renormalised over the tokens not yet drawn.
        replacement: bool,
    },
}

impl Origin {
    /// Whether nodes of this origin may be pruned.
    #[must_use]
    pub fn is_free(self) -> bool {
        !matches!(self, Self::Sampled { .. })
    }
}

/// One drafted token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The token.
    pub token: TokenId,
    /// The node before it; `None` is the last committed token (the *root*). Below its own index.
    pub parent: Option<u32>,
    /// Distance from the root: 1 for its children. The node's logical position is `n + depth − 1`.
    pub depth: u32,
    /// The next child of the same parent in draw order.
    next_sibling: Option<u32>,
}

/// What a node (or the root) has below it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Branch {
    origin: Option<Origin>,
    first: Option<u32>,
    last: Option<u32>,
    law: Option<Law>,
}

/// A token tree in parent order: a parent comes before its children. A chain is the narrow case, an
/// empty proposal is plain decoding.
///
/// Filled through [`Proposal::build`] and reused from round to round.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    nodes: Vec<Node>,
    /// Index 0 is the root, index i + 1 node i.
    branches: Vec<Branch>,
}

/// Why a proposal cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProposalError {
    /// More nodes than the round was granted.
    #[error("a draft tree may have {limit} nodes, not more")]
    Full {
        /// Nodes granted.
        limit: usize,
    },
    /// A parent that is not in the tree.
    #[error("draft node {parent} does not exist")]
    NoParent {
        /// The index given.
        parent: u32,
    },
    /// Children of one node must have one origin, and sampled ones are drawn in one go.
    #[error("the children of a draft node must be drawn one way, sampled ones at once")]
    MixedOrigins,
    /// The same token twice below one node, and not drawn with replacement.
    #[error("draft token {token} occurs twice below one node")]
    Duplicate {
        /// The token.
        token: TokenId,
    },
    /// A token outside the target's vocabulary.
    #[error("draft token {token} is outside the vocabulary of {vocab}")]
    OutOfVocabulary {
        /// The token.
        token: TokenId,
        /// Size of the vocabulary.
        vocab: usize,
    },
}

impl Default for Proposal {
    fn default() -> Self {
        Self { nodes: Vec::new(), branches: vec![Branch::default()] }
    }
}

impl Proposal {
    /// A proposal without drafts.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties the proposal and lets a builder fill it with at most `limit` nodes.
    pub fn build(&mut self, limit: usize) -> Builder<'_> {
        self.clear();
        Builder::new(self, limit)
    }

    /// Removes every node: the round becomes plain decoding. The only way to take back a sampled
    /// draft, and allowed only for reasons that do not look at the drafts (a step that ran out of
    /// memory, say).
    pub fn clear(&mut self) {
        self.nodes.clear();
        self.branches.clear();
        self.branches.push(Branch::default());
    }

    /// Empties the proposal like [`Proposal::clear`] and hands the buffers of its laws on.
    pub fn recycle(&mut self, scratch: &mut Scratch) {
        let laws = self.branches.iter_mut().filter_map(|branch| branch.law.take());
        laws.for_each(|law| scratch.recycle(law));
        self.clear();
    }

    /// Number of nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no draft.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Whether no node has two children.
    #[must_use]
    pub fn is_chain(&self) -> bool {
        self.nodes.iter().all(|node| node.next_sibling.is_none())
    }

    /// The nodes in parent order.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Node `index`, if there is one.
    #[must_use]
    pub fn node(&self, index: u32) -> Option<&Node> {
        self.nodes.get(index as usize)
    }

    /// Number of tokens between the root and the row of `node`: 0 for the root.
    #[must_use]
    pub fn depth(&self, node: Option<u32>) -> u32 {
        node.and_then(|n| self.node(n)).map_or(0, |n| n.depth)
    }

    /// The children of `parent` in draw order.
    pub fn children(&self, parent: Option<u32>) -> impl Iterator<Item = u32> + '_ {
        let first = self.branch(parent).and_then(|branch| branch.first);
        std::iter::successors(first, |&n| self.node(n).and_then(|node| node.next_sibling))
    }

    /// The child of `parent` that is `token`.
    #[must_use]
    pub fn child(&self, parent: Option<u32>, token: TokenId) -> Option<u32> {
        self.children(parent).find(|&n| self.node(n).is_some_and(|node| node.token == token))
    }

    /// How the children of `parent` were drawn; `None` if it has none.
    #[must_use]
    pub fn origin(&self, parent: Option<u32>) -> Option<Origin> {
        self.branch(parent).and_then(|branch| branch.origin)
    }

    /// The law from which the sampled children of `parent` were really drawn. The verifier uses
    /// this and never computes one itself.
    #[must_use]
    pub fn drawn_from(&self, parent: Option<u32>) -> Option<&Law> {
        self.branch(parent).and_then(|branch| branch.law.as_ref())
    }

    /// The tokens from the root to `node`, its own last, into `out`.
    pub fn path_tokens(&self, node: Option<u32>, out: &mut Vec<TokenId>) {
        out.clear();
        let step = |n: &Node| n.parent.and_then(|parent| self.node(parent));
        let up = std::iter::successors(node.and_then(|n| self.node(n)), |&n| step(n));
        out.extend(up.map(|n| n.token));
        out.reverse();
    }

    /// The nodes from the root down to `node`, itself last, into `out`: what its row attends to after
    /// the committed tokens.
    pub fn path_nodes(&self, node: u32, out: &mut Vec<u32>) {
        out.clear();
        let parent = |&n: &u32| self.node(n).and_then(|node| node.parent);
        out.extend(std::iter::successors(Some(node), parent));
        out.reverse();
    }

    /// Checks every token against the size of the target's vocabulary.
    ///
    /// # Errors
    /// [`ProposalError::OutOfVocabulary`] for the first token outside.
    pub fn check(&self, vocab: usize) -> Result<(), ProposalError> {
        match self.nodes.iter().find(|node| node.token as usize >= vocab) {
            Some(node) => Err(ProposalError::OutOfVocabulary { token: node.token, vocab }),
            None => Ok(()),
        }
    }

    /// Removes each free node for which `keep` is false, and all below it. `keep` sees the tokens
    /// from the root to the node, its own last, and is asked from the root downwards. A sampled
    /// node is never asked about; it goes only with a free ancestor, whose removal cannot depend on
    /// it. Indices close up.
    pub fn prune(&mut self, mut keep: impl FnMut(&[TokenId]) -> bool) {
        let mut moved: Vec<Option<u32>> = Vec::with_capacity(self.nodes.len());
        let mut kept = Self::default();
        let mut path = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let parent = match node.parent {
                None => None,
                Some(parent) => match moved[parent as usize] {
                    None => {
                        moved.push(None);
                        continue;
                    }
                    at => at,
                },
            };
            let branch = &self.branches[node.parent.map_or(0, |p| p as usize + 1)];
            self.path_tokens(Some(index as u32), &mut path);
            let stays = !branch.origin.is_some_and(Origin::is_free) || keep(&path);
            moved.push(stays.then(|| {
                let origin = branch.origin.unwrap_or(Origin::PointMass);
                if let Some(law) = branch.law.as_ref().filter(|_| kept.origin(parent).is_none()) {
                    kept.set_law(parent, law.clone());
                }
                kept.attach(parent, node.token, origin)
            }));
        }
        if kept.len() < self.len() {
            *self = kept;
        }
    }

    fn branch(&self, parent: Option<u32>) -> Option<&Branch> {
        self.branches.get(parent.map_or(0, |p| p as usize + 1))
    }

    /// Keeps the law that the children of `parent` are drawn from.
    pub(crate) fn set_law(&mut self, parent: Option<u32>, law: Law) {
        if let Some(branch) = self.branches.get_mut(parent.map_or(0, |p| p as usize + 1)) {
            branch.law = Some(law);
        }
    }

    /// Appends a child; the builder has checked that `parent` exists.
    pub(crate) fn attach(&mut self, parent: Option<u32>, token: TokenId, origin: Origin) -> u32 {
        let index = self.nodes.len() as u32;
        let depth = self.depth(parent) + 1;
        self.nodes.push(Node { token, parent, depth, next_sibling: None });
        self.branches.push(Branch::default());
        let mut elder = None;
        if let Some(branch) = self.branches.get_mut(parent.map_or(0, |p| p as usize + 1)) {
            branch.origin = Some(origin);
            branch.first.get_or_insert(index);
            elder = branch.last.replace(index);
        }
        if let Some(node) = elder.and_then(|e| self.nodes.get_mut(e as usize)) {
            node.next_sibling = Some(index);
        }
        index
    }
}
