//! The least time a pass can take: reading what it must read, multiplying what it must multiply.
//!
//! Bytes and multiplications are counted from the file's header, so that they are the same for every engine that runs
//! the file, however it keeps the weights in memory.

use anyhow::Context;
use redline::gguf::Header;
use redline::model::Config;
use serde::Serialize;

/// What the machine does at most, per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Ceiling {
    /// Gigabytes read from memory.
    pub(crate) read_gb_s: f64,
    /// Billions of 8-bit multiplications, each with its addition.
    pub(crate) int8_gmacs: f64,
}

impl Ceiling {
    /// The better of two readings: a reading can be disturbed, but not flattered.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            read_gb_s: self.read_gb_s.max(other.read_gb_s),
            int8_gmacs: self.int8_gmacs.max(other.int8_gmacs),
        }
    }
}

/// What a pass has to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Work {
    /// Bytes of weights, and of the keys and values behind it.
    pub(crate) bytes: f64,
    /// Multiplications.
    pub(crate) macs: f64,
}

impl Work {
    /// Milliseconds it takes at least.
    pub(crate) fn roofline_ms(self, ceiling: Ceiling) -> f64 {
        let (read, multiply) = (self.bytes / ceiling.read_gb_s, self.macs / ceiling.int8_gmacs);
        read.max(multiply) / 1e6
    }
}

/// What a model's passes are made of.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Cost {
    /// Bytes of the layers.
    layer_bytes: f64,
    /// Multiplications of the layers' matrices, per row.
    layer_macs: f64,
    /// Bytes of the output head.
    head_bytes: f64,
    /// Its multiplications, per row whose logits are wanted.
    head_macs: f64,
    /// Bytes of keys and values, per token.
    kv_bytes: f64,
    /// Multiplications of attention, per row and token that it sees.
    attention_macs: f64,
}

impl Cost {
    /// Of a model file, with keys and values of so many bytes per token.
    pub(crate) fn of(header: &Header, config: &Config, kv_bytes: u64) -> anyhow::Result<Self> {
        let attention_macs = (2 * config.layers * config.heads * config.head_dim) as f64;
        let mut cost = Self { kv_bytes: kv_bytes as f64, attention_macs, ..Self::default() };
        for (_, tensor) in header.tensors.iter().filter(|(name, _)| name.starts_with("blk.")) {
            cost.layer_bytes += tensor.bytes as f64;
            cost.layer_macs += macs(&tensor.dims);
        }
        // Where there is no head of its own, the embedding is used.
        let head = ["output.weight", "token_embd.weight"];
        let head = head.iter().find_map(|&name| header.tensors.get(name));
        let head = head.context("the file has no output head")?;
        cost.head_bytes = head.bytes as f64;
        cost.head_macs = macs(&head.dims);
        Ok(cost)
    }

    /// Of a pass over `rows` new tokens of one sequence, which has `context` already.
    pub(crate) fn pass(&self, rows: u32, context: u32, wanted: u32) -> Work {
        let (rows, context, wanted) = (f64::from(rows), f64::from(context), f64::from(wanted));
        let seen = rows * context + rows * (rows + 1.0) / 2.0;
        let head_bytes = if wanted > 0.0 { self.head_bytes } else { 0.0 };
        Work {
            bytes: self.layer_bytes + head_bytes + self.kv_bytes * (context + rows),
            macs: rows * self.layer_macs + wanted * self.head_macs + seen * self.attention_macs,
        }
    }
}

/// Multiplications of a matrix with a vector; those of a vector by element are nothing.
fn macs(dims: &[u64]) -> f64 {
    if dims.len() > 1 { dims.iter().map(|&n| n as f64).product() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CEILING: Ceiling = Ceiling { read_gb_s: 50.0, int8_gmacs: 400.0 };

    #[test]
    fn the_slower_of_the_two_counts() {
        let work = |bytes, macs| Work { bytes, macs };
        assert_eq!(work(1e9, 1.6e9).roofline_ms(CEILING), 20.0);
        assert_eq!(work(1e9, 16e9).roofline_ms(CEILING), 40.0);
        let faster = Ceiling { read_gb_s: 60.0, int8_gmacs: 300.0 };
        assert_eq!(CEILING.or(faster), Ceiling { read_gb_s: 60.0, int8_gmacs: 400.0 });
    }

    #[test]
    fn a_pass_is_counted_by_hand() {
        let cost = Cost {
            layer_bytes: 100.0,
            layer_macs: 200.0,
            head_bytes: 30.0,
            head_macs: 40.0,
            kv_bytes: 5.0,
            attention_macs: 7.0,
        };
        // Row 0 sees 11 tokens, row 1 sees 12.
        let expected = Work { bytes: 130.0 + 5.0 * 12.0, macs: 400.0 + 80.0 + 7.0 * 23.0 };
        assert_eq!(cost.pass(2, 10, 2), expected);
        assert_eq!(cost.pass(1, 0, 0), Work { bytes: 105.0, macs: 207.0 });
    }

    #[test]
    fn matrices_multiply_and_vectors_do_not() {
        assert_eq!(macs(&[3, 5]), 15.0);
        assert_eq!(macs(&[3]), 0.0);
    }
}
