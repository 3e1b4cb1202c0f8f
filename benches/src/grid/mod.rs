//! `redline-bench grid`: does `auto` cost anything where drafts do not pay?
//!
//! A cell is so many sequences with so much context. Its prompts are computed once, timed apart; then all arms continue
//! them in paired blocks, each block in another order, in an engine with enough memory for all of them at once, so that
//! nobody is preempted and all arms have the same. Within a block the arms take turns, a step each while the others are held:
//! a machine that is slow for a second is so for all of them. A finished cell is a line of the state file, and is not measured
//! again.

mod outcome;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, anyhow, ensure};
use redline::cli::{Interrupt, ModelOptions, SpeculationOptions};
use redline::spans::SpanTimes;
use redline::{BLOCK_SIZE, Engine, EngineOptions, Sampling, TokenId};
use serde::{Deserialize, Serialize};

use crate::console::{note, print};
use crate::passes::kv_bytes_per_token;
use crate::speculation::arms::{Arm, Job, Run, SLACK, Window, prefill};
use crate::speculation::load;
use crate::speculation::prompts::{Category, by_category, of_length};
use outcome::{HEAD, Outcome, Setting, append_state, line, read_state};

/// Flags of `redline-bench grid`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelOptions,
    #[command(flatten)]
    speculation: SpeculationOptions,
    /// Prompts, as for `speculation`; long ones are made of several
    #[arg(long, value_name = "FILE.jsonl")]
    data: PathBuf,
    /// Cells, as sequences x context
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1x128,2x128,4x128,8x128,16x128,32x128,1x4096,2x4096,4x4096,8x4096,16x4096,32x4096,1x8192,8x8192",
        value_name = "CxL,…"
    )]
    cells: Vec<Cell>,
    /// Fixed numbers of drafts to compare with
    #[arg(long, value_delimiter = ',', default_value = "1,2,4", value_name = "K,…", value_parser = clap::value_parser!(u16).range(1..=32))]
    fixed: Vec<u16>,
    /// Paired blocks of each cell
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u16).range(2..))]
    blocks: u16,
    /// Tokens of each sequence in a block
    #[arg(short = 'n', long, default_value_t = 48, value_name = "N", value_parser = clap::value_parser!(u16).range(2..))]
    max_tokens: u16,
    /// 0 is greedy
    #[arg(long, default_value_t = 0.0, value_name = "F")]
    temperature: f64,
    /// Goes round all cells in every block, so that cells can be compared with each other, too
    #[arg(long)]
    together: bool,
    /// A line of JSON for every finished cell; those that are there are not measured again
    #[arg(long, value_name = "FILE.jsonl")]
    state: Option<PathBuf>,
    /// The result as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Sequences and tokens of context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cell {
    concurrency: usize,
    context: usize,
}

impl FromStr for Cell {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let wrong = || anyhow!("`{text}` is no cell: write for example 8x4096");
        let (concurrency, context) = text.split_once('x').ok_or_else(wrong)?;
        let number = |text: &str| text.parse().ok().filter(|n| (1..=1 << 20).contains(n));
        let concurrency = number(concurrency).ok_or_else(wrong)?;
        Ok(Self { concurrency, context: number(context).ok_or_else(wrong)? })
    }
}

