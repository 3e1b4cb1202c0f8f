//! Outputs against the reference files, which a float32 forward of the dequantised weights made.

use std::time::Instant;

use redline::text::{ChatOptions, Encode};
use redline::{Scored, Scorer};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::loaded::Loaded;
use super::prompts::{id_text, read_lines};
use super::report::{Row, Verdict, emit, note};

/// Flags of `redline-tests reference`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Model: an alias that has a reference file
    #[arg(short, long, default_value = "smollm2-135m")]
    model: String,
    /// Threads of the kernels
    #[arg(long)]
    threads: Option<usize>,
    /// Only the first so many prompts
    #[arg(long, value_name = "N")]
    prompts: Option<usize>,
}

/// Predictions closer than this may go either way.
const CLEAR_MARGIN: f64 = 0.5;
/// Log-probabilities below this are left out: their errors say nothing.
const LOGPROB_FLOOR: f64 = -10.0;

/// What an engine that quantises activations may differ by.
struct Limits {
    argmax_share: f64,
    logprob_diff: f64,
    logprob_bias: f64,
}

impl Limits {
    /// The smaller the model, the more it suffers from quantisation.
    fn of(model: &str) -> Self {
        if model.starts_with("qwen2.5-coder") {
            Self { argmax_share: 0.98, logprob_diff: 0.035, logprob_bias: 0.01 }
        } else {
            Self { argmax_share: 0.965, logprob_diff: 0.05, logprob_bias: 0.01 }
        }
    }
}

#[derive(Deserialize)]
struct Line {
    id: Value,
    prompt: String,
    prompt_token_ids: Vec<u32>,
    tokenizer_ids: Vec<u32>,
    greedy_token_ids: Vec<u32>,
    argmax: Vec<u32>,
    margin: Vec<f64>,
    logprob: Vec<f64>,
}

#[derive(Deserialize)]
struct TokenizerLine {
    model: String,
    text: String,
    ids: Vec<u32>,
}

#[derive(Deserialize)]
struct ChatLine {
    model: String,
    messages: Vec<Value>,
    tools: Option<Value>,
    add_generation_prompt: bool,
    prompt: String,
}

/// Sums over positions, position 0 of each prompt left out.
#[derive(Default, Serialize)]
struct Sums {
    positions: usize,
    argmax_equal: usize,
    clear: usize,
    clear_equal: usize,
    logprobs: usize,
    abs_diff: f64,
    diff: f64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let name = format!("reference/{}.jsonl", args.model);
    let line = format!("reference outputs, {}", args.model);
    let mut lines: Vec<Line> = read_lines(&name)?;
    lines.truncate(args.prompts.unwrap_or(usize::MAX));
    let model = Loaded::open(&args.model, args.threads)?;
    let verdict = tokenizer(&model, &lines)?.and(chat(&model)?);
    let mut scorer = model.scorer();
    let mut sums = Sums::default();
    for line in &lines {
        score(&mut scorer, line, &mut sums)?;
    }
    let judged = judge(line, &sums, &Limits::of(&args.model)).emit()?;
    Ok(verdict.and(judged))
}

/// Scores one sequence and adds it up.
fn score(scorer: &mut Scorer, line: &Line, sums: &mut Sums) -> anyhow::Result<()> {
    let ids = [&line.prompt_token_ids[..], &line.greedy_token_ids].concat();
    let started = Instant::now();
    let scored = scorer.score(&ids)?;
    let mut own = Sums::default();
    own.add(line, &scored);
    note(&format!(
        "{:>14}: {} positions, {} argmax differ ({} clear), mean |logprob difference| {:.4}, {:.1} s",
        id_text(&line.id),
        own.positions,
        own.positions - own.argmax_equal,
        own.clear - own.clear_equal,
        own.abs_diff / own.logprobs.max(1) as f64,
        started.elapsed().as_secs_f64()
    ));
    sums.add(line, &scored);
    Ok(())
}

impl Sums {
    fn add(&mut self, line: &Line, scored: &Scored) {
        for i in 1..line.argmax.len().min(scored.argmax.len()) {
            let equal = scored.argmax[i] == line.argmax[i];
            self.positions += 1;
            self.argmax_equal += usize::from(equal);
            if line.margin[i] > CLEAR_MARGIN {
                self.clear += 1;
                self.clear_equal += usize::from(equal);
            }
        }
        for (ours, &theirs) in scored.logprob.iter().zip(&line.logprob).skip(1) {
            if theirs >= LOGPROB_FLOOR {
                self.logprobs += 1;
                self.abs_diff += (ours - theirs).abs();
                self.diff += ours - theirs;
            }
        }
    }
}

