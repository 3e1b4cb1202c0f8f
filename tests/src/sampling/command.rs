//! The command: `redline-tests sampling`.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use clap::Args as ClapArgs;
use serde::Serialize;

use super::grid::{cells, plans, samplings};
use super::suite::{ALPHA, Failure, OfRule, POWER, Report, run};

/// Sequences of a cell: short, and with `--full`.
const SEQUENCES: [u64; 2] = [26_000, 260_000];
/// The deviation that must be seen.
const DETECTABLE: f64 = 0.01;
/// Says that a law is not what it should be.
pub const FAILED: u8 = 3;

/// Options of the command.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Ten times the samples: smaller deviations are seen
    #[arg(long)]
    full: bool,
    /// Nothing but one JSON object on standard output, instead of rows
    #[arg(long)]
    json: bool,
    /// Seed of the run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Sequences of a cell [default: 26000; 260000 with --full]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1000..))]
    samples: Option<u64>,
    /// Threads [default: as many as there are cores]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Only the cell of this number
    #[arg(long)]
    cell: Option<usize>,
}

/// A row of `scripts/show`.
#[derive(Debug, Serialize)]
pub struct Row {
    /// What is promised.
    pub line: String,
    /// What was found.
    pub measured: String,
    /// What is allowed.
    pub limit: String,
    /// PASS or FAIL.
    pub verdict: &'static str,
}

#[derive(Serialize)]
struct Summary<'a> {
    verdict: &'static str,
    seed: u64,
    cells: usize,
    settings: [usize; 2],
    sequences_per_cell: u64,
    tests: usize,
    family_error: f64,
    least_p: f64,
    least_p_of: &'a str,
    seconds: f64,
    rules: Vec<Rule>,
    cleared: Vec<Rejected<'a>>,
    failures: Vec<Rejected<'a>>,
}

#[derive(Serialize)]
struct Rule {
    rule: &'static str,
    cells: usize,
    sequences: u64,
    tokens: u64,
    accepted_per_drafted_round: f64,
    preempted: u64,
    p_values: serde_json::Map<String, serde_json::Value>,
    /// By total variation, with probability 0.99.
    detectable: serde_json::Map<String, serde_json::Value>,
}

#[derive(Serialize)]
struct Rejected<'a> {
    of: &'a str,
    test: &'a str,
    p_values: [f64; 2],
}

/// Runs the suite. Exit code 0, or 3 if a law is not what it should be or too little would have been seen.
///
/// # Errors
/// If standard output is closed.
pub fn run_command(args: &Args) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let mut cells = cells();
    if let Some(number) = args.cell {
        anyhow::ensure!(number < cells.len(), "there are cells 0 to {}", cells.len() - 1);
        cells = vec![cells[number]];
        // Standard error: nobody can be told that it is closed.
        let _ = writeln!(io::stderr(), "{}", cells[0]);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or(cores, usize::from);
    let sequences = args.samples.unwrap_or(SEQUENCES[usize::from(args.full)]);
    let (mut done, mut told) = (0, Instant::now());
    let report = run(&cells, sequences, args.seed, threads, |_| {
        done += 1;
        if told.elapsed().as_secs() >= 5 {
            told = Instant::now();
            let _ = writeln!(io::stderr(), "{done} of {} cells", cells.len());
        }
    });
    let seconds = started.elapsed().as_secs_f64();
    let sees = args.cell.is_some() || report.rules.iter().all(sees_enough);
    let holds = report.failures.is_empty() && sees;
    let mut out = io::stdout().lock();
    if args.json {
        let settings = [plans().len(), samplings().len()];
        let summary = Summary {
            verdict: verdict(holds),
            seed: args.seed,
            cells: cells.len(),
            settings,
            sequences_per_cell: sequences,
            tests: report.tests,
            family_error: ALPHA,
            least_p: report.least.0,
            least_p_of: &report.least.1,
            seconds,
            rules: report.rules.iter().map(rule).collect(),
            cleared: report.cleared.iter().map(rejected).collect(),
            failures: report.failures.iter().map(rejected).collect(),
        };
        serde_json::to_writer(&mut out, &summary)?;
        writeln!(out)?;
    } else {
        for row in rows(&report, (cells.len(), sequences), seconds) {
            serde_json::to_writer(&mut out, &row)?;
            writeln!(out)?;
        }
    }
    out.flush()?;
    for Failure { of, check, p_values: [first, second] } in &report.failures {
        let _ = writeln!(io::stderr(), "{of}: {check}: p = {first:.1e}, again {second:.1e}");
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

/// Whether a shift of total variation [`DETECTABLE`] is seen: of every token's law along the axis from p to q and off it,
/// and of the law of three tokens in any direction, another one in each cell.
fn sees_enough(rule: &OfRule) -> bool {
    rule.detectable.iter().all(|(_, shift)| *shift <= DETECTABLE)
}

fn verdict(holds: bool) -> &'static str {
    if holds { "PASS" } else { "FAIL" }
}

fn rejected(failure: &Failure) -> Rejected<'_> {
    Rejected { of: &failure.of, test: &failure.check, p_values: failure.p_values }
}

fn rule(of: &OfRule) -> Rule {
    let number =
        |x: f64| serde_json::Number::from_f64(x).map_or(serde_json::Value::Null, Into::into);
    Rule {
        rule: of.rule,
        cells: of.cells,
        sequences: of.sums.sequences,
        tokens: of.sums.tokens,
        accepted_per_drafted_round: of.counts[1] as f64 / of.counts[2] as f64,
        preempted: of.counts[3],
        p_values: of.checks.iter().map(|c| (c.name.clone(), number(c.fit.p))).collect(),
        detectable: of.detectable.iter().map(|(name, x)| (name.clone(), number(*x))).collect(),
    }
}

fn rows(report: &Report, (cells, sequences): (usize, u64), seconds: f64) -> Vec<Row> {
    let mut rows = vec![Row {
        line: format!(
            "sampling suite: {cells} cells of {sequences} sequences, every two settings together"
        ),
        measured: format!(
            "{} of {} tests rejected twice, least p {:.1e}, {seconds:.0} s",
            report.failures.len(),
            report.tests,
            report.least.0
        ),
        limit: format!("none, family error {ALPHA}"),
        verdict: verdict(report.failures.is_empty()),
    }];
    rows.extend(report.rules.iter().map(|of| Row {
        line: format!("  {}: {} cells, {} sequences", of.rule, of.cells, of.sums.sequences),
        measured: {
            let shifts: Vec<String> =
                of.detectable.iter().map(|(name, shift)| format!("{name} {shift:.4}")).collect();
            format!("total variation seen with probability {POWER}: {}", shifts.join(", "))
        },
        limit: format!("{DETECTABLE}"),
        verdict: verdict(sees_enough(of)),
    }));
    rows
}
