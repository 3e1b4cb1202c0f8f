//! The independent pass: one set of weights, computed once more without anything the engine adds.
//!
//! A model under audit and the reader beside it share weights, not caches: the runner gets a few blocks more than the
//! engine asked for, which only the reader knows. It feeds a finished text in order, a plain chain at its own
//! positions: no speculation, no prefix cache, no scheduler, no block table but its own.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redline_kv_cache::{BlockCopy, BlockId, SlotMove};
use redline_spec::TokenId;

use crate::loader::BLOCK_SIZE;
use crate::runner::{Batch, ModelInfo, ModelRunner, Rows, RunnerError};

/// Rows whose logits are held at a time.
pub(super) const CHUNK: usize = 32;

/// Rows fed at a time whose logits nobody wants.
const FEED: usize = 128;

struct Inner {
    runner: Box<dyn ModelRunner>,
    /// Blocks that the engine has; the reader's come behind them.
    engine_blocks: Option<u32>,
}

/// The runner the engine gets.
pub(super) struct Audited {
    info: ModelInfo,
    inner: Arc<Mutex<Inner>>,
    reader_blocks: u32,
}

/// Predictions along texts, in a cache of its own.
pub(super) struct Reader {
    info: ModelInfo,
    inner: Arc<Mutex<Inner>>,
    /// Tokens whose keys and values are there.
    held: Vec<TokenId>,
    capacity: usize,
    batch: Batch,
    rows: Rows,
}

/// A runner for the engine and a reader of texts up to `tokens` long, over the same weights.
pub(super) fn split(runner: Box<dyn ModelRunner>, tokens: usize) -> (Audited, Reader) {
    let info = runner.info().clone();
    let inner = Arc::new(Mutex::new(Inner { runner, engine_blocks: None }));
    let reader_blocks = tokens.div_ceil(BLOCK_SIZE as usize) as u32;
    let reader = Reader {
        info: info.clone(),
        inner: Arc::clone(&inner),
        held: Vec::new(),
        capacity: tokens,
        batch: Batch::default(),
        rows: Rows::default(),
    };
    (Audited { info, inner, reader_blocks }, reader)
}

/// A panic inside the runner ends the audit; nobody goes on with what it left.
fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ModelRunner for Audited {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn allocate(&mut self, blocks: u32, block_size: u32) -> Result<(), RunnerError> {
        let mut inner = lock(&self.inner);
        inner.engine_blocks = None;
        inner.runner.allocate(blocks.saturating_add(self.reader_blocks), block_size)?;
        inner.engine_blocks = Some(blocks);
        Ok(())
    }

    fn forward(&mut self, batch: &Batch, out: &mut Rows) -> Result<(), RunnerError> {
        lock(&self.inner).runner.forward(batch, out)
    }

    fn relocate(&mut self, copies: &[BlockCopy], moves: &[SlotMove]) -> Result<(), RunnerError> {
        lock(&self.inner).runner.relocate(copies, moves)
    }
}

impl Reader {
    /// The longest text it can read.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Entries of a row of logits, padding included.
    pub(super) fn width(&self) -> usize {
        self.info.logits
    }

    /// The logits after `text[..i]` for each i of `after`, at most [`CHUNK`] of them. What it already holds of the
    /// text, from reading another with the same beginning, is not computed again.
    ///
    /// # Errors
    /// [`RunnerError`] if the pass fails.
    pub(super) fn read(
        &mut self,
        text: &[TokenId],
        after: Range<usize>,
    ) -> Result<(), RunnerError> {
        let (first, end) = (after.start.saturating_sub(1), after.end.saturating_sub(1));
        let same = self.held.iter().zip(text).take_while(|(a, b)| a == b).count();
        self.held.truncate(same.min(first));
        while self.held.len() < end {
            let at = self.held.len();
            let wanted = at >= first;
            let until = if wanted { end } else { first.min(at + FEED) };
            self.feed(&text[at..until], wanted)?;
        }
        Ok(())
    }

    /// Row `i` of the last [`Self::read`].
    pub(super) fn logits(&self, i: usize) -> &[f32] {
        self.rows.row(i, self.info.logits)
    }

    fn feed(&mut self, tokens: &[TokenId], wanted: bool) -> Result<(), RunnerError> {
        let mut inner = lock(&self.inner);
        let first = inner.engine_blocks.ok_or(RunnerError::NotAllocated)?;
        let at = self.held.len();
        let blocks = (at + tokens.len()).div_ceil(BLOCK_SIZE as usize) as u32;
        let table: Vec<BlockId> = (first..first + blocks).map(BlockId).collect();
        self.batch.clear();
        self.batch.push_seq(&table);
        for (position, &token) in (at as u32..).zip(tokens) {
            // A draft model may lack what its target says; the drafter feeds it the same stand-in.
            let known = (token as usize) < self.info.vocab_size;
            let row = self.batch.push_row(if known { token } else { 0 }, position);
            if wanted {
                self.batch.want.push(row);
            }
        }
        inner.runner.forward(&self.batch, &mut self.rows)?;
        self.held.extend_from_slice(tokens);
        Ok(())
    }
}
