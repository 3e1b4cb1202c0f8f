//! `redline-bench speculation`: tokens per second by kind of prompt, without drafts, with K of them, and with `auto`.
//!
//! Every prompt is continued by all arms in turn, then again the other way round, so that whatever else the machine does
//! hits each of them alike. Passes are timed beside every category, by a second instance of the target.

pub(crate) mod arms;
pub(crate) mod prompts;
mod report;
mod theory;

use std::path::PathBuf;

use anyhow::ensure;
use redline::cli::{Interrupt, ModelOptions, SamplingOptions, SpeculationOptions};
use redline::spans::SpanTimes;
use redline::{DraftLength, Engine, EngineOptions, LoadOptions, TokenId};

use crate::console::{note, print, save};
use crate::machine::Machine;
use crate::passes::{self, Passes, threads};
use crate::stats::median;
use arms::{Arm, Job, SLACK, Tally, prefill, run as run_arm};
use prompts::{Category, by_category};
use report::{CategoryRow, Report};
use theory::{Acceptance, Times};

/// Flags of `redline-bench speculation`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelOptions,
    #[command(flatten)]
    speculation: SpeculationOptions,
    #[command(flatten)]
    sampling: SamplingOptions,
    /// Prompts, one JSON object a line: {"category","turns"}, {"category","prompt"} or {"category","messages"}; those of
    /// the category `code` are continued without a chat template
    #[arg(long, value_name = "FILE.jsonl")]
    data: PathBuf,
    /// Prompts of each category; 0 takes all
    #[arg(long, default_value_t = 3, value_name = "N")]
    limit: usize,
    /// Tokens to generate for each
    #[arg(short = 'n', long, default_value_t = 96, value_name = "N", value_parser = clap::value_parser!(u16).range(2..))]
    max_tokens: u16,
    /// Fixed numbers of drafts; the largest says how deep drafts are accepted
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8", value_name = "K,…", value_parser = clap::value_parser!(u16).range(1..=32))]
    fixed: Vec<u16>,
    /// Prompts that run at a time
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    concurrency: u16,
    /// Times that every prompt is run by every arm
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    repeats: u16,
    /// Memory read to measure its bandwidth, in MiB
    #[arg(long, default_value_t = 1024, value_name = "MIB", value_parser = clap::value_parser!(u32).range(2..=65536))]
    probe: u32,
    /// The result as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Draws the speed-up over the number of drafts
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// Longest prompt that is run.
const PROMPT_MAX: usize = 3072;
/// Passes of each size of which the median is taken.
const PASSES: usize = 5;

pub(crate) fn run(args: &Args, interrupt: &Interrupt) -> anyhow::Result<()> {
    let mut fixed: Vec<usize> = args.fixed.iter().map(|&drafts| usize::from(drafts)).collect();
    fixed.sort_unstable();
    fixed.dedup();
    let deepest = fixed.last().copied().unwrap_or(1);
    let categories = by_category(&args.model.model, &args.data, args.limit)?;
    let spans = SpanTimes::install()?;
    note(&format!("loading {} and {}", args.model.model, args.speculation.draft));
    let sequences = usize::from(args.concurrency);
    let rows = sequences * (deepest + 1);
    let mut passes =
        Passes::open(&args.model, passes::Engine::Redline, (PROMPT_MAX + rows) as u32)?;
    let mut machine = Machine::new(threads(&args.model), args.probe as usize)?;
    let options = EngineOptions {
        max_seqs: sequences,
        max_model_len: Some(PROMPT_MAX + usize::from(args.max_tokens) + SLACK),
        ..EngineOptions::default()
    };
    let mut engine = load(&args.model, &args.speculation, options)?;
    let job = Job {
        tokens: usize::from(args.max_tokens),
        sampling: args.sampling.sampling().map_err(usage)?,
        seed: args.sampling.seed.unwrap_or(1),
        ignore_eos: false,
    };
    let mut report = Report {
        model: args.model.model.clone(),
        draft: args.speculation.draft.clone(),
        concurrency: sequences,
        temperature: job.sampling.temperature,
        machine: machine.info().clone(),
        categories: Vec::new(),
        geomean_auto_speedup: None,
    };
    let plan = Plan { arms: Arm::all(&fixed), sequences, deepest, repeats: args.repeats, job };
    for category in &categories {
        if interrupt.requested() {
            break;
        }
        let parts = (&mut engine, &mut passes, &mut machine, &spans);
        if let Some(row) = plan.category(category, parts, interrupt)? {
            note(&row.line());
            report.categories.push(row);
        }
    }
    ensure!(interrupt.requested() || !report.categories.is_empty(), "no prompt came to anything");
    report.finish();
    if let Some(path) = args.plot.as_ref().filter(|_| !report.categories.is_empty()) {
        save(path, &report.plot())?;
    }
    print(&report, &report.table(), args.json)
}

/// An engine for all arms: `auto` unless a request says otherwise.
pub(crate) fn load(
    model: &ModelOptions,
    speculation: &SpeculationOptions,
    engine: EngineOptions,
) -> anyhow::Result<Engine> {
    let options = speculation.load_options(model, engine);
    Ok(redline::load(&LoadOptions { length: DraftLength::Auto, ..options })?)
}

/// What a failure of the command line says.
pub(crate) fn usage(failure: redline::cli::Failure) -> anyhow::Error {
    use redline::cli::Failure::{Interrupted, Runtime, Usage};
    match failure {
        Usage(error) | Runtime(error) | Interrupted(error) => error,
    }
}

/// How every category is measured.
struct Plan {
    arms: Vec<Arm>,
    sequences: usize,
    deepest: usize,
    repeats: u16,
    job: Job,
}

