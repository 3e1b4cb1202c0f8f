//! Many requests on a real model with too little memory: preempted, cancelled, forked, with drafts of every length.
//! Whatever is not cancelled must say what it says undisturbed.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use redline::spec::Ngram;
use redline::{
    BLOCK_SIZE, DraftLength, Engine, EngineOptions, Event, FinishReason, GenerateRequest,
    Prompt as EnginePrompt, RequestId, RequestOutput, Sampling, Speculation, assemble, verifier,
};
use redline_tests::requests::Random;
use serde_json::json;

use super::loaded::Loaded;
use super::prompts::{self, Prompt};
use super::report::{Row, Verdict, emit, note};

/// Flags of `redline-tests pressure`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Target model
    #[arg(short, long, default_value = "smollm2-135m")]
    model: String,
    /// Requests, each with one to three samples
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    requests: u16,
    /// Sequences that run at a time
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    /// Preemptions that there must be [default: half as many as requests]
    #[arg(long, value_name = "N")]
    preemptions: Option<u64>,
    /// Seed of the requests, and of when which are cancelled
    #[arg(long, default_value_t = 1, value_name = "S")]
    seed: u64,
    /// Threads of the kernels
    #[arg(long)]
    threads: Option<usize>,
}

/// One in so many steps a request is cancelled.
const CANCEL_EVERY: usize = 64;
/// Steps between two lines of progress.
const NOTE_EVERY: usize = 200;

/// By request and sample.
type Outputs = BTreeMap<(RequestId, usize), RequestOutput>;

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let target = Loaded::open(&args.model, args.threads)?;
    let prompts = prompts::code_and_chat(&target, 99, 40)?;
    let requests = requests(args, &prompts);
    let longest = requests.iter().map(length).max().unwrap_or(0);
    let alone = longest.div_ceil(BLOCK_SIZE as usize) as u64;

    // Undisturbed: room for all, nothing drafted, nobody cancelled.
    let blocks = (alone + 1) * u64::from(args.concurrency);
    let mut engine = build(args, &target, None, blocks)?;
    let plain: Vec<_> = requests.iter().map(undisturbed).collect();
    let expected = drive(&mut engine, &plain, None, "undisturbed")?.outputs;
    let quiet = engine.scheduler().stats().preempted;

    let mut engine = build(args, &target, Some(Ngram::default()), alone)?;
    let ran = drive(&mut engine, &requests, Some(Random(args.seed)), "under pressure")?;
    if quiet > 0 {
        bail!("the undisturbed run had {quiet} preemptions");
    }
    report(args, &engine, &expected, &ran)
}

/// Code and chat, some of it several times; greedy and sampled; drafts as everyone likes.
fn requests(args: &Args, prompts: &[Prompt]) -> Vec<GenerateRequest> {
    let mut random = Random(args.seed);
    let one = |i: usize| {
        let prompt = prompts[i % prompts.len()].tokens.clone();
        let temperature = [0.0, 1.0, 1.0, 0.7][random.below(4)];
        GenerateRequest {
            samples: [1, 1, 2, 3][random.below(4)],
            max_tokens: 8 + random.below(56),
            sampling: Sampling { temperature, ..Sampling::default() },
            seed: Some(random.next_u64()),
            ignore_eos: random.below(2) == 0,
            priority: random.below(3) as i32 - 1,
            speculation: [
                Speculation::Engine,
                Speculation::AtMost(2),
                Speculation::Exactly(1),
                Speculation::Exactly(4),
                Speculation::Exactly(8),
                Speculation::Off,
            ][random.below(6)],
            ..GenerateRequest::new(EnginePrompt::Tokens(prompt))
        }
    };
    (0..usize::from(args.requests)).map(one).collect()
}

fn undisturbed(request: &GenerateRequest) -> GenerateRequest {
    GenerateRequest { priority: 0, speculation: Speculation::Off, ..request.clone() }
}

fn length(request: &GenerateRequest) -> usize {
    match &request.prompt {
        EnginePrompt::Tokens(tokens) => tokens.len() + request.max_tokens,
        EnginePrompt::Text(_) | EnginePrompt::Messages(_) => 0,
    }
}

