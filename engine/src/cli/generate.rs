//! `redline generate`: one prompt, streamed, or a file of prompts, many at a time.

use std::collections::VecDeque;
use std::io::{IsTerminal, Read};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use rustc_hash::FxHashMap;
use serde_json::Value;

use super::Failure;
use super::fetch::fetch_models;
use super::interrupt::{INTERRUPTED, Interrupt};
use super::options::{
    GrammarOptions, InputFile, LogprobsOptions, ModelOptions, SamplingOptions, SpeculationOptions,
    parse_seconds, parse_size,
};
use super::output::{Mode, Printer};
use super::prompts::{PromptLine, read_prompts, text_prompt};
use crate::engine::Engine;
use crate::load_options::{EngineOptions, LoadOptions};
use crate::loader::load;
use crate::registry::Registry;
use crate::request::{Event, FinishReason, GenerateRequest, RequestId};

/// Most bytes read as a prompt from standard input.
const STDIN_BYTES_MAX: u64 = 16 << 20;

/// When to colour what the terminal shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Color {
    /// On a terminal
    Auto,
    /// Also into a pipe
    Always,
    /// Not at all
    Never,
}

/// Flags of `redline generate`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// What to continue; read from standard input when left out
    #[arg(conflicts_with = "prompts")]
    prompt: Option<String>,
    #[command(flatten)]
    model: ModelOptions,
    #[command(flatten)]
    speculation: SpeculationOptions,
    #[command(flatten)]
    sampling: SamplingOptions,
    /// Most tokens to generate for a prompt
    #[arg(short = 'n', long, default_value_t = 256, value_name = "N")]
    max_tokens: usize,
    /// Continuations of each prompt, drawn apart; they share what is computed of the prompt
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=128))]
    samples: u16,
    /// End with what there is when a prompt takes longer than this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    timeout: Option<Duration>,
    /// End right before this text; may be given several times
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Never emit this token: an id, or a text that is a single token; may be given several times
    #[arg(long, value_name = "TOKEN")]
    ban: Vec<String>,
    /// Go on past end-of-text tokens
    #[arg(long)]
    ignore_eos: bool,
    /// Feed the text as it is, without the chat template
    #[arg(long)]
    raw: bool,
    /// A file of prompts, one JSON object a line: {"id","prompt"}, {"id","turns"} or {"id","messages"}
    #[arg(long, value_name = "FILE.jsonl")]
    prompts: Option<InputFile>,
    /// Sequences that run at a time
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    concurrency: u16,
    /// Memory for the KV cache, such as 512M or 2G [default: what the requests can use, at most a quarter of free memory]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    kv_memory: Option<u64>,
    /// Longest prompt plus output in tokens [default: the model's context length]
    #[arg(long, value_name = "N")]
    max_model_len: Option<usize>,
    /// Compute every prompt afresh
    #[arg(long)]
    no_prefix_cache: bool,
    /// One JSON object per sample on standard output, as each ends
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    grammar: GrammarOptions,
    #[command(flatten)]
    logprobs: LogprobsOptions,
    /// Colour accepted draft tokens
    #[arg(long, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    color: Color,
}

pub(super) fn run(args: Args) -> Result<ExitCode, Failure> {
    let sampling = args.sampling.sampling()?;
    if args.max_tokens == 0 {
        return Err(Failure::Usage(anyhow!("--max-tokens 0 asks for nothing; the least is 1")));
    }
    let grammar = args.grammar.grammar().map_err(Failure::Usage)?;
    let lines = prompts(&args)?;
    let single = args.prompts.is_none();
    let interrupt = Interrupt::listen();
    let options = load_options(&args, lines.len());
    fetch_models(&options, &Registry::default(), &interrupt)?;
    let mut engine = load(&options).map_err(Failure::load)?;
    let banned = engine.frontend().token_list(&args.ban).map_err(Failure::usage)?;
    if let Some(grammar) = &grammar {
        engine.frontend().grammar(grammar).map_err(Failure::usage)?;
    }
    let mut queue = VecDeque::with_capacity(lines.len());
    for line in lines {
        let request = GenerateRequest {
            samples: usize::from(args.samples),
            timeout: args.timeout,
            max_tokens: args.max_tokens,
            sampling: sampling.clone(),
            seed: args.sampling.seed,
            stop: args.stop.clone(),
            ignore_eos: args.ignore_eos,
            banned: banned.clone(),
            logprobs: args.logprobs.wanted(),
            constraint: grammar.clone().map(Into::into),
            ..GenerateRequest::new(line.prompt)
        };
        queue.push_back((line.id, request));
    }
    let mode = if args.json {
        Mode::Json
    } else if single && args.samples == 1 {
        Mode::Stream
    } else {
        Mode::Blocks
    };
    let color = match args.color {
        Color::Auto => std::io::stdout().is_terminal() && !plain_terminal(),
        Color::Always => true,
        Color::Never => false,
    };
    let mut run = Run {
        printer: Printer::new(mode, color, (queue.len(), usize::from(args.samples))),
        running: FxHashMap::default(),
        failed: false,
        interrupt,
        single,
        concurrency: usize::from(args.concurrency),
    };
    run.drive(&mut engine, queue)
}

