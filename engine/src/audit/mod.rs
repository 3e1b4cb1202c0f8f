//! An audit of speculation on somebody's own models and prompts: is the output what the target alone would have
//! written, and are the drafts as good as the two models say?
//!
//! Three questions. *Identity*: where a text is determined (temperature 0; a seed under `coupled`), is it the same
//! with speculation, without it, and by an independent pass? *Law*: every sampled token becomes a number that must be
//! uniform and independent of the one before (the randomised probability integral transform), over all contexts at
//! once. *Acceptance*: are drafts kept as often as the laws at their places say? A test that finds something before
//! all samples are drawn ends the audit: its p-value holds at any moment.
//!
//! [`Subject::load`] takes models by name, and an embedder's drafter by its name in a [`Registry`](crate::Registry);
//! [`Subject::assemble`] takes parts. [`run`] audits it, and the [`Report`] says it in words, as JSON, and as a page.

mod acceptance;
mod battery;
mod categories;
mod draft_laws;
mod drive;
mod eprocess;
mod evidence;
mod fit;
mod html;
mod identity;
mod judge;
mod pit;
mod plots;
mod prompts;
mod reader;
mod report;
mod rounds;
mod speed;
mod subject;
mod theory;
mod uniforms;
mod verdict;

use std::ops::ControlFlow;

use redline_spec::{Sampling, Scratch};
use thiserror::Error;

use crate::frontend::SubmitRefused;
use crate::request::{GenerateRequest, Prompt};
use battery::Battery;
use categories::Categories;
use drive::{Job, drive};
use identity::Known;
use judge::{Judge, Text};
use pit::Transform;

pub use acceptance::{Acceptance, Position};
pub use battery::{FAMILY_ERROR, TestResult};
pub use categories::Category;
pub use identity::{Difference, Identity};
pub use judge::ReadError;
pub use prompts::{AuditPrompt, built_in};
pub use report::{LawView, Report};
pub use speed::SpeedPoint;
pub use subject::{Drafted, Parts, Subject};
pub use verdict::Verdict;

/// How thorough an audit is.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The law tokens are drawn from; a temperature above 0.
    pub sampling: Sampling,
    /// Continuations drawn in all, going round the prompts.
    pub samples: usize,
    /// Most tokens of each.
    pub max_tokens: usize,
    /// Everything random is a function of this.
    pub seed: u64,
    /// Prompts that are compared token for token.
    pub identity_prompts: usize,
    /// Whether speed is measured, too.
    pub speed: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            sampling: Sampling { temperature: 1.0, ..Sampling::default() },
            samples: 256,
            max_tokens: 64,
            seed: 0,
            identity_prompts: 8,
            speed: false,
        }
    }
}

/// What an audit is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Texts with and without speculation.
    Identity,
    /// Sampled texts, read again.
    Law,
    /// Rates at several numbers of drafts.
    Speed,
}

/// Who looks on. The default does nothing.
pub trait Watcher {
    /// A phase begins.
    fn phase(&mut self, phase: Phase) {
        let _ = phase;
    }

    /// So many of so many are done; `p_value` is the smallest so far, corrected for all tests and all looks.
    fn progress(&mut self, done: usize, all: usize, p_value: Option<f64>) {
        let _ = (done, all, p_value);
    }

    /// Whether to end with what there is. Asked between steps.
    fn stop(&mut self) -> bool {
        false
    }
}

/// Nobody looks on.
impl Watcher for () {}

/// Why an audit could not be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AuditError {
    /// There is nothing to continue.
    #[error("there are no prompts")]
    NoPrompts,
    /// At temperature 0 there is no law to test.
    #[error(
        "at temperature 0 there is no law to audit, and identity is looked at in any case: give one above 0"
    )]
    Greedy,
    /// A prompt can't be used.
    #[error("prompt {prompt}")]
    Refused {
        /// Its name.
        prompt: String,
        /// Why.
        source: Box<SubmitRefused>,
    },
    /// A request failed while it ran.
    #[error("prompt {prompt} failed: {message}")]
    Failed {
        /// Its name.
        prompt: String,
        /// How.
        message: String,
    },
    /// A text could not be read again.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl AuditError {
    /// Whether what was asked for is at fault, not what happened.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::NoPrompts | Self::Greedy | Self::Refused { .. })
    }
}

