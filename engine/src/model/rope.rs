//! Rotary embedding: angles by position, with the scalings that GGUF files ask for.

use std::f64::consts::PI;

use super::LoadError;
use super::config::bad;
use crate::gguf::Header;

/// Rotation frequencies of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// Values of a head that are rotated (an even number; the rest passes).
    pub dims: usize,
    /// Angle per position of each pair.
    frequencies: Vec<f64>,
    /// Rotated values are multiplied by this (yarn's attention factor; 1 otherwise).
    magnitude: f64,
}

/// How a model was stretched beyond the context it was first trained on.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scaling {
    None,
    /// Positions divided by a factor.
    Linear(f64),
    Yarn(Yarn),
}

/// YaRN (Peng et al. 2023), as llama.cpp computes it: high frequencies stay, low ones are
/// interpolated.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Yarn {
    factor: f64,
    original_context: f64,
    attention_factor: f64,
    beta_fast: f64,
    beta_slow: f64,
}

impl Rope {
    /// Plain rotation of `dims` values with frequencies `base^(-2i / dims)`.
    pub fn plain(dims: usize, base: f64) -> Self {
        Self::scaled(dims, base, Scaling::None)
    }

    /// Reads the `rope.*` keys of architecture `arch`.
    ///
    /// # Errors
    /// [`LoadError`] naming a key that is out of range or asks for a scaling redline does not know.
    pub fn from_header(h: &Header, arch: &str, head_dim: usize) -> Result<Self, LoadError> {
        let key = |name: &str| format!("{arch}.rope.{name}");
        let dims = h.get::<u32>(&key("dimension_count"))?.map_or(head_dim, |n| n as usize);
        if dims == 0 || dims > head_dim || !dims.is_multiple_of(2) {
            return Err(bad(
                &key("dimension_count"),
                "is not an even number up to the head's size",
            ));
        }
        let base = h.get::<f32>(&key("freq_base"))?.map_or(10_000.0, f64::from);
        if base <= 1.0 {
            return Err(bad(&key("freq_base"), "is not above 1"));
        }
        let number = |name: &str| h.get::<f32>(&key(name)).map(|x| x.map(f64::from));
        let factor = match number("scaling.factor")? {
            Some(f) => Some(f),
            None => number("scale_linear")?,
        };
        // llama.cpp takes a file without a type for linear; a factor of 0 means none.
        let factor = factor.filter(|&f| f != 0.0).unwrap_or(1.0);
        if factor <= 0.0 {
            return Err(bad(&key("scaling.factor"), "is not positive"));
        }
        let scaling = match h.get::<&str>(&key("scaling.type"))?.unwrap_or("linear") {
            "none" => Scaling::None,
            "linear" => Scaling::Linear(factor),
            "yarn" => {
                let original = key("scaling.original_context_length");
                Scaling::Yarn(Yarn {
                    factor,
                    original_context: f64::from(h.require::<u32>(&original)?.max(1)),
                    attention_factor: number("scaling.attn_factor")?.unwrap_or(1.0),
                    beta_fast: number("scaling.yarn_beta_fast")?.unwrap_or(32.0),
                    beta_slow: number("scaling.yarn_beta_slow")?.unwrap_or(1.0),
                })
            }
            other => {
                let what = format!("rope scaling {other:?}");
                return Err(LoadError::Unsupported { key: key("scaling.type"), what });
            }
        };
        Ok(Self::scaled(dims, base, scaling))
    }

