//! `redline-bench kernels`: T(M), the time of a pass over M new tokens, and what of it is owed to the machine.
//!
//! T(M) is what all of speculation is paid with. Sizes take turns, forwards and backwards, and each sample stands beside
//! readings of the machine from right before and after it: its share of the roofline is that of its moment.

mod measure;
mod report;
mod serve;

use std::path::PathBuf;

use anyhow::Context;
use redline::cli::{Interrupt, ModelOptions};
use redline::spans::SpanTimes;

use crate::console::{note, print, save};
use crate::machine::Machine;
use crate::passes::{Engine, Passes, threads};

/// Flags of `redline-bench kernels`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelOptions,
    /// New tokens of a pass, M; 1 is always among them
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,32,128,512",
        value_name = "N,…",
        value_parser = clap::value_parser!(u32).range(1..=4096)
    )]
    rows: Vec<u32>,
    /// Tokens before them
    #[arg(long, value_delimiter = ',', default_value = "128,4096", value_name = "N,…")]
    contexts: Vec<u32>,
    /// Samples of each size; they take turns
    #[arg(long, default_value_t = 7, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    samples: u16,
    /// Memory read to measure its bandwidth, in MiB; should be larger than all caches
    #[arg(long, default_value_t = 1024, value_name = "MIB", value_parser = clap::value_parser!(u32).range(2..=65536))]
    probe: u32,
    /// The result as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Draws T(M) and the roofline
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Times candle's quantised linear layers instead, alone: the least that any model on candle takes
    /// (RAYON_NUM_THREADS says on how many threads)
    #[arg(long, conflicts_with = "backend")]
    candle_linears: bool,
    /// Measures what is asked for on standard input, a JSON object {"context","m","passes"} or {"probe":true} a line,
    /// and answers each with one: for measurements that take turns with another program's
    #[arg(long, conflicts_with_all = ["json", "plot", "samples"])]
    serve: bool,
}

impl Args {
    /// Whether it answers questions until there are no more.
    pub(crate) fn serves(&self) -> bool {
        self.serve
    }
}

pub(crate) fn run(args: &Args, interrupt: &Interrupt) -> anyhow::Result<()> {
    let mut rows = args.rows.clone();
    rows.push(1);
    rows.sort_unstable();
    rows.dedup();
    let mut contexts = args.contexts.clone();
    contexts.sort_unstable();
    contexts.dedup();
    let most = |of: &[u32]| of.iter().copied().max().unwrap_or(1);
    let longest = most(&contexts).checked_add(most(&rows)).context("too long a context")?;
    let spans = SpanTimes::install()?;
    let engine = if args.candle_linears { Engine::CandleLinears } else { Engine::Redline };
    note(&format!("loading {}", args.model.model));
    let mut passes = Passes::open(&args.model, engine, longest)?;
    let mut machine = Machine::new(threads(&args.model), args.probe as usize)?;
    if args.serve {
        return serve::serve(&mut passes, &mut machine, longest);
    }
    note(&report::machine_line(machine.info()));
    let plan = measure::Plan { rows: &rows, contexts: &contexts, samples: args.samples };
    let rows = measure::measure(&plan, &mut passes, &mut machine, &spans, interrupt)?;
    let report = report::Report {
        model: args.model.model.clone(),
        backend: match engine {
            Engine::CandleLinears => "candle's linear layers alone".to_owned(),
            Engine::Redline => format!("{:?}", args.model.backend).to_lowercase(),
        },
        machine: machine.info().clone(),
        rows,
    };
    if let Some(path) = &args.plot {
        save(path, &report.plot())?;
    }
    print(&report, &report.table(), args.json)
}
