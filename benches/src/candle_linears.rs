//! candle's quantised linear layers, alone: the least that any model on candle can take for a pass.
//!
//! No attention, no norms: the model's matrices one after the other, each over rows of its width. So where redline is
//! faster than this, it is faster than candle, whatever else candle would have to do.

use std::fs::File;
use std::path::Path;

use anyhow::Context;
use candle_core::quantized::{QMatMul, gguf_file};
use candle_core::{Device, Module, Tensor};
use redline::gguf::Header;
use redline::model::Config;
use redline::{Batch, ModelInfo, ModelRunner, Rows, RunnerError};
use redline_kv_cache::{BlockCopy, LaneGeometry, SlotMove};

/// The matrices, in the order of a pass.
pub(crate) struct CandleLinears {
    info: ModelInfo,
    layers: Vec<Matrix>,
    head: Matrix,
}

struct Matrix {
    weights: QMatMul,
    inputs: usize,
}

impl CandleLinears {
    /// Reads a file's matrices by candle's own reader.
    pub(crate) fn open(path: &Path, header: &Header, config: &Config) -> anyhow::Result<Self> {
        let mut file = File::open(path)?;
        let content = gguf_file::Content::read(&mut file)?;
        let mut matrix = |name: &str| -> anyhow::Result<Matrix> {
            let inputs = header.tensors.get(name).and_then(|tensor| tensor.dims.first());
            let inputs = *inputs.with_context(|| format!("no tensor {name}"))? as usize;
            let weights = content.tensor(&mut file, name, &Device::Cpu)?;
            Ok(Matrix { weights: QMatMul::from_qtensor(weights)?, inputs })
        };
        let parts = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];
        let mut layers = Vec::new();
        for layer in 0..config.layers {
            for part in parts {
                layers.push(matrix(&format!("blk.{layer}.{part}.weight"))?);
            }
        }
        let tied = !header.tensors.contains_key("output.weight");
        let head = matrix(if tied { "token_embd.weight" } else { "output.weight" })?;
        let vocab = header.tensors.get("token_embd.weight").and_then(|tensor| tensor.dims.get(1));
        let info = ModelInfo {
            name: config.name.clone(),
            vocab_size: vocab.map_or(0, |&entries| entries as usize),
            logits: vocab.map_or(0, |&entries| entries as usize),
            context_length: config.context,
            hidden_size: config.width,
            lane: LaneGeometry {
                layers: config.layers as u32,
                kv_heads: config.kv_heads as u32,
                head_dim: config.head_dim as u32,
                element_bytes: 2,
            },
        };
        Ok(Self { info, layers, head })
    }
}

impl Matrix {
    fn multiply(&self, rows: usize) -> candle_core::Result<()> {
        // What is in it makes no difference to how long it takes.
        let x = Tensor::ones((rows, self.inputs), candle_core::DType::F32, &Device::Cpu)?;
        self.weights.forward(&x).map(drop)
    }
}

impl ModelRunner for CandleLinears {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn allocate(&mut self, _: u32, _: u32) -> Result<(), RunnerError> {
        Ok(())
    }

    /// Takes the time of a pass; there are no logits.
    fn forward(&mut self, batch: &Batch, out: &mut Rows) -> Result<(), RunnerError> {
        out.logits.clear();
        let (rows, wanted) = (batch.rows.len(), batch.want.len());
        let failed = |error: candle_core::Error| RunnerError::Other(error.into());
        for layer in &self.layers {
            layer.multiply(rows).map_err(failed)?;
        }
        if wanted > 0 {
            self.head.multiply(wanted).map_err(failed)?;
        }
        Ok(())
    }

    fn relocate(&mut self, _: &[BlockCopy], _: &[SlotMove]) -> Result<(), RunnerError> {
        Ok(())
    }
}
