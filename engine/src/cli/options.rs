//! Flags that several subcommands share, and their translation into the library's types.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use redline_spec::Sampling;

use super::Failure;
use crate::budget::DraftLength;
use crate::load_options::Backend;

/// Which model, and how much of the machine it may use.
#[derive(Args, Debug, Clone)]
pub struct ModelOptions {
    /// Target model: an alias of `redline models`, a .gguf file, or hf:OWNER/REPO/FILE.gguf
    #[arg(short, long, default_value = "smollm2-135m", value_name = "MODEL")]
    pub model: String,
    /// What computes the models
    #[arg(long, value_enum, default_value_t = Backend::Cpu)]
    pub backend: Backend,
    /// Threads of the kernels [default: one per physical core]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    pub threads: Option<usize>,
}

fn parse_threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads @ 1..=256) => Ok(threads),
        _ => Err("a number from 1 to 256".to_owned()),
    }
}

/// How drafts are made and verified.
#[derive(Args, Debug, Clone)]
pub struct SpeculationOptions {
    /// Drafter: none, ngram, or a draft model (alias or file) with the target's tokenizer
    #[arg(short, long, default_value = "ngram", value_name = "none|ngram|MODEL")]
    pub draft: String,
    /// Verification rule: coupled gives the very tokens of plain decoding, the others the same law
    #[arg(long, default_value = "coupled", value_name = "coupled|token|block|traversal")]
    pub verify: String,
    /// Draft tokens per round
    #[arg(short = 'k', long = "draft-tokens", default_value = "auto", value_name = "auto|N", value_parser = parse_length)]
    pub length: DraftLength,
}

fn parse_length(text: &str) -> Result<DraftLength, String> {
    if text == "auto" {
        return Ok(DraftLength::Auto);
    }
    match text.parse() {
        Ok(k @ 0..=64) => Ok(DraftLength::Fixed(k)),
        _ => Err("`auto` or a number from 0 to 64".to_owned()),
    }
}

/// The law tokens are drawn from.
#[derive(Args, Debug, Clone)]
pub struct SamplingOptions {
    /// 0 is greedy
    #[arg(long, default_value_t = 0.0, value_name = "F", allow_negative_numbers = true)]
    pub temperature: f64,
    /// Keep only the N most probable tokens; 0 keeps all
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub top_k: u32,
    /// Keep the most probable tokens that together reach this mass
    #[arg(long, default_value_t = 1.0, value_name = "F", allow_negative_numbers = true)]
    pub top_p: f64,
    /// Drop tokens less probable than this share of the most probable one
    #[arg(long, default_value_t = 0.0, value_name = "F", allow_negative_numbers = true)]
    pub min_p: f64,
    /// Above 1: tokens of the prompt and the output become less likely
    #[arg(long, default_value_t = 1.0, value_name = "F", allow_negative_numbers = true)]
    pub repetition_penalty: f64,
    /// Taken off the logit of every token already generated
    #[arg(long, default_value_t = 0.0, value_name = "F", allow_negative_numbers = true)]
    pub presence_penalty: f64,
    /// Taken off the logit of a token for each time it was generated
    #[arg(long, default_value_t = 0.0, value_name = "F", allow_negative_numbers = true)]
    pub frequency_penalty: f64,
    /// Seed of the noise; the same seed gives the same tokens [default: random, reported with --json]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

impl SamplingOptions {
    /// Checks the values.
    ///
    /// # Errors
    /// A usage error that names the flag, its value and its range.
    pub fn sampling(&self) -> Result<Sampling, Failure> {
        let sampling = Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            ..Sampling::default()
        };
        sampling.validate().map_err(Failure::usage)?;
        Ok(sampling)
    }
}

/// Parses a size such as `512M`, `2GiB` or `1000000`; binary units.
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no size: write for example 512M, 2G or a number of bytes");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    match number.checked_mul(1_u64 << shift) {
        Some(bytes) if bytes > 0 => Ok(bytes),
        _ => Err(wrong()),
    }
}

/// A length of time in seconds, with decimals if need be.
pub(super) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds
        .filter(|time| !time.is_zero())
        .ok_or_else(|| format!("`{text}` is no length of time: write seconds, such as 30 or 0.5"))
}

/// A prompts or texts file given on the command line; `-` is standard input.
pub(super) type InputFile = PathBuf;

#[cfg(test)]
mod tests {
    use super::{Duration, parse_seconds, parse_size};

    #[test]
    fn seconds_take_decimals_and_refuse_the_rest() {
        assert_eq!(parse_seconds("30"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["", "0", "-1", "NaN", "inf", "1e30", "5s"] {
            assert!(parse_seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_take_binary_units_and_refuse_the_rest() {
        assert_eq!(parse_size("512M"), Ok(512 << 20));
        assert_eq!(parse_size("2GiB"), Ok(2 << 30));
        assert_eq!(parse_size("77"), Ok(77));
        for wrong in ["", "0", "M", "1.5G", "-1", "2X", "99999999999999T"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
