//! The header of a GGUF file (versions 2 and 3), read with bounds.
//!
//! Model files come from strangers. Every count, length, shape and offset is checked against the
//! file's own size and a fixed limit *before* anything is allocated or multiplied, so that a
//! hostile file costs an error that names the field and the byte, never a panic or more memory
//! than twice the file's size plus 64 MiB.
//!
//! ```text
//! magic | version | tensor count | metadata count | metadata… | tensor infos… | padding | data…
//! └──────────────── Header::scan reads this ────────────────────────────────┘          └ offsets
//! ```

mod cursor;
mod error;
mod header;
mod tensor_type;
mod value;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
pub(crate) mod write;

pub use error::GgufError;
pub use header::{Header, TensorInfo};
pub use tensor_type::TensorType;
pub use value::{Array, FromValue, StringArray, Value};

/// Bytes that the header (metadata and tensor infos) may take at most.
pub const HEADER_BYTES_MAX: u64 = 64 << 20;
/// Metadata entries a file may declare. Real files have under a hundred.
pub const METADATA_COUNT_MAX: u64 = 1 << 16;
/// Tensors a file may declare.
pub const TENSOR_COUNT_MAX: u64 = 1 << 16;
/// Bytes of a metadata key or tensor name.
pub const NAME_BYTES_MAX: u64 = 1 << 16;
/// Largest `general.alignment`.
pub const ALIGNMENT_MAX: u64 = 1 << 20;
/// Alignment of a file that does not state one.
pub const ALIGNMENT_DEFAULT: u64 = 32;
/// Dimensions of a tensor.
pub const DIMS_MAX: u32 = 4;
/// How deep arrays of arrays may nest.
pub const ARRAY_DEPTH_MAX: u32 = 4;
/// Arrays inside arrays, over the whole file (each costs far more memory than its bytes in the
/// file).
pub const NESTED_ARRAYS_MAX: u64 = 1 << 14;
