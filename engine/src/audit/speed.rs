//! What speculation gains at each number of drafts: expected from step times and acceptance, and measured.
//!
//! A model of two figures: T(M), a pass of the target over M rows, and the draft model's pass over one. Expected is
//! E(K)·T(1) / (T(K + 1) + K·T_draft), where E(K) is the expected length of a round, and where a drafter has something to
//! offer in a share of the rounds only, tokens and time are means over all of them. Measured is the engine's own rate at K
//! drafts over its rate without.

use std::ops::ControlFlow;
use std::time::Instant;

use serde::Serialize;

use super::acceptance::Acceptance;
use super::draft_laws::DraftLaws;
use super::drive::{Job, drive};
use super::identity::Known;
use super::judge::ReadError;
use super::reader::Reader;
use super::{AuditError, Plan, Watcher};
use crate::engine::Engine;
use crate::request::{GenerateRequest, Prompt, Speculation};
use crate::runner::RunnerError;

/// One number of drafts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SpeedPoint {
    /// Draft tokens a round.
    pub drafts: usize,
    /// Tokens per second over those without drafts, by the model.
    pub expected: f64,
    /// The same, by the clock; null where it was not measured.
    pub measured: Option<f64>,
    /// Seconds of a target pass over one row more than drafts.
    pub pass_s: f64,
}

/// Numbers of drafts that are measured; the curve has all up to the last.
const MEASURED: [usize; 5] = [0, 1, 2, 4, 8];

/// Prompts that are continued at each of them.
const PROMPTS: usize = 3;

/// Times each pass is taken.
const REPEATS: usize = 5;

/// Measures, one sequence at a time. `None` if the watcher ended it.
///
/// # Errors
/// A request that fails, or a pass.
pub(super) fn measure(
    engine: &mut Engine,
    (target, drafts): (&mut Reader, &mut DraftLaws),
    prompts: &[Known],
    acceptance: &Acceptance,
    plan: &Plan,
    watcher: &mut dyn Watcher,
) -> Result<Option<Vec<SpeedPoint>>, AuditError> {
    let prompts = &prompts[..PROMPTS.min(prompts.len())];
    let Some(first) = prompts.first() else { return Ok(None) };
    let mut rates = Vec::new();
    for (done, &length) in MEASURED.iter().enumerate() {
        watcher.progress(done, MEASURED.len(), None);
        let (mut tokens, mut seconds) = (0.0, 0.0);
        for (index, known) in prompts.iter().enumerate() {
            let job = Job {
                tag: (),
                prompt: known.name.clone(),
                request: GenerateRequest {
                    max_tokens: plan.max_tokens,
                    sampling: plan.sampling.clone(),
                    seed: Some(super::uniforms::seed(!plan.seed, index as u64)),
                    ignore_eos: true,
                    speculation: Speculation::Exactly(length),
                    ..GenerateRequest::new(Prompt::Tokens(known.tokens.clone()))
                },
            };
            let complete = drive(engine, [job], watcher, |(), output, _| {
                tokens += output.token_ids.len().saturating_sub(1) as f64;
                seconds += output.timing.decode_s;
                Ok(ControlFlow::Continue(()))
            })?;
            if !complete {
                return Ok(None);
            }
        }
        rates.push((length, tokens / f64::max(seconds, 1e-9)));
    }
    let plain = rates[0].1;
    let most = MEASURED[MEASURED.len() - 1];
    let passes: Vec<f64> = (1..=most + 1)
        .map(|rows| pass(target, &first.tokens, rows))
        .collect::<Result<_, _>>()
        .map_err(ReadError::from)?;
    let draft = match drafts {
        DraftLaws::Model(model) => {
            let reader = &mut model.reader;
            pass(reader, &first.tokens, 1).map_err(ReadError::from)?
        }
        DraftLaws::Unknown | DraftLaws::Probe(_) => 0.0,
    };
    let share = acceptance.share();
    let mix = |with: f64, without: f64| share * with + (1.0 - share) * without;
    let point = |drafts: usize| SpeedPoint {
        drafts,
        expected: mix(acceptance.length_of(drafts), 1.0) * passes[0]
            / mix(passes[drafts] + drafts as f64 * draft, passes[0]),
        measured: rates.iter().find(|rate| rate.0 == drafts).map(|rate| rate.1 / plain),
        pass_s: passes[drafts],
    };
    Ok(Some((0..=most).map(point).collect()))
}

/// Median seconds of a pass over `rows` rows behind a prompt.
fn pass(reader: &mut Reader, prompt: &[u32], rows: usize) -> Result<f64, RunnerError> {
    let mut text = prompt[..prompt.len().min(reader.capacity().saturating_sub(rows))].to_vec();
    text.resize(text.len() + rows, prompt.first().copied().unwrap_or(0));
    let mut times = Vec::with_capacity(REPEATS);
    for round in 0..=REPEATS {
        let after = text.len() - rows + 1..text.len() + 1;
        let started = Instant::now();
        reader.read(&text, after)?;
        // The first one computes the prompt, too.
        if round > 0 {
            times.push(started.elapsed().as_secs_f64());
        }
    }
    times.sort_unstable_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
