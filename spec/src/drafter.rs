//! [`Drafter`]: whatever guesses the next tokens.

use crate::{
    Constraint, DrawMode, Draws, History, LawError, Place, Proposal, ProposalError, Sampling,
    TokenId,
};
use std::ops::Range;
use thiserror::Error;

/// Proposes tokens for sequences of a batch.
///
/// To write one: implement `name`, `offer`, `propose` and `forget`; leave the rest at its default
/// unless the drafter keeps a KV cache of its own. Nothing a drafter does can change the output
/// law, only the speed. Within a step the engine calls `offer` for each running sequence, plans,
/// then calls `propose` once with all jobs, and after verification `observe` for each sequence.
///
/// * Tokens chosen without looking at chance go in by [`Builder::point`](crate::Builder::point).
/// * Drawn tokens go in by [`Builder::draw`](crate::Builder::draw), which draws them the way the
///   verifier wants, from a law made with [`law()`](crate::law()) out of the job's own sampling
///   parameters.
/// * A drafter must never filter what it has sampled, and must take its randomness from the job's
///   draws only.
pub trait Drafter: Send {
    /// Name, as in `-d`.
    fn name(&self) -> &str;

    /// Whether it may give a node several children. A verifier that takes chains only refuses such
    /// a drafter at start ([`Verifier::admits`](crate::Verifier::admits)).
    fn draws_trees(&self) -> bool {
        false
    }

    /// What the drafter needs if it keeps KV of its own in the engine's blocks; `None` for a
    /// drafter that costs no model pass.
    fn lane(&self) -> Option<LaneNeed> {
        None
    }

    /// Tells a drafter with a lane how many blocks there are, and how many tokens each holds.
    ///
    /// # Errors
    /// If it cannot allocate its cache.
    fn attach(&mut self, blocks: u32, block_size: u32) -> Result<(), DraftError> {
        let _ = (blocks, block_size);
        Ok(())
    }

    /// Copies slots within the drafter's own lane, in order: copy-on-write and tree compaction.
    ///
    /// # Errors
    /// If the copy fails; the step is abandoned.
    fn relocate(&mut self, ops: &[CopyOp]) -> Result<(), DraftError> {
        let _ = ops;
        Ok(())
    }

    /// How many tokens the drafter could propose for `seq` now; 0 for none. `tokens` are all its
    /// committed ones. Must be cheap: it is asked every step, before budgets are given.
    fn offer(&mut self, seq: u64, tokens: &[TokenId]) -> usize;

    /// Drafts for every job. `out` has one slot per job, each an empty proposal to fill with at
    /// most `budget` nodes, or to replace by an error: a bad job fails alone.
    fn propose(&mut self, jobs: &[DraftJob<'_>], out: &mut [Result<Proposal, DraftError>]);

    /// After [`Drafter::propose`]: for how many leading draft nodes of job `job` the drafter's own
    /// lane now holds KV.
    fn fed(&self, job: usize) -> usize {
        let _ = job;
        0
    }

    /// After [`Drafter::propose`]: whether the drafter's own lane now holds KV of draft node `node` of
    /// job `job`, in the slot that the node has in the target's batch. To be told node by node
    /// where it is not the leading ones: of a tree, a drafter need not feed every node.
    fn holds(&self, job: usize, node: u32) -> bool {
        (node as usize) < self.fed(job)
    }

    /// Tells what became of a round: all committed tokens, how many nodes were proposed and how
    /// many of them are among the committed ones.
    fn observe(&mut self, seq: u64, tokens: &[TokenId], drafted: usize, accepted: usize) {
        let _ = (seq, tokens, drafted, accepted);
    }

    /// Drops everything kept for `seq`.
    fn forget(&mut self, seq: u64);
}

/// One sequence's turn in [`Drafter::propose`].
#[derive(Clone)]
pub struct DraftJob<'a> {
    /// The sequence.
    pub seq: u64,
    /// All its committed tokens. The first drafted token will have position `tokens.len()`.
    pub tokens: &'a [TokenId],
    /// Nodes to propose at most.
    pub budget: usize,
    /// Where the nodes are to go; at most `budget` places, empty for a chain. Sampled nodes have to
    /// keep to it: it is chosen without looking at what they are.
    pub shape: &'a [Place],
    /// How the verifier wants a law to be drawn from.
    pub mode: DrawMode,
    /// The sample's random numbers; `draws.round(tokens.len())` are those of this round.
    pub draws: Draws,
    /// The request's sampling parameters.
    pub sampling: &'a Sampling,
    /// Counts of the committed tokens.
    pub history: &'a History,
    /// The constraint after the committed tokens, to be forked along a draft path.
    pub constraint: Option<&'a dyn Constraint>,
    /// Tokens that end the text: nothing behind one of them can be accepted.
    pub ends: &'a [TokenId],
    /// The sequence's block table, for a drafter with a lane.
    pub table: &'a [u32],
    /// Tokens to feed into the drafter's own lane in this step. Empty without a lane. If it ends
    /// below `tokens.len()`, the lane is still catching up and nothing is drafted.
    pub fill: Range<usize>,
}

/// KV cache that a drafter needs: its lane in the engine's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneNeed {
    /// Layers with a cache.
    pub layers: u32,
    /// Key/value heads per layer.
    pub kv_heads: u32,
    /// Numbers per head.
    pub head_dim: u32,
    /// Bytes per number.
    pub element_bytes: u32,
    /// Positions the drafter can hold.
    pub max_context: usize,
    /// How the lane is filled.
    pub fill: Fill,
}

/// How a lane is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// From the tokens alone, whenever it is worth it.
    Lazy,
    /// With hidden rows of the target's own pass: cannot be caught up later.
    WithTarget,
}

/// Slots to copy within a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyOp {
    /// Block to read.
    pub from_block: u32,
    /// First slot in it.
    pub from_slot: u32,
    /// Block to write.
    pub to_block: u32,
    /// First slot in it.
    pub to_slot: u32,
    /// Number of slots.
    pub slots: u32,
}

/// Why a drafter has no proposal for a job.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum DraftError {
    /// The drafter's own row is not a law.
    #[error("the drafter's law is unusable: {0}")]
    Law(#[from] LawError),
    /// The drafter built an invalid tree.
    #[error(transparent)]
    Proposal(#[from] ProposalError),
    /// A pass over several jobs failed. Nothing is wrong with the requests: they go on without drafts in this step.
    #[error("a draft pass failed: {0}")]
    Pass(String),
    /// Anything else, in the words of the drafter. The request fails.
    #[error("the drafter failed: {0}")]
    Failed(String),
}