pub(crate) fn run(args: &Args, interrupt: &Interrupt) -> anyhow::Result<()> {
    let fixed: Vec<usize> = args.fixed.iter().map(|&drafts| usize::from(drafts)).collect();
    let setting = Setting {
        model: args.model.model.clone(),
        draft: args.speculation.draft.clone(),
        fixed,
        blocks: usize::from(args.blocks),
        tokens: usize::from(args.max_tokens),
        temperature: args.temperature,
    };
    let mut outcomes = read_state(args.state.as_deref())?;
    outcomes.retain(|outcome| outcome.setting == setting && args.cells.contains(&outcome.cell));
    let mut left = args.cells.clone();
    left.retain(|cell| outcomes.iter().all(|outcome| outcome.cell != *cell));
    // Prompts of a context stay in the cache from the widest cell to the others.
    left.sort_by_key(|cell| (cell.context, std::cmp::Reverse(cell.concurrency)));
    if !left.is_empty() {
        let mut bench = Bench::load(args, setting, &left)?;
        for cells in left.chunks(if args.together { left.len() } else { 1 }) {
            let Some(finished) = bench.cells(cells, interrupt)? else { break };
            for outcome in finished {
                note(&line(&outcome));
                append_state(args.state.as_deref(), &outcome)?;
                outcomes.push(outcome);
            }
        }
    }
    outcomes.sort_by_key(|outcome| (outcome.cell.context, outcome.cell.concurrency));
    let rows: Vec<_> = outcomes.iter().map(line).collect();
    let table = format!("{HEAD}\n{}\n", rows.join("\n"));
    print(&serde_json::json!({ "cells": outcomes }), &table, args.json)
}

/// A cell that is being measured.
struct Measured {
    cell: Cell,
    prompts: Vec<Vec<TokenId>>,
    tok_s: BTreeMap<String, Vec<f64>>,
    /// `None` if most of it was computed already, for another cell.
    prefill_tok_s: Option<f64>,
    preempted: u64,
}

/// The engine, and prompts enough.
struct Bench {
    engine: Engine,
    spans: SpanTimes,
    setting: Setting,
    categories: Vec<Category>,
}

impl Bench {
    fn load(args: &Args, setting: Setting, cells: &[Cell]) -> anyhow::Result<Self> {
        let categories = by_category(&args.model.model, &args.data, 0)?;
        let spans = SpanTimes::install()?;
        let widest = cells.iter().map(|cell| cell.concurrency).max().context("no cells")?;
        let longest = cells.iter().map(|cell| cell.context).max().context("no cells")?;
        let arms = Arm::all(&setting.fixed).len();
        // What comes behind a context: the tokens, drafts, and a block that is not full; and before it another one, of
        // which not all could be shared.
        let slack = setting.tokens + SLACK;
        let of_arms = arms * (slack + BLOCK_SIZE as usize);
        let tokens = cells.iter().map(|cell| cell.concurrency * (cell.context + of_arms));
        let tokens = if args.together { tokens.sum() } else { tokens.max().unwrap_or(0) };
        note(&format!("loading {} and {}", setting.model, setting.draft));
        let options = |kv_memory| EngineOptions {
            max_seqs: widest * arms,
            kv_memory,
            max_model_len: Some(longest + slack),
            ..EngineOptions::default()
        };
        let bytes = lanes_bytes(&setting)? * tokens as u64;
        // A tenth more, so that what runs does not push out what is shared.
        let engine = load(&args.model, &args.speculation, options(Some(bytes + bytes / 10)))?;
        Ok(Self { engine, spans, setting, categories })
    }

    /// Some cells, which take turns; `None` if the user ended it.
    fn cells(
        &mut self,
        cells: &[Cell],
        interrupt: &Interrupt,
    ) -> anyhow::Result<Option<Vec<Outcome>>> {
        let mut under_way = Vec::new();
        for &cell in cells {
            let Some(measured) = self.start(cell, interrupt)? else { return Ok(None) };
            under_way.push(measured);
        }
        let arms = Arm::all(&self.setting.fixed);
        for block in 0..self.setting.blocks {
            for measured in &mut under_way {
                let Cell { concurrency, context } = measured.cell;
                let of = self.setting.blocks;
                note(&format!("{concurrency} x {context}: block {} of {of}", block + 1));
                let before = self.engine.scheduler().stats().preempted;
                let arms = (&order(&arms, block)[..], &self.job(block as u64));
                let Some(rates) = self.block(&measured.prompts, arms, interrupt)? else {
                    return Ok(None);
                };
                for (arm, rate) in rates {
                    measured.tok_s.entry(arm.to_string()).or_default().push(rate);
                }
                measured.preempted += self.engine.scheduler().stats().preempted - before;
            }
        }
        let outcome = |measured: Measured| {
            let beside = (measured.prefill_tok_s, measured.preempted);
            Outcome::of(self.setting.clone(), measured.cell, measured.tok_s, beside)
        };
        Ok(Some(under_way.into_iter().map(outcome).collect()))
    }

