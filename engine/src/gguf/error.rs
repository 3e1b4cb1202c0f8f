//! What can be wrong with a GGUF header.

use std::io;

/// A header that can't be used, and where. `field` names what was being read, `offset` is the byte
/// in the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// The file could not be read.
    #[error("{field} at byte {offset}: {source}")]
    Io {
        /// What was being read.
        field: String,
        /// Byte in the file.
        offset: u64,
        /// The system's own error.
        source: io::Error,
    },
    /// The first four bytes are not `GGUF`.
    #[error("not a GGUF file: starts with {found:02x?} instead of \"GGUF\"")]
    Magic {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// A version other than 2 and 3.
    #[error("GGUF version {found} is not supported (2 and 3 are); big-endian file: {big_endian}")]
    Version {
        /// The version as read.
        found: u32,
        /// Whether the bytes make sense the other way round.
        big_endian: bool,
    },
    /// The file ends before the field does.
    #[error("{field} at byte {offset}: needs {needed} bytes, the file has {left} left")]
    Truncated {
        /// What was being read.
        field: String,
        /// Byte in the file.
        offset: u64,
        /// Bytes the field takes.
        needed: u64,
        /// Bytes left.
        left: u64,
    },
    /// A count or length above what redline accepts.
    #[error("{field} at byte {offset}: {value} is more than the limit of {limit}")]
    Limit {
        /// What was being read.
        field: String,
        /// Byte in the file.
        offset: u64,
        /// The number as read.
        value: u64,
        /// The largest accepted.
        limit: u64,
    },
    /// `general.alignment` is zero, not a power of two, or too large.
    #[error(
        "general.alignment at byte {offset}: {value} is not a power of two in 1..={}",
        super::ALIGNMENT_MAX
    )]
    Alignment {
        /// Byte in the file.
        offset: u64,
        /// The value as read.
        value: u64,
    },
    /// A type number that GGUF does not define, or that redline can't read.
    #[error("{field} at byte {offset}: {what}")]
    Type {
        /// What was being read.
        field: String,
        /// Byte in the file.
        offset: u64,
        /// The type as read, in words.
        what: String,
    },
    /// Text that is not UTF-8.
    #[error("{field} at byte {offset}: not valid UTF-8")]
    Utf8 {
        /// What was being read.
        field: String,
        /// Byte in the file.
        offset: u64,
    },
    /// A key or tensor name that occurs twice, or is empty.
    #[error("{field} at byte {offset}: {problem} name")]
    Name {
        /// The name.
        field: String,
        /// Byte in the file.
        offset: u64,
        /// `duplicate` or `empty`.
        problem: &'static str,
    },
    /// A tensor whose dimensions make no sense or overflow.
    #[error("{field} at byte {offset}: shape {dims:?}: {problem}")]
    Shape {
        /// The tensor.
        field: String,
        /// Byte in the file.
        offset: u64,
        /// Dimensions, fastest first.
        dims: Vec<u64>,
        /// What is wrong with them.
        problem: &'static str,
    },
    /// A tensor whose data is misaligned, outside the file, or on top of another's.
    #[error("{field} at byte {offset}: data at {start} of {bytes} bytes: {problem}")]
    Data {
        /// The tensor.
        field: String,
        /// Byte of the tensor's entry in the file.
        offset: u64,
        /// Start of its data, from the start of the data section.
        start: u64,
        /// Bytes of its data.
        bytes: u64,
        /// What is wrong.
        problem: String,
    },
    /// A metadata key that the caller needs and the file lacks.
    #[error("metadata key {key} is missing")]
    Missing {
        /// The key.
        key: String,
    },
    /// A metadata value that has another type, or is out of the type's range.
    #[error("metadata key {key}: expected {expected}, found {found}")]
    Value {
        /// The key.
        key: String,
        /// What the caller asked for.
        expected: &'static str,
        /// What the file holds.
        found: String,
    },
}
