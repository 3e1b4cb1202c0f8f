//! Benchmarks: what a pass costs, what speculation makes of it, and what the scheduler adds.
//!
//! Ratios of one run are what counts: the machine changes under a benchmark, so whatever is compared takes turns.
//! Results go to standard output, progress to standard error. Ctrl-C ends a long run after the step or the pass
//! under way, and what is whole by then is printed.

mod candle_linears;
mod console;
mod drafts;
mod grid;
mod kernels;
mod machine;
mod passes;
mod plot;
mod roofline;
mod sampling;
mod schedule;
mod speculation;
mod stats;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use redline::cli::{INTERRUPTED, Interrupt};

use console::note;

#[derive(Parser)]
#[command(name = "redline-bench", version, about = "Benchmarks of redline", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// T(M), the time of a pass over M new tokens, beside what this machine could do at most
    Kernels(kernels::Args),
    /// Tokens per second without drafts, with K of them, and with auto, by kind of prompt; and what theory predicts
    #[command(mut_arg("length", |arg| arg.hide(true)))]
    Speculation(Box<speculation::Args>),
    /// auto against no drafts and against fixed numbers of them, over concurrency x context, in paired blocks
    #[command(mut_arg("length", |arg| arg.hide(true)))]
    Grid(Box<grid::Args>),
    /// What the scheduler costs a step, without a model
    Schedule,
    /// What drawing tokens costs a step, by rule and parameters
    Sampling {
        /// The model whose logits are drawn from
        target: String,
        /// The model whose laws drafts are drawn from
        draft: String,
    },
    /// What a smaller draft saves: bytes and time of a token, as it is and with fewer bits and tokens
    Drafts(drafts::Args),
    /// Draws times over rows, given as JSON on standard input, as an SVG on standard output
    Plot,
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
        }
    };
    // The others, which are short or print nothing at their end, are ended by the first signal.
    let interrupt = match &cli.command {
        Command::Kernels(args) if args.serves() => Interrupt::default(),
        Command::Kernels(_) | Command::Speculation(_) | Command::Grid(_) => Interrupt::listen(),
        _ => Interrupt::default(),
    };
    let result = match cli.command {
        Command::Kernels(args) => kernels::run(&args, &interrupt),
        Command::Speculation(args) => speculation::run(&args, &interrupt),
        Command::Grid(args) => grid::run(&args, &interrupt),
        Command::Schedule => schedule::schedule(),
        Command::Sampling { target, draft } => sampling::sampling(&target, &draft),
        Command::Drafts(args) => drafts::run(&args),
        Command::Plot => plot::run(),
    };
    match result {
        Ok(()) if interrupt.requested() => ExitCode::from(INTERRUPTED),
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note(&format!("redline-bench: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
