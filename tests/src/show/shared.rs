//! One set of weights for many engines.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redline::{Batch, ModelInfo, ModelRunner, Rows, RunnerError};
use redline_kv_cache::{BlockCopy, SlotMove};

/// A runner that can be given away several times. One engine or scorer at a time: making the next one replaces the
/// KV cache of the one before.
#[derive(Clone)]
pub(crate) struct SharedRunner {
    info: ModelInfo,
    runner: Arc<Mutex<Box<dyn ModelRunner>>>,
}

impl SharedRunner {
    pub(crate) fn new(runner: Box<dyn ModelRunner>) -> Self {
        Self { info: runner.info().clone(), runner: Arc::new(Mutex::new(runner)) }
    }

    fn lock(&self) -> MutexGuard<'_, Box<dyn ModelRunner>> {
        // A panic inside the runner ends the whole check; nothing goes on with what it left.
        self.runner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ModelRunner for SharedRunner {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn allocate(&mut self, blocks: u32, block_size: u32) -> Result<(), RunnerError> {
        self.lock().allocate(blocks, block_size)
    }

    fn forward(&mut self, batch: &Batch, out: &mut Rows) -> Result<(), RunnerError> {
        self.lock().forward(batch, out)
    }

    fn relocate(&mut self, copies: &[BlockCopy], moves: &[SlotMove]) -> Result<(), RunnerError> {
        self.lock().relocate(copies, moves)
    }
}
