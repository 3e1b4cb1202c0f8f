//! The `redline` command: flags, exit codes, and one module per subcommand.
//!
//! Exit codes: 0 done; 1 something failed while running, one request of many included; 2 the command or its input
//! can't be used; 3 an audit found that something is wrong; 130 interrupted, after what there was has been written. Errors are one line on standard error.

mod audit;
mod fetch;
mod generate;
mod interrupt;
mod models;
mod options;
mod output;
mod prompts;
mod score;
mod tokenize;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use crate::error::chain;
use crate::load_error::LoadError;

pub use interrupt::{INTERRUPTED, Interrupt};
pub use options::{
    GrammarOptions, LogprobsOptions, ModelOptions, SamplingOptions, SpeculationOptions,
};
pub use prompts::{PromptLine, parse_prompts};

/// A command's failure, by who has to act.
#[derive(Debug)]
pub enum Failure {
    /// The command line or its input can't be used: exit code 2.
    Usage(anyhow::Error),
    /// Something went wrong while running: exit code 1.
    Runtime(anyhow::Error),
    /// The user ended it before there was anything to show: exit code 130, as shells have it for SIGINT.
    Interrupted(anyhow::Error),
}

impl Failure {
    /// A usage error from anything that is an error.
    pub fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self::Usage(error.into())
    }

    /// A run-time error from anything that is an error.
    pub fn runtime(error: impl Into<anyhow::Error>) -> Self {
        Self::Runtime(error.into())
    }

    /// The same failure, with what was being done.
    #[must_use]
    pub fn context(self, what: &'static str) -> Self {
        match self {
            Self::Usage(error) => Self::Usage(error.context(what)),
            Self::Runtime(error) => Self::Runtime(error.context(what)),
            interrupted @ Self::Interrupted(_) => interrupted,
        }
    }

    /// A model that could not be loaded, by who has to act.
    pub fn load(error: LoadError) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::runtime(error) }
    }
}

/// What `?` meets is writing to standard output; other files are named where they are read.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Runtime(anyhow::Error::new(error).context("writing to standard output"))
    }
}

/// Exit code of an audit that found something.
const DEVIATION: u8 = 3;

const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 something failed while running, one request of many included; 2 the command or
its input can't be used; 3 an audit found a deviation; 130 interrupted (what there was has been written).
Models are kept in REDLINE_HOME, else the XDG cache. REDLINE_LOG sets what is logged, such as debug.";

#[derive(Parser)]
#[command(
    name = "redline",
    version,
    about = "LLM inference in which every sequence of a continuous batch runs speculative rounds",
    max_term_width = 100,
    after_help = EXIT_CODES
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Generate text from a prompt or a file of prompts
    Generate(Box<generate::Args>),
    /// Test that the output is the target's own, and the drafts as good as the models say, on your models and prompts
    #[command(
        mut_arg("temperature", |arg| arg.default_value("1").help("Temperature of the samples; 0 is looked at in any case")),
        mut_arg("length", |arg| arg.default_value("4"))
    )]
    Audit(Box<audit::Args>),
    /// Log-probabilities of given texts or token ids under a model
    Score(score::Args),
    /// Token ids and pieces of a text
    Tokenize(tokenize::Args),
    /// Fetch a model into the cache
    Pull(models::PullArgs),
    /// List the known models and what is in the cache
    Models(models::ListArgs),
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    start_tracing();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // clap writes help to standard output and errors to standard error; a closed pipe is no panic.
        Err(error)
            if error.use_stderr()
                && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand =>
        {
            let _ = writeln!(io::stderr(), "redline: {}", one_line(&error));
            return ExitCode::from(2);
        }
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
        }
    };
    let result = match cli.command {
        Command::Generate(args) => generate::run(*args),
        Command::Audit(args) => audit::run(&args),
        Command::Score(args) => score::run(&args),
        Command::Tokenize(args) => tokenize::run(&args),
        Command::Pull(args) => models::pull(&args),
        Command::Models(args) => models::list(&args),
    };
    match result {
        Ok(code) => code,
        Err(failure) => {
            let (error, code) = match failure {
                Failure::Usage(error) => (error, 2),
                Failure::Runtime(error) => (error, 1),
                Failure::Interrupted(error) => (error, INTERRUPTED),
            };
            let line = chain(error.as_ref()).replace(['\n', '\r'], " ");
            let _ = writeln!(io::stderr(), "redline: {line}");
            ExitCode::from(code)
        }
    }
}

/// clap's message without its usage paragraphs.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let paragraphs = ["Usage:", "For more information"];
    let mut line = String::new();
    for part in text.lines().map(str::trim).filter(|part| !part.is_empty()) {
        if paragraphs.iter().any(|start| part.starts_with(start)) {
            break;
        }
        match line.chars().last() {
            None => {}
            Some(':') => line.push(' '),
            Some(_) => line.push_str("; "),
        }
        line.push_str(part);
    }
    line.trim_start_matches("error: ").to_owned()
}

/// Logs go to standard error, warnings and worse unless `REDLINE_LOG` says otherwise.
fn start_tracing() {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_env("REDLINE_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_target(false)
        .try_init();
}
