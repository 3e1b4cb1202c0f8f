//! Token ids with drafts, in a batch, short of memory: against plain decoding, alone, with ample memory.

mod cells;
mod drive;
mod state;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, bail};
use redline::{DraftHead, DraftQuant, LoadOptions};
use serde_json::{Value, json};

use self::cells::{Cell, Memory};
use self::drive::{Bench, Ran};
use self::state::State;
use super::loaded::Loaded;
use super::prompts::{self, Prompt};
use super::report::{Row, Verdict, emit, note};

/// Flags of `redline-tests identity`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Target model
    #[arg(short, long, default_value = "smollm2-135m")]
    model: String,
    /// Drafters, separated by commas: none, ngram, draft models, or self:q4_0
    #[arg(short, long, default_value = "none,ngram", value_delimiter = ',')]
    draft: Vec<String>,
    /// Re-quantise the draft models: q4_0, q3_k or q2_k
    #[arg(long)]
    draft_quant: Option<DraftQuant>,
    /// Tokens that the draft models can say: all, a number, or a file of ids
    #[arg(long, default_value = "all")]
    draft_head: DraftHead,
    /// Every combination, on all prompts
    #[arg(long)]
    full: bool,
    /// HumanEval prompts [default: 4, or all 99 with --full]
    #[arg(long, value_name = "N")]
    prompts: Option<usize>,
    /// Prompts of Spec-Bench, the shortest [default: 2, or 40 with --full]
    #[arg(long, value_name = "N")]
    chat_prompts: Option<usize>,
    /// Tokens of each [default: 24, or 64 with --full]
    #[arg(long, value_name = "N")]
    tokens: Option<usize>,
    /// Where finished cells are kept, so that a killed run can go on
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Only the cells whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Threads of the kernels
    #[arg(long)]
    threads: Option<usize>,
}

/// Sums over cells.
#[derive(Default)]
struct Totals {
    cells: usize,
    identical: usize,
    outputs: usize,
    preemptions: u64,
    unforced: usize,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let line = format!("identity, {}, -d {}", args.model, args.draft.join(","));
    let pick =
        |asked: Option<usize>, short, full| asked.unwrap_or(if args.full { full } else { short });
    let target = Loaded::open(&args.model, args.threads)?;
    let code = pick(args.prompts, 4, 99);
    let prompts = prompts::code_and_chat(&target, code, pick(args.chat_prompts, 2, 40))?;
    let tokens = pick(args.tokens, 24, 64);
    let options = LoadOptions {
        model: args.model.clone(),
        draft_quant: args.draft_quant,
        draft_head: args.draft_head.clone(),
        threads: args.threads,
        ..LoadOptions::default()
    };
    let setup = state::setup(&target, &prompts, tokens, &options)?;
    let mut state = State::open(args.state.as_deref(), setup)?;
    let mut bench = Bench::new(&target, &args.draft, &prompts, tokens, &options)?;
    let mut cells = cells::of(&args.draft, args.full);
    cells.retain(|cell| cell.name().contains(&args.only));

    let mut totals = Totals::default();
    for (i, cell) in cells.iter().enumerate() {
        let verdict = match state.finished(&cell.name()) {
            Some(found) => found.clone(),
            None => {
                let expected = reference(&mut bench, &mut state, cell)?;
                let verdict = compare(cell, &prompts, &expected, bench.run(cell)?);
                state.record(&cell.name(), verdict.clone())?;
                verdict
            }
        };
        note(&format!("{}/{} {}", i + 1, cells.len(), summary(&cell.name(), &verdict)));
        emit(&verdict)?;
        totals.add(&verdict)?;
    }
    Ok(totals.row(line, args.full).emit()?)
}

/// What a cell must give: the outputs of plain decoding at its temperature.
fn reference(
    bench: &mut Bench<'_>,
    state: &mut State,
    cell: &Cell,
) -> anyhow::Result<Vec<Vec<u32>>> {
    let plain = Cell::reference(cell.temperature);
    let name = format!("reference {}", plain.name());
    if let Some(found) = state.finished(&name) {
        let outputs = found.get("outputs").context("the state file's reference has no outputs")?;
        return Ok(serde_json::from_value(outputs.clone())?);
    }
    let started = Instant::now();
    let ran = bench.run(&plain)?;
    if let Some(error) = ran.errors.first() {
        bail!("plain decoding fails: {error}");
    }
    note(&format!("{name}: {:.1} s", started.elapsed().as_secs_f64()));
    state.record(&name, json!({"outputs": ran.outputs}))?;
    Ok(ran.outputs)
}

fn compare(cell: &Cell, prompts: &[Prompt], expected: &[Vec<u32>], ran: Ran) -> Value {
    let mut mismatches = Vec::new();
    for ((prompt, want), got) in prompts.iter().zip(expected).zip(&ran.outputs) {
        if want != got {
            let same = want.iter().zip(got).take_while(|(a, b)| a == b).count();
            mismatches.push(json!({
                "id": prompt.id, "position": same, "expected": want.get(same), "got": got.get(same),
            }));
        }
    }
    json!({
        "check": "identity", "cell": cell.name(), "prompts": prompts.len(),
        "identical": prompts.len() - mismatches.len(), "preemptions": ran.preemptions,
        "forced": cell.memory == Memory::Ample || ran.preemptions > 0, "blocks": ran.blocks,
        "mean_acceptance_length": ran.tokens as f64 / ran.rounds.max(1) as f64,
        "drafted": ran.drafted, "accepted": ran.accepted, "seconds": ran.seconds,
        "mismatches": mismatches, "errors": ran.errors,
    })
}

fn summary(name: &str, cell: &Value) -> String {
    let show = |key: &str| cell.get(key).map_or_else(String::new, Value::to_string);
    let first =
        cell.pointer("/mismatches/0").map_or_else(String::new, |first| format!(", first: {first}"));
    format!(
        "{name}: {}/{} identical, {} preemptions, {:.2} tokens a round, {:.1} s{first}",
        show("identical"),
        show("prompts"),
        show("preemptions"),
        cell.get("mean_acceptance_length").and_then(Value::as_f64).unwrap_or_default(),
        cell.get("seconds").and_then(Value::as_f64).unwrap_or_default(),
    )
}

impl Totals {
    fn add(&mut self, cell: &Value) -> anyhow::Result<()> {
        let count = |key: &str| {
            cell.get(key).and_then(Value::as_u64).with_context(|| format!("no {key} in a cell"))
        };
        self.cells += 1;
        self.outputs += count("prompts")? as usize;
        self.identical += count("identical")? as usize;
        self.preemptions += count("preemptions")?;
        self.unforced += usize::from(cell.get("forced") != Some(&Value::Bool(true)));
        Ok(())
    }

    fn row(&self, line: String, full: bool) -> Row {
        let mut measured = format!(
            "{}/{} outputs identical in {} cells, {} preemptions",
            self.identical, self.outputs, self.cells, self.preemptions
        );
        if !full {
            measured += " (short; all cells with --full)";
        }
        if self.unforced > 0 {
            measured += &format!("; {} cells short of memory had no preemption", self.unforced);
        }
        Row {
            line,
            measured,
            limit: "100 %, preempted where memory is short".to_owned(),
            verdict: Verdict::of(
                self.cells > 0 && self.identical == self.outputs && self.unforced == 0,
            ),
        }
    }
}