fn build(
    args: &Args,
    target: &Loaded,
    drafter: Option<Ngram>,
    blocks: u64,
) -> anyhow::Result<Engine> {
    let token_bytes = target.info().lane.bytes_per_token()?;
    let options = EngineOptions {
        max_seqs: usize::from(args.concurrency),
        kv_memory: Some(blocks * token_bytes * u64::from(BLOCK_SIZE)),
        ..EngineOptions::default()
    };
    let drafter = drafter.map(|ngram| Box::new(ngram) as Box<dyn redline::spec::Drafter>);
    Ok(assemble(target.target(), drafter, verifier("coupled")?, DraftLength::Auto, &options)?)
}

/// What a run gave.
struct Ran {
    outputs: Outputs,
    steps: usize,
    drafted: usize,
}

/// Keeps a few more requests inside than can run; cancels at random if there is something random.
fn drive(
    engine: &mut Engine,
    requests: &[GenerateRequest],
    mut cancel: Option<Random>,
    name: &str,
) -> anyhow::Result<Ran> {
    let mut ran = Ran { outputs: Outputs::new(), steps: 0, drafted: 0 };
    let mut inside: Vec<RequestId> = Vec::new();
    let mut open: BTreeMap<RequestId, usize> = BTreeMap::new();
    let mut queue = requests.iter();
    let room = engine.scheduler().config().max_seqs * 2;
    loop {
        while open.len() < room {
            let Some(request) = queue.next() else { break };
            let id = engine.submit(request.clone())?;
            inside.push(id);
            open.insert(id, request.samples);
        }
        if !engine.has_work() {
            break;
        }
        if let Some(random) = &mut cancel
            && random.below(CANCEL_EVERY) == 0
        {
            engine.cancel(inside[inside.len() - 1 - random.below(inside.len().min(room))]);
        }
        for event in engine.step() {
            if let Event::Finished { id, sample, output } = event {
                ran.drafted += output.speculation.drafted;
                let left = open.get_mut(&id).context("an end of a request that has ended")?;
                *left -= 1;
                if *left == 0 {
                    open.remove(&id);
                }
                let before = ran.outputs.insert((id, sample), *output);
                anyhow::ensure!(before.is_none(), "{id}, sample {sample} ended twice");
            }
        }
        ran.steps += 1;
        if ran.steps.is_multiple_of(NOTE_EVERY) {
            let done = inside.len() - open.len();
            note(&format!("{name}: {done}/{} requests, {} steps", requests.len(), ran.steps));
        }
    }
    engine.audit().context("the audit after the last request")?;
    Ok(ran)
}

fn report(args: &Args, engine: &Engine, expected: &Outputs, ran: &Ran) -> anyhow::Result<Verdict> {
    let (mut identical, mut compared, mut cancelled) = (0, 0, 0);
    for (&(id, sample), output) in &ran.outputs {
        let name = format!("{id}, sample {sample}");
        let want = expected.get(&(id, sample)).context("a request that was not asked for")?;
        if output.finish_reason == FinishReason::Cancelled {
            // What there was of it must be right, too.
            cancelled += 1;
            anyhow::ensure!(want.token_ids.starts_with(&output.token_ids), "{name}, cancelled");
            continue;
        }
        compared += 1;
        let same =
            (&want.token_ids, want.finish_reason) == (&output.token_ids, output.finish_reason);
        identical += usize::from(same);
        if !same {
            note(&format!("{name} differs: {:?} for {:?}", output.token_ids, want.token_ids));
        }
    }
    let (stats, usage) = (engine.scheduler().stats(), engine.kv().usage());
    let balanced = usage.free == usage.total && stats.submitted == stats.finished;
    let whole = ran.outputs.len() == expected.len() && balanced;
    let least = args.preemptions.unwrap_or(u64::from(args.requests) / 2);
    emit(&json!({
        "check": "pressure", "samples": ran.outputs.len(), "compared": compared, "identical": identical,
        "cancelled": cancelled, "preemptions": stats.preempted, "forks": stats.forked, "steps": ran.steps,
        "drafted": ran.drafted, "blocks": usage.total, "free": usage.free,
    }))?;
    let forced = stats.preempted >= least && stats.forked > 0 && cancelled > 0 && ran.drafted > 0;
    Ok(Row {
        line: format!("{} requests under pressure, {}", args.requests, args.model),
        measured: format!(
            "{identical}/{compared} identical, {cancelled} cancelled, {} preemptions, {} forks, {} of {} blocks free",
            stats.preempted, stats.forked, usage.free, usage.total
        ),
        limit: format!("all identical and free, >= {least} preemptions"),
        verdict: Verdict::of(identical == compared && whole && forced),
    }
    .emit()?)
}
