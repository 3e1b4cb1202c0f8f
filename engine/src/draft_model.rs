//! The `draft_model` drafter: a small model that runs ahead of the target.
//!
//! Its KV is a lane of the target's blocks: same block ids, same tables, tensors of its own. A proposal is
//! made in passes batched over sequences: the first feeds what the lane lacks (a *fill* of the plan, which ends
//! at the last committed token), each further one the tokens just drafted, of those sequences that want more.
//! Budgets differ per sequence, so the batch narrows as it goes. The last token drafted is not fed: if it is
//! accepted, the next round's fill makes up for it.

use redline_kv_cache::{BlockCopy, BlockId, SlotMove};
use redline_spec::{
    Builder, Constraint, CopyOp, DraftError, DraftJob, Drafter, Fill, LaneNeed, LawError, Position,
    Proposal, Scratch, TokenId, law,
};
use tracing::debug_span;

use crate::runner::{Batch, ModelRunner, Rows, RunnerError};

/// A [`Drafter`] over any [`ModelRunner`] whose tokens are the target's.
pub struct DraftModel {
    name: String,
    runner: Box<dyn ModelRunner>,
    /// Entries that both vocabularies have; the draft's padding is never proposed.
    vocab: usize,
    batch: Batch,
    table: Vec<BlockId>,
    rows: Rows,
    scratch: Scratch,
    fed: Vec<usize>,
}

/// One job on its way through the passes.
struct Chain<'j, 'p> {
    job: usize,
    builder: Builder<'p>,
    /// The tokens drafted so far.
    path: Vec<TokenId>,
    /// The node they end at.
    node: Option<u32>,
    constraint: Option<Box<dyn Constraint>>,
    source: &'j DraftJob<'j>,
}

impl DraftModel {
    /// A drafter called `name` for a target whose first `shared` tokens are the draft's too. That they are is the
    /// loader's to check.
    pub fn new(name: &str, runner: Box<dyn ModelRunner>, shared: usize) -> Self {
        let vocab = runner.info().vocab_size.min(shared);
        Self {
            name: name.to_owned(),
            runner,
            vocab,
            batch: Batch::default(),
            table: Vec::new(),
            rows: Rows::default(),
            scratch: Scratch::default(),
            fed: Vec::new(),
        }
    }

    /// Feeds every job's fill; wants a row of each that goes on to draft.
    fn feed_fills(&mut self, jobs: &[DraftJob<'_>]) -> Result<(), RunnerError> {
        self.batch.clear();
        for job in jobs.iter().filter(|job| !job.fill.is_empty()) {
            push_seq(&mut self.batch, job, &mut self.table);
            for position in job.fill.clone() {
                // The target may say what the draft has no entry for; anything may stand in for it,
                // since a draft can be wrong but may not fail.
                let token = job.tokens[position];
                let known = (token as usize) < self.runner.info().vocab_size;
                self.batch.push_row(if known { token } else { 0 }, position as u32);
            }
            if drafts(job) {
                self.batch.want.push(self.batch.rows.len() as u32 - 1);
            }
        }
        self.forward()
    }

    /// Feeds the last token of every chain, which is drafted but not committed.
    fn feed_drafts(&mut self, chains: &[Chain<'_, '_>]) -> Result<(), RunnerError> {
        self.batch.clear();
        for chain in chains {
            let position = chain.source.tokens.len() + chain.path.len() - 1;
            let token = chain.path.last().copied().unwrap_or_default();
            push_seq(&mut self.batch, chain.source, &mut self.table);
            let row = self.batch.push_row(token, position as u32);
            self.batch.want.push(row);
            self.fed[chain.job] += 1;
        }
        self.forward()
    }

    fn forward(&mut self) -> Result<(), RunnerError> {
        let _span = debug_span!("draft_forward", rows = self.batch.rows.len()).entered();
        self.runner.forward(&self.batch, &mut self.rows)
    }

    /// Draws the next token of each chain from its row; a chain whose row is no law ends with an error.
    fn draw(&mut self, chains: &mut Vec<Chain<'_, '_>>, failed: &mut Vec<(usize, DraftError)>) {
        let mut row = 0;
        let stride = self.runner.info().vocab_size;
        let Self { rows, scratch, vocab, .. } = self;
        chains.retain_mut(|chain| {
            let logits = rows.row(row, stride).get(..*vocab).unwrap_or_default();
            row += 1;
            match chain.extend(logits, scratch) {
                Ok(more) => more,
                Err(error) => {
                    failed.push((chain.job, error));
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
        let mut chains: Vec<Chain<'_, '_>> = Vec::new();
        for (index, (job, slot)) in jobs.iter().zip(out).enumerate() {
            if let (true, Ok(proposal)) = (drafts(job), slot) {
                chains.push(Chain {
                    job: index,
                    builder: proposal.build(job.budget),
                    path: Vec::with_capacity(job.budget),
                    node: None,
                    constraint: job.constraint.map(|constraint| constraint.fork()),
                    source: job,
                });
            }
        }
        while !chains.is_empty() {
            self.draw(&mut chains, failed);
            if !chains.is_empty() {
                self.feed_drafts(&chains)?;
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

impl Chain<'_, '_> {
    /// Draws one token. `Ok(true)` if the chain goes on.
    fn extend(&mut self, logits: &[f32], scratch: &mut Scratch) -> Result<bool, DraftError> {
        let at = Position {
            sampling: self.source.sampling,
            history: self.source.history,
            path: &self.path,
            constraint: self.constraint.as_deref(),
        };
        // Where the constraint leaves the draft nothing, or can't tell, the chain ends: that judges no draft, and the
        // target may well not come this way.
        let law = match law(logits, &at, scratch) {
            Err(LawError::NoMass | LawError::Constraint(_)) if self.constraint.is_some() => {
                return Ok(false);
            }
            law => law?,
        };
        let round = self.source.draws.round(self.source.tokens.len() as u64);
        let drawn = self.builder.draw(self.node, law, 1, self.source.mode, &round)?;
        let Some(node) = drawn.last() else { return Ok(false) };
        let Some(token) = self.builder.proposal().node(node).map(|node| node.token) else {
            return Ok(false);
        };
        self.node = Some(node);
        self.path.push(token);
        // Stopping behind a drawn token is always allowed; it will be verified.
        let ended = self.source.ends.contains(&token)
            || self
                .constraint
                .as_mut()
                .is_some_and(|constraint| constraint.advance(token).is_err());
        Ok(!ended && self.path.len() < self.source.budget)
    }
}

impl Drafter for DraftModel {
    fn name(&self) -> &str {
        &self.name
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
        self.fed.clear();
        self.fed.resize(jobs.len(), 0);
        let mut failures = Vec::new();
        if let Err(error) = self.run(jobs, out, &mut failures) {
            // The pass served them all, so they all go without; what the lanes hold is not known.
            self.fed.fill(0);
            failures.clear();
            let pass = DraftError::Pass(error.to_string());
            failures.extend((0..jobs.len()).map(|job| (job, pass.clone())));
        }
        for (job, error) in failures {
            out[job] = Err(error);
        }
    }

    fn fed(&self, job: usize) -> usize {
        self.fed.get(job).copied().unwrap_or(0)
    }

    fn forget(&mut self, _seq: u64) {}
}

fn failed(error: impl std::fmt::Display) -> DraftError {
    DraftError::Failed(error.to_string())
}
