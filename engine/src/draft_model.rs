//! The `draft_model` drafter: a small model that runs ahead of the target.
//!
//! Its KV is a lane of the target's blocks: same block ids, same tables, tensors of its own. A proposal is
//! made in passes batched over sequences: the first feeds what the lane lacks (a *fill* of the plan, which ends
//! at the last committed token), each further one those nodes of the level just drafted that are to have children.
//! Budgets differ per sequence, so the batch narrows as it goes. A node is fed into the slot that it has in the
//! target's batch, so what is accepted moves with the target's. Leaves are not fed: if one is accepted, the
//! next round's fill makes up for it.

use redline_kv_cache::{BlockCopy, BlockId, SlotMove};
use redline_spec::{
    CopyOp, DraftError, DraftJob, Drafter, Fill, LaneNeed, Proposal, Scratch, TokenId, VocabMap,
};
use tracing::debug_span;

use crate::draft_tree::{Growth, RowReader};
use crate::kernels::Level;
use crate::runner::{Batch, ModelRunner, Rows, RunnerError};

/// A [`Drafter`] over any [`ModelRunner`] whose tokens are the target's, in its order or another.
pub struct DraftModel {
    name: String,
    runner: Box<dyn ModelRunner>,
    /// Entries that both vocabularies have; the draft's padding is never proposed.
    shared: usize,
    map: Option<VocabMap>,
    trees: bool,
    batch: Batch,
    table: Vec<BlockId>,
    rows: Rows,
    mapped: Vec<f32>,
    scratch: Scratch,
    /// The draft nodes of each job that were fed, ascending.
    fed: Vec<Vec<u32>>,
}

impl DraftModel {
    /// A drafter called `name` for a target whose first `shared` tokens are the draft's too. That they are is the
    /// loader's to check. Proposes chains. If the head was cut to other tokens than the first, a map has to say so.
    pub fn new(name: &str, runner: Box<dyn ModelRunner>, shared: usize) -> Self {
        let shared = runner.info().logits.min(shared);
        Self {
            name: name.to_owned(),
            runner,
            shared,
            map: None,
            trees: false,
            batch: Batch::default(),
            table: Vec::new(),
            rows: Rows::default(),
            mapped: Vec::new(),
            scratch: Scratch::with_math(Level::detect().row_math()),
            fed: Vec::new(),
        }
    }

    /// The same drafter, which proposes trees where it is given the shape of one.
    #[must_use]
    pub fn with_trees(self) -> Self {
        Self { trees: true, ..self }
    }

    /// The same drafter, for a target whose tokens are the draft's by this map.
    #[must_use]
    pub fn with_map(self, map: VocabMap) -> Self {
        Self { map: Some(map), ..self }
    }

    /// What the model is fed for a token of the target's. The target may say what the draft has no entry for;
    /// anything may stand in for it, since a draft can be wrong but may not fail.
    fn fed_as(&self, token: TokenId) -> u32 {
        let own = match &self.map {
            Some(map) => map.to_draft(token),
            None => Some(token),
        };
        own.filter(|&own| (own as usize) < self.runner.info().vocab_size).unwrap_or(0)
    }

