//! `redline score`: teacher-forced log-probabilities.
//!
//! A line is `{"id","token_ids"}` or `{"id","prompt"}`; out comes, for every position i, the model's prediction
//! of the *next* token: `argmax[i]`, `margin[i]` (best minus second-best logit), and `logprob[i]` of the token that
//! really follows (none after the last).

use std::io::{BufWriter, Write};
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Failure;
use super::fetch::fetch;
use super::interrupt::{INTERRUPTED, Interrupt};
use super::options::{InputFile, ModelOptions};
use super::prompts::read_lines;
use crate::loader::load_scorer;
use crate::model::DraftQuant;
use crate::score::{ScoreError, Scored, Scorer};

/// Flags of `redline score`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// A file with one {"id","token_ids"} or {"id","prompt"} object a line; `-` is standard input
    #[arg(value_name = "FILE.jsonl")]
    file: InputFile,
    #[command(flatten)]
    model: ModelOptions,
    /// Re-quantise the model as `generate --draft-quant` does: what a draft loses by it
    #[arg(long, value_name = "q4_0|q3_k|q2_k")]
    draft_quant: Option<DraftQuant>,
    /// One {"id","token_ids","logprob","argmax","margin","perplexity"} object a line
    #[arg(long)]
    json: bool,
}

#[derive(Deserialize)]
struct Line {
    id: Option<Value>,
    token_ids: Option<Vec<u32>>,
    prompt: Option<String>,
}

#[derive(Serialize)]
struct JsonLine<'a> {
    id: &'a Value,
    token_ids: &'a [u32],
    #[serde(flatten)]
    scored: &'a Scored,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let lines = read(&args.file).map_err(Failure::Usage)?;
    let interrupt = Interrupt::listen();
    fetch(&args.model.model, &interrupt)?;
    let ModelOptions { model, backend, threads } = &args.model;
    let mut scorer =
        load_scorer(model, *backend, *threads, args.draft_quant).map_err(Failure::load)?;
    let mut out = BufWriter::new(std::io::stdout());
    let (mut nll, mut count) = (0.0, 0_usize);
    for (id, line) in &lines {
        if interrupt.requested() {
            return Ok(ExitCode::from(INTERRUPTED));
        }
        let ids = ids(&scorer, line).map_err(Failure::Usage)?;
        let scored = scorer.score(&ids).map_err(|error| failure(id, error))?;
        nll -= scored.logprob.iter().sum::<f64>();
        count += scored.logprob.len();
        if args.json {
            serde_json::to_writer(&mut out, &JsonLine { id, token_ids: &ids, scored: &scored })
                .map_err(Failure::runtime)?;
            writeln!(out)?;
        } else {
            writeln!(out, "{id}\t{} tokens\tperplexity {:.4}", ids.len(), scored.perplexity)?;
        }
        out.flush()?;
    }
    if !args.json && lines.len() > 1 && count > 0 {
        writeln!(out, "all\t{count} predictions\tperplexity {:.4}", (nll / count as f64).exp())?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Tokens that can't be scored are the user's to mend.
fn failure(id: &Value, error: ScoreError) -> Failure {
    let running = matches!(error, ScoreError::Runner(_));
    let error = anyhow::Error::new(error).context(id.to_string());
    if running { Failure::Runtime(error) } else { Failure::Usage(error) }
}

fn read(path: &InputFile) -> anyhow::Result<Vec<(Value, Line)>> {
    let mut lines = Vec::new();
    for (number, text) in read_lines(path)? {
        let at = || format!("{}, line {number}", path.display());
        let line: Line = serde_json::from_str(&text).with_context(at)?;
        if line.token_ids.is_some() == line.prompt.is_some() {
            return Err(anyhow!("exactly one of `token_ids` and `prompt` is needed"))
                .with_context(at);
        }
        lines.push((line.id.clone().unwrap_or_else(|| Value::from(number)), line));
    }
    if lines.is_empty() {
        bail!("{} holds nothing to score", path.display());
    }
    Ok(lines)
}

fn ids(scorer: &Scorer, line: &Line) -> anyhow::Result<Vec<u32>> {
    match (&line.token_ids, &line.prompt) {
        (Some(ids), _) => Ok(ids.clone()),
        (None, Some(text)) => Ok(scorer.encode(text)?),
        (None, None) => Ok(Vec::new()),
    }
}
