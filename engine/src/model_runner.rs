//! [`ModelRunner`] over a transformer and an implementation of its operations.

use std::path::Path;

use candle_core::Device;
use redline_kv_cache::{BlockCopy, SlotMove};

use crate::cores;
use crate::gguf::Header;
use crate::kernels::Level;
use crate::kv_store::CacheType;
use crate::model::load::{FileSource, LoadError, TensorSource, build};
use crate::model::ops::Ops;
use crate::model::transformer::{Buffers, Transformer};
use crate::model::{CandleOps, Config, CpuOps};
use crate::runner::{Batch, ModelInfo, ModelRunner, Rows, RunnerError};

/// How a model is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunOptions {
    /// Threads of the kernels; one per core that this process may use, unless said.
    pub threads: usize,
    /// Instruction set; `None` takes the best there is. All give the same bits.
    pub level: Option<Level>,
    /// How keys and values are stored.
    pub cache: CacheType,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { threads: cores::physical(), level: None, cache: CacheType::F16 }
    }
}

/// A model that runs on some implementation of the operations.
pub struct Runner<O: Ops> {
    info: ModelInfo,
    model: Transformer<O>,
    ops: O,
    buffers: Buffers<O>,
}

/// A model on our own CPU kernels: quantised weights as in the file, promise P1.
pub type CpuRunner = Runner<CpuOps>;

/// A model on candle, on any device it has: weights as f32. The second implementation, and the
/// oracle that the kernels are tested against.
pub type CandleRunner = Runner<CandleOps>;

impl<O: Ops> std::fmt::Debug for Runner<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner").field("info", &self.info).finish_non_exhaustive()
    }
}

impl CpuRunner {
    /// Loads a GGUF file.
    ///
    /// # Errors
    /// [`LoadError`] naming the field, key or tensor.
    pub fn open(path: &Path, options: RunOptions) -> Result<Self, LoadError> {
        let (header, file) = Header::open(path)?;
        Self::load(&header, file, options)
    }

    /// Loads the weights of a file whose header has been scanned.
    ///
    /// # Errors
    /// [`LoadError`] naming the key or tensor.
    pub fn load(
        header: &Header,
        file: std::fs::File,
        options: RunOptions,
    ) -> Result<Self, LoadError> {
        let config = Config::from_header(header)?;
        Self::build(config, &mut FileSource::new(header, file), options)
    }

    /// A model out of its hyper-parameters and tensors.
    ///
    /// # Errors
    /// [`LoadError`] naming the tensor.
    pub fn build(
        config: Config,
        source: &mut dyn TensorSource,
        options: RunOptions,
    ) -> Result<Self, LoadError> {
        let level = options.level.unwrap_or_else(Level::detect);
        let ops = CpuOps::new(level, options.threads, options.cache).map_err(LoadError::Threads)?;
        Self::over(ops, config, source)
    }

    /// Overwrites a block of the cache with NaN, so that reading it shows. For debug builds and
    /// tests.
    pub fn poison(&mut self, block: u32) {
        if let Some(store) = self.ops.store_mut().filter(|s| block < s.blocks()) {
            store.poison(block);
        }
    }
}

impl CandleRunner {
    /// A model out of its hyper-parameters and tensors, on a device.
    ///
    /// # Errors
    /// [`LoadError`] naming the tensor.
    pub fn build(
        config: Config,
        source: &mut dyn TensorSource,
        device: &Device,
        cache: CacheType,
    ) -> Result<Self, LoadError> {
        Self::over(CandleOps::new(device.clone(), cache), config, source)
    }
}

impl<O: Ops> Runner<O> {
    fn over(mut ops: O, config: Config, source: &mut dyn TensorSource) -> Result<Self, LoadError> {
        let model = build(config, source, &mut ops)?;
        let info = ModelInfo {
            name: model.config.name.clone(),
            vocab_size: model.vocab,
            logits: model.outputs,
            context_length: model.config.context,
            hidden_size: model.config.width,
            lane: ops.lane(&model.config),
        };
        Ok(Self { info, model, ops, buffers: Buffers::default() })
    }

    /// The model's hyper-parameters.
    pub fn config(&self) -> &Config {
        &self.model.config
    }
}

impl<O: Ops> ModelRunner for Runner<O> {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn allocate(&mut self, blocks: u32, block_size: u32) -> Result<(), RunnerError> {
        if !block_size.is_power_of_two() {
            return Err(RunnerError::BlockSize(block_size));
        }
        self.ops.allocate(&self.model.config, blocks, block_size)
    }

    fn forward(&mut self, batch: &Batch, out: &mut Rows) -> Result<(), RunnerError> {
        let (blocks, block_size) = self.ops.blocks().ok_or(RunnerError::NotAllocated)?;
        batch.check(&self.info, blocks, block_size)?;
        let rows = batch.rows.len();
        let _span = tracing::trace_span!("pass", model = self.info.name, rows).entered();
        self.model.forward(&mut self.ops, batch, &mut self.buffers, out)
    }

    fn relocate(&mut self, copies: &[BlockCopy], moves: &[SlotMove]) -> Result<(), RunnerError> {
        let (blocks, size) = self.ops.blocks().ok_or(RunnerError::NotAllocated)?;
        let is_block = |b: redline_kv_cache::BlockId| b.0 < blocks;
        let copy = copies.iter().find(|c| !is_block(c.from) || !is_block(c.to) || c.slots > size);
        let slot = moves.iter().find(|m| {
            !is_block(m.from_block) || !is_block(m.to_block) || m.from_slot.max(m.to_slot) >= size
        });
        if copy.is_some() || slot.is_some() {
            let what = copy.map_or_else(|| format!("{slot:?}"), |c| format!("{c:?}"));
            return Err(RunnerError::Relocate { what, blocks });
        }
        self.ops.relocate(copies, moves)
    }
}