    fn scaled(dims: usize, base: f64, scaling: Scaling) -> Self {
        let plain = |i: usize| base.powf(-2.0 * i as f64 / dims as f64);
        let pairs = 0..dims / 2;
        match scaling {
            Scaling::None => Self { dims, frequencies: pairs.map(plain).collect(), magnitude: 1.0 },
            Scaling::Linear(factor) => Self {
                dims,
                frequencies: pairs.map(|i| plain(i) / factor).collect(),
                magnitude: 1.0,
            },
            Scaling::Yarn(y) => {
                // The pair that turns `turns` times over the original context.
                let pair_of = |turns: f64| {
                    dims as f64 * (y.original_context / (turns * 2.0 * PI)).ln() / (2.0 * base.ln())
                };
                let low = pair_of(y.beta_fast).floor().max(0.0);
                let high = pair_of(y.beta_slow).ceil().min(dims as f64 - 1.0);
                let frequency = |i: usize| {
                    let keep = 1.0 - ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                    plain(i) / y.factor * (1.0 - keep) + plain(i) * keep
                };
                let magnitude = y.attention_factor * (1.0 + 0.1 * y.factor.ln());
                Self { dims, frequencies: pairs.map(frequency).collect(), magnitude }
            }
        }
    }

    /// Divides each pair's frequency by a factor of the file's `rope_freqs.weight` (llama 3).
    ///
    /// # Errors
    /// [`LoadError`] if the number of factors does not fit or one is not positive.
    pub fn divide(&mut self, factors: &[f32]) -> Result<(), LoadError> {
        if factors.len() != self.frequencies.len()
            || !factors.iter().all(|&f| f > 0.0 && f.is_finite())
        {
            return Err(bad("rope_freqs.weight", "is not one positive factor per pair"));
        }
        for (frequency, &factor) in self.frequencies.iter_mut().zip(factors) {
            *frequency /= f64::from(factor);
        }
        Ok(())
    }

    /// Appends cosine and sine of each pair's angle at `position`. A function of the position
    /// alone.
    pub fn angles(&self, position: u32, cos: &mut Vec<f32>, sin: &mut Vec<f32>) {
        for &frequency in &self.frequencies {
            let (s, c) = (f64::from(position) * frequency).sin_cos();
            cos.push((c * self.magnitude) as f32);
            sin.push((s * self.magnitude) as f32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::Value;

    fn header(entries: &[(&str, Value)]) -> Header {
        let metadata =
            entries.iter().map(|(k, v)| (format!("llama.rope.{k}"), v.clone())).collect();
        Header { version: 3, alignment: 32, metadata, tensors: Default::default(), data_start: 0 }
    }

    #[test]
    fn linear_scaling_divides_positions() {
        let h = header(&[
            ("scaling.type", Value::String("linear".into())),
            ("scaling.factor", Value::F32(4.0)),
        ]);
        let (scaled, plain) =
            (Rope::from_header(&h, "llama", 8).unwrap(), Rope::plain(8, 10_000.0));
        let at = |rope: &Rope, position| {
            let (mut cos, mut sin) = (vec![], vec![]);
            rope.angles(position, &mut cos, &mut sin);
            (cos, sin)
        };
        assert_eq!(at(&scaled, 8), at(&plain, 2));
    }

    #[test]
    fn yarn_keeps_fast_pairs_and_slows_slow_ones() {
        let h = header(&[
            ("scaling.type", Value::String("yarn".into())),
            ("scaling.factor", Value::F32(4.0)),
            ("scaling.original_context_length", Value::U32(4096)),
        ]);
        let (yarn, plain) =
            (Rope::from_header(&h, "llama", 128).unwrap(), Rope::plain(128, 10_000.0));
        assert_eq!(yarn.frequencies[0], plain.frequencies[0]);
        let slow = yarn.frequencies[63] / plain.frequencies[63];
        assert!((slow - 0.25).abs() < 1e-12, "{slow}");
        assert!((yarn.magnitude - 1.138_629_436).abs() < 1e-6);
    }

    #[test]
    fn unknown_scalings_are_refused_by_name() {
        let h = header(&[("scaling.type", Value::String("longrope".into()))]);
        let error = Rope::from_header(&h, "llama", 8).unwrap_err().to_string();
        assert!(error.contains("longrope") && error.contains("llama.rope.scaling.type"), "{error}");
    }
}
