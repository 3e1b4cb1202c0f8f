//! The command: `redline-tests teeth`.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args as ClapArgs;
use serde::Serialize;

use crate::sampling::command::{FAILED, Row};

use super::{Finding, findings};

/// Options of the command.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Seed of the sampling
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How often each variant that only sampling sees is run
    #[arg(long, default_value_t = 10)]
    runs: usize,
    /// Nothing but one JSON object on standard output, instead of rows
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Variant<'a> {
    rule: &'static str,
    variant: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    seen_in: &'a str,
    caught_by: String,
    found: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    samples: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worst_p: Option<f64>,
    unseen: f64,
    caught: bool,
}

/// Runs every variant. Exit code 0, or 3 if one is not caught, or a double without a bug is.
///
/// # Errors
/// If standard output is closed.
pub fn run_command(args: &Args) -> anyhow::Result<ExitCode> {
    let all = findings(args.seed, args.runs);
    let (controls, variants): (Vec<_>, Vec<_>) = all.iter().partition(|finding| finding.control);
    let holds = all.iter().all(Finding::holds);
    let mut out = io::stdout().lock();
    if args.json {
        let verdict = if holds { "PASS" } else { "FAIL" };
        let caught = variants.iter().filter(|finding| finding.holds()).count();
        let summary = serde_json::json!({
            "verdict": verdict,
            "variants": variants.len(),
            "caught": caught,
            "controls": controls.len(),
            "controls_seen": controls.iter().filter(|finding| finding.caught).count(),
            "table": variants.iter().map(|finding| variant(finding)).collect::<Vec<_>>(),
        });
        writeln!(out, "{summary}")?;
    } else {
        for row in variants.iter().map(|finding| row(finding)).chain([control_row(&controls)]) {
            serde_json::to_writer(&mut out, &row)?;
            writeln!(out)?;
        }
    }
    out.flush()?;
    for finding in all.iter().filter(|finding| !finding.holds()) {
        let _ = writeln!(io::stderr(), "{finding:?}");
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

fn variant(finding: &Finding) -> Variant<'_> {
    Variant {
        rule: finding.rule,
        variant: &finding.variant,
        seen_in: finding.seen_in,
        caught_by: finding.by.to_string(),
        found: &finding.found,
        samples: finding.samples.map(|samples| samples.0),
        worst_p: finding.samples.map(|samples| samples.1),
        unseen: finding.unseen,
        caught: finding.caught,
    }
}

fn row(finding: &Finding) -> Row {
    let Finding { rule, variant, seen_in, by, found, .. } = finding;
    let seen_in = if seen_in.is_empty() { String::new() } else { format!(" ({seen_in})") };
    let samples = match finding.samples {
        Some((samples, p)) => format!(", {samples} samples, p <= {p:.0e}"),
        None => String::new(),
    };
    Row {
        line: format!("wrong {rule}: {variant}{seen_in}"),
        measured: format!("{by}: {found}{samples}"),
        limit: "caught".to_owned(),
        verdict: if finding.holds() { "PASS" } else { "FAIL" },
    }
}

fn control_row(controls: &[&Finding]) -> Row {
    let seen = controls.iter().filter(|finding| finding.caught).count();
    Row {
        line: "doubles without a bug, and the rules themselves".to_owned(),
        measured: format!("{seen} of {} rejected", controls.len()),
        limit: "0".to_owned(),
        verdict: if seen == 0 { "PASS" } else { "FAIL" },
    }
}
