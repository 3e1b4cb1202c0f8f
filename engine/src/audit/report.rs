//! The result of an audit, as data.

use serde::Serialize;

use super::acceptance::Acceptance;
use super::battery::TestResult;
use super::categories::Category;
use super::evidence::Uniformity;
use super::identity::Identity;
use super::speed::SpeedPoint;
use super::subject::Subject;
use super::verdict::Verdict;
use super::{Findings, Plan};
use crate::draft_policy::{DraftLength, Tree};

/// Everything an audit found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// What it comes to.
    pub verdict: Verdict,
    /// The verdict in words.
    pub summary: String,
    /// The tests of the law and of acceptance.
    pub tests: Vec<TestResult>,
    /// Texts compared token for token.
    pub identity: Identity,
    /// What became of drafts.
    pub acceptance: Acceptance,
    /// Tokens emitted that the target's law can't give.
    pub impossible: u64,
    /// By kind of prompt.
    pub categories: Vec<Category>,
    /// Expected and measured speed by number of drafts, if it was measured.
    pub speed: Option<Vec<SpeedPoint>>,
    /// The target.
    pub model: String,
    /// The drafter.
    pub drafter: String,
    /// The verification rule.
    pub rule: String,
    /// Draft tokens of a round, or `auto`.
    pub draft_tokens: String,
    /// Temperature of the samples.
    pub temperature: f64,
    /// Seed of the audit.
    pub seed: u64,
    /// Prompts there were.
    pub prompts: usize,
    /// Samples drawn.
    pub samples: usize,
    /// Samples that were to be drawn.
    pub samples_planned: usize,
    /// Tokens tested.
    pub tokens: u64,
    /// Whether a finding ended the audit before all samples were drawn.
    pub stopped_early: bool,
    /// Whether texts had to be identical bit for bit.
    pub exact_rows: bool,
    /// The transformed tokens, likely ones first.
    #[serde(skip)]
    pub by_likelihood: LawView,
    /// Those that the draft overrates first; nothing where the draft's law is not known.
    #[serde(skip)]
    pub by_draft: Option<LawView>,
}

/// Values that must be uniform, in a form to be drawn.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LawView {
    /// How many there are.
    pub n: u64,
    /// Of 20 equal bins.
    pub histogram: Vec<u64>,
    /// Empirical distribution function at 0, 1/200, …, 1.
    pub distribution: Vec<f64>,
}

/// Bins of the histogram that is drawn.
const VIEW_BINS: usize = 20;

/// Points of the distribution function that is drawn.
const VIEW_POINTS: usize = 200;

impl LawView {
    fn of(values: &Uniformity) -> Self {
        let n = values.values().len() as u64;
        let steps = values.histogram(VIEW_POINTS);
        let below = steps.iter().scan(0, |sum, &count| {
            *sum += count;
            Some(*sum as f64 / n.max(1) as f64)
        });
        let distribution = std::iter::once(0.0).chain(below).collect();
        Self { n, histogram: values.histogram(VIEW_BINS), distribution }
    }
}

impl Report {
    /// As one JSON object.
    pub fn json(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

impl Findings {
    pub(super) fn report(
        self,
        subject: &Subject,
        plan: &Plan,
        interrupted: bool,
        speed: Option<Vec<SpeedPoint>>,
    ) -> Report {
        let by_draft = &self.battery.by_draft;
        let mut report = Report {
            verdict: Verdict::Pass,
            summary: String::new(),
            tests: self.battery.results(self.complete),
            identity: self.identity,
            impossible: self.battery.impossible,
            by_likelihood: LawView::of(&self.battery.by_likelihood),
            by_draft: (!by_draft.values().is_empty()).then(|| LawView::of(by_draft)),
            tokens: self.battery.tokens(),
            acceptance: self.acceptance,
            prompts: self.categories.prompts(),
            categories: self.categories.finish(),
            speed,
            model: subject.model.clone(),
            drafter: subject.drafter.clone(),
            rule: subject.rule.to_owned(),
            draft_tokens: {
                let length = match subject.drafting.length {
                    DraftLength::Auto => "auto".to_owned(),
                    DraftLength::Fixed(length) => length.to_string(),
                };
                match subject.drafting.tree {
                    Tree::Chain => length,
                    tree => format!("{length} in trees {tree}"),
                }
            },
            temperature: plan.sampling.temperature,
            seed: plan.seed,
            samples: self.samples,
            samples_planned: plan.samples,
            stopped_early: !self.complete && !interrupted,
            exact_rows: subject.exact_rows,
        };
        report.verdict = report.judge(interrupted);
        report.summary = report.headline();
        report
    }
}
