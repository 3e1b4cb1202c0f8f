//! The header as a whole.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::cursor::Cursor;
use super::{
    ALIGNMENT_DEFAULT, ALIGNMENT_MAX, DIMS_MAX, FromValue, GgufError, METADATA_COUNT_MAX,
    TENSOR_COUNT_MAX, TensorType, Value,
};

/// Everything in a GGUF file but the tensors' data. All counts, shapes and offsets have been
/// checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// File format version, 2 or 3.
    pub version: u32,
    /// Alignment of tensor data in bytes, a power of two.
    pub alignment: u64,
    /// Metadata by key.
    pub metadata: BTreeMap<String, Value>,
    /// Tensors by name.
    pub tensors: BTreeMap<String, TensorInfo>,
    /// Where the data section starts, in bytes from the start of the file.
    pub data_start: u64,
}

/// Where a tensor is and what it looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Dimensions, fastest first (GGUF's order: a matrix of `out` rows of `in` values is `[in,
    /// out]`).
    pub dims: Vec<u64>,
    /// Storage type.
    pub dtype: TensorType,
    /// Start of the data, in bytes from the start of the **file**; start + bytes lies inside the
    /// file.
    pub offset: u64,
    /// Bytes of data.
    pub bytes: u64,
}

impl Header {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// [`GgufError`] naming the field and the byte.
    pub fn open(path: &Path) -> Result<(Self, File), GgufError> {
        let io = |source| GgufError::Io { field: path.display().to_string(), offset: 0, source };
        let file = File::open(path).map_err(io)?;
        let len = file.metadata().map_err(io)?.len();
        let header = Self::scan(&file, len)?;
        Ok((header, file))
    }

    /// Reads a header from the start of a file of `file_len` bytes.
    ///
    /// # Errors
    /// [`GgufError`] naming the field and the byte.
    pub fn scan(reader: impl Read, file_len: u64) -> Result<Self, GgufError> {
        let mut c = Cursor::new(reader, file_len);
        let found = c.bytes()?;
        if found != *b"GGUF" {
            return Err(GgufError::Magic { found });
        }
        c.field = "version".to_owned();
        let version = c.u32()?;
        if !(2..=3).contains(&version) {
            let big_endian = (1..=3).contains(&version.swap_bytes());
            return Err(GgufError::Version { found: version, big_endian });
        }
        c.field = "tensor count".to_owned();
        let tensor_count = c.u64()?;
        c.limit(tensor_count, TENSOR_COUNT_MAX)?;
        c.field = "metadata count".to_owned();
        let metadata_count = c.u64()?;
        c.limit(metadata_count, METADATA_COUNT_MAX)?;
        // An entry is at least: length of the key 8, key 1, type 4, value 1.
        c.room_for(metadata_count, 14)?;
        let (metadata, alignment) = read_metadata(&mut c, metadata_count)?;

        c.field = "tensor count".to_owned();
        // An entry is at least: length of the name 8, name 1, dimension count 4, dimension 8, type
        // 4, offset 8.
        c.room_for(tensor_count, 33)?;
        let entries = (0..tensor_count)
            .map(|i| read_tensor(&mut c, i, alignment))
            .collect::<Result<Vec<_>, _>>()?;
        let data_start = c.pos().next_multiple_of(alignment);
        let tensors = place(entries, data_start, file_len)?;
        Ok(Self { version, alignment, metadata, tensors, data_start })
    }