    /// Feeds every job's fill; wants a row of each that goes on to draft.
    fn feed_fills(&mut self, jobs: &[DraftJob<'_>]) -> Result<(), RunnerError> {
        self.batch.clear();
        for job in jobs.iter().filter(|job| !job.fill.is_empty()) {
            push_seq(&mut self.batch, job, &mut self.table);
            for position in job.fill.clone() {
                let token = self.fed_as(job.tokens[position]);
                self.batch.push_row(token, position as u32);
            }
            if drafts(job) {
                self.batch.want.push(self.batch.rows.len() as u32 - 1);
            }
        }
        self.forward()
    }

    /// Feeds the nodes of every tree that are to have children.
    fn feed_drafts(
        &mut self,
        trees: &[Growth<'_, '_>],
        jobs: &[DraftJob<'_>],
    ) -> Result<(), RunnerError> {
        let mut batch = std::mem::take(&mut self.batch);
        let mut fed = std::mem::take(&mut self.fed);
        batch.clear();
        for tree in trees {
            push_seq(&mut batch, &jobs[tree.job], &mut self.table);
            tree.feed(&mut batch, &mut fed[tree.job], |token| self.fed_as(token));
        }
        (self.batch, self.fed) = (batch, fed);
        self.forward()
    }

    fn forward(&mut self) -> Result<(), RunnerError> {
        let _span = debug_span!("draft_forward", rows = self.batch.rows.len()).entered();
        self.runner.forward(&self.batch, &mut self.rows)
    }

    /// Draws the next level of each tree from its rows; a tree one of whose rows is no law ends with an error.
    fn draw(&mut self, trees: &mut Vec<Growth<'_, '_>>, failed: &mut Vec<(usize, DraftError)>) {
        let stride = self.runner.info().logits;
        let Self { rows, scratch, shared, map, mapped, .. } = self;
        let (shared, map) = (*shared, map.as_ref());
        let mut first = 0;
        trees.retain_mut(|tree| {
            let mut rows = RowReader { rows, stride, shared, map, mapped, next: first };
            first += tree.rows();
            match tree.extend(&mut rows, scratch) {
                Ok(more) => more,
                Err(error) => {
                    failed.push((tree.job, error));
                    false
                }
            }
        });
    }

    fn run(
        &mut self,
        jobs: &[DraftJob<'_>],
        out: &mut [Result<Proposal, DraftError>],
        failed: &mut Vec<(usize, DraftError)>,
    ) -> Result<(), RunnerError> {
        self.feed_fills(jobs)?;
        let mut trees: Vec<Growth<'_, '_>> = Vec::new();
        for (index, (job, slot)) in jobs.iter().zip(out).enumerate() {
            if let (true, Ok(proposal)) = (drafts(job), slot) {
                trees.push(Growth::new(index, job, proposal));
            }
        }
        while !trees.is_empty() {
            self.draw(&mut trees, failed);
            if !trees.is_empty() {
                self.feed_drafts(&trees, jobs)?;
            }
        }
        Ok(())
    }
}

/// Whether a job drafts in this step, or only fills its lane.
fn drafts(job: &DraftJob<'_>) -> bool {
    job.budget > 0 && !job.fill.is_empty() && job.fill.end == job.tokens.len()
}

fn push_seq(batch: &mut Batch, job: &DraftJob<'_>, table: &mut Vec<BlockId>) {
    table.clear();
    table.extend(job.table.iter().map(|&block| BlockId(block)));
    batch.push_seq(table);
}

impl Drafter for DraftModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn draws_trees(&self) -> bool {
        self.trees
    }

    fn lane(&self) -> Option<LaneNeed> {
        let info = self.runner.info();
        Some(LaneNeed {
            layers: info.lane.layers,
            kv_heads: info.lane.kv_heads,
            head_dim: info.lane.head_dim,
            element_bytes: info.lane.element_bytes,
            max_context: info.context_length,
            fill: Fill::Lazy,
        })
    }

    fn attach(&mut self, blocks: u32, block_size: u32) -> Result<(), DraftError> {
        self.runner.allocate(blocks, block_size).map_err(failed)
    }

    fn relocate(&mut self, ops: &[CopyOp]) -> Result<(), DraftError> {
        for op in ops {
            // Whole prefixes of a block are copies on write, single slots are tree compaction.
            let done = if op.from_slot == 0 && op.to_slot == 0 && op.from_block != op.to_block {
                let (from, to) = (BlockId(op.from_block), BlockId(op.to_block));
                self.runner.relocate(&[BlockCopy { from, to, slots: op.slots }], &[])
            } else {
                let moves: Vec<SlotMove> = (0..op.slots)
                    .map(|slot| SlotMove {
                        from_block: BlockId(op.from_block),
                        from_slot: op.from_slot + slot,
                        to_block: BlockId(op.to_block),
                        to_slot: op.to_slot + slot,
                    })
                    .collect();
                self.runner.relocate(&[], &moves)
            };
            done.map_err(failed)?;
        }
        Ok(())
    }

    fn offer(&mut self, _seq: u64, _tokens: &[TokenId]) -> usize {
        usize::MAX
    }

    fn propose(&mut self, jobs: &[DraftJob<'_>], out: &mut [Result<Proposal, DraftError>]) {
        self.fed.resize_with(jobs.len().max(self.fed.len()), Vec::new);
        self.fed.iter_mut().for_each(Vec::clear);
        let mut failures = Vec::new();
        if let Err(error) = self.run(jobs, out, &mut failures) {
            // The pass served them all, so they all go without; what the lanes hold is not known.
            self.fed.iter_mut().for_each(Vec::clear);
            failures.clear();
            let pass = DraftError::Pass(error.to_string());
            failures.extend((0..jobs.len()).map(|job| (job, pass.clone())));
        }
        for (job, error) in failures {
            out[job] = Err(error);
        }
    }

    fn holds(&self, job: usize, node: u32) -> bool {
        self.fed.get(job).is_some_and(|fed| fed.binary_search(&node).is_ok())
    }

    fn forget(&mut self, _seq: u64) {}
}

fn failed(error: impl std::fmt::Display) -> DraftError {
    DraftError::Failed(error.to_string())
}
