//! Greedy acceptance of a draft model, count for count, against a simulation that knows nothing of the engine but how
//! many drafts a round may have: it uses the two models' argmaxes, teacher-forced along the target's own output.
//!
//! One pass of each model suffices. As long as drafts are right, the draft model's continuation runs along the
//! target's output, where its argmaxes are known; what it says after its first mistake is never accepted.

use std::collections::BTreeMap;

use redline::{
    DraftLength, EngineOptions, Event, GenerateRequest, Prompt as EnginePrompt, RequestOutput,
    SpeculationStats, assemble,
};
use redline_scheduler::{Config, INLINE_FILL_MAX};
use serde_json::json;

use super::loaded::Loaded;
use super::prompts::{self, Prompt};
use super::report::{Row, Verdict, emit, note};

/// Flags of `redline-tests acceptance`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Target model
    #[arg(short, long, default_value = "qwen2.5-coder-1.5b")]
    model: String,
    /// Draft model
    #[arg(short, long, default_value = "qwen2.5-coder-0.5b")]
    draft: String,
    /// Draft tokens per round
    #[arg(short = 'k', long, default_value_t = 4, value_name = "N")]
    length: usize,
    /// Prompts, spread over the categories
    #[arg(long, default_value_t = 20, value_name = "N")]
    prompts: usize,
    /// Tokens of each
    #[arg(long, default_value_t = 64, value_name = "N")]
    tokens: usize,
    /// Threads of the kernels
    #[arg(long)]
    threads: Option<usize>,
}

/// Rounds, drafts and what became of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
struct Counts {
    rounds: usize,
    drafted: usize,
    accepted: usize,
    histogram: Vec<usize>,
}

impl Counts {
    fn round(&mut self, drafted: usize, accepted: usize) {
        self.rounds += 1;
        self.drafted += drafted;
        self.accepted += accepted;
        if self.histogram.len() <= accepted {
            self.histogram.resize(accepted + 1, 0);
        }
        self.histogram[accepted] += 1;
    }

    fn add(&mut self, other: &Self) {
        self.rounds += other.rounds;
        self.drafted += other.drafted;
        self.accepted += other.accepted;
        self.histogram.resize(self.histogram.len().max(other.histogram.len()), 0);
        self.histogram.iter_mut().zip(&other.histogram).for_each(|(sum, n)| *sum += n);
    }
}