    /// The value of `key`, if there is one.
    ///
    /// # Errors
    /// [`GgufError::Value`] if it has another type or does not fit.
    pub fn get<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, GgufError> {
        self.metadata.get(key).map(|v| v.to(key)).transpose()
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// [`GgufError::Missing`] or [`GgufError::Value`].
    pub fn require<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T, GgufError> {
        self.get(key)?.ok_or_else(|| GgufError::Missing { key: key.to_owned() })
    }
}

fn read_metadata<R: Read>(
    c: &mut Cursor<R>,
    count: u64,
) -> Result<(BTreeMap<String, Value>, u64), GgufError> {
    let mut metadata = BTreeMap::new();
    let mut alignment = ALIGNMENT_DEFAULT;
    for i in 0..count {
        c.field = format!("key of metadata entry {i}");
        let offset = c.pos();
        let key = c.name()?;
        c.field = format!("metadata {key}");
        let value_at = c.pos();
        let value = c.value()?;
        if key == "general.alignment" {
            let bytes = u64::from(value.to::<u32>(&key)?);
            if !bytes.is_power_of_two() || bytes > ALIGNMENT_MAX {
                return Err(GgufError::Alignment { offset: value_at + 4, value: bytes });
            }
            alignment = bytes;
        }
        match metadata.entry(key) {
            Entry::Vacant(e) => drop(e.insert(value)),
            Entry::Occupied(_) => {
                return Err(GgufError::Name {
                    field: c.field.clone(),
                    offset,
                    problem: "duplicate",
                });
            }
        }
    }
    Ok((metadata, alignment))
}

/// A tensor's entry as read: `info.offset` still counts from the start of the data section.
struct Entered {
    name: String,
    info: TensorInfo,
    /// Byte of the entry in the file.
    at: u64,
}

impl Entered {
    fn data_error(&self, problem: String) -> GgufError {
        let (start, bytes) = (self.info.offset, self.info.bytes);
        GgufError::Data {
            field: format!("tensor {}", self.name),
            offset: self.at,
            start,
            bytes,
            problem,
        }
    }
}

fn read_tensor<R: Read>(c: &mut Cursor<R>, i: u64, alignment: u64) -> Result<Entered, GgufError> {
    c.field = format!("name of tensor {i}");
    let at = c.pos();
    let name = c.name()?;
    c.field = format!("dimensions of tensor {name}");
    let dim_count = c.u32()?;
    c.limit(dim_count.into(), DIMS_MAX.into())?;
    let dims = (0..dim_count).map(|_| c.u64()).collect::<Result<Vec<_>, _>>()?;
    c.field = format!("type of tensor {name}");
    let id = c.u32()?;
    let dtype = TensorType::from_id(id).ok_or_else(|| {
        let what = match TensorType::foreign_name(id) {
            Some(foreign) => format!("type {foreign} ({id}) is not supported"),
            None => format!("unknown tensor type {id}"),
        };
        c.type_error(what, 4)
    })?;
    c.field = format!("offset of tensor {name}");
    let offset = c.u64()?;
    let bytes = match tensor_bytes(&dims, dtype) {
        Ok(bytes) => bytes,
        Err(problem) => {
            let field = format!("tensor {name}");
            return Err(GgufError::Shape { field, offset: at, dims, problem });
        }
    };
    let entered = Entered { name, info: TensorInfo { dims, dtype, offset, bytes }, at };
    if !offset.is_multiple_of(alignment) {
        return Err(entered.data_error(format!("not aligned to {alignment}")));
    }
    Ok(entered)
}

fn tensor_bytes(dims: &[u64], dtype: TensorType) -> Result<u64, &'static str> {
    let Some(&first) = dims.first() else { return Err("no dimensions") };
    if dims.contains(&0) {
        return Err("a dimension of 0");
    }
    if !first.is_multiple_of(dtype.block_len() as u64) {
        return Err("the first dimension is not a multiple of the type's block");
    }
    dims.iter()
        .try_fold(1_u64, |product, &d| product.checked_mul(d))
        .and_then(|elements| {
            (elements / dtype.block_len() as u64).checked_mul(dtype.block_bytes() as u64)
        })
        .filter(|&bytes| i64::try_from(bytes).is_ok())
        .ok_or("its size overflows")
}

/// Checks that every tensor's data lies inside the file and on nobody else's, and makes offsets
/// absolute.
fn place(
    mut entries: Vec<Entered>,
    data_start: u64,
    file_len: u64,
) -> Result<BTreeMap<String, TensorInfo>, GgufError> {
    let data_len = file_len.saturating_sub(data_start);
    entries.sort_by_key(|e| e.info.offset);
    let mut tensors = BTreeMap::new();
    let mut taken = (0, String::new());
    for mut e in entries {
        let end = e.info.offset.checked_add(e.info.bytes).filter(|&end| end <= data_len);
        let Some(end) = end else {
            return Err(e.data_error(format!("outside the data section of {data_len} bytes")));
        };
        if e.info.offset < taken.0 {
            return Err(e.data_error(format!("overlaps tensor {}", taken.1)));
        }
        taken = (end, e.name.clone());
        let (field, offset) = (format!("tensor {}", e.name), e.at);
        e.info.offset += data_start;
        if tensors.insert(e.name, e.info).is_some() {
            return Err(GgufError::Name { field, offset, problem: "duplicate" });
        }
    }
    Ok(tensors)
}
