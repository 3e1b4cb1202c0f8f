//! Metadata values.

use super::GgufError;

/// One metadata value.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the variants are GGUF's own type names")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// A metadata array: elements of one type.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the variants are GGUF's own type names")]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(StringArray),
    Array(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(v) => v.len(),
            Self::I8(v) => v.len(),
            Self::U16(v) => v.len(),
            Self::I16(v) => v.len(),
            Self::U32(v) => v.len(),
            Self::I32(v) => v.len(),
            Self::F32(v) => v.len(),
            Self::Bool(v) => v.len(),
            Self::String(v) => v.len(),
            Self::Array(v) => v.len(),
            Self::U64(v) => v.len(),
            Self::I64(v) => v.len(),
            Self::F64(v) => v.len(),
        }
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Element `i` as an integer, whatever integer type the array has; `None` if it is none or out
    /// of range.
    pub fn int(&self, i: usize) -> Option<i64> {
        match self {
            Self::U8(v) => v.get(i).map(|&x| x.into()),
            Self::I8(v) => v.get(i).map(|&x| x.into()),
            Self::U16(v) => v.get(i).map(|&x| x.into()),
            Self::I16(v) => v.get(i).map(|&x| x.into()),
            Self::U32(v) => v.get(i).map(|&x| x.into()),
            Self::I32(v) => v.get(i).map(|&x| x.into()),
            Self::U64(v) => v.get(i).and_then(|&x| x.try_into().ok()),
            Self::I64(v) => v.get(i).copied(),
            _ => None,
        }
    }
}

/// Many strings in one buffer: a vocabulary of 150,000 entries costs two allocations, and a hostile
/// array of empty strings costs less memory than it takes in the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StringArray {
    text: String,
    /// End of each string in `text`.
    ends: Vec<u32>,
}

impl StringArray {
    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// String `i`.
    pub fn get(&self, i: usize) -> Option<&str> {
        let end = *self.ends.get(i)? as usize;
        let start = i.checked_sub(1).map_or(0, |p| self.ends[p] as usize);
        self.text.get(start..end)
    }

    /// All strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.len()).map(|i| self.get(i).unwrap_or_default())
    }

    /// Appends a string. The scanner bounds the total far below 4 GiB.
    pub(super) fn push(&mut self, s: &str) {
        self.text.push_str(s);
        self.ends.push(u32::try_from(self.text.len()).unwrap_or(u32::MAX));
    }

    pub(super) fn reserve(&mut self, strings: usize) {
        self.ends.reserve_exact(strings);
    }
}

impl<S: AsRef<str>> FromIterator<S> for StringArray {
    fn from_iter<I: IntoIterator<Item = S>>(iter: I) -> Self {
        let mut all = Self::default();
        iter.into_iter().for_each(|s| all.push(s.as_ref()));
        all
    }
}

impl Value {
    /// The type's name, for messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::U8(_) => "u8",
            Self::I8(_) => "i8",
            Self::U16(_) => "u16",
            Self::I16(_) => "i16",
            Self::U32(_) => "u32",
            Self::I32(_) => "i32",
            Self::F32(_) => "f32",
            Self::Bool(_) => "bool",
            Self::String(_) => "string",
            Self::Array(_) => "array",
            Self::U64(_) => "u64",
            Self::I64(_) => "i64",
            Self::F64(_) => "f64",
        }
    }

    /// The value as an integer, whatever integer type it has. (A u64 above `i64::MAX` is none.)
    pub fn int(&self) -> Option<i64> {
        match *self {
            Self::U8(x) => Some(x.into()),
            Self::I8(x) => Some(x.into()),
            Self::U16(x) => Some(x.into()),
            Self::I16(x) => Some(x.into()),
            Self::U32(x) => Some(x.into()),
            Self::I32(x) => Some(x.into()),
            Self::U64(x) => x.try_into().ok(),
            Self::I64(x) => Some(x),
            _ => None,
        }
    }

    /// Converts, or says what was expected and what was found under `key`.
    ///
    /// # Errors
    /// [`GgufError::Value`] if the type or range does not fit.
    pub fn to<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T, GgufError> {
        T::from_value(self).ok_or_else(|| GgufError::Value {
            key: key.to_owned(),
            expected: T::EXPECTED,
            found: match self {
                Self::String(_) | Self::Array(_) | Self::Bool(_) => self.type_name().to_owned(),
                Self::F32(x) => format!("f32 {x}"),
                Self::F64(x) => format!("f64 {x}"),
                Self::U64(x) => format!("u64 {x}"),
                other => format!("{} {}", other.type_name(), other.int().unwrap_or_default()),
            },
        })
    }
}

/// Rust types that a metadata value can be read as. Integers convert between widths where the value
/// fits.
pub trait FromValue<'a>: Sized {
    /// What the type is called in an error.
    const EXPECTED: &'static str;
    /// The conversion; `None` if type or range do not fit.
    fn from_value(value: &'a Value) -> Option<Self>;
}

impl FromValue<'_> for u32 {
    const EXPECTED: &'static str = "an integer in 0..2^32";
    fn from_value(value: &Value) -> Option<Self> {
        value.int()?.try_into().ok()
    }
}

impl FromValue<'_> for usize {
    const EXPECTED: &'static str = "an integer in 0..2^63";
    fn from_value(value: &Value) -> Option<Self> {
        value.int()?.try_into().ok()
    }
}

impl FromValue<'_> for f32 {
    const EXPECTED: &'static str = "a finite number";
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a hyper-parameter rounded to f32 is what every engine computes with"
    )]
    fn from_value(value: &Value) -> Option<Self> {
        let x = match *value {
            Value::F32(x) => x,
            Value::F64(x) => x as f32,
            _ => return None,
        };
        x.is_finite().then_some(x)
    }
}

impl FromValue<'_> for bool {
    const EXPECTED: &'static str = "a bool";
    fn from_value(value: &Value) -> Option<Self> {
        match *value {
            Value::Bool(x) => Some(x),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for &'a str {
    const EXPECTED: &'static str = "a string";
    fn from_value(value: &'a Value) -> Option<Self> {
        match value {
            Value::String(x) => Some(x),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for &'a Array {
    const EXPECTED: &'static str = "an array";
    fn from_value(value: &'a Value) -> Option<Self> {
        match value {
            Value::Array(x) => Some(x),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for &'a StringArray {
    const EXPECTED: &'static str = "an array of strings";
    fn from_value(value: &'a Value) -> Option<Self> {
        match value {
            Value::Array(Array::String(x)) => Some(x),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for &'a [f32] {
    const EXPECTED: &'static str = "an array of f32";
    fn from_value(value: &'a Value) -> Option<Self> {
        match value {
            Value::Array(Array::F32(x)) => Some(x),
            _ => None,
        }
    }
}
