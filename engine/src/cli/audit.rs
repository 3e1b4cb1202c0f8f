//! `redline audit`: whether the output is what the target alone would have written, on the user's own models.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::fetch::fetch_models;
use super::interrupt::{INTERRUPTED, Interrupt};
use super::options::{InputFile, ModelOptions, SamplingOptions, SpeculationOptions, parse_size};
use super::prompts::read_prompts;
use super::{DEVIATION, Failure};
use crate::audit::{
    AuditPrompt, Phase, Plan, Report, Subject, Verdict, Watcher, built_in, run as audit,
};
use crate::load_options::{EngineOptions, LoadOptions};
use crate::random::random_u64;
use crate::registry::Registry;

/// Flags of `redline audit`.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    model: ModelOptions,
    #[command(flatten)]
    speculation: SpeculationOptions,
    #[command(flatten)]
    sampling: SamplingOptions,
    /// Continuations to sample in all, going round the prompts: the more, the smaller the deviations that are seen
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    samples: u32,
    /// Most tokens of each continuation
    #[arg(short = 'n', long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    max_tokens: u32,
    /// Prompts that are compared token for token with decoding without speculation
    #[arg(long, default_value_t = 12, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100_000))]
    identity: u32,
    /// A file of prompts, one JSON object a line: {"id","prompt"}, {"id","turns"} or {"id","messages"}, with a
    /// "category" if they are of several kinds [default: a dozen built-in prompts]
    #[arg(long, value_name = "FILE.jsonl")]
    prompts: Option<InputFile>,
    /// Feed texts as they are, without the chat template
    #[arg(long)]
    raw: bool,
    /// Sequences that run at a time
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    concurrency: u16,
    /// Memory for the engine's KV cache, such as 512M or 2G [default: what the requests can use, at most a quarter of free memory]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    kv_memory: Option<u64>,
    /// Longest prompt plus output in tokens [default: the model's context length, at most 4096]
    #[arg(long, value_name = "N")]
    max_model_len: Option<usize>,
    /// Write a page with plots, DIR/index.html, and the numbers, DIR/audit.json; measures speed, too
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// The result as one JSON object on standard output
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let plan = Plan {
        sampling: args.sampling.sampling()?,
        samples: args.samples as usize,
        max_tokens: args.max_tokens as usize,
        seed: args.sampling.seed.unwrap_or_else(random_u64),
        identity_prompts: args.identity as usize,
        speed: args.report.is_some(),
    };
    if plan.sampling.is_greedy() {
        return Err(Failure::Usage(anyhow!(
            "--temperature 0 leaves no law to audit (temperature 0 is looked at in any case); give one above 0"
        )));
    }
    let own = args.prompts.as_ref().map(|path| prompts(path, args.raw)).transpose()?;
    if let Some(dir) = &args.report {
        make_dir(dir).map_err(Failure::Usage)?;
    }
    let interrupt = Interrupt::listen();
    let (options, registry) = (load_options(args), Registry::default());
    fetch_models(&options, &registry, &interrupt)?;
    let mut subject = Subject::load(&options, &registry).map_err(Failure::load)?;
    let prompts = own.unwrap_or_else(|| built_in(subject.has_template() && !args.raw));
    let mut progress = Progress { bar: None, interrupt };
    let report = audit(&mut subject, &prompts, &plan, &mut progress).map_err(|error| {
        if error.is_usage() { Failure::usage(error) } else { Failure::runtime(error) }
    })?;
    progress.clear();
    tell(args, &report)?;
    Ok(ExitCode::from(match report.verdict {
        Verdict::Pass => 0,
        Verdict::Fail => DEVIATION,
        Verdict::Interrupted => INTERRUPTED,
        Verdict::Inconclusive => 1,
    }))
}

fn tell(args: &Args, report: &Report) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", report.json())?;
    } else {
        for line in report.lines() {
            writeln!(out, "{line}")?;
        }
    }
    let Some(dir) = &args.report else { return Ok(()) };
    let page = dir.join("index.html");
    let numbers = serde_json::to_vec_pretty(&report.json()).map_err(Failure::runtime)?;
    std::fs::write(&page, report.html())
        .and_then(|()| std::fs::write(dir.join("audit.json"), numbers))
        .with_context(|| format!("can't write the report to {}", dir.display()))
        .map_err(Failure::Runtime)?;
    if !args.json {
        writeln!(out, "The report is {}.", page.display())?;
    }
    Ok(())
}

fn make_dir(dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("--report {}", dir.display()))
}

/// The prompts of a file; what has no category is of one kind.
fn prompts(path: &Path, raw: bool) -> Result<Vec<AuditPrompt>, Failure> {
    let lines = read_prompts(path, raw).map_err(Failure::Usage)?;
    let prompt = |line: super::PromptLine| AuditPrompt {
        name: line.id.as_str().map_or_else(|| line.id.to_string(), str::to_owned),
        category: line.category.unwrap_or_else(|| "prompts".to_owned()),
        prompt: line.prompt,
    };
    Ok(lines.into_iter().map(prompt).collect())
}

fn load_options(args: &Args) -> LoadOptions {
    let engine = EngineOptions {
        max_seqs: usize::from(args.concurrency),
        kv_memory: args.kv_memory,
        max_model_len: args.max_model_len,
        ..EngineOptions::default()
    };
    args.speculation.load_options(&args.model, engine)
}

/// Progress on standard error: a line as each phase begins, and on a terminal a bar.
struct Progress {
    bar: Option<ProgressBar>,
    interrupt: Interrupt,
}

impl Progress {
    fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Watcher for Progress {
    fn phase(&mut self, phase: Phase) {
        self.clear();
        let words = match phase {
            Phase::Identity => "comparing texts with and without speculation",
            Phase::Law => "sampling, and reading every text again",
            Phase::Speed => "measuring speed",
        };
        if !std::io::stderr().is_terminal() {
            // Nobody can be told that standard error is closed.
            let _ = writeln!(std::io::stderr(), "audit: {words}");
            return;
        }
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(5));
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}{prefix}") {
            bar.set_style(style);
        }
        bar.set_message(words);
        self.bar = Some(bar);
    }

    fn progress(&mut self, done: usize, all: usize, p_value: Option<f64>) {
        let Some(bar) = &self.bar else { return };
        bar.set_length(all as u64);
        bar.set_position(done as u64);
        if let Some(p) = p_value {
            bar.set_prefix(format!(", p = {p:.2}, {:.0} s left", bar.eta().as_secs_f64()));
        }
    }

    fn stop(&mut self) -> bool {
        self.interrupt.requested()
    }
}
