//! The command: `redline-tests exact`.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use clap::Args as ClapArgs;
use serde::Serialize;

use crate::sampling::command::{FAILED, Row};
use crate::sampling::grid::RULES;

use super::families::{FAMILIES, kept};
use super::worst;

/// What is left must be rounding.
const TOLERANCE: f64 = 1e-12;

/// Options of the command.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Hostile cases of each rule
    #[arg(long, default_value_t = 10_000)]
    cases: usize,
    /// Seed of the cases
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Nothing but one JSON object on standard output, instead of rows
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Rule {
    rule: &'static str,
    cases: usize,
    /// Largest error of a law; for `coupled`, 1 if any case differs from the plain sampler.
    error: f64,
    /// Largest deviation of the drafts kept of a chain from the published formula.
    #[serde(skip_serializing_if = "Option::is_none")]
    formula_error: Option<f64>,
    /// The least that is kept more than by `token` of the same drafts.
    #[serde(skip_serializing_if = "Option::is_none")]
    least_gain_on_token: Option<f64>,
    /// Drafts kept on average: near, far, flat.
    chain_of_three: Option<[f64; 3]>,
    tree_of_two_by_two: Option<[f64; 3]>,
    verdict: &'static str,
}

/// Runs the cases. Exit code 0, or 3 if a law is not exact or a rule keeps less than it should.
///
/// # Errors
/// If standard output is closed.
pub fn run_command(args: &Args) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let rules: Vec<Rule> = std::thread::scope(|scope| {
        let runs: Vec<_> = RULES.iter().map(|&rule| scope.spawn(move || of(rule, args))).collect();
        runs.into_iter().filter_map(|run| run.join().ok()).collect()
    });
    anyhow::ensure!(rules.len() == RULES.len(), "a rule could not be enumerated");
    let mut out = io::stdout().lock();
    if args.json {
        let families = FAMILIES.map(|family| family.0);
        let seconds = started.elapsed().as_secs_f64();
        let summary =
            serde_json::json!({ "families": families, "rules": rules, "seconds": seconds });
        writeln!(out, "{summary}")?;
    } else {
        for row in rules.iter().flat_map(rows) {
            serde_json::to_writer(&mut out, &row)?;
            writeln!(out)?;
        }
    }
    out.flush()?;
    let holds = rules.iter().all(|rule| rule.verdict == "PASS");
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

fn of(rule: &'static str, args: &Args) -> Rule {
    let found = worst(rule, args.cases, args.seed);
    let exact = found.error < TOLERANCE && found.formula < TOLERANCE && found.gain > -TOLERANCE;
    let ratio = rule != "coupled";
    Rule {
        rule,
        cases: found.cases,
        error: found.error,
        formula_error: ratio.then_some(found.formula),
        least_gain_on_token: (ratio && rule != "token").then_some(found.gain),
        chain_of_three: kept(rule, false),
        tree_of_two_by_two: kept(rule, true),
        verdict: if exact { "PASS" } else { "FAIL" },
    }
}

fn rows(rule: &Rule) -> Vec<Row> {
    let error = match rule.rule {
        "coupled" => format!("{} of the plain sampler's tokens missed", rule.error),
        _ => format!("largest error {:.1e}", rule.error),
    };
    let numbers = |kept: Option<[f64; 3]>| match kept {
        Some(kept) => kept.map(|x| format!("{x:.3}")).join(", "),
        None => "refused by name".to_owned(),
    };
    let (chain, tree) = (numbers(rule.chain_of_three), numbers(rule.tree_of_two_by_two));
    let line = |what: &str| format!("{}: {what}", rule.rule);
    let mut rows = vec![
        Row {
            line: line(&format!("exact law over {} hostile cases", rule.cases)),
            measured: error,
            limit: if rule.rule == "coupled" { "0".to_owned() } else { format!("< {TOLERANCE:e}") },
            verdict: rule.verdict,
        },
        Row {
            line: line("drafts kept on average, near, far, flat laws"),
            measured: format!("chain of 3: {chain}; tree of 2 x 2: {tree}"),
            limit: "the published formula on chains".to_owned(),
            verdict: rule.verdict,
        },
    ];
    rows.extend(rule.least_gain_on_token.map(|gain| Row {
        line: line("keeps no fewer drafts than token, of the same drafts"),
        measured: format!("least difference {gain:.1e}"),
        limit: "no less than rounding".to_owned(),
        verdict: if gain > -TOLERANCE { "PASS" } else { "FAIL" },
    }));
    rows
}
