//! A reader that checks before it reads.

use std::io::{BufReader, Read};

use super::value::StringArray;
use super::{
    ARRAY_DEPTH_MAX, Array, GgufError, HEADER_BYTES_MAX, NAME_BYTES_MAX, NESTED_ARRAYS_MAX, Value,
};

/// Position in the header. Every read states its size first; nothing is allocated that the file
/// can't fill.
pub(super) struct Cursor<R> {
    reader: BufReader<R>,
    pos: u64,
    file_len: u64,
    nested_arrays: u64,
    /// What is being read, for errors.
    pub(super) field: String,
}

macro_rules! number {
    ($name:ident, $type:ty) => {
        pub(super) fn $name(&mut self) -> Result<$type, GgufError> {
            Ok(<$type>::from_le_bytes(self.bytes()?))
        }
    };
}

macro_rules! numbers {
    ($self:ident, $type:ty, $count:expr) => {{
        const SIZE: usize = size_of::<$type>();
        let raw = $self.raw($count, SIZE as u64)?;
        let number = |c: &[u8]| {
            let mut le = [0; SIZE];
            le.copy_from_slice(c);
            <$type>::from_le_bytes(le)
        };
        raw.chunks_exact(SIZE).map(number).collect()
    }};
}

impl<R: Read> Cursor<R> {
    pub(super) fn new(reader: R, file_len: u64) -> Self {
        let reader = BufReader::with_capacity(1 << 16, reader);
        Self { reader, pos: 0, file_len, nested_arrays: 0, field: "magic".to_owned() }
    }

    pub(super) fn pos(&self) -> u64 {
        self.pos
    }

    number!(u32, u32);
    number!(u64, u64);

    /// Fails unless `count` things of `size` bytes fit into what is left of the file and of the
    /// header's limit.
    fn need(&self, count: u64, size: u64) -> Result<usize, GgufError> {
        let needed = count.saturating_mul(size);
        let left = self.file_len.saturating_sub(self.pos);
        if needed > left {
            let (field, offset) = (self.field.clone(), self.pos);
            return Err(GgufError::Truncated { field, offset, needed, left });
        }
        self.limit(self.pos + needed, HEADER_BYTES_MAX)?;
        usize::try_from(needed).or_else(|_| self.limit(needed, HEADER_BYTES_MAX).map(|()| 0))
    }

    /// Fails if `value` is above `limit`.
    pub(super) fn limit(&self, value: u64, limit: u64) -> Result<(), GgufError> {
        if value <= limit {
            return Ok(());
        }
        Err(GgufError::Limit { field: self.field.clone(), offset: self.pos, value, limit })
    }

    /// Fails unless `count` entries of at least `size` bytes can follow.
    pub(super) fn room_for(&self, count: u64, size: u64) -> Result<(), GgufError> {
        self.need(count, size).map(|_| ())
    }

    fn fill(&mut self, buf: &mut [u8]) -> Result<(), GgufError> {
        self.reader.read_exact(buf).map_err(|source| GgufError::Io {
            field: self.field.clone(),
            offset: self.pos,
            source,
        })?;
        self.pos += buf.len() as u64;
        Ok(())
    }

