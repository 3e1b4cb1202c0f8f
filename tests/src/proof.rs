//! A target that proves every row it computes: its logits have the bits of a fresh prefill of the tokens that the row
//! sees. Nothing stale, foreign, lost or misplaced in the KV cache can hide from that.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redline::{
    BLOCK_SIZE, Batch, CpuRunner, ModelInfo, ModelRunner, Rows, RunOptions, RunnerError,
};
use redline_kv_cache::{BlockCopy, BlockId, SlotMove};

use crate::rig::{model, tiny};
use crate::shadow::Shadow;

/// The tiny target, proving.
pub struct Proving {
    inner: CpuRunner,
    reference: Box<dyn ModelRunner>,
    shadow: Shadow,
    blocks: u32,
    /// Overwrites every block that is in no table of a batch with NaN beforehand. For engines in which all that hold
    /// blocks are in every batch: no prefix cache, room for everybody.
    pub poison: bool,
    /// Rows that were proved.
    pub proved: Arc<AtomicUsize>,
}

impl Proving {
    /// The target of the rig.
    pub fn new() -> Self {
        Self {
            inner: tiny(0.0).build(RunOptions { threads: 1, ..RunOptions::default() }).unwrap(),
            reference: model(0.0, 1),
            shadow: Shadow::default(),
            blocks: 0,
            poison: false,
            proved: Arc::default(),
        }
    }

    /// The last row of `tokens`, computed from nothing.
    fn afresh(&mut self, tokens: &[u32]) -> Vec<f32> {
        let blocks = (tokens.len() as u32).div_ceil(BLOCK_SIZE);
        let table: Vec<_> = (0..blocks).map(BlockId).collect();
        let (mut batch, mut rows) = (Batch::default(), Rows::default());
        batch.push_seq(&table);
        for (position, &token) in tokens.iter().enumerate() {
            batch.push_row(token, position as u32);
        }
        batch.want.push(tokens.len() as u32 - 1);
        self.reference.forward(&batch, &mut rows).unwrap();
        rows.logits
    }
}

impl Default for Proving {
    fn default() -> Self {
        Self::new()
    }
}

impl ModelRunner for Proving {
    fn info(&self) -> &ModelInfo {
        self.inner.info()
    }

    fn allocate(&mut self, blocks: u32, block_size: u32) -> Result<(), RunnerError> {
        self.shadow = Shadow::new(blocks, block_size);
        self.blocks = blocks;
        self.reference.allocate(blocks, block_size)?;
        self.inner.allocate(blocks, block_size)
    }

    fn forward(&mut self, batch: &Batch, out: &mut Rows) -> Result<(), RunnerError> {
        if self.poison {
            let free = (0..self.blocks).filter(|&block| !batch.tables.contains(&BlockId(block)));
            free.for_each(|block| self.inner.poison(block));
        }
        self.inner.forward(batch, out)?;
        self.shadow.write(batch);
        let vocab = self.info().vocab_size;
        for (at, &row) in batch.want.iter().enumerate() {
            let row = &batch.rows[row as usize];
            let seen = self.shadow.context(batch, row).expect("a row sees an unwritten slot");
            let fresh = self.afresh(&seen);
            let found = out.row(at, vocab);
            assert!(found.iter().all(|logit| logit.is_finite()), "a row of {seen:?} is not finite");
            assert!(bits(found).eq(bits(&fresh)), "a row of {seen:?} is another computed afresh");
            self.proved.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn relocate(&mut self, copies: &[BlockCopy], moves: &[SlotMove]) -> Result<(), RunnerError> {
        self.shadow.relocate(copies, moves);
        self.inner.relocate(copies, moves)
    }
}

fn bits(row: &[f32]) -> impl Iterator<Item = u32> {
    row.iter().map(|logit| logit.to_bits())
}
