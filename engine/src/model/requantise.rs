//! A matrix in fewer bits than its file has: for drafts, whose mistakes cost a little acceptance and whose
//! bytes cost every token.
//!
//! candle knows how to quantise; this decides what becomes what, and does it a few rows at a time on several
//! threads, so that neither a matrix as floats nor a second copy of a model is ever in memory.

use std::borrow::Cow;
use std::str::FromStr;
use std::thread::Builder;

use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{Device, Result as Candle};

use super::load::{LoadError, Tensor};
use crate::gguf::TensorType;
use crate::kernels::AlignedBytes;

/// Rows that are floats at a time, per thread.
const CHUNK_ROWS: usize = 64;

/// What a draft's matrices are re-quantised to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(non_camel_case_types, reason = "ggml's own names")]
pub enum DraftQuant {
    /// 4.5 bits a weight.
    Q4_0,
    /// 3.4 bits.
    Q3_K,
    /// 2.6 bits.
    Q2_K,
}

impl DraftQuant {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Q4_0, Self::Q3_K, Self::Q2_K];

    /// As it is written on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Q4_0 => "q4_0",
            Self::Q3_K => "q3_k",
            Self::Q2_K => "q2_k",
        }
    }

    const fn dtype(self) -> TensorType {
        match self {
            Self::Q4_0 => TensorType::Q4_0,
            Self::Q3_K => TensorType::Q3_K,
            Self::Q2_K => TensorType::Q2_K,
        }
    }

    /// What a matrix of a type, with rows of so many values, becomes; `None` if it stays as it is, because it has no more
    /// bits than it would have then. Blocks of 256 take rows of whole blocks only, so a matrix of other rows becomes
    /// Q4_0, or stays if they are not multiples of 32 either.
    pub fn target(self, from: TensorType, cols: usize) -> Option<TensorType> {
        let fits = |dtype: &TensorType| cols.is_multiple_of(dtype.block_len());
        let to = [self.dtype(), TensorType::Q4_0].into_iter().find(fits)?;
        // Bytes of 256 values, which are whole blocks of every type.
        let bytes = |dtype: TensorType| 256 / dtype.block_len() * dtype.block_bytes();
        (bytes(from) > bytes(to)).then_some(to)
    }
}

impl std::fmt::Display for DraftQuant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DraftQuant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|quant| quant.name() == text);
        found.ok_or_else(|| format!("`{text}` is none of {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// The matrix in another type; its rows are whole blocks of either.
///
/// # Errors
/// [`LoadError`] naming the tensor if its bytes are not those of its shape, or no thread can be started.
pub(super) fn requantise(
    tensor: Tensor,
    to: TensorType,
    threads: usize,
) -> Result<Tensor, LoadError> {
    let Tensor { name, dims, dtype: from, bytes } = tensor;
    let cols = dims.first().copied().unwrap_or(0);
    let rows = dims.get(1).copied().unwrap_or(1);
    let row_bytes = |dtype: TensorType| cols / dtype.block_len() * dtype.block_bytes();
    let (old, new) = (row_bytes(from), row_bytes(to));
    if old == 0 || rows.checked_mul(old) != Some(bytes.as_slice().len()) {
        let problem = "is not as long as its shape says";
        return Err(LoadError::Key { key: name, problem });
    }
    let mut slim = AlignedBytes::zeroed(rows * new);
    let share = rows.div_ceil(threads.max(1)).max(1);
    let parts =
        bytes.as_slice().chunks(share * old).zip(slim.as_mut_slice().chunks_mut(share * new));
    let done: Result<Candle<()>, std::io::Error> = std::thread::scope(|scope| {
        let part = |(file, out)| {
            Builder::new().spawn_scoped(scope, move || convert((from, file), (to, out), cols))
        };
        let workers = parts.map(part).collect::<Result<Vec<_>, _>>()?;
        let ended = workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        Ok(ended.collect())
    });
    done.map_err(LoadError::Threads)?
        .map_err(|source| LoadError::Device { name: name.clone(), source: Box::new(source) })?;
    Ok(Tensor { name, dims, dtype: to, bytes: slim })
}

/// Some rows from one type to another.
fn convert(
    (from, file): (TensorType, &[u8]),
    (to, out): (TensorType, &mut [u8]),
    cols: usize,
) -> Candle<()> {
    let chunk = |dtype: TensorType| CHUNK_ROWS * cols / dtype.block_len() * dtype.block_bytes();
    for (file, out) in file.chunks(chunk(from)).zip(out.chunks_mut(chunk(to))) {
        let rows = file.len() * CHUNK_ROWS / chunk(from);
        let stored = QStorage::from_data(Cow::Borrowed(file), &Device::Cpu, candle_type(from))?;
        let floats = QTensor::new(stored, (rows, cols))?.dequantize(&Device::Cpu)?;
        out.copy_from_slice(&QTensor::quantize(&floats, candle_type(to))?.data()?);
    }
    Ok(())
}

/// candle's name of a type.
pub(super) fn candle_type(dtype: TensorType) -> GgmlDType {
    match dtype {
        TensorType::F32 => GgmlDType::F32,
        TensorType::F16 => GgmlDType::F16,
        TensorType::BF16 => GgmlDType::BF16,
        TensorType::Q4_0 => GgmlDType::Q4_0,
        TensorType::Q4_1 => GgmlDType::Q4_1,
        TensorType::Q5_0 => GgmlDType::Q5_0,
        TensorType::Q5_1 => GgmlDType::Q5_1,
        TensorType::Q8_0 => GgmlDType::Q8_0,
        TensorType::Q8_1 => GgmlDType::Q8_1,
        TensorType::Q2_K => GgmlDType::Q2K,
        TensorType::Q3_K => GgmlDType::Q3K,
        TensorType::Q4_K => GgmlDType::Q4K,
        TensorType::Q5_K => GgmlDType::Q5K,
        TensorType::Q6_K => GgmlDType::Q6K,
        TensorType::Q8_K => GgmlDType::Q8K,
    }
}
