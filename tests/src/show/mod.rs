//! The checks, one module each, and what they share.

mod acceptance;
mod identity;
mod loaded;
mod overhead;
mod prompts;
mod reference;
mod report;
mod shared;
mod spans;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use report::{Verdict, note};

#[derive(Parser)]
#[command(
    name = "redline-tests",
    version,
    about = "Shows on real models that redline's promises hold"
)]
struct Cli {
    #[command(subcommand)]
    check: Check,
}

#[derive(Subcommand)]
enum Check {
    /// Teacher-forced outputs, tokenizer and chat template against the reference files
    Reference(reference::Args),
    /// Token ids with drafts, in a batch, short of memory, against plain decoding alone
    Identity(identity::Args),
    /// Acceptance of a draft model against what the two models' argmaxes say
    Acceptance(acceptance::Args),
    /// Share of a step that is not the forward passes
    Overhead(overhead::Args),
    /// Reads the checks' JSON lines on standard input and prints the rows as a table
    Rows,
}

/// Runs the command line of this process.
pub(crate) fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
        }
    };
    let result = match cli.check {
        Check::Reference(args) => reference::run(&args),
        Check::Identity(args) => identity::run(&args),
        Check::Acceptance(args) => acceptance::run(&args),
        Check::Overhead(args) => overhead::run(&args),
        Check::Rows => report::table(),
    };
    match result {
        Ok(Verdict::Fail) => ExitCode::FAILURE,
        Ok(Verdict::Pass | Verdict::Skip) => ExitCode::SUCCESS,
        Err(error) => {
            note(&format!("redline-tests: {error:#}"));
            ExitCode::from(2)
        }
    }
}