/// Whether the user wants no colours anywhere, or has a terminal without them.
fn plain_terminal() -> bool {
    let var = std::env::var_os;
    var("NO_COLOR").is_some_and(|value| !value.is_empty())
        || var("TERM").is_some_and(|term| term == "dumb")
}

/// The prompts asked for, checked before any model is loaded.
fn prompts(args: &Args) -> Result<Vec<PromptLine>, Failure> {
    if let Some(path) = &args.prompts {
        return read_prompts(path, args.raw).map_err(Failure::Usage);
    }
    let text = match &args.prompt {
        Some(text) => text.clone(),
        None if std::io::stdin().is_terminal() => {
            return Err(Failure::Usage(anyhow!(
                "no prompt: give one as an argument, on standard input, or as --prompts FILE"
            )));
        }
        None => {
            let mut bytes = Vec::new();
            let read = std::io::stdin().lock().take(STDIN_BYTES_MAX + 1).read_to_end(&mut bytes);
            read.context("can't read standard input").map_err(Failure::Runtime)?;
            if bytes.len() as u64 > STDIN_BYTES_MAX {
                return Err(Failure::Usage(anyhow!(
                    "the prompt on standard input has more than {} MiB",
                    STDIN_BYTES_MAX >> 20
                )));
            }
            let mut text = String::from_utf8(bytes).map_err(|_| {
                Failure::Usage(anyhow!("the prompt on standard input is not UTF-8"))
            })?;
            // The line's end that `echo` adds is nobody's message; bare text is taken to the letter.
            if !args.raw && text.ends_with('\n') {
                text.pop();
            }
            text
        }
    };
    if text.is_empty() {
        return Err(Failure::Usage(anyhow!("the prompt is empty")));
    }
    let prompt = text_prompt(text, args.raw);
    Ok(vec![PromptLine { id: Value::from(0), category: None, prompt }])
}

fn load_options(args: &Args, prompts: usize) -> LoadOptions {
    let engine = EngineOptions {
        max_seqs: usize::from(args.concurrency).min(prompts.max(1) * usize::from(args.samples)),
        kv_memory: args.kv_memory,
        max_model_len: args.max_model_len,
        prefix_cache: !args.no_prefix_cache,
        ..EngineOptions::default()
    };
    args.speculation.load_options(&args.model, engine)
}

/// A request that was taken in.
struct Running {
    /// Its id in the file of prompts.
    name: Value,
    /// Those that have not ended.
    samples: usize,
}

/// Requests on their way through the engine.
struct Run {
    printer: Printer,
    running: FxHashMap<RequestId, Running>,
    failed: bool,
    interrupt: Interrupt,
    single: bool,
    concurrency: usize,
}

impl Run {
    fn drive(
        &mut self,
        engine: &mut Engine,
        mut queue: VecDeque<(Value, GenerateRequest)>,
    ) -> Result<ExitCode, Failure> {
        let mut stopping = false;
        loop {
            if self.interrupt.requested() && !stopping {
                stopping = true;
                queue.clear();
                let running: Vec<_> = self.running.keys().copied().collect();
                for id in running {
                    engine.cancel(id);
                }
            }
            // A few samples more than can run, so that a slot that falls free is filled at once.
            while self.inside() < self.concurrency * 2 {
                let Some((id, request)) = queue.pop_front() else { break };
                self.submit(engine, id, request)?;
            }
            if !engine.has_work() {
                break;
            }
            for event in engine.step() {
                self.handle(event)?;
            }
        }
        self.printer.finish()?;
        Ok(ExitCode::from(if stopping { INTERRUPTED } else { u8::from(self.failed) }))
    }

    /// Samples that were taken in and have not ended.
    fn inside(&self) -> usize {
        self.running.values().map(|running| running.samples).sum()
    }

    /// A refused request of a file is reported in its place and the others go on; a refused prompt
    /// from the command line is the user's to mend.
    fn submit(
        &mut self,
        engine: &mut Engine,
        id: Value,
        request: GenerateRequest,
    ) -> Result<(), Failure> {
        let (seed, samples) = (request.seed, request.samples);
        match engine.submit(request) {
            Ok(request_id) => {
                self.running.insert(request_id, Running { name: id, samples });
            }
            Err(refused) if self.single => return Err(Failure::usage(refused)),
            Err(refused) => {
                self.failed = true;
                self.printer.refused(&id, seed, &crate::error::chain(&refused))?;
            }
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Tokens { tokens, .. } => self.printer.tokens(&tokens)?,
            Event::Finished { id, output, .. } => {
                self.failed |=
                    matches!(output.finish_reason, FinishReason::Error | FinishReason::Timeout);
                let Some(running) = self.running.get_mut(&id) else { return Ok(()) };
                self.printer.finished(&running.name, &output)?;
                running.samples -= 1;
                if running.samples == 0 {
                    self.running.remove(&id);
                }
            }
        }
        Ok(())
    }
}