impl Plan {
    /// One category; `None` if nothing of it was run by all arms.
    fn category(
        &self,
        category: &Category,
        (engine, passes, machine, spans): (&mut Engine, &mut Passes, &mut Machine, &SpanTimes),
        interrupt: &Interrupt,
    ) -> anyhow::Result<Option<CategoryRow>> {
        let fits = |prompt: &&Vec<_>| prompt.len() <= PROMPT_MAX;
        let prompts: Vec<_> = category.prompts.iter().filter(fits).cloned().collect();
        let before = machine.now();
        let mut tallies = vec![Tally::default(); self.arms.len()];
        let (mut done, mut filled) = (0, (0, 0.0));
        for (index, batch) in prompts.chunks_exact(self.sequences).enumerate() {
            if interrupt.requested() {
                break;
            }
            note(&format!(
                "{}: {} of {}",
                category.name,
                index + 1,
                prompts.len() / self.sequences
            ));
            let Some((tokens, seconds)) = prefill(engine, spans, batch, &self.job, interrupt)?
            else {
                break;
            };
            let Some(measured) = self.turns((engine, spans), batch, interrupt)? else { break };
            filled = (filled.0 + tokens, filled.1 + seconds);
            tallies.iter_mut().zip(&measured).for_each(|(sum, tally)| sum.add(tally));
            done += batch.len();
        }
        // Without the times behind it, it would not be comparable with the others.
        if interrupt.requested()
            || done == 0
            || tallies.iter().any(|tally| tally.decode_tokens == 0)
        {
            return Ok(None);
        }
        let context = prompts.iter().take(done).map(Vec::len).sum::<usize>() / done;
        let times = self.times(passes, context as u32 + 1, &tallies)?;
        let ceiling = before.or(machine.now());
        Ok(Some(self.row(&category.name, done, filled, (&tallies, &times), ceiling)))
    }

    /// All arms over some prompts, in one order and the other; `None` if the user ended it.
    fn turns(
        &self,
        (engine, spans): (&mut Engine, &SpanTimes),
        prompts: &[Vec<TokenId>],
        interrupt: &Interrupt,
    ) -> anyhow::Result<Option<Vec<Tally>>> {
        let mut tallies = vec![Tally::default(); self.arms.len()];
        for repeat in 0..self.repeats {
            let mut order: Vec<usize> = (0..self.arms.len()).collect();
            if repeat % 2 == 1 {
                order.reverse();
            }
            for at in order {
                let arm = (self.arms[at], &self.job);
                let Some(tally) = run_arm(engine, spans, prompts, arm, interrupt)? else {
                    return Ok(None);
                };
                tallies[at].add(&tally);
            }
        }
        Ok(Some(tallies))
    }

    /// T(1), T(2), … for all sequences together, and T_draft.
    fn times(&self, passes: &mut Passes, context: u32, tallies: &[Tally]) -> anyhow::Result<Times> {
        passes.fill(context)?;
        let mut of_rows = Vec::new();
        for drafts in 0..=self.deepest {
            let rows = (self.sequences * (drafts + 1)) as u32;
            let times = (0..=PASSES).map(|_| passes.pass_ms(context, rows));
            let times = times.collect::<anyhow::Result<Vec<_>>>()?;
            of_rows.push(median(times[1..].iter().copied()));
        }
        let deepest = self.deepest_arm();
        Ok(Times { passes: of_rows, draft: tallies[deepest].draft_ms() })
    }

    fn deepest_arm(&self) -> usize {
        let is_deepest = |arm: &Arm| *arm == Arm::Fixed(self.deepest);
        self.arms.iter().position(is_deepest).unwrap_or(0)
    }

    fn row(
        &self,
        name: &str,
        prompts: usize,
        (prefill_tokens, prefill_s): (usize, f64),
        (tallies, times): (&[Tally], &Times),
        ceiling: crate::roofline::Ceiling,
    ) -> CategoryRow {
        let deepest = &tallies[self.deepest_arm()];
        let acceptance = Acceptance::of(&deepest.histogram, deepest.drafted, self.deepest);
        let (off, auto) = (&tallies[0], &tallies[tallies.len() - 1]);
        let mut row = CategoryRow {
            category: name.to_owned(),
            prompts,
            off_tok_s: off.decode_tok_s(),
            auto_tok_s: auto.decode_tok_s(),
            fixed: std::collections::BTreeMap::new(),
            auto_speedup: auto.decode_tok_s() / off.decode_tok_s(),
            mean_acceptance_length: auto.acceptance_length(),
            predicted_speedup: times.best(&acceptance),
            predicted_fixed: std::collections::BTreeMap::new(),
            acceptance_length_fixed: std::collections::BTreeMap::new(),
            draft_tokens_auto: auto.drafted as f64 / auto.rounds as f64,
            prefill_tok_s: prefill_tokens as f64 / prefill_s,
            whole_auto_speedup: whole(auto, prefill_s, self.repeats)
                / whole(off, prefill_s, self.repeats),
            passes_ms: times.passes.clone(),
            draft_ms: times.draft,
            machine: ceiling,
        };
        for (arm, tally) in self.arms.iter().zip(tallies) {
            if let Arm::Fixed(drafts) = *arm {
                row.fixed.insert(drafts, tally.decode_tok_s());
                row.acceptance_length_fixed.insert(drafts, tally.acceptance_length());
                let predicted = times.speed_up(&acceptance, drafts);
                row.predicted_fixed.insert(drafts, predicted.unwrap_or(f64::NAN));
            }
        }
        row
    }
}

/// Tokens per second if every run had computed its prompts, too.
fn whole(tally: &Tally, prefill_s: f64, repeats: u16) -> f64 {
    tally.tokens as f64 / (tally.whole_s + prefill_s * f64::from(repeats))
}
