//! Runs a few prompts at a time through one engine, with or without drafts, and says what came out how fast.
//!
//! All arms share one engine, so that weights, cache and memory are the same for all of them. What a prompt costs is
//! taken apart: every arm finds it computed, for target and draft alike, and decoding is timed while all sequences run,
//! from the moment the last of them has its first token to the moment the first one ends.

use std::collections::HashSet;
use std::fmt;
use std::time::Instant;

use anyhow::{bail, ensure};
use redline::cli::Interrupt;
use redline::spans::SpanTimes;
use redline::{
    Engine, Event, FinishReason, GenerateRequest, Prompt, RequestId, RequestOutput, Sampling,
    Speculation, TokenId,
};

/// A way to decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arm {
    /// Without drafts.
    Off,
    /// So many a round.
    Fixed(usize),
    /// As many as the engine finds worth it.
    Auto,
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Fixed(drafts) => write!(f, "{drafts}"),
            Self::Auto => f.write_str("auto"),
        }
    }
}

impl Arm {
    /// Off, the fixed numbers, auto.
    pub(crate) fn all(fixed: &[usize]) -> Vec<Self> {
        let fixed = fixed.iter().map(|&drafts| Self::Fixed(drafts));
        [Self::Off].into_iter().chain(fixed).chain([Self::Auto]).collect()
    }

    fn speculation(self) -> Speculation {
        match self {
            Self::Off => Speculation::Off,
            Self::Fixed(drafts) => Speculation::Exactly(drafts),
            Self::Auto => Speculation::Engine,
        }
    }
}

/// What requests have in common.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) tokens: usize,
    pub(crate) sampling: Sampling,
    pub(crate) seed: u64,
    pub(crate) ignore_eos: bool,
}

/// What a few prompts came to, or many runs of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    /// Tokens while all sequences ran, and the time that took.
    pub(crate) decode_tokens: usize,
    pub(crate) decode_s: f64,
    /// All tokens, and all the time, what the prompts took in this run included.
    pub(crate) tokens: usize,
    pub(crate) whole_s: f64,
    pub(crate) rounds: usize,
    pub(crate) drafted: usize,
    /// How many rounds kept 0, 1, … drafts.
    pub(crate) histogram: Vec<usize>,
    pub(crate) draft_passes: u64,
    pub(crate) draft_s: f64,
    pub(crate) prompt_tokens: usize,
    /// Prompt tokens that were computed already.
    pub(crate) cached_tokens: usize,
}

impl Tally {
    /// Tokens per second while all sequences ran.
    pub(crate) fn decode_tok_s(&self) -> f64 {
        self.decode_tokens as f64 / self.decode_s
    }

    /// Tokens that a round brings; NaN if there was none.
    pub(crate) fn acceptance_length(&self) -> f64 {
        self.tokens as f64 / self.rounds as f64
    }

    /// Milliseconds of a pass of the draft model; 0 if there is none.
    pub(crate) fn draft_ms(&self) -> f64 {
        if self.draft_passes == 0 { 0.0 } else { self.draft_s * 1e3 / self.draft_passes as f64 }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.decode_tokens += other.decode_tokens;
        self.decode_s += other.decode_s;
        self.tokens += other.tokens;
        self.whole_s += other.whole_s;
        self.rounds += other.rounds;
        self.drafted += other.drafted;
        self.draft_passes += other.draft_passes;
        self.draft_s += other.draft_s;
        self.prompt_tokens += other.prompt_tokens;
        self.cached_tokens += other.cached_tokens;
        let longest = self.histogram.len().max(other.histogram.len());
        self.histogram.resize(longest, 0);
        for (sum, count) in self.histogram.iter_mut().zip(&other.histogram) {
            *sum += count;
        }
    }
}

/// Whether the time counts: from the moment the last one has its first token to the moment the first one ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Window {
    /// Not yet.
    Ahead,
    Open,
    Over,
}

/// Prompts of an arm on their way, all at a time.
pub(crate) struct Run {
    ids: Vec<RequestId>,
    begun: HashSet<RequestId>,
    pub(crate) window: Window,
    pub(crate) tally: Tally,
}

impl Run {
    pub(crate) fn submit(
        engine: &mut Engine,
        prompts: &[Vec<TokenId>],
        arm: Arm,
        job: &Job,
    ) -> anyhow::Result<Self> {
        let mut ids = Vec::new();
        for (index, prompt) in prompts.iter().enumerate() {
            ids.push(engine.submit(GenerateRequest {
                max_tokens: job.tokens,
                sampling: job.sampling.clone(),
                seed: Some(job.seed.wrapping_add(index as u64)),
                ignore_eos: job.ignore_eos,
                speculation: arm.speculation(),
                ..GenerateRequest::new(Prompt::Tokens(prompt.clone()))
            })?);
        }
        let (begun, tally) = (HashSet::new(), Tally::default());
        Ok(Self { ids, begun, window: Window::Ahead, tally })
    }

