//! What a run comes to, as it is printed.

use serde::Serialize;

use super::episode::Case;
use super::fleet::Total;
use super::laws::Laws;

/// Standard deviations by which sampled tokens may be off from their laws.
const SIGMAS: f64 = 6.0;

/// The last line of the command.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// Steps of all episodes.
    pub steps: u64,
    /// How long they took.
    pub seconds: f64,
    /// Requests taken in.
    pub requests: u64,
    /// How often a request lost its blocks.
    pub preemptions: u64,
    /// Sequences in the batch.
    pub mean_running: f64,
    /// Steps in which drafts were verified.
    pub share_with_drafts: f64,
    /// Steps in which a request lost its blocks.
    pub share_with_preemption: f64,
    /// Rules that were broken: the run ends at the first.
    pub violations: u64,
    /// Of all decisions, in order: the same for the same seed and number of steps.
    pub trace_hash: String,
    steps_per_second: u64,
    seed: u64,
    episodes: u64,
    tokens: u64,
    drafted: u64,
    accepted: u64,
    moves: u64,
    copies: u64,
    /// Admissions that forked a sibling's blocks.
    pub forked: u64,
    expired: u64,
    cached_tokens: u64,
    abandoned: u64,
    law_sigmas: f64,
    /// The rule that was broken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub violation: Option<Report>,
}

/// A violation, as it is told.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Steps of the whole run up to it, in the order of episodes, whoever ran them.
    pub found_after_steps: u64,
    /// What should have held.
    pub rule: String,
    /// What should have held in the shrunk case.
    pub shrunk_rule: String,
    /// Steps of the shrunk case.
    pub shrunk_steps: u64,
    pub(crate) case: Option<Case>,
    /// Shows it again.
    pub command: String,
}

/// Sums up. Sampled tokens that do not fit their laws are a violation, too.
pub(crate) fn summarise(
    total: &Total,
    seed: u64,
    seconds: f64,
    violation: Option<Report>,
) -> Summary {
    let counts = &total.counts;
    let law_sigmas = counts.laws.worst(&Laws::new());
    let violation = violation.or_else(|| (law_sigmas > SIGMAS).then(|| off(total, seed)));
    let share = |n: u64| round(n as f64 / counts.steps.max(1) as f64);
    Summary {
        steps: counts.steps,
        seconds: round(seconds),
        requests: counts.requests,
        preemptions: counts.preemptions,
        mean_running: share(counts.running),
        share_with_drafts: share(counts.steps_with_drafts),
        share_with_preemption: share(counts.steps_with_preemption),
        violations: u64::from(violation.is_some()),
        trace_hash: format!("{:016x}", counts.trace),
        steps_per_second: (counts.steps as f64 / seconds.max(1e-9)) as u64,
        seed,
        episodes: total.episodes,
        tokens: counts.tokens,
        drafted: counts.drafted,
        accepted: counts.accepted,
        moves: counts.moves,
        copies: counts.copies,
        forked: counts.forked,
        expired: counts.expired,
        cached_tokens: counts.cached_tokens,
        abandoned: counts.abandoned,
        law_sigmas: round(law_sigmas),
        violation,
    }
}

/// No single case shows it, only the whole run.
fn off(total: &Total, seed: u64) -> Report {
    let steps = total.counts.steps;
    Report {
        found_after_steps: steps,
        rule: "sampled tokens fit their laws".to_owned(),
        shrunk_rule: String::new(),
        shrunk_steps: steps,
        case: None,
        command: format!(
            "cargo run --release -p redline-tests -- simulate --seed {seed} --steps {steps}"
        ),
    }
}

fn round(x: f64) -> f64 {
    (x * 1000.0).round() / 1000.0
}
