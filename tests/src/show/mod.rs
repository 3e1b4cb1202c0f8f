//! The checks, one module each, and what they share.

#[cfg(feature = "engine")]
mod acceptance;
#[cfg(feature = "engine")]
mod identity;
#[cfg(feature = "engine")]
mod loaded;
#[cfg(feature = "engine")]
mod overhead;
#[cfg(feature = "engine")]
mod pressure;
#[cfg(feature = "engine")]
mod prompts;
#[cfg(feature = "engine")]
mod reference;
mod report;
#[cfg(feature = "engine")]
mod shared;

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
    #[cfg(feature = "engine")]
    Reference(reference::Args),
    /// Token ids with drafts, in a batch, short of memory, against plain decoding alone
    #[cfg(feature = "engine")]
    Identity(identity::Args),
    /// Acceptance of a draft model against what the two models' argmaxes say
    #[cfg(feature = "engine")]
    Acceptance(acceptance::Args),
    /// Share of a step that is not the forward passes
    #[cfg(feature = "engine")]
    Overhead(overhead::Args),
    /// Scheduler, cache, verifiers and controller in random worlds, every invariant audited at every step
    Simulate(redline_tests::simulate::Args),
    /// Many requests with too little memory: preempted, cancelled, forked; against an undisturbed run
    #[cfg(feature = "engine")]
    Pressure(pressure::Args),
    /// What the engine says over whole sequences against its law, on tables, for every rule, drafter and setting
    #[cfg(feature = "engine")]
    Sampling(redline_tests::sampling::command::Args),
    /// The exact law of every rule over hostile laws and trees, by enumeration, and the drafts each keeps
    #[cfg(feature = "engine")]
    Exact(redline_tests::exact::command::Args),
    /// Wrong variants of rules, drafters and generators, and what catches each
    #[cfg(feature = "engine")]
    Teeth(redline_tests::teeth::command::Args),
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
    if let Check::Simulate(args) = &cli.check {
        return redline_tests::simulate::run_command(args).unwrap_or_else(refuse);
    }
    #[cfg(feature = "engine")]
    match &cli.check {
        Check::Sampling(args) => {
            return redline_tests::sampling::command::run_command(args).unwrap_or_else(refuse);
        }
        Check::Exact(args) => {
            return redline_tests::exact::command::run_command(args).unwrap_or_else(refuse);
        }
        Check::Teeth(args) => {
            return redline_tests::teeth::command::run_command(args).unwrap_or_else(refuse);
        }
        _ => {}
    }
    let result = match cli.check {
        #[cfg(feature = "engine")]
        Check::Reference(args) => reference::run(&args),
        #[cfg(feature = "engine")]
        Check::Identity(args) => identity::run(&args),
        #[cfg(feature = "engine")]
        Check::Acceptance(args) => acceptance::run(&args),
        #[cfg(feature = "engine")]
        Check::Overhead(args) => overhead::run(&args),
        Check::Simulate(_) => Ok(Verdict::Pass),
        #[cfg(feature = "engine")]
        Check::Sampling(_) | Check::Exact(_) | Check::Teeth(_) => Ok(Verdict::Pass),
        #[cfg(feature = "engine")]
        Check::Pressure(args) => pressure::run(&args),
        Check::Rows => report::table(),
    };
    match result {
        Ok(Verdict::Fail) => ExitCode::FAILURE,
        Ok(Verdict::Pass | Verdict::Skip) => ExitCode::SUCCESS,
        Err(error) => refuse(error),
    }
}

fn refuse(error: anyhow::Error) -> ExitCode {
    note(&format!("redline-tests: {error:#}"));
    ExitCode::from(2)
}
