//! Writes small GGUF files for tests: well-formed ones, and every kind of broken one.

/// A file under construction, little-endian.
#[derive(Clone, Default)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Bytes {
    pub(crate) fn head(version: u32, tensors: u64, metadata: u64) -> Self {
        Self(b"GGUF".to_vec()).u32(version).u64(tensors).u64(metadata)
    }

    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn u32(self, x: u32) -> Self {
        self.raw(&x.to_le_bytes())
    }

    pub(crate) fn u64(self, x: u64) -> Self {
        self.raw(&x.to_le_bytes())
    }

    pub(crate) fn string(self, s: &[u8]) -> Self {
        self.u64(s.len() as u64).raw(s)
    }

    /// Key and type number; the value's bytes follow.
    pub(crate) fn key(self, key: &str, value_type: u32) -> Self {
        self.string(key.as_bytes()).u32(value_type)
    }

    pub(crate) fn tensor(self, name: &str, dims: &[u64], type_id: u32, offset: u64) -> Self {
        let all = self.string(name.as_bytes()).u32(dims.len() as u32);
        dims.iter().fold(all, |b, &d| b.u64(d)).u32(type_id).u64(offset)
    }

    pub(crate) fn pad(mut self, alignment: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(alignment), 0);
        self
    }
}
