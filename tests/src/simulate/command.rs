//! The command: `redline-tests simulate`.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args as ClapArgs;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::episode::{Case, Episode, run};
use super::fleet::{Limits, Total, run_all};
use super::shrink::shrink;
use super::summary::{Report, Summary, summarise};
use super::world::World;

/// Steps without `--steps` and `--seconds`.
const STEPS: u64 = 1_000_000;
/// Says that a rule was broken.
const VIOLATION: u8 = 3;
/// Says that it was stopped before its time, and found nothing up to there.
const INTERRUPTED: u8 = 130;

/// Options of the command.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Stop after so many steps [default: 1000000, without --seconds]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// Seed of the run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Stop after so many seconds
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// Nothing but one JSON object on standard output
    #[arg(long)]
    json: bool,
    /// Threads [default: as many as there are cores]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Run this one case, as a violation prints it, instead of a mix
    #[arg(long, value_name = "JSON", conflicts_with_all = ["steps", "seconds", "threads"])]
    case: Option<String>,
}

/// Runs the simulator. Exit code 0, 3 if a rule was broken, or 130 if it was interrupted.
///
/// # Errors
/// If an option can't be used or standard output is closed.
pub fn run_command(args: &Args) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let stop = Arc::new(AtomicBool::new(false));
    let mut total = match &args.case {
        Some(case) => one(case)?,
        None => many(args, &stop)?,
    };
    let seconds = started.elapsed().as_secs_f64();
    let found_after_steps = total.counts.steps;
    let report = total.violation.take().map(|found| report(found, found_after_steps));
    let summary = summarise(&total, args.seed, seconds, report);
    print(args, &summary)?;
    Ok(match (summary.violations, stop.load(Ordering::Relaxed)) {
        (0, false) => ExitCode::SUCCESS,
        (0, true) => ExitCode::from(INTERRUPTED),
        _ => ExitCode::from(VIOLATION),
    })
}

/// A single case, as given.
fn one(case: &str) -> anyhow::Result<Total> {
    let case: Case = serde_json::from_str(case).context("--case is not a case")?;
    if let Err(broken) = World::new(case.seed, &case.shape, &case.omit) {
        bail!("--case can't be: {}", broken.0);
    }
    let episode = run(&case);
    let violation = episode.broken.is_some().then(|| (case, episode.clone()));
    let mut total = Total { episodes: 1, violation, ..Total::default() };
    total.counts.add(&episode.counts);
    Ok(total)
}

fn many(args: &Args, stop: &Arc<AtomicBool>) -> anyhow::Result<Total> {
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, Arc::clone(stop)).context("no signal handler")?;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let limits = Limits {
        steps: args.steps.or(args.seconds.is_none().then_some(STEPS)),
        time: args.seconds.map(Duration::from_secs),
        threads: args.threads.map_or(cores, usize::from),
    };
    let show = !args.json || io::stderr().is_terminal();
    let (started, mut told) = (Instant::now(), Instant::now());
    Ok(run_all(args.seed, &limits, stop, |total| {
        if show && told.elapsed() >= Duration::from_secs(5) {
            told = Instant::now();
            let steps = total.counts.steps;
            let rate = steps as f64 / started.elapsed().as_secs_f64();
            // Nobody can be told that standard error is closed.
            let _ = writeln!(io::stderr(), "{steps} steps, {rate:.0} a second");
        }
    }))
}

/// Says what was found and how to see it again.
pub(crate) fn report((case, episode): (Case, Episode), found_after_steps: u64) -> Report {
    let rule =
        |episode: &Episode| episode.broken.clone().map(|broken| broken.0).unwrap_or_default();
    let (shrunk, seen) = shrink(&case, &episode);
    let json = serde_json::to_string(&shrunk).unwrap_or_default();
    Report {
        found_after_steps,
        rule: rule(&episode),
        shrunk_rule: rule(&seen),
        shrunk_steps: seen.counts.steps,
        case: Some(shrunk),
        command: format!("cargo run --release -p redline-tests -- simulate --case '{json}'"),
    }
}

fn print(args: &Args, summary: &Summary) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if let Some(report) = summary.violation.as_ref().filter(|_| !args.json) {
        writeln!(out, "violation after {} steps: {}", report.found_after_steps, report.rule)?;
        writeln!(out, "shrunk to {} steps: {}", report.shrunk_steps, report.shrunk_rule)?;
        writeln!(out, "  {}", report.command)?;
    }
    serde_json::to_writer(&mut out, summary)?;
    writeln!(out)?;
    out.flush()
}