    pub(super) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        self.need(N as u64, 1)?;
        let mut buf = [0; N];
        self.fill(&mut buf)?;
        Ok(buf)
    }

    fn raw(&mut self, count: u64, size: u64) -> Result<Vec<u8>, GgufError> {
        let mut buf = vec![0; self.need(count, size)?];
        self.fill(&mut buf)?;
        Ok(buf)
    }

    /// A string of at most `limit` bytes.
    fn string_within(&mut self, limit: u64) -> Result<String, GgufError> {
        let len = self.u64()?;
        let offset = self.pos;
        self.room_for(len, 1)?;
        self.limit(len, limit)?;
        let raw = self.raw(len, 1)?;
        String::from_utf8(raw).map_err(|_| GgufError::Utf8 { field: self.field.clone(), offset })
    }

    /// A key or tensor name.
    pub(super) fn name(&mut self) -> Result<String, GgufError> {
        let offset = self.pos;
        let name = self.string_within(NAME_BYTES_MAX)?;
        if name.is_empty() {
            return Err(GgufError::Name { field: self.field.clone(), offset, problem: "empty" });
        }
        Ok(name)
    }

    fn bool(&mut self) -> Result<bool, GgufError> {
        let [byte] = self.bytes()?;
        match byte {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.type_error(format!("{byte} is not a bool"), 1)),
        }
    }

    /// An error about the `back` bytes just read.
    pub(super) fn type_error(&self, what: String, back: u64) -> GgufError {
        GgufError::Type { field: self.field.clone(), offset: self.pos.saturating_sub(back), what }
    }

    /// A metadata value, its type number first.
    pub(super) fn value(&mut self) -> Result<Value, GgufError> {
        let id = self.u32()?;
        Ok(match id {
            0 => Value::U8(u8::from_le_bytes(self.bytes()?)),
            1 => Value::I8(i8::from_le_bytes(self.bytes()?)),
            2 => Value::U16(u16::from_le_bytes(self.bytes()?)),
            3 => Value::I16(i16::from_le_bytes(self.bytes()?)),
            4 => Value::U32(self.u32()?),
            5 => Value::I32(i32::from_le_bytes(self.bytes()?)),
            6 => Value::F32(f32::from_le_bytes(self.bytes()?)),
            7 => Value::Bool(self.bool()?),
            8 => Value::String(self.string_within(HEADER_BYTES_MAX)?),
            9 => Value::Array(self.array(1)?),
            10 => Value::U64(self.u64()?),
            11 => Value::I64(i64::from_le_bytes(self.bytes()?)),
            12 => Value::F64(f64::from_le_bytes(self.bytes()?)),
            _ => return Err(self.type_error(format!("unknown value type {id}"), 4)),
        })
    }

    /// An array: element type, count, elements. `depth` of the outermost is 1.
    fn array(&mut self, depth: u32) -> Result<Array, GgufError> {
        self.limit(depth.into(), ARRAY_DEPTH_MAX.into())?;
        let id = self.u32()?;
        if id > 12 {
            return Err(self.type_error(format!("unknown array element type {id}"), 4));
        }
        let count = self.u64()?;
        Ok(match id {
            0 => Array::U8(self.raw(count, 1)?),
            1 => Array::I8(numbers!(self, i8, count)),
            2 => Array::U16(numbers!(self, u16, count)),
            3 => Array::I16(numbers!(self, i16, count)),
            4 => Array::U32(numbers!(self, u32, count)),
            5 => Array::I32(numbers!(self, i32, count)),
            6 => Array::F32(numbers!(self, f32, count)),
            7 => {
                let mut all = Vec::with_capacity(self.need(count, 1)?);
                for _ in 0..count {
                    all.push(self.bool()?);
                }
                Array::Bool(all)
            }
            8 => Array::String(self.strings(count)?),
            9 => {
                // An inner array is at least its type and its count: 12 bytes.
                self.room_for(count, 12)?;
                self.nested_arrays = self.nested_arrays.saturating_add(count);
                self.limit(self.nested_arrays, NESTED_ARRAYS_MAX)?;
                (0..count)
                    .map(|_| self.array(depth + 1))
                    .collect::<Result<_, _>>()
                    .map(Array::Array)?
            }
            10 => Array::U64(numbers!(self, u64, count)),
            11 => Array::I64(numbers!(self, i64, count)),
            _ => Array::F64(numbers!(self, f64, count)),
        })
    }

    fn strings(&mut self, count: u64) -> Result<StringArray, GgufError> {
        let mut all = StringArray::default();
        // A string is at least its length: 8 bytes; the entry in memory takes 4.
        all.reserve(self.need(count, 8)? / 8);
        for _ in 0..count {
            all.push(&self.string_within(HEADER_BYTES_MAX)?);
        }
        Ok(all)
    }
}
