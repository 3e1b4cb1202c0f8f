//! Times single passes of a model, behind a context that is computed once.
//!
//! The rows of a pass are written to the slots behind the context, and over those of the pass before: nothing has to be
//! taken back. Up to [`VERIFIED`] rows, the logits of all of them are wanted, as when drafts are verified; of more only
//! those of the last, as in a prefill. The text is real, so that the laws that tokens are drawn from are, too.

use std::time::Instant;

use anyhow::{Context, ensure};
use redline::audit::built_in;
use redline::cli::ModelOptions;
use redline::gguf::Header;
use redline::hub::{TerminalProgress, resolve};
use redline::model::Config;
use redline::model::load::FileSource;
use redline::model_runner::{CandleRunner, CpuRunner, RunOptions};
use redline::text::{Encode, Tokenizer};
use redline::{Backend, Batch, ModelRunner, Prompt, Rows};
use redline_kv_cache::BlockId;
use redline_spec::{Draws, History, LogitRows, Proposal, Round, Sampling, Scratch, Verdict};

use crate::candle_linears::CandleLinears;
use crate::roofline::{Cost, Work};

const BLOCK_SIZE: u32 = 32;
/// Most rows of which all logits are wanted.
const VERIFIED: u32 = 32;
/// Rows of a pass that fills the context.
const CHUNK: u32 = 512;

/// A model with room for one sequence.
pub(crate) struct Passes {
    runner: Box<dyn ModelRunner>,
    cost: Cost,
    text: Vec<u32>,
    /// Entries of the vocabulary that have a token.
    used: usize,
    table: Vec<BlockId>,
    filled: u32,
    batch: Batch,
    rows: Rows,
}

/// Whose passes are timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    /// redline's, on the backend that is asked for.
    Redline,
    /// candle's quantised linear layers, without the rest of a pass.
    CandleLinears,
}

/// Threads of the kernels, where nobody says.
pub(crate) fn threads(options: &ModelOptions) -> usize {
    options.threads.unwrap_or_else(|| RunOptions::default().threads)
}

/// Rows of a pass whose logits are wanted.
pub(crate) fn wanted(rows: u32) -> u32 {
    if rows <= VERIFIED { rows } else { 1 }
}

impl Passes {
    /// Loads a model, with room for `longest` tokens.
    pub(crate) fn open(
        options: &ModelOptions,
        engine: Engine,
        longest: u32,
    ) -> anyhow::Result<Self> {
        let path = resolve(&options.model, &mut TerminalProgress::new())?;
        let (header, file) = Header::open(&path).with_context(|| path.display().to_string())?;
        let config = Config::from_header(&header)?;
        let tokenizer = Tokenizer::from_gguf(&header)?;
        let run = RunOptions { threads: threads(options), ..RunOptions::default() };
        let runner: Box<dyn ModelRunner> = match options.backend {
            _ if engine == Engine::CandleLinears => {
                Box::new(CandleLinears::open(&path, &header, &config)?)
            }
            Backend::Cpu => Box::new(CpuRunner::load(&header, file, run)?),
            Backend::Candle => {
                let mut source = FileSource::new(&header, file);
                let device = candle_core::Device::Cpu;
                Box::new(CandleRunner::build(config.clone(), &mut source, &device, run.cache)?)
            }
        };
        Self::over(runner, (&header, &config), &tokenizer, longest)
    }

    /// Passes of a runner that has been made of a file.
    pub(crate) fn over(
        mut runner: Box<dyn ModelRunner>,
        (header, config): (&Header, &Config),
        tokenizer: &Tokenizer,
        longest: u32,
    ) -> anyhow::Result<Self> {
        let most = runner.info().context_length;
        ensure!(longest as usize <= most, "the model has a context of {most}, not of {longest}");
        let cost = Cost::of(header, config, runner.info().lane.bytes_per_token()?)?;
        let blocks = longest.div_ceil(BLOCK_SIZE);
        runner.allocate(blocks, BLOCK_SIZE)?;
        Ok(Self {
            runner,
            cost,
            text: text(tokenizer)?,
            used: tokenizer.vocab().len_used(),
            table: (0..blocks).map(BlockId).collect(),
            filled: 0,
            batch: Batch::default(),
            rows: Rows::default(),
        })
    }

    /// Sees to it that the first `context` tokens are computed.
    pub(crate) fn fill(&mut self, context: u32) -> anyhow::Result<()> {
        while self.filled < context {
            let rows = CHUNK.min(context - self.filled);
            self.forward(self.filled, rows, 0)?;
            self.filled += rows;
        }
        Ok(())
    }

    /// Milliseconds of a pass over `rows` tokens behind `context`.
    pub(crate) fn pass_ms(&mut self, context: u32, rows: u32) -> anyhow::Result<f64> {
        ensure!(context <= self.filled, "a pass behind tokens that are not there");
        // What it overwrites has to be computed again for a longer context.
        self.filled = context;
        self.forward(context, rows, wanted(rows))
    }

    fn forward(&mut self, from: u32, count: u32, wanted: u32) -> anyhow::Result<f64> {
        self.batch.clear();
        self.batch.push_seq(&self.table);
        for position in from..from + count {
            let token = self.text[position as usize % self.text.len()];
            let row = self.batch.push_row(token, position);
            if position + wanted >= from + count {
                self.batch.want.push(row);
            }
        }
        let started = Instant::now();
        self.runner.forward(&self.batch, &mut self.rows)?;
        Ok(started.elapsed().as_secs_f64() * 1e3)
    }

    /// Milliseconds of drawing a token from each of the rows of the last pass, at temperature 1, as the engine does.
    pub(crate) fn sampling_ms(&mut self) -> anyhow::Result<f64> {
        let rule = redline::verifier("coupled")?;
        let (sampling, history) =
            (Sampling { temperature: 1.0, ..Sampling::default() }, History::new(&self.text));
        let (mut scratch, mut verdict) = (Scratch::default(), Verdict::default());
        let (proposal, width) = (Proposal::new(), self.runner.info().vocab_size);
        let started = Instant::now();
        for (base, logits) in (1..).zip(self.rows.logits.chunks_exact(width)) {
            let law_of = (&sampling, &history);
            let rows = LogitRows::new((logits, width), &proposal, law_of, None, &mut scratch);
            let round = Round { proposal: &proposal, base, draws: Draws { seed: 1, sample: 0 } };
            rule.verify(&round, &mut rows.without_padding(self.used), &mut verdict)?;
        }
        Ok(started.elapsed().as_secs_f64() * 1e3)
    }

    /// What a pass has to do.
    pub(crate) fn work(&self, context: u32, rows: u32) -> Work {
        self.cost.pass(rows, context, wanted(rows))
    }
}

/// Some text as tokens.
fn text(tokenizer: &Tokenizer) -> anyhow::Result<Vec<u32>> {
    let mut tokens = Vec::new();
    for prompt in built_in(false) {
        if let Prompt::Text(text) = &prompt.prompt {
            tokens.extend(tokenizer.encode(text, Encode::default())?);
        }
    }
    ensure!(!tokens.is_empty(), "the tokenizer makes nothing of the text");
    Ok(tokens)
}

/// Bytes of keys and values of a token of a model.
pub(crate) fn kv_bytes_per_token(model: &str) -> anyhow::Result<u64> {
    let path = resolve(model, &mut TerminalProgress::new())?;
    let (header, _) = Header::open(&path).with_context(|| path.display().to_string())?;
    let config = Config::from_header(&header)?;
    let values = config.layers * config.kv_heads * config.head_dim * 2;
    Ok(values as u64 * u64::from(redline::CacheType::default().bytes()))
}
