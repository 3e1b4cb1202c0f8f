//! What a smaller draft saves: bytes and time of one token, for a model as it is and with fewer bits and tokens.
//!
//! The variants take turns, so that a machine that gets faster or slower does so for all of them.

use std::io::Write;

use anyhow::{Result, anyhow};
use redline::gguf::Header;
use redline::hub::{TerminalProgress, resolve};
use redline::model::Config;
use redline::model::load::{FileSource, LoadError, Tensor, TensorSource};
use redline::model::slim::{Slim, SlimSource};
use redline::text::Tokenizer;
use redline::{CpuRunner, DraftHead, DraftQuant, RunOptions};

use crate::passes::Passes;

/// Committed tokens behind which a token is computed.
const CONTEXT: u32 = 128;
/// Times that each variant has its turn.
const TURNS: usize = 40;
/// What is compared if nobody says.
const VARIANTS: [&str; 5] = ["all", "32768", "q4_0+all", "q4_0+32768", "q3_k+32768"];

/// Counts what a pass reads: all matrices but a table that is only looked up in.
struct Counted<'a> {
    inner: SlimSource<'a>,
    table: u64,
    bytes: u64,
}

impl TensorSource for Counted<'_> {
    fn names(&self) -> Vec<String> {
        self.inner.names()
    }

    fn take(&mut self, name: &str) -> Result<Option<Tensor>, LoadError> {
        let tensor = self.inner.take(name)?;
        let matrix = tensor.as_ref().filter(|tensor| tensor.dims.len() == 2);
        let bytes = matrix.map_or(0, |tensor| tensor.bytes.as_slice().len() as u64);
        self.bytes += bytes;
        if name == "token_embd.weight" {
            self.table = bytes;
        }
        Ok(tensor)
    }

    fn head_rows(&self) -> Option<usize> {
        self.inner.head_rows()
    }
}

/// One way to load the model.
struct Variant {
    name: String,
    megabytes: f64,
    passes: Passes,
    times: Vec<f64>,
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The draft: an alias of `redline models`, or a .gguf file
    model: String,
    /// What is compared: `all`, N or a file (tokens of the head), or `q4_0+N` and the like
    #[arg(default_values = VARIANTS)]
    variants: Vec<String>,
    /// Threads of the kernels
    #[arg(long, value_name = "N", default_value_t = RunOptions::default().threads)]
    threads: usize,
}

pub(crate) fn run(Args { model, variants, threads }: &Args) -> Result<()> {
    let mut out = std::io::stdout();
    let load = |name: &String| variant(model, name, *threads);
    let mut variants = variants.iter().map(load).collect::<Result<Vec<_>>>()?;
    for turn in 0..TURNS {
        for variant in &mut variants {
            let time = variant.passes.pass_ms(CONTEXT, 1)?;
            // The first pass of each meets cold memory.
            if turn > 0 {
                variant.times.push(time);
            }
        }
    }
    writeln!(out, "{model}, {threads} threads, context {CONTEXT}: one token")?;
    writeln!(
        out,
        "{:<18} {:>8} {:>6} {:>10} {:>6} {:>8}",
        "draft", "MB read", "ratio", "median ms", "ratio", "best ms"
    )?;
    let mut first = None;
    for variant in &mut variants {
        variant.times.sort_by(f64::total_cmp);
        let (bytes, time) = (variant.megabytes, variant.times[variant.times.len() / 2]);
        let (all, longest) = *first.get_or_insert((bytes, time));
        let (smaller, shorter) = (bytes / all, time / longest);
        let (name, best) = (&variant.name, variant.times[0]);
        writeln!(
            out,
            "{name:<18} {bytes:>8.1} {smaller:>6.3} {time:>10.2} {shorter:>6.3} {best:>8.2}"
        )?;
    }
    Ok(())
}

fn variant(model: &str, name: &str, threads: usize) -> Result<Variant> {
    let (quant, head) = match name.split_once('+') {
        Some((quant, head)) => (Some(quant.parse::<DraftQuant>().map_err(|e| anyhow!(e))?), head),
        None => (None, name),
    };
    let head: DraftHead = head.parse().map_err(|error: String| anyhow!(error))?;
    let path = resolve(model, &mut TerminalProgress::new())?;
    let (header, file) = Header::open(&path)?;
    let tokenizer = Tokenizer::from_gguf(&header)?;
    let head = head.tokens(&tokenizer)?;
    let mut whole = FileSource::new(&header, file);
    let tied = !whole.names().iter().any(|name| name == "output.weight") && head.is_none();
    let inner = SlimSource::new(&mut whole, Slim { quant, head, threads });
    let mut source = Counted { inner, table: 0, bytes: 0 };
    let options = RunOptions { threads, ..RunOptions::default() };
    let config = Config::from_header(&header)?;
    let runner = Box::new(CpuRunner::build(config.clone(), &mut source, options)?);
    let read = source.bytes - if tied { 0 } else { source.table };
    let mut passes = Passes::over(runner, (&header, &config), &tokenizer, CONTEXT + 1)?;
    passes.fill(CONTEXT)?;
    let (name, megabytes) = (name.to_owned(), read as f64 / 1e6);
    Ok(Variant { name, megabytes, passes, times: Vec::new() })
}
