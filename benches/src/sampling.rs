//! How long a step takes from logits to tokens: laws, noise, draws, verification; and the laws and draws of drafts.
//!
//! Rows are those of two models after the last tokens of the same texts, so that laws are as wide and as related as they really are.

mod cases;

use std::io::Write;
use std::time::Instant;

use anyhow::{Result, ensure};
use redline::hub::{TerminalProgress, resolve};
use redline::spec::History;
use redline::text::Encode;
use redline::{Batch, CpuRunner, ModelRunner, Rows, RunOptions};
use redline_kv_cache::BlockId;

use cases::{Input, ROWS, Times, median};

/// What the models have read; the rows are those behind its last tokens.
const TEXT: &str = "The history of the printing press begins long before Gutenberg. Movable type was made of \
                    clay in China in the eleventh century, and of bronze in Korea in the thirteenth. What was new in";
const REPEATS: u64 = 60;
const PASSES: usize = 9;
const BLOCK_SIZE: u32 = 32;

/// Prints a row for each way of sampling. The share is of a step that has nothing else but the target's pass.
pub(crate) fn sampling(target: &str, draft: &str) -> Result<()> {
    let tokens = redline::load_tokenizer(target)?.encode(TEXT, Encode::default())?;
    let (own, other) = (Read::new(target, &tokens)?, Read::new(draft, &tokens)?);
    let vocab = own.vocab;
    ensure!(other.vocab == vocab, "{draft} has {} tokens and {target} {vocab}", other.vocab);
    let history = History::new(&tokens);
    let input = Input { vocab, target: own.logits, draft: other.logits, history };
    let mut out = std::io::stdout();
    writeln!(out, "{ROWS} rows of {vocab} logits, {target}, drafts by {draft}")?;
    writeln!(out, "the target's pass takes {:.1} ms", own.pass)?;
    writeln!(out, "{:<34} {:>10} {:>10} {:>8}", "", "verify ms", "draft ms", "share")?;
    for case in cases::cases() {
        let Times { verify, draft } = cases::time(&case, &input, REPEATS)?;
        let share = 100.0 * (verify + draft) / (verify + draft + own.pass);
        writeln!(out, "{:<34} {verify:>10.3} {draft:>10.3} {share:>6.2} %", case.name)?;
    }
    Ok(())
}

/// What a model says behind each of the last [`ROWS`] tokens of a text.
struct Read {
    vocab: usize,
    logits: Vec<f32>,
    /// Milliseconds of a pass over these rows, the median.
    pass: f64,
}

impl Read {
    fn new(model: &str, tokens: &[u32]) -> Result<Self> {
        let path = resolve(model, &mut TerminalProgress::new())?;
        let mut model = CpuRunner::open(&path, RunOptions::default())?;
        let blocks = tokens.len().div_ceil(BLOCK_SIZE as usize) as u32;
        model.allocate(blocks, BLOCK_SIZE)?;
        let table: Vec<BlockId> = (0..blocks).map(BlockId).collect();
        let (mut batch, mut rows) = (Batch::default(), Rows::default());
        let from = tokens.len().saturating_sub(ROWS);
        for (wanted, range) in [(false, 0..from), (true, from..tokens.len())] {
            batch.clear();
            batch.push_seq(&table);
            for position in range {
                let row = batch.push_row(tokens[position], position as u32);
                if wanted || position + 1 == from {
                    batch.want.push(row);
                }
            }
            model.forward(&batch, &mut rows)?;
        }
        let mut times = Vec::new();
        for _ in 0..PASSES {
            let started = Instant::now();
            model.forward(&batch, &mut rows)?;
            times.push(started.elapsed().as_secs_f64() * 1e3);
        }
        Ok(Self { vocab: model.info().vocab_size, logits: rows.logits, pass: median(times)? })
    }
}
