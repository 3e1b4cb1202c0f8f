//! From a file's tensors to a model: each tensor is read once, checked by name, shape and type.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use super::config::Config;
use super::ops::Ops;
use super::transformer::{Layer, Transformer};
use crate::gguf::{GgufError, Header, TensorType};
use crate::kernels::{AlignedBytes, Arena, Level, Pool, Weights, WeightsError};

/// A model that can't be loaded, and why.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file's header.
    #[error(transparent)]
    Gguf(GgufError),
    /// An architecture that redline does not run.
    #[error("architecture {name:?} is not supported (llama, qwen2 and qwen3 are)")]
    Architecture {
        /// `general.architecture`.
        name: String,
    },
    /// Something about the model that redline does not compute.
    #[error("{key}: {what} is not supported")]
    Unsupported {
        /// The metadata key or tensor that says so.
        key: String,
        /// What it asks for.
        what: String,
    },
    /// A hyper-parameter that makes no sense.
    #[error("{key} {problem}")]
    Key {
        /// The metadata key or tensor.
        key: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A tensor that the architecture needs and the file lacks.
    #[error("tensor {name} is missing")]
    MissingTensor {
        /// Its name.
        name: String,
    },
    /// A tensor of another shape than the hyper-parameters say.
    #[error("tensor {name} has shape {found:?} instead of {expected:?}")]
    Shape {
        /// Its name.
        name: String,
        /// Dimensions, fastest first.
        expected: Vec<usize>,
        /// What the file has.
        found: Vec<usize>,
    },
    /// A tensor that the architecture has no use for: ignoring it would compute another model.
    #[error("tensor {name} is not part of this architecture as redline knows it")]
    UnknownTensor {
        /// Its name.
        name: String,
    },
    /// A tensor's data can't be read.
    #[error("tensor {name}: {source}")]
    Read {
        /// Its name.
        name: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A tensor's bytes are not what its type and shape say.
    #[error("tensor {name}: {source}")]
    Weights {
        /// Its name.
        name: String,
        /// What does not fit.
        source: WeightsError,
    },
    /// The device has no room for a tensor, or does not do what is asked.
    #[error("tensor {name}: {source}")]
    Device {
        /// Its name.
        name: String,
        /// The device's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The threads can't be started.
    #[error("starting the kernels' threads: {0}")]
    Threads(std::io::Error),
}

/// A tensor's data, as stored.
#[derive(Debug, Clone)]
pub struct Tensor {
    /// Its name, for errors.
    pub name: String,
    /// Dimensions, fastest first.
    pub dims: Vec<usize>,
    /// How values are stored.
    pub dtype: TensorType,
    /// The bytes.
    pub bytes: AlignedBytes,
}

/// The tensor that tokens are looked up in, and that makes the logits where there is no [`HEAD`].
pub(super) const EMBEDDING: &str = "token_embd.weight";
/// The tensor that makes the logits.
pub(super) const HEAD: &str = "output.weight";

/// Where tensors come from.
pub trait TensorSource {
    /// Names of all tensors.
    fn names(&self) -> Vec<String>;
    /// The tensor of that name, if there is one. Asked for once per tensor, except for a tied
    /// embedding.
    ///
    /// # Errors
    /// [`LoadError`] if it can't be read.
    fn take(&mut self, name: &str) -> Result<Option<Tensor>, LoadError>;
    /// Rows of the output head, if it has not one for each entry of the vocabulary.
    fn head_rows(&self) -> Option<usize> {
        None
    }
}

/// Tensors of a GGUF file.
pub struct FileSource<'a> {
    header: &'a Header,
    file: File,
}

impl<'a> FileSource<'a> {
    /// Tensors of `file`, whose header has been scanned.
    pub fn new(header: &'a Header, file: File) -> Self {
        Self { header, file }
    }
}

impl TensorSource for FileSource<'_> {
    fn names(&self) -> Vec<String> {
        self.header.tensors.keys().cloned().collect()
    }

    fn take(&mut self, name: &str) -> Result<Option<Tensor>, LoadError> {
        let Some(info) = self.header.tensors.get(name) else { return Ok(None) };
        let too_large = |_| LoadError::Read {
            name: name.to_owned(),
            source: std::io::Error::other("too large for this machine"),
        };
        let mut bytes = AlignedBytes::zeroed(usize::try_from(info.bytes).map_err(too_large)?);
        self.file
            .seek(SeekFrom::Start(info.offset))
            .and_then(|_| self.file.read_exact(bytes.as_mut_slice()))
            .map_err(|source| LoadError::Read { name: name.to_owned(), source })?;
        let dims = info.dims.iter().map(|&d| usize::try_from(d)).collect::<Result<_, _>>();
        let dims = dims.map_err(too_large)?;
        Ok(Some(Tensor { name: name.to_owned(), dims, dtype: info.dtype, bytes }))
    }
}

impl TensorSource for BTreeMap<String, Tensor> {
    fn names(&self) -> Vec<String> {
        self.keys().cloned().collect()
    }

    fn take(&mut self, name: &str) -> Result<Option<Tensor>, LoadError> {
        Ok(self.remove(name))
    }
}

/// Tensors that carry nothing redline needs: recomputed tables of old converters.
fn is_ignorable(name: &str) -> bool {
    name.ends_with(".attn_rot_embd.weight") || name.ends_with(".rotary_emb.inv_freq")
}

