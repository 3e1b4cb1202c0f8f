//! Small models with random weights, built in code: for tests that need a real model and no file.

use std::collections::BTreeMap;

use candle_core::quantized::QTensor;
use candle_core::{Device, Tensor as Candle};

use super::config::{Architecture, Config};
use super::load::Tensor;
use super::requantise::candle_type;
use super::rope::Rope;
use crate::gguf::TensorType;
use crate::kernels::AlignedBytes;
use crate::model_runner::{CpuRunner, RunOptions};

/// What a random model looks like. The default runs a token in microseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Tiny {
    /// Family.
    pub architecture: Architecture,
    /// How matrices are stored. K-quants need `width`, `ffn` and `heads * head_dim` to be multiples
    /// of 256.
    pub dtype: TensorType,
    /// Transformer blocks.
    pub layers: usize,
    /// Size of a hidden row.
    pub width: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Values of a head.
    pub head_dim: usize,
    /// Size of the feed-forward's inner row.
    pub ffn: usize,
    /// Entries of the vocabulary.
    pub vocab: usize,
    /// Positions.
    pub context: usize,
    /// Whether the embedding is the head too.
    pub tied: bool,
    /// The weights are a function of this and of `noise`.
    pub seed: u64,
    /// How far the weights are from those of the same seed without noise: a draft model that agrees
    /// with its target more (0.1) or less (1.0) often.
    pub noise: f32,
}

impl Default for Tiny {
    fn default() -> Self {
        Self {
            architecture: Architecture::Llama,
            dtype: TensorType::F32,
            layers: 2,
            width: 64,
            heads: 4,
            kv_heads: 2,
            head_dim: 16,
            ffn: 128,
            vocab: 256,
            context: 4096,
            tied: false,
            seed: 1,
            noise: 0.0,
        }
    }
}

/// A tiny model that can't be built.
#[derive(Debug, thiserror::Error)]
pub enum TinyError {
    /// Quantising failed (a shape that the type can't hold).
    #[error("quantising {name}: {source}")]
    Quantise {
        /// The tensor.
        name: String,
        /// candle's error.
        source: candle_core::Error,
    },
    /// Loading failed.
    #[error(transparent)]
    Load(#[from] super::LoadError),
}

impl Tiny {
    /// The model, ready to run.
    ///
    /// # Errors
    /// [`TinyError`] if the sizes don't fit the type.
    pub fn build(&self, options: RunOptions) -> Result<CpuRunner, TinyError> {
        Ok(CpuRunner::build(self.config(), &mut self.tensors()?, options)?)
    }

    /// Its hyper-parameters.
    pub fn config(&self) -> Config {
        Config {
            architecture: self.architecture,
            name: format!("tiny-{}-{}", self.architecture.name(), self.seed),
            layers: self.layers,
            width: self.width,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            ffn: self.ffn,
            context: self.context,
            norm_eps: 1e-5,
            rope: Rope::plain(self.head_dim, 10_000.0),
        }
    }

    /// Its tensors, as a file would hold them.
    ///
    /// # Errors
    /// [`TinyError::Quantise`] if the sizes don't fit the type.
    pub fn tensors(&self) -> Result<BTreeMap<String, Tensor>, TinyError> {
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let mut all = BTreeMap::new();
        let mut add = |name: String, dims: &[usize], dtype: TensorType| -> Result<(), TinyError> {
            let tensor = self.tensor(&name, dims, dtype)?;
            all.insert(name, tensor);
            Ok(())
        };
        add("token_embd.weight".into(), &[self.width, self.vocab], self.dtype)?;
        add("output_norm.weight".into(), &[self.width], TensorType::F32)?;
        if !self.tied {
            add("output.weight".into(), &[self.width, self.vocab], self.dtype)?;
        }
        for i in 0..self.layers {
            let matrices = [
                ("attn_q", self.width, q),
                ("attn_k", self.width, kv),
                ("attn_v", self.width, kv),
                ("attn_output", q, self.width),
                ("ffn_gate", self.width, self.ffn),
                ("ffn_up", self.width, self.ffn),
                ("ffn_down", self.ffn, self.width),
            ];
            for (part, input, output) in matrices {
                add(format!("blk.{i}.{part}.weight"), &[input, output], self.dtype)?;
                let is_qkv = matches!(part, "attn_q" | "attn_k" | "attn_v");
                if is_qkv && self.architecture.needs_qkv_bias() {
                    add(format!("blk.{i}.{part}.bias"), &[output], TensorType::F32)?;
                }
            }
            for norm in ["attn_norm", "ffn_norm"] {
                add(format!("blk.{i}.{norm}.weight"), &[self.width], TensorType::F32)?;
            }
            if self.architecture.has_qk_norm() {
                for norm in ["attn_q_norm", "attn_k_norm"] {
                    add(format!("blk.{i}.{norm}.weight"), &[self.head_dim], TensorType::F32)?;
                }
            }
        }
        Ok(all)
    }

    fn tensor(&self, name: &str, dims: &[usize], dtype: TensorType) -> Result<Tensor, TinyError> {
        let values = self.values(name, dims);
        let fail = |source| TinyError::Quantise { name: name.to_owned(), source };
        let bytes = if dtype == TensorType::F32 {
            AlignedBytes::from(
                values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>().as_slice(),
            )
        } else {
            let shape: Vec<usize> = dims.iter().rev().copied().collect();
            let dense = Candle::from_vec(values, shape, &Device::Cpu).map_err(fail)?;
            let quantised = QTensor::quantize(&dense, candle_type(dtype)).map_err(fail)?;
            AlignedBytes::from(&*quantised.data().map_err(fail)?)
        };
        Ok(Tensor { name: name.to_owned(), dims: dims.to_vec(), dtype, bytes })
    }

    /// Norms around 1, everything else around 0, sized so that activations keep theirs and logits
    /// differ clearly.
    fn values(&self, name: &str, dims: &[usize]) -> Vec<f32> {
        let is_norm = name.contains("norm");
        let scale = match dims {
            _ if is_norm => 0.1,
            [_] => 0.3,
            [_, _] if name == "token_embd.weight" => 1.0,
            [_, _] if name == "output.weight" => 3.0 / (self.width as f32).sqrt(),
            [input, ..] => 1.5 / (*input as f32).sqrt(),
            [] => 0.0,
        };
        let mut base = Noise::new(self.seed, name);
        let mut other = Noise::new(!self.seed, name);
        let keep = 1.0 / (1.0 + self.noise * self.noise).sqrt();
        (0..dims.iter().product())
            .map(|_| (base.next() + self.noise * other.next()) * keep * scale)
            .map(|x| if is_norm { 1.0 + x } else { x })
            .collect()
    }
}

/// SplitMix64, four uniform numbers added up: close enough to normal, of variance 1.
struct Noise(u64);

impl Noise {
    fn new(seed: u64, name: &str) -> Self {
        // FNV-1a over the name, so that every tensor has its own stream.
        let hash = name.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(hash)
    }

    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        let sum: f32 = (0..4).map(|i| (z >> (16 * i) & 0xffff) as f32 / 65_536.0 - 0.5).sum();
        sum * 3f32.sqrt()
    }
}
