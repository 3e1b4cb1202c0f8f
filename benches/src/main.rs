//! Benchmarks. `cargo run --release -p redline-bench -- passes MODEL.gguf [THREADS] [CONTEXT]` prints the time of one
//! forward pass over M new tokens: what a round with M − 1 drafts costs. `… -- schedule` prints what the scheduler
//! adds to it.

mod schedule;

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use redline::hub::{TerminalProgress, resolve};
use redline::{Batch, CpuRunner, ModelRunner, Rows, RunOptions};
use redline_kv_cache::BlockId;

const BLOCK_SIZE: u32 = 32;
/// Most rows of a pass that is timed.
const ROWS_MAX: u32 = 128;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "redline-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first() {
        Some((name, rest)) if name == "passes" => passes(rest),
        Some((name, [])) if name == "schedule" => schedule::schedule(),
        _ => {
            bail!("usage: redline-bench passes MODEL [THREADS] [CONTEXT] | redline-bench schedule")
        }
    }
}

fn passes(args: &[String]) -> Result<()> {
    let model = args.first().context("which model? an alias, or a .gguf file")?;
    let number = |index: usize, default: u32| match args.get(index) {
        Some(text) => text.parse().with_context(|| format!("`{text}` is no number")),
        None => Ok(default),
    };
    let (threads, context) = (number(1, 2)? as usize, number(2, 128)?);
    let path = resolve(model, &mut TerminalProgress::new())?;
    let options = RunOptions { threads, ..RunOptions::default() };
    let mut timer = Timer::new(CpuRunner::open(&path, options)?, context)?;
    let mut out = std::io::stdout();
    let prefill = timer.pass(0, context, false)?;
    writeln!(out, "{model}, {threads} threads, context {context}; prefill {prefill:.0} ms")?;
    writeln!(out, "{:>4} {:>9} {:>9} {:>7}", "M", "median ms", "best ms", "T(M)/T(1)")?;
    let mut one = f64::NAN;
    for rows in [1, 2, 3, 4, 6, 8, 16, 32, ROWS_MAX] {
        let repeats = if rows <= 8 { 15 } else { 5 };
        let times = (0..repeats).map(|_| timer.pass(context, rows, rows <= 32));
        let mut times = times.collect::<Result<Vec<_>>>()?;
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        if rows == 1 {
            one = median;
        }
        writeln!(out, "{rows:>4} {median:>9.1} {:>9.1} {:>7.2}", times[0], median / one)?;
    }
    Ok(())
}

/// A model with room for one sequence.
struct Timer {
    model: CpuRunner,
    table: Vec<BlockId>,
    batch: Batch,
    rows: Rows,
}

impl Timer {
    fn new(mut model: CpuRunner, context: u32) -> Result<Self> {
        let blocks = (context + ROWS_MAX).div_ceil(BLOCK_SIZE);
        model.allocate(blocks, BLOCK_SIZE)?;
        let table = (0..blocks).map(BlockId).collect();
        Ok(Self { model, table, batch: Batch::default(), rows: Rows::default() })
    }

    /// Milliseconds of a pass over `count` tokens behind `from`; logits of all, or of the last.
    fn pass(&mut self, from: u32, count: u32, all: bool) -> Result<f64> {
        self.batch.clear();
        self.batch.push_seq(&self.table);
        for position in from..from + count {
            let row = self.batch.push_row(100 + position % 50, position);
            if all || position + 1 == from + count {
                self.batch.want.push(row);
            }
        }
        let started = Instant::now();
        self.model.forward(&self.batch, &mut self.rows)?;
        Ok(started.elapsed().as_secs_f64() * 1e3)
    }
}
