//! What `redline generate` shows: streamed text, blocks per prompt, or JSON lines; and the closing line.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use serde_json::{Value, json};

use crate::request::{
    FinishReason, Origin, RequestOutput, SpeculationStats, Timing, TokenEvent, Usage,
};

/// Accepted draft tokens are green, the target's own keep the terminal's colour.
const DRAFT: &str = "\u{1b}[32m";
const PLAIN: &str = "\u{1b}[0m";

/// How results are written to standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// One prompt: its text as it comes.
    Stream,
    /// Many prompts: each under a heading, as it finishes.
    Blocks,
    /// One JSON object a sample.
    Json,
}

/// Sums over finished requests, for the closing line.
#[derive(Default)]
struct Totals {
    requests: usize,
    tokens: usize,
    rounds: usize,
    drafted: usize,
    accepted: usize,
}

/// Writes results to standard output, progress and the closing line to standard error.
pub(super) struct Printer {
    mode: Mode,
    color: bool,
    out: BufWriter<io::Stdout>,
    bar: ProgressBar,
    /// Of each prompt.
    samples: usize,
    totals: Totals,
    /// Tokens of all requests, running ones included.
    seen: usize,
    started: Instant,
}

#[derive(Serialize)]
struct JsonLine<'a> {
    id: &'a Value,
    #[serde(flatten)]
    output: &'a RequestOutput,
}

impl Printer {
    /// For so many prompts, each with so many samples.
    pub(super) fn new(mode: Mode, color: bool, (prompts, samples): (usize, usize)) -> Self {
        let show = mode != Mode::Stream && io::stderr().is_terminal();
        let target =
            if show { ProgressDrawTarget::stderr_with_hz(5) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some((prompts * samples) as u64), target);
        if let Ok(style) = ProgressStyle::with_template(if samples == 1 {
            "{bar:30} {pos}/{len} prompts{msg}"
        } else {
            "{bar:30} {pos}/{len} samples{msg}"
        }) {
            bar.set_style(style);
        }
        if show {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self {
            mode,
            color,
            out: BufWriter::new(io::stdout()),
            bar,
            samples,
            totals: Totals::default(),
            seen: 0,
            started: Instant::now(),
        }
    }

    /// Tokens of one step: streamed as text if there is a single prompt, else counted.
    pub(super) fn tokens(&mut self, tokens: &[TokenEvent]) -> io::Result<()> {
        self.seen += tokens.len();
        if self.mode != Mode::Stream {
            self.bar.set_message(self.progress());
            return Ok(());
        }
        for token in tokens {
            if self.color && token.origin == Origin::Draft && !token.text.is_empty() {
                write!(self.out, "{DRAFT}{}{PLAIN}", token.text)?;
            } else {
                self.out.write_all(token.text.as_bytes())?;
            }
        }
        self.out.flush()
    }

    /// A request that ended.
    pub(super) fn finished(&mut self, id: &Value, output: &RequestOutput) -> io::Result<()> {
        self.totals.requests += 1;
        self.totals.tokens += output.usage.completion_tokens;
        self.totals.rounds += output.speculation.rounds;
        self.totals.drafted += output.speculation.drafted;
        self.totals.accepted += output.speculation.accepted;
        self.bar.inc(1);
        self.bar.set_message(self.progress());
        let name = self.name(id, output.sample);
        let Self { bar, out, mode, .. } = self;
        // Both may be the same terminal: the bar makes room.
        bar.suspend(|| {
            match mode {
                Mode::Json => {
                    serde_json::to_writer(&mut *out, &JsonLine { id, output })?;
                    writeln!(out)?;
                }
                Mode::Blocks => writeln!(out, "── {name} ──\n{}\n", output.text)?,
                Mode::Stream => writeln!(out)?,
            }
            out.flush()
        })?;
        if let (Some(error), false) = (&output.error, self.mode == Mode::Json) {
            self.note(&format!("redline: {name}: {error}"));
        }
        if output.finish_reason == FinishReason::Timeout && self.mode != Mode::Json {
            self.note(&format!("redline: {name}: the --timeout passed before its end"));
        }
        Ok(())
    }

    fn name(&self, id: &Value, sample: usize) -> String {
        let name = show(id);
        if self.samples == 1 { name } else { format!("{name}, sample {sample}") }
    }

    /// A request that the engine did not take. Its object has the fields of any other; it never got a seed.
    pub(super) fn refused(&mut self, id: &Value, seed: Option<u64>, error: &str) -> io::Result<()> {
        self.bar.inc(self.samples as u64);
        if self.mode == Mode::Json {
            let line = json!({
                "id": id, "sample": 0, "text": "", "token_ids": [], "finish_reason": FinishReason::Error,
                "error": error, "seed": seed, "usage": Usage::default(),
                "speculation": SpeculationStats::default(), "timing": Timing::default(),
            });
            let Self { bar, out, .. } = self;
            bar.suspend(|| {
                writeln!(out, "{line}")?;
                out.flush()
            })
        } else {
            self.note(&format!("redline: {}: {error}", show(id)));
            Ok(())
        }
    }

    /// The closing line; JSON output has none, its numbers are in the objects.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.out.flush()?;
        self.bar.finish_and_clear();
        if self.mode == Mode::Json || self.totals.requests == 0 {
            return Ok(());
        }
        let totals = &self.totals;
        let plural = if totals.tokens == 1 { "" } else { "s" };
        let mut line = format!("[{} token{plural}, {:.1} tokens/s", totals.tokens, self.rate());
        if totals.rounds > 0 {
            let length = totals.tokens as f64 / totals.rounds as f64;
            line += &format!(", acceptance length {length:.2}");
        }
        if totals.drafted > 0 {
            let rate = 100.0 * totals.accepted as f64 / totals.drafted as f64;
            line += &format!(", acceptance rate {rate:.0} % of {} drafts", totals.drafted);
            if self.color && self.mode == Mode::Stream && totals.accepted > 0 {
                line += " (in green)";
            }
        }
        self.note(&(line + "]"));
        Ok(())
    }

    /// What stands behind the bar: tokens so far, and the time left once a prompt has shown how long one takes.
    fn progress(&self) -> String {
        let seconds = self.started.elapsed().as_secs_f64().max(1e-9);
        let mut text =
            format!(", {} tokens, {:.1} tokens/s", self.seen, self.seen as f64 / seconds);
        let (done, all) = (self.bar.position(), self.bar.length().unwrap_or(0));
        if done > 0 {
            text +=
                &format!(", {:.0} s left", seconds / done as f64 * all.saturating_sub(done) as f64);
        }
        text
    }

    fn rate(&self) -> f64 {
        self.totals.tokens as f64 / self.started.elapsed().as_secs_f64().max(1e-9)
    }

    fn note(&self, line: &str) {
        self.bar.suspend(|| {
            let _ = writeln!(io::stderr(), "{line}");
        });
    }
}

fn show(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}
