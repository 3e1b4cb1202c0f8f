//! Flags that several subcommands share, and their translation into the library's types.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use redline_spec::Sampling;

use super::Failure;
use crate::draft_head::DraftHead;
use crate::draft_policy::{DraftLength, Draw, Tree};
use crate::grammar::{GRAMMAR_BYTES_MAX, Grammar};
use crate::load_options::{Backend, EngineOptions, LoadOptions};
use crate::logprobs::{Logprobs, LogprobsMode, TOP_LOGPROBS_MAX};
use crate::model::DraftQuant;

/// Which model, and how much of the machine it may use.
#[derive(Args, Debug, Clone)]
pub struct ModelOptions {
    /// Target model: an alias of `redline models`, a .gguf file, or hf:OWNER/REPO/FILE.gguf
    #[arg(short, long, default_value = "smollm2-135m", value_name = "MODEL")]
    pub model: String,
    /// What computes the models
    #[arg(long, value_enum, default_value_t = Backend::Cpu)]
    pub backend: Backend,
    /// Threads of the kernels, at most one per core that may be used [default: one per physical core]
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
    /// Drafter: none, ngram, a draft model (alias or file) that has the target's tokens or some of them, or the
    /// target itself with fewer bits
    #[arg(short, long, default_value = "ngram", value_name = "none|ngram|MODEL|self:q4_0")]
    pub draft: String,
    /// Re-quantise a draft model's matrices that have more bits; those whose rows are no multiples of 256 become q4_0
    #[arg(long, value_name = "q4_0|q3_k|q2_k")]
    pub draft_quant: Option<DraftQuant>,
    /// Tokens that a draft model can say: all, N (the marks that end texts and the lowest ids, which byte-pair
    /// tokenizers give to what was frequent in training), or a file of ids. What comes out does not change; texts full of
    /// other tokens get worse drafts
    #[arg(long, default_value = "all", value_name = "all|N|FILE")]
    pub draft_head: DraftHead,
    /// Verification rule: coupled gives the very tokens of plain decoding, the others the same law
    #[arg(long, default_value = "coupled", value_name = "coupled|token|block|traversal")]
    pub verify: String,
    /// Draft tokens per round: the nodes of a tree, or the length of a chain
    #[arg(short = 'k', long = "draft-tokens", default_value = "auto", value_name = "auto|N", value_parser = parse_length)]
    pub length: DraftLength,
    /// Shape of the drafts of a draft model: one after the other, as measured acceptance has it, or W candidates
    /// for a token and D tokens ahead, cut to the N nodes of -k that are accepted most often
    #[arg(long, default_value_t = Tree::Chain, value_name = "chain|auto|WxD")]
    pub tree: Tree,
    /// How a draft model picks candidates; what comes out is the same law, or the same tokens, in any case
    #[arg(long, value_enum, default_value_t = Draw::Rule, value_name = "rule|without|with|top")]
    pub draw: Draw,
}

impl SpeculationOptions {
    /// What an engine of these options and a model is loaded by.
    #[must_use]
    pub fn load_options(&self, model: &ModelOptions, engine: EngineOptions) -> LoadOptions {
        LoadOptions {
            model: model.model.clone(),
            backend: model.backend,
            threads: model.threads,
            draft: self.draft.clone(),
            draft_quant: self.draft_quant,
            draft_head: self.draft_head.clone(),
            verify: self.verify.clone(),
            length: self.length,
            tree: self.tree,
            draw: self.draw,
            engine,
        }
    }
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

/// What every output has to match.
#[derive(Args, Debug, Clone)]
#[group(multiple = false)]
pub struct GrammarOptions {
    /// Answer with JSON that is valid under the schema in this file
    #[arg(long, value_name = "FILE", conflicts_with = "ignore_eos")]
    pub json_schema: Option<PathBuf>,
    /// Answer with a text that this regular expression matches as a whole
    #[arg(long, value_name = "REGEX", conflicts_with = "ignore_eos")]
    pub regex: Option<String>,
    /// Answer with a text of the Lark grammar in this file
    #[arg(long, value_name = "FILE", conflicts_with = "ignore_eos")]
    pub lark: Option<PathBuf>,
}

impl GrammarOptions {
    /// The grammar, if one is given.
    ///
    /// # Errors
    /// If its file can't be read.
    pub fn grammar(&self) -> anyhow::Result<Option<Grammar>> {
        Ok(match (&self.json_schema, &self.regex, &self.lark) {
            (Some(path), _, _) => Some(Grammar::json_schema(read_grammar(path)?)),
            (_, Some(regex), _) => Some(Grammar::regex(regex)),
            (_, _, Some(path)) => Some(Grammar::lark(read_grammar(path)?)),
            (None, None, None) => None,
        })
    }
}

/// No more than is needed to see that it is too long.
fn read_grammar(path: &Path) -> anyhow::Result<String> {
    let at = || format!("can't read {}", path.display());
    let mut text = String::new();
    let file = File::open(path).with_context(at)?;
    file.take(GRAMMAR_BYTES_MAX as u64 + 1).read_to_string(&mut text).with_context(at)?;
    anyhow::ensure!(
        text.len() <= GRAMMAR_BYTES_MAX,
        "{} has more than {GRAMMAR_BYTES_MAX} bytes",
        path.display()
    );
    Ok(text)
}

/// What is told of each token besides its text.
#[derive(Args, Debug, Clone)]
pub struct LogprobsOptions {
    /// Log-probability of each token, with --json
    #[arg(long, requires = "json")]
    pub logprobs: bool,
    /// And of the N likeliest in its place, at most 20
    #[arg(long, value_name = "N", requires = "json", value_parser = parse_top)]
    pub top_logprobs: Option<usize>,
    /// Of which law: the model's own, or the one after temperature, truncation, penalties and constraint
    #[arg(long, value_enum, default_value_t = LogprobsMode::Raw, value_name = "raw|processed")]
    pub logprobs_mode: LogprobsMode,
}

fn parse_top(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(top @ 0..=TOP_LOGPROBS_MAX) => Ok(top),
        _ => Err(format!("a number from 0 to {TOP_LOGPROBS_MAX}")),
    }
}

impl LogprobsOptions {
    /// What is asked for, if anything is.
    pub fn wanted(&self) -> Option<Logprobs> {
        let asked = self.logprobs || self.top_logprobs.is_some();
        asked.then(|| Logprobs { top: self.top_logprobs.unwrap_or(0), mode: self.logprobs_mode })
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
