//! What a GGUF file's metadata says about a model.

use super::LoadError;
use super::rope::Rope;
use crate::gguf::{GgufError, Header};
use crate::kernels::vector::Pairing;

/// Model families that redline runs. They share one forward pass; the differences are data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// llama, mistral, smollm and others stored as `llama`.
    Llama,
    /// qwen 2 and 2.5: biases on q, k, v.
    Qwen2,
    /// qwen 3: norms on q and k heads.
    Qwen3,
}

impl Architecture {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Llama, Self::Qwen2, Self::Qwen3];

    /// `general.architecture`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
        }
    }

    /// How rotary embedding pairs values.
    pub const fn pairing(self) -> Pairing {
        match self {
            Self::Llama => Pairing::Neighbours,
            Self::Qwen2 | Self::Qwen3 => Pairing::Halves,
        }
    }

    /// Whether q and k heads are normed before the rotation.
    pub const fn has_qk_norm(self) -> bool {
        matches!(self, Self::Qwen3)
    }

    /// Whether q, k, v must have biases. (Where they need not, they may.)
    pub const fn needs_qkv_bias(self) -> bool {
        matches!(self, Self::Qwen2)
    }
}

/// A model's hyper-parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Family.
    pub architecture: Architecture,
    /// `general.name`, or the architecture.
    pub name: String,
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
    /// Positions the model was made for.
    pub context: usize,
    /// Added to the mean square in norms.
    pub norm_eps: f32,
    /// Rotary embedding.
    pub rope: Rope,
}

/// Keys whose presence (other than 0) means a model computes something that redline does not.
const REFUSED: [(&str, &str); 8] = [
    ("expert_count", "mixture of experts"),
    ("attention.sliding_window", "sliding-window attention"),
    ("attn_logit_softcapping", "attention soft-capping"),
    ("final_logit_softcapping", "logit soft-capping"),
    ("logit_scale", "logit scaling"),
    ("embedding_scale", "embedding scaling"),
    ("residual_scale", "residual scaling"),
    ("attention.scale", "a custom attention scale"),
];

impl Config {
    /// Reads the hyper-parameters.
    ///
    /// # Errors
    /// [`LoadError`] naming the missing or unsupported key.
    pub fn from_header(h: &Header) -> Result<Self, LoadError> {
        let arch: &str = h.require("general.architecture")?;
        let architecture = Architecture::ALL
            .into_iter()
            .find(|a| a.name() == arch)
            .ok_or_else(|| LoadError::Architecture { name: arch.to_owned() })?;
        for (key, what) in REFUSED {
            let key = format!("{arch}.{key}");
            if h.metadata.get(&key).is_some_and(|v| v.int() != Some(0)) {
                return Err(LoadError::Unsupported { key, what: what.to_owned() });
            }
        }
        let positive = |name: &str| -> Result<usize, LoadError> {
            let key = format!("{arch}.{name}");
            let value = h.require::<u32>(&key)? as usize;
            if value == 0 { Err(bad(&key, "is 0")) } else { Ok(value) }
        };
        let width = positive("embedding_length")?;
        let heads = positive("attention.head_count")?;
        let kv_heads = match h.get::<u32>(&format!("{arch}.attention.head_count_kv"))? {
            Some(n) => n as usize,
            None => heads,
        };
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            let key = format!("{arch}.attention.head_count_kv");
            return Err(bad(&key, "does not divide the number of heads"));
        }
        let head_dim = head_dim(h, arch, width, heads)?;
        let config = Self {
            architecture,
            name: h.get::<&str>("general.name")?.unwrap_or(arch).to_owned(),
            layers: positive("block_count")?,
            width,
            heads,
            kv_heads,
            head_dim,
            ffn: positive("feed_forward_length")?,
            context: positive("context_length")?,
            norm_eps: h.require(&format!("{arch}.attention.layer_norm_rms_epsilon"))?,
            rope: Rope::from_header(h, arch, head_dim)?,
        };
        Ok(config)
    }
}

fn head_dim(h: &Header, arch: &str, width: usize, heads: usize) -> Result<usize, LoadError> {
    let key = format!("{arch}.attention.key_length");
    let head_dim = match h.get::<u32>(&key)? {
        Some(n) => n as usize,
        None if width.is_multiple_of(heads) => width / heads,
        None => {
            return Err(bad(&format!("{arch}.attention.head_count"), "does not divide the width"));
        }
    };
    if head_dim == 0 || head_dim > 1 << 12 {
        return Err(bad(&key, "is not in 1..=4096"));
    }
    let value_key = format!("{arch}.attention.value_length");
    if h.get::<u32>(&value_key)?.is_some_and(|n| n as usize != head_dim) {
        let what = "values of another size than keys".to_owned();
        return Err(LoadError::Unsupported { key: value_key, what });
    }
    Ok(head_dim)
}

/// An error about a metadata value.
pub(super) fn bad(key: &str, problem: &'static str) -> LoadError {
    LoadError::Key { key: key.to_owned(), problem }
}

impl From<GgufError> for LoadError {
    fn from(e: GgufError) -> Self {
        Self::Gguf(e)
    }
}
