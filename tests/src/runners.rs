//! [`ModelRunner`]s that fail, spoil rows, or are no model at all.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redline::{Batch, ModelInfo, ModelRunner, Rows, RunnerError, TokenId};
use redline_kv_cache::{BlockCopy, LaneGeometry, SlotMove};

use crate::shadow::Shadow;

fn other(message: String) -> RunnerError {
    RunnerError::Other(message.into())
}

/// Counts calls, takes its time, and fails when told to.
pub struct Watched {
    inner: Box<dyn ModelRunner>,
    /// Passes so far, failed ones included.
    pub passes: Arc<AtomicUsize>,
    /// Calls of `relocate` with something to do, failed ones included.
    pub relocations: Arc<AtomicUsize>,
    /// Rows of each pass that was done.
    pub rows: Arc<Mutex<Vec<usize>>>,
    /// How long a pass takes on top.
    pub delay: Duration,
    /// Whether pass number `n` (from 1) fails.
    pub fails: Box<dyn Fn(usize) -> bool + Send>,
    /// Whether relocation number `n` (from 1) fails.
    pub relocation_fails: Box<dyn Fn(usize) -> bool + Send>,
}

impl Watched {
    /// Watches `inner`; nothing fails yet.
    pub fn new(inner: Box<dyn ModelRunner>) -> Self {
        Self {
            inner,
            passes: Arc::default(),
            relocations: Arc::default(),
            rows: Arc::default(),
            delay: Duration::ZERO,
            fails: Box::new(|_| false),
            relocation_fails: Box::new(|_| false),
        }
    }
}

impl ModelRunner for Watched {
    fn info(&self) -> &ModelInfo {
        self.inner.info()
    }

    fn allocate(&mut self, blocks: u32, block_size: u32) -> Result<(), RunnerError> {
        self.inner.allocate(blocks, block_size)
    }

    fn forward(&mut self, batch: &Batch, out: &mut Rows) -> Result<(), RunnerError> {
        let pass = self.passes.fetch_add(1, Ordering::Relaxed) + 1;
        std::thread::sleep(self.delay);
        if (self.fails)(pass) {
            return Err(other(format!("pass {pass} was told to fail")));
        }
        self.rows.lock().unwrap().push(batch.rows.len());
        self.inner.forward(batch, out)
    }

    fn relocate(&mut self, copies: &[BlockCopy], moves: &[SlotMove]) -> Result<(), RunnerError> {
        if !copies.is_empty() || !moves.is_empty() {
            let call = self.relocations.fetch_add(1, Ordering::Relaxed) + 1;
            if (self.relocation_fails)(call) {
                return Err(other(format!("relocation {call} was told to fail")));
            }
        }
        self.inner.relocate(copies, moves)
    }
}

/// What every logit of a row is set to, given the tokens that the row sees.
type SpoilWith = Box<dyn Fn(&[TokenId]) -> Option<f32> + Send>;

/// Overwrites rows of the inner model's logits.
pub struct Spoilt {
    inner: Box<dyn ModelRunner>,
    shadow: Shadow,
    with: SpoilWith,
}

impl Spoilt {
    /// Overwrites each row for whose context `with` has a value.
    pub fn new(
        inner: Box<dyn ModelRunner>,
        with: impl Fn(&[TokenId]) -> Option<f32> + Send + 'static,
    ) -> Self {
        Self { inner, shadow: Shadow::default(), with: Box::new(with) }
    }
}

impl ModelRunner for Spoilt {
    fn info(&self) -> &ModelInfo {
        self.inner.info()
    }

    fn allocate(&mut self, blocks: u32, block_size: u32) -> Result<(), RunnerError> {
        self.shadow = Shadow::new(blocks, block_size);
        self.inner.allocate(blocks, block_size)
    }

    fn forward(&mut self, batch: &Batch, out: &mut Rows) -> Result<(), RunnerError> {
        self.inner.forward(batch, out)?;
        self.shadow.write(batch);
        let vocab = self.info().vocab_size;
        for (row, logits) in batch.want.iter().zip(out.logits.chunks_mut(vocab)) {
            let context = self.shadow.context(batch, &batch.rows[*row as usize]);
            let context = context.ok_or_else(|| other("a row sees an unwritten slot".into()))?;
            if let Some(value) = (self.with)(&context) {
                logits.fill(value);
            }
        }
        Ok(())
    }

    fn relocate(&mut self, copies: &[BlockCopy], moves: &[SlotMove]) -> Result<(), RunnerError> {
        self.shadow.relocate(copies, moves);
        self.inner.relocate(copies, moves)
    }
}

/// Fills a row of logits, given the tokens that the row sees.
type Logits = Box<dyn FnMut(&[TokenId], &mut [f32]) + Send>;

/// No model: logits are a function of the tokens that a row sees through its block table.
pub struct Table {
    info: ModelInfo,
    shadow: Shadow,
    logits: Logits,
}

impl Table {
    /// A target of `vocab` entries and `context` positions.
    pub fn new(
        vocab: usize,
        context: usize,
        logits: impl FnMut(&[TokenId], &mut [f32]) + Send + 'static,
    ) -> Self {
        let info = ModelInfo {
            name: "table".to_owned(),
            vocab_size: vocab,
            logits: vocab,
            context_length: context,
            hidden_size: 1,
            lane: LaneGeometry { layers: 1, kv_heads: 1, head_dim: 1, element_bytes: 4 },
        };
        Self { info, shadow: Shadow::default(), logits: Box::new(logits) }
    }
}

impl ModelRunner for Table {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn allocate(&mut self, blocks: u32, block_size: u32) -> Result<(), RunnerError> {
        self.shadow = Shadow::new(blocks, block_size);
        Ok(())
    }

    fn forward(&mut self, batch: &Batch, out: &mut Rows) -> Result<(), RunnerError> {
        self.shadow.write(batch);
        let vocab = self.info.vocab_size;
        out.logits.clear();
        out.logits.resize(batch.want.len() * vocab, 0.0);
        for (row, logits) in batch.want.iter().zip(out.logits.chunks_mut(vocab)) {
            let context = self.shadow.context(batch, &batch.rows[*row as usize]);
            let context = context.ok_or_else(|| other("a row sees an unwritten slot".into()))?;
            (self.logits)(&context, logits);
        }
        Ok(())
    }

    fn relocate(&mut self, copies: &[BlockCopy], moves: &[SlotMove]) -> Result<(), RunnerError> {
        self.shadow.relocate(copies, moves);
        Ok(())
    }
}