    /// A step of the engine. Nobody else's requests may go on meanwhile.
    pub(crate) fn step(&mut self, engine: &mut Engine) -> anyhow::Result<()> {
        let started = Instant::now();
        let events = engine.step();
        let seconds = started.elapsed().as_secs_f64();
        self.tally.whole_s += seconds;
        let counts = self.window == Window::Open;
        if counts {
            self.tally.decode_s += seconds;
        }
        for event in events {
            match event {
                Event::Tokens { id, tokens, .. } => {
                    self.begun.insert(id);
                    self.tally.decode_tokens += if counts { tokens.len() } else { 0 };
                }
                Event::Finished { output, .. } => {
                    self.window = Window::Over;
                    self.take(&output)?;
                }
            }
        }
        if self.window == Window::Ahead && self.begun.len() == self.ids.len() {
            self.window = Window::Open;
        }
        Ok(())
    }

    fn take(&mut self, output: &RequestOutput) -> anyhow::Result<()> {
        if output.finish_reason == FinishReason::Error {
            bail!("a request failed: {}", output.error.clone().unwrap_or_default());
        }
        let stats = &output.speculation;
        self.tally.add(&Tally {
            tokens: output.token_ids.len(),
            prompt_tokens: output.usage.prompt_tokens,
            cached_tokens: output.usage.cached_tokens,
            rounds: stats.rounds,
            drafted: stats.drafted,
            histogram: stats.acceptance_histogram.clone(),
            ..Tally::default()
        });
        Ok(())
    }

    /// Holds the requests, or lets them go on.
    pub(crate) fn hold(&self, engine: &mut Engine, held: bool) {
        for &id in &self.ids {
            engine.hold(id, held);
        }
    }

    /// Takes back those that have not ended.
    pub(crate) fn cancel(self, engine: &mut Engine) {
        for id in self.ids {
            engine.cancel(id);
        }
    }
}

/// Runs prompts to their end, all at a time; `None` if the user ended it, and then the requests are taken back.
pub(crate) fn run(
    engine: &mut Engine,
    spans: &SpanTimes,
    prompts: &[Vec<TokenId>],
    (arm, job): (Arm, &Job),
    interrupt: &Interrupt,
) -> anyhow::Result<Option<Tally>> {
    let mut run = Run::submit(engine, prompts, arm, job)?;
    while engine.has_work() {
        if interrupt.requested() {
            run.cancel(engine);
            return Ok(None);
        }
        let before = run.window;
        run.step(engine)?;
        match (before, run.window) {
            (Window::Ahead, Window::Open) => spans.reset(),
            (Window::Open, Window::Over) => {
                let drafting = spans.sums().get("draft_forward").copied().unwrap_or_default();
                run.tally.draft_passes = drafting.count;
                run.tally.draft_s = drafting.time.as_secs_f64();
            }
            _ => {}
        }
    }
    Ok(Some(run.tally))
}

/// Tokens of a prompt that a draft model reads in a step at least.
const LANE_ROWS: usize = 128;

/// Tokens beyond those of an arm that an engine has room for behind every prompt.
pub(crate) const SLACK: usize = 128;

/// Computes prompts, for target and draft alike, so that whoever comes next finds them. Returns tokens and seconds up to
/// each prompt's first token; `None` if the user ended it.
pub(crate) fn prefill(
    engine: &mut Engine,
    spans: &SpanTimes,
    prompts: &[Vec<TokenId>],
    job: &Job,
    interrupt: &Interrupt,
) -> anyhow::Result<Option<(usize, f64)>> {
    let (mut tokens, mut seconds) = (0, 0.0);
    // One after the other, so that each has the rows of all steps.
    for prompt in prompts {
        ensure!(!prompt.is_empty(), "an empty prompt");
        // The draft model reads the prompt behind the target's first token, some hundred tokens in a step of one token.
        let steps = (8 + prompt.len() / LANE_ROWS).min(job.tokens + SLACK);
        let brief = Job { tokens: steps, ignore_eos: true, ..job.clone() };
        let arm = (Arm::Fixed(1), &brief);
        let Some(t) = run(engine, spans, std::slice::from_ref(prompt), arm, interrupt)? else {
            return Ok(None);
        };
        tokens += t.prompt_tokens - t.cached_tokens;
        seconds += t.whole_s - t.decode_s;
    }
    Ok(Some((tokens, seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_add_up() {
        let one = Tally {
            decode_tokens: 30,
            decode_s: 1.5,
            tokens: 32,
            rounds: 16,
            histogram: vec![1, 2],
            draft_passes: 4,
            draft_s: 0.02,
            ..Tally::default()
        };
        let mut sum = Tally::default();
        sum.add(&one);
        sum.add(&Tally { histogram: vec![0, 1, 5], ..one.clone() });
        assert_eq!(sum.histogram, [1, 3, 5]);
        assert_eq!(sum.decode_tok_s(), 20.0);
        assert_eq!(sum.acceptance_length(), 2.0);
        assert!((sum.draft_ms() - 5.0).abs() < 1e-12);
        assert_eq!(Tally::default().draft_ms(), 0.0);
    }

    #[test]
    fn arms_come_in_order() {
        let names: Vec<_> = Arm::all(&[1, 4]).iter().map(Arm::to_string).collect();
        assert_eq!(names, ["off", "1", "4", "auto"]);
    }
}