impl From<&SpeculationStats> for Counts {
    fn from(stats: &SpeculationStats) -> Self {
        Self {
            rounds: stats.rounds,
            drafted: stats.drafted,
            accepted: stats.accepted,
            histogram: stats.acceptance_histogram.clone(),
        }
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let line = format!("acceptance, {} for {}, K = {}", args.draft, args.model, args.length);
    let target = Loaded::open(&args.model, args.threads)?;
    let draft = Loaded::open(&args.draft, args.threads)?;
    let prompts = prompts::by_category(&target, args.prompts)?;
    let outputs = generate(args, (&target, &draft), &prompts)?;
    // Making a scorer gives the runner another cache, so the models take their turns one after the other.
    let greedy = argmaxes("target", &target, &prompts, &outputs)?;
    let drafts = argmaxes("draft", &draft, &prompts, &outputs)?;

    let mut categories: BTreeMap<&str, (Counts, usize)> = BTreeMap::new();
    let (mut equal, mut total) = (0, Counts::default());
    for (i, (prompt, output)) in prompts.iter().zip(&outputs).enumerate() {
        let measured = Counts::from(&output.speculation);
        let output = &output.token_ids[..];
        let own = &greedy[i][prompt.tokens.len() - 1..][..output.len()];
        let expected = simulate(args, prompt.tokens.len(), output, &drafts[i]);
        let same = own == output && measured == expected;
        equal += usize::from(same);
        let category = categories.entry(&prompt.category).or_default();
        category.0.add(&measured);
        category.1 += output.len();
        total.add(&measured);
        emit(&json!({
            "check": "acceptance", "id": prompt.id, "category": prompt.category, "same": same,
            "greedy": own == output, "tokens": output.len(), "measured": measured, "expected": expected,
        }))?;
        if !same {
            note(&format!("{}: measured {measured:?}, expected {expected:?}", prompt.id));
        }
    }
    for (name, (counts, tokens)) in &categories {
        note(&format!(
            "{name:<16}{:>4} of {:>4} drafts accepted, {:.2} tokens a round",
            counts.accepted,
            counts.drafted,
            *tokens as f64 / counts.rounds.max(1) as f64
        ));
    }
    Ok(row(line, equal, prompts.len(), &total).emit()?)
}

fn row(line: String, equal: usize, prompts: usize, total: &Counts) -> Row {
    let rate = 100.0 * total.accepted as f64 / total.drafted.max(1) as f64;
    Row {
        line,
        measured: format!(
            "{equal}/{prompts} prompts count for count; {rate:.1} % of {} drafts",
            total.drafted
        ),
        limit: "all".to_owned(),
        verdict: Verdict::of(equal == prompts && total.drafted > 0),
    }
}

/// The engine's outputs, one prompt after the other: what is simulated is a sequence alone.
fn generate(
    args: &Args,
    (target, draft): (&Loaded, &Loaded),
    prompts: &[Prompt],
) -> anyhow::Result<Vec<RequestOutput>> {
    let options = EngineOptions {
        max_seqs: 1,
        prefix_cache: false,
        max_model_len: Some(4096),
        ..EngineOptions::default()
    };
    let drafter = Box::new(draft.drafter(target.info().vocab_size));
    let rule = redline::verifier("coupled")?;
    let length = DraftLength::Fixed(args.length);
    let mut engine = assemble(target.target(), Some(drafter), rule, length, &options)?;
    let mut outputs = Vec::new();
    for prompt in prompts {
        engine.submit(GenerateRequest {
            max_tokens: args.tokens,
            // A drafter stops behind an end of text, also in a wrong draft, where only it knows what it drafted.
            ignore_eos: true,
            ..GenerateRequest::new(EnginePrompt::Tokens(prompt.tokens.clone()))
        })?;
        engine.run(|event| {
            if let Event::Finished { output, .. } = event {
                outputs.push(*output);
            }
        });
        note(&format!("generated {}/{}", outputs.len(), prompts.len()));
    }
    Ok(outputs)
}

/// Of every prompt with its output: the model's next token at each position.
fn argmaxes(
    role: &str,
    model: &Loaded,
    prompts: &[Prompt],
    outputs: &[RequestOutput],
) -> anyhow::Result<Vec<Vec<u32>>> {
    let mut scorer = model.scorer();
    let mut all = Vec::new();
    for (prompt, output) in prompts.iter().zip(outputs) {
        all.push(scorer.score(&[&prompt.tokens[..], &output.token_ids].concat())?.argmax);
        note(&format!("scored by the {role} {}/{}", all.len(), prompts.len()));
    }
    Ok(all)
}

/// What rounds of `args.length` drafts must give. `drafts[i]` is the draft model's token after position i.
fn simulate(args: &Args, prompt: usize, output: &[u32], drafts: &[u32]) -> Counts {
    let mut counts = Counts::default();
    let (mut done, plain) = (0, plain_rounds(prompt));
    while done < output.len() {
        let room = args.tokens - done - 1;
        let drafted = if counts.rounds < plain { 0 } else { args.length.min(room) };
        let right =
            |at: usize| output.get(at).is_some_and(|token| drafts[prompt + at - 1] == *token);
        let accepted = (done..done + drafted).take_while(|&at| right(at)).count();
        counts.round(drafted, accepted);
        done += accepted + 1;
    }
    counts
}

/// Rounds at the start that have no drafts, because the draft model has not read the prompt yet. It reads in the
/// rows that the target leaves, from the round that ends the prompt on, but not in the step that lets the sequence in:
/// what a drafter has to offer is asked before that.
fn plain_rounds(prompt: usize) -> usize {
    let (chunk, budget) = (Config::default().chunk_max, EngineOptions::default().token_budget);
    let (mut rounds, mut read, mut target_rows) = (1, 0, (prompt - 1) % chunk + 1);
    let mut context = prompt;
    loop {
        let gap = context - 1 - read;
        let just_in = rounds == 1 && prompt <= chunk;
        if gap > INLINE_FILL_MAX && !just_in {
            read += (gap + 1).min(chunk).min(budget - target_rows);
        }
        context += 1;
        target_rows = 1;
        if context - 1 - read <= INLINE_FILL_MAX {
            return rounds;
        }
        rounds += 1;
    }
}