fn judge(line: String, sums: &Sums, limits: &Limits) -> Row {
    let share = sums.argmax_equal as f64 / sums.positions.max(1) as f64;
    let count = sums.logprobs.max(1) as f64;
    let (abs_diff, bias) = (sums.abs_diff / count, sums.diff / count);
    let holds = sums.positions > 0
        && sums.clear == sums.clear_equal
        && share >= limits.argmax_share
        && abs_diff <= limits.logprob_diff
        && bias.abs() <= limits.logprob_bias;
    Row {
        line,
        measured: format!(
            "argmax {}/{} where clear, {:.1} % of {}; logprob {abs_diff:.4}, bias {bias:+.4}",
            sums.clear_equal,
            sums.clear,
            100.0 * share,
            sums.positions
        ),
        limit: format!(
            "all, >= {} %, <= {}, +-{}",
            100.0 * limits.argmax_share,
            limits.logprob_diff,
            limits.logprob_bias
        ),
        verdict: Verdict::of(holds),
    }
}

/// The model under whose name its tokenizer's rows are filed: the two Qwen models share one.
fn rows_of(model: &str) -> &str {
    if model == "qwen2.5-coder-0.5b" { "qwen2.5-coder-1.5b" } else { model }
}

/// The tokenizer's rows, and the prompts of the reference file.
fn tokenizer(model: &Loaded, lines: &[Line]) -> anyhow::Result<Verdict> {
    let title = format!("tokenizer rows, {}", model.name);
    let rows: Vec<TokenizerLine> = read_lines("reference/tokenizer.jsonl")?;
    let rows = rows
        .iter()
        .filter(|row| row.model == rows_of(&model.name))
        .map(|row| (&row.text, &row.ids));
    let (mut all, mut equal, mut round_trips) = (0, 0, 0);
    for (text, ids) in rows.chain(lines.iter().map(|line| (&line.prompt, &line.tokenizer_ids))) {
        let ours = model.tokenizer.encode(text, Encode::default())?;
        let back = model.tokenizer.decode(ids, true);
        all += 1;
        equal += usize::from(ours == *ids);
        round_trips += usize::from(back == *text);
        if ours != *ids || back != *text {
            emit(&serde_json::json!({
                "check": "tokenizer", "text": text, "ids": ours, "expected": ids, "decoded": back,
            }))?;
        }
    }
    Ok(Row {
        line: title,
        measured: format!("{equal}/{all} encode alike, {round_trips}/{all} decode back"),
        limit: "all".to_owned(),
        verdict: Verdict::of(all > 0 && equal == all && round_trips == all),
    }
    .emit()?)
}

fn chat(model: &Loaded) -> anyhow::Result<Verdict> {
    let title = format!("chat template rows, {}", model.name);
    let rows: Vec<ChatLine> = read_lines("reference/chat.jsonl")?;
    let (mut all, mut equal) = (0, 0);
    for row in rows.iter().filter(|row| row.model == model.name) {
        let options = ChatOptions {
            add_generation_prompt: row.add_generation_prompt,
            tools: row.tools.clone(),
            ..ChatOptions::default()
        };
        let ours = match &model.template {
            Some(template) => template.render(&row.messages, &options),
            None => Ok(String::new()),
        };
        all += 1;
        match ours {
            Ok(prompt) if prompt == row.prompt => equal += 1,
            Ok(prompt) => emit(&serde_json::json!({
                "check": "chat", "messages": row.messages, "prompt": prompt, "expected": row.prompt,
            }))?,
            Err(error) => note(&format!("chat template: {error}")),
        }
    }
    if all == 0 {
        // Not every model has rows: then there is nothing to hold it to.
        note(&format!("no {title}"));
        return Ok(Verdict::Pass);
    }
    Ok(Row {
        line: title,
        measured: format!("{equal}/{all} render alike"),
        limit: "all".to_owned(),
        verdict: Verdict::of(equal == all),
    }
    .emit()?)
}
