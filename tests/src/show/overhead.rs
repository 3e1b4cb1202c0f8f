//! What a step costs besides the forward passes, from the tracing spans of `engine/src/step.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;
use redline::spans::{Busy, SpanTimes};
use redline::{
    DraftLength, Engine, EngineOptions, Event, GenerateRequest, Prompt, Registry, assemble,
};

use super::loaded::Loaded;
use super::prompts;
use super::report::{Row, Verdict, emit, note};

/// Flags of `redline-tests overhead`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Target model
    #[arg(short, long, default_value = "smollm2-135m")]
    model: String,
    /// Drafter: none, ngram, or a draft model
    #[arg(short, long, default_value = "none")]
    draft: String,
    /// Draft tokens per round; 0 leaves it to the controller
    #[arg(short = 'k', long, default_value_t = 0, value_name = "N")]
    length: usize,
    /// Sequences that run at a time
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=99))]
    sequences: u16,
    /// Tokens of each
    #[arg(long, default_value_t = 48, value_name = "N")]
    tokens: usize,
    /// Threads of the kernels
    #[arg(long)]
    threads: Option<usize>,
}

/// Most of a step that may be anything but forward passes.
const LIMIT: f64 = 0.03;
/// The parts of a step, in their order; `draft_forward` lies inside `propose`.
const PARTS: [&str; 8] =
    ["step", "plan", "propose", "draft_forward", "settle", "forward", "verify", "commit"];

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let line =
        format!("engine overhead, {}, -d {}, {} sequences", args.model, args.draft, args.sequences);
    let times = SpanTimes::install()?;
    let model = Loaded::open(&args.model, args.threads)?;
    let prompts = prompts::code_and_chat(&model, usize::from(args.sequences), 0)?;
    let mut engine = engine(args, &model)?;
    for prompt in &prompts {
        engine.submit(GenerateRequest {
            max_tokens: args.tokens,
            ignore_eos: true,
            ..GenerateRequest::new(Prompt::Tokens(prompt.tokens.clone()))
        })?;
    }
    let tokens = decode(&mut engine, &times, prompts.len());
    let sums = times.sums();
    let busy = |name: &str| sums.get(name).copied().unwrap_or_default();
    let passes = busy("forward").time + busy("draft_forward").time;
    let step = busy("step");
    if step.count == 0 {
        bail!("no step was measured: --tokens is too small");
    }
    let overhead = 1.0 - passes.as_secs_f64() / step.time.as_secs_f64();
    report(args, &sums, tokens)?;
    let row = Row {
        line,
        measured: format!(
            "{:.2} % of {:.1} ms",
            100.0 * overhead,
            ms(step.time) / step.count as f64
        ),
        limit: format!("< {} %", 100.0 * LIMIT),
        verdict: Verdict::of(overhead < LIMIT),
    };
    Ok(row.emit()?)
}

fn engine(args: &Args, model: &Loaded) -> anyhow::Result<Engine> {
    let vocab = model.info().vocab_size;
    let target = model.target();
    let context = redline::DrafterContext {
        vocab,
        context_length: model.info().context_length,
        tokenizer: target.tokenizer.as_ref(),
    };
    let drafter = match Registry::default().make(&args.draft, &context)? {
        Some(drafter) => drafter,
        None => Some(Box::new(Loaded::open(&args.draft, args.threads)?.drafter(vocab)) as _),
    };
    let options =
        EngineOptions { max_seqs: usize::from(args.sequences), ..EngineOptions::default() };
    let length = if args.length == 0 { DraftLength::Auto } else { DraftLength::Fixed(args.length) };
    Ok(assemble(target, drafter, redline::verifier("coupled")?, length, &options)?)
}

/// Runs until the first sequence ends; what counts starts when the last prompt is computed. Prefill makes for long
/// passes, in which any overhead would look small.
fn decode(engine: &mut Engine, times: &SpanTimes, sequences: usize) -> usize {
    let mut started = std::collections::BTreeSet::new();
    let mut tokens = 0;
    while engine.has_work() {
        for event in engine.step() {
            match event {
                Event::Tokens { id, tokens: new, .. } => {
                    started.insert(id);
                    tokens += new.len();
                }
                Event::Finished { .. } => return tokens,
            }
        }
        if started.len() < sequences {
            times.reset();
            tokens = 0;
        }
    }
    tokens
}

fn report(args: &Args, sums: &BTreeMap<String, Busy>, tokens: usize) -> anyhow::Result<()> {
    let all = sums.get("step").copied().unwrap_or_default();
    note(&format!("{} steps, {tokens} tokens", all.count));
    let mut parts = serde_json::Map::new();
    for name in PARTS {
        let busy = sums.get(name).copied().unwrap_or_default();
        let share = busy.time.as_secs_f64() / all.time.as_secs_f64();
        let per_step = ms(busy.time) / all.count as f64;
        let indent = if name == "draft_forward" { "  " } else { "" };
        note(&format!(
            "{:<16}{per_step:>10.3} ms a step{:>9.2} %",
            format!("{indent}{name}"),
            100.0 * share
        ));
        parts.insert(name.to_owned(), per_step.into());
    }
    Ok(emit(&serde_json::json!({
        "check": "overhead", "model": args.model, "draft": args.draft, "sequences": args.sequences,
        "steps": all.count, "tokens": tokens, "ms_per_step": parts,
    }))?)
}

fn ms(time: Duration) -> f64 {
    1e3 * time.as_secs_f64()
}