/// Audits `subject` on `prompts`.
///
/// # Errors
/// [`AuditError`] when there can be no verdict. That something is wrong with the output is no error.
pub fn run(
    subject: &mut Subject,
    prompts: &[AuditPrompt],
    plan: &Plan,
    watcher: &mut dyn Watcher,
) -> Result<Report, AuditError> {
    if plan.sampling.is_greedy() {
        return Err(AuditError::Greedy);
    }
    let known = tokenize(subject, prompts)?;
    let mut findings = Findings::new(&known);
    let log = subject.log.clone();
    let mut judge = Judge {
        vocab: subject.engine.frontend().vocab,
        target: &mut subject.target,
        drafts: &mut subject.drafts,
        rule: subject.rule,
        transform: Transform::new(plan.seed),
        scratch: Scratch::default(),
    };
    watcher.phase(Phase::Identity);
    let (identity, mut goes_on) =
        identity::compare((&mut subject.engine, &mut judge), &known, plan, watcher, |seed| {
            drop(log.take(seed))
        })?;
    findings.identity = identity;
    if goes_on {
        watcher.phase(Phase::Law);
        let jobs = (0..plan.samples).map(|index| job(index, &known, plan));
        goes_on = drive(&mut subject.engine, jobs, watcher, |index, output, watcher| {
            let prompt = &known[index % known.len()];
            let text = Text {
                prompt: &prompt.tokens,
                output: &output.token_ids,
                sampling: &plan.sampling,
                seed: output.seed,
                index: index as u64,
            };
            let rounds = log.take(output.seed);
            findings.take(&mut judge, &text, rounds, prompt)?;
            let p_value = findings.battery.strongest();
            watcher.progress(findings.samples, plan.samples, Some(p_value));
            Ok(match p_value <= FAMILY_ERROR {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        })?;
    }
    findings.complete = findings.samples == plan.samples;
    findings.acceptance.finish();
    let mut speed = None;
    if goes_on && findings.complete && plan.speed {
        watcher.phase(Phase::Speed);
        let readers = (&mut subject.target, &mut subject.drafts);
        let acceptance = &findings.acceptance;
        speed = speed::measure(&mut subject.engine, readers, &known, acceptance, plan, watcher)?;
    }
    Ok(findings.report(subject, plan, !goes_on, speed))
}

fn tokenize(subject: &Subject, prompts: &[AuditPrompt]) -> Result<Vec<Known>, AuditError> {
    if prompts.is_empty() {
        return Err(AuditError::NoPrompts);
    }
    let known = |prompt: &AuditPrompt| match subject.tokens(&prompt.prompt) {
        Ok(tokens) => {
            Ok(Known { name: prompt.name.clone(), category: prompt.category.clone(), tokens })
        }
        Err(source) => {
            Err(AuditError::Refused { prompt: prompt.name.clone(), source: Box::new(source) })
        }
    };
    prompts.iter().map(known).collect()
}

/// A sample of its own seed: under `coupled` the noise is a function of the seed, so two samples of one seed would be one.
fn job(index: usize, known: &[Known], plan: &Plan) -> Job<usize> {
    let prompt = &known[index % known.len()];
    Job {
        tag: index,
        prompt: prompt.name.clone(),
        request: GenerateRequest {
            max_tokens: plan.max_tokens,
            sampling: plan.sampling.clone(),
            seed: Some(uniforms::seed(plan.seed, index as u64)),
            ..GenerateRequest::new(Prompt::Tokens(prompt.tokens.clone()))
        },
    }
}

/// What an audit has found so far.
struct Findings {
    battery: Battery,
    acceptance: Acceptance,
    categories: Categories,
    identity: Identity,
    samples: usize,
    complete: bool,
}

impl Findings {
    fn new(known: &[Known]) -> Self {
        Self {
            battery: Battery::new(),
            acceptance: Acceptance::default(),
            categories: Categories::new(known),
            identity: Identity::default(),
            samples: 0,
            complete: false,
        }
    }

    fn take(
        &mut self,
        judge: &mut Judge<'_>,
        text: &Text<'_>,
        rounds: Vec<rounds::RoundSeen>,
        prompt: &Known,
    ) -> Result<(), AuditError> {
        let len = text.prompt.len() + text.output.len();
        let drafted: Vec<usize> = rounds
            .iter()
            .filter(|round| round.depth > 0)
            .map(|round| round.clone().within(len).accepted)
            .collect();
        self.acceptance.plain(rounds.len() - drafted.len());
        let judged = judge.read(text, rounds)?;
        self.battery.see(&judged);
        for &accepted in &drafted {
            self.acceptance.round(accepted);
        }
        self.acceptance.trials(&judged.trials);
        self.categories.see(&prompt.category, &judged, &drafted);
        self.samples += 1;
        Ok(())
    }
}