    /// Computes the prompts of a cell; `None` if the user ended it.
    fn start(&mut self, cell: Cell, interrupt: &Interrupt) -> anyhow::Result<Option<Measured>> {
        note(&format!("{} x {}: computing the prompts", cell.concurrency, cell.context));
        let prompts = of_length(&self.categories, cell.concurrency, cell.context)?;
        let job = self.job(0);
        let (engine, spans) = (&mut self.engine, &self.spans);
        let Some((tokens, seconds)) = prefill(engine, spans, &prompts, &job, interrupt)? else {
            return Ok(None);
        };
        let most = 2 * tokens > cell.concurrency * cell.context;
        let prefill_tok_s = most.then(|| tokens as f64 / seconds);
        let tok_s = BTreeMap::new();
        Ok(Some(Measured { cell, prompts, tok_s, prefill_tok_s, preempted: 0 }))
    }

    /// Tokens per second of each arm; `None` if the user ended it.
    fn block(
        &mut self,
        prompts: &[Vec<TokenId>],
        (arms, job): (&[Arm], &Job),
        interrupt: &Interrupt,
    ) -> anyhow::Result<Option<Vec<(Arm, f64)>>> {
        let engine = &mut self.engine;
        let mut runs = Vec::new();
        for &arm in arms {
            let mut run = Run::submit(engine, prompts, arm, job)?;
            while run.window == Window::Ahead {
                if interrupt.requested() {
                    return Ok(None);
                }
                run.step(engine)?;
            }
            run.hold(engine, true);
            runs.push((arm, run));
        }
        while runs.iter().any(|(_, run)| run.window == Window::Open) {
            for (_, run) in runs.iter_mut().filter(|(_, run)| run.window == Window::Open) {
                if interrupt.requested() {
                    return Ok(None);
                }
                run.hold(engine, false);
                run.step(engine)?;
                run.hold(engine, true);
            }
        }
        let mut rates = Vec::new();
        for (arm, run) in runs {
            let tally = &run.tally;
            ensure!(
                tally.decode_tokens > 0,
                "a sequence ended before the last one had begun: more -n"
            );
            rates.push((arm, tally.decode_tok_s()));
            run.cancel(engine);
        }
        engine.run(drop);
        Ok(Some(rates))
    }

    fn job(&self, seed: u64) -> Job {
        let sampling = Sampling { temperature: self.setting.temperature, ..Sampling::default() };
        Job { tokens: self.setting.tokens, sampling, seed, ignore_eos: true }
    }
}

/// Another order for every block: each arm is first as often as the others, and comes before each other as often as
/// after it.
fn order(arms: &[Arm], block: usize) -> Vec<Arm> {
    let mut order = arms.to_vec();
    order.rotate_left(block / 2 % arms.len());
    if block % 2 == 1 {
        order.reverse();
    }
    order
}

/// Bytes of keys and values of a token, the draft model's included.
fn lanes_bytes(setting: &Setting) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for name in [&setting.model, &setting.draft] {
        // A draft out of the target's own weights has the target's shape.
        let name = if name.starts_with("self:") { &setting.model } else { name };
        if !matches!(name.as_str(), "none" | "ngram") {
            bytes += kv_bytes_per_token(name)?;
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arm_takes_every_turn() {
        let arms = Arm::all(&[1, 2]);
        let mut firsts: Vec<_> = (0..8).map(|block| order(&arms, block)[0].to_string()).collect();
        firsts.sort();
        assert_eq!(firsts, ["1", "1", "2", "2", "auto", "auto", "off", "off"]);
    }

    #[test]
    fn cells_are_read_or_refused() {
        assert_eq!("8x4096".parse::<Cell>().unwrap(), Cell { concurrency: 8, context: 4096 });
        for wrong in ["", "8", "x", "0x128", "8x0", "8x9999999", "ax128"] {
            assert!(wrong.parse::<Cell>().is_err(), "{wrong}");
        }
    }
}