/// Builds a model from its tensors.
///
/// # Errors
/// [`LoadError`] naming the tensor or key.
pub fn build<O: Ops>(
    mut config: Config,
    source: &mut dyn TensorSource,
    ops: &mut O,
) -> Result<Transformer<O>, LoadError> {
    let (names, head_rows) = (source.names(), source.head_rows());
    let mut b = Builder { source, ops, taken: BTreeSet::new() };
    if let Some(factors) = b.vector("rope_freqs.weight", config.rope.dims / 2)? {
        config.rope.divide(&factors)?;
    }
    let embedding = b.tensor(EMBEDDING)?;
    let vocab = embedding.dims.get(1).copied().unwrap_or(0);
    check_shape(&embedding, &[config.width, vocab])?;
    let embedding = b.ops.linear(embedding, None)?;
    let layers =
        (0..config.layers).map(|i| layer(&mut b, &config, i)).collect::<Result<Vec<_>, _>>()?;
    let norm = b.norm("output_norm.weight", config.width)?;
    let outputs = head_rows.unwrap_or(vocab);
    let head = match names.iter().any(|n| n == HEAD) {
        true => Some(b.linear("output", config.width, outputs, false)?),
        false => None,
    };
    if let Some(name) = names.iter().find(|n| !b.taken.contains(*n) && !is_ignorable(n)) {
        return Err(LoadError::UnknownTensor { name: name.clone() });
    }
    Ok(Transformer { config, vocab, outputs, embedding, layers, norm, head })
}

struct Builder<'a, O> {
    source: &'a mut dyn TensorSource,
    ops: &'a mut O,
    taken: BTreeSet<String>,
}

fn layer<O: Ops>(b: &mut Builder<'_, O>, c: &Config, i: usize) -> Result<Layer<O>, LoadError> {
    let name = |part: &str| format!("blk.{i}.{part}");
    let (q, kv) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
    let bias = c.architecture.needs_qkv_bias();
    let qk_norm = |b: &mut Builder<'_, O>, part: &str| {
        let wanted = c.architecture.has_qk_norm();
        wanted.then(|| b.norm(&name(part), c.head_dim)).transpose()
    };
    Ok(Layer {
        attn_norm: b.norm(&name("attn_norm.weight"), c.width)?,
        q: b.linear(&name("attn_q"), c.width, q, bias)?,
        k: b.linear(&name("attn_k"), c.width, kv, bias)?,
        v: b.linear(&name("attn_v"), c.width, kv, bias)?,
        q_norm: qk_norm(b, "attn_q_norm.weight")?,
        k_norm: qk_norm(b, "attn_k_norm.weight")?,
        out: b.linear(&name("attn_output"), q, c.width, false)?,
        ffn_norm: b.norm(&name("ffn_norm.weight"), c.width)?,
        gate: b.linear(&name("ffn_gate"), c.width, c.ffn, false)?,
        up: b.linear(&name("ffn_up"), c.width, c.ffn, false)?,
        down: b.linear(&name("ffn_down"), c.ffn, c.width, false)?,
    })
}

impl<O: Ops> Builder<'_, O> {
    fn optional(&mut self, name: &str) -> Result<Option<Tensor>, LoadError> {
        let tensor = self.source.take(name)?;
        if tensor.is_some() {
            self.taken.insert(name.to_owned());
        }
        Ok(tensor)
    }

    fn tensor(&mut self, name: &str) -> Result<Tensor, LoadError> {
        self.optional(name)?.ok_or_else(|| LoadError::MissingTensor { name: name.to_owned() })
    }

    fn vector(&mut self, name: &str, len: usize) -> Result<Option<Vec<f32>>, LoadError> {
        let Some(tensor) = self.optional(name)? else { return Ok(None) };
        check_shape(&tensor, &[len])?;
        let weights = weights_of((&mut Arena::apart(), &mut Pool::alone()), tensor)?;
        let mut values = vec![0.0; len];
        weights.dequantise_row(Level::detect(), 0, &mut values);
        Ok(Some(values))
    }

    fn norm(&mut self, name: &str, len: usize) -> Result<O::Norm, LoadError> {
        let values = self.vector(name, len)?;
        let values = values.ok_or_else(|| LoadError::MissingTensor { name: name.to_owned() })?;
        self.ops.norm(values)
    }

    /// `part.weight` of shape `[input, output]`, with `part.bias` where there is one.
    fn linear(
        &mut self,
        part: &str,
        input: usize,
        output: usize,
        needs_bias: bool,
    ) -> Result<O::Linear, LoadError> {
        let weights = self.tensor(&format!("{part}.weight"))?;
        check_shape(&weights, &[input, output])?;
        let name = format!("{part}.bias");
        let bias = self.vector(&name, output)?;
        if needs_bias && bias.is_none() {
            return Err(LoadError::MissingTensor { name });
        }
        self.ops.linear(weights, bias)
    }
}

fn check_shape(tensor: &Tensor, expected: &[usize]) -> Result<(), LoadError> {
    if tensor.dims == expected && !expected.contains(&0) {
        return Ok(());
    }
    Err(LoadError::Shape {
        name: tensor.name.clone(),
        expected: expected.to_vec(),
        found: tensor.dims.clone(),
    })
}

/// A tensor as a weight matrix (a vector is a matrix of one row).
///
/// # Errors
/// [`LoadError::Weights`] if its bytes do not fit its shape.
pub(super) fn weights_of(
    place: (&mut Arena, &mut Pool),
    tensor: Tensor,
) -> Result<Weights, LoadError> {
    let Tensor { name, dims, dtype, bytes } = tensor;
    let (cols, rows) = (dims.first().copied().unwrap_or(0), dims.get(1).copied().unwrap_or(1));
    Weights::new_in(place, dtype, rows, cols, bytes)
        .map_err(|source| LoadError::Weights { name, source })
}
