//! What an audit comes to, in words that need no statistics.

use serde::Serialize;

use super::battery::{FAMILY_ERROR, TestResult};
use super::report::Report;

/// What an audit comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing was found, in all that was planned.
    Pass,
    /// The output or the acceptance is not what it has to be.
    Fail,
    /// It was ended before all samples were drawn; nothing was found so far.
    Interrupted,
    /// Nothing was found, but no draft was verified either, so speculation was not tested.
    Inconclusive,
}

/// Name of the test that looks at drafts, not at the output.
pub(super) const ACCEPTANCE: &str = "acceptance";

impl Report {
    /// The verdict from everything else in the report.
    pub(super) fn judge(&self, interrupted: bool) -> Verdict {
        let drafts = self.drafter == "none" || self.acceptance.rounds > 0;
        if self.output_differs() || self.tests.iter().any(|test| !test.pass) {
            Verdict::Fail
        } else if interrupted {
            Verdict::Interrupted
        } else if !drafts {
            Verdict::Inconclusive
        } else {
            Verdict::Pass
        }
    }

    /// Whether something is wrong with the output itself.
    fn output_differs(&self) -> bool {
        let strays = self.identity.identical < self.identity.prompts || self.impossible > 0;
        let law = |test: &&TestResult| test.name != ACCEPTANCE && !test.pass;
        (self.exact_rows && strays) || self.tests.iter().any(|test| law(&test))
    }

    /// The verdict in one sentence.
    pub fn headline(&self) -> String {
        let Self { model, drafter, rule, .. } = self;
        let how = match drafter.as_str() {
            "none" => "without drafts".to_owned(),
            _ => format!("with drafts by {drafter} under `{rule}`"),
        };
        match self.verdict {
            Verdict::Pass => {
                format!("PASS: {how}, the output is what {model} alone would have written.")
            }
            Verdict::Fail if self.output_differs() => {
                format!("FAIL: {how}, the output is NOT what {model} alone would have written.")
            }
            Verdict::Fail => format!(
                "FAIL: {how}, nothing was found in the output, but drafts are not accepted as often as the two models \
                 say."
            ),
            Verdict::Interrupted => format!(
                "INTERRUPTED: {how}, nothing was found in {} of {} samples; the rest was not looked at.",
                self.samples, self.samples_planned
            ),
            Verdict::Inconclusive => format!(
                "NOT TESTED: {how}, not a single draft was verified, so nothing is known about speculation."
            ),
        }
    }

    /// What was compared token for token, in a line.
    pub fn identity_line(&self) -> String {
        let identity = &self.identity;
        if identity.prompts == 0 {
            return "no prompt was compared token for token".to_owned();
        }
        let ways = if identity.seeded { "greedily and with a seed" } else { "greedily" };
        let mut line = format!(
            "{} of {} prompts, continued {ways}: the same tokens with speculation, without it, and by an independent \
             pass",
            identity.identical, identity.prompts
        );
        if let Some(difference) = &identity.difference {
            let how = if difference.seeded { "with a seed" } else { "greedily" };
            line += &format!(
                "; {}, continued {how}, differs from {} at token {}",
                difference.prompt, difference.from, difference.token
            );
        }
        if !self.exact_rows {
            line += " (told, not judged: this backend's rows depend on the batch)";
        }
        line
    }

    /// What the tests of the law would have seen, in a line.
    pub fn power_line(&self) -> String {
        let sizes: Vec<String> = self
            .tests
            .iter()
            .filter_map(|test| Some(format!("{} {}", size(test.detectable?), test.deviation)))
            .collect();
        if sizes.is_empty() {
            return "too few tokens to say what would have been seen".to_owned();
        }
        format!("would have been seen with probability 0.99: {}", sizes.join("; "))
    }

    /// Acceptance, in a line.
    pub fn acceptance_line(&self) -> String {
        let acceptance = &self.acceptance;
        if acceptance.rounds == 0 {
            return "no round had drafts".to_owned();
        }
        let rates: Vec<String> = acceptance
            .by_position
            .iter()
            .map(|position| match position.expected {
                Some(expected) => {
                    format!("{:.1} ({:.1})", 100.0 * position.rate, 100.0 * expected)
                }
                None => format!("{:.1}", 100.0 * position.rate),
            })
            .collect();
        let theory = match acceptance.by_position.iter().any(|position| position.expected.is_some())
        {
            true if matches!(self.rule.as_str(), "block" | "traversal") => {
                " (what `token` would accept there)"
            }
            true => " (by the two laws)",
            false => "",
        };
        format!(
            "{:.2} tokens a round over {} rounds with drafts ({} had none); accepted by position, in %{theory}: {}",
            acceptance.mean_length,
            acceptance.rounds,
            acceptance.rounds_without,
            rates.join(", ")
        )
    }

    /// The whole verdict as lines of text.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.headline(), String::new()];
        lines.push(format!("identity    {}", self.identity_line()));
        lines.push(format!("law         {} tokens of {} samples:", self.tokens, self.samples));
        for test in &self.tests {
            let found = if test.pass { "nothing found" } else { "DEVIATION" };
            lines.push(format!(
                "            {:<34} n = {:<8} p = {:<9} {found}",
                test.name,
                test.n,
                p_text(test.p_value)
            ));
        }
        if self.impossible > 0 {
            lines.push(format!("            {} tokens that the law can't give", self.impossible));
        }
        lines.push(format!("            {}", self.power_line()));
        lines.push(format!("acceptance  {}", self.acceptance_line()));
        if self.stopped_early {
            lines.push(format!(
                "The audit ended after {} of {} samples: what it had found holds at any moment.",
                self.samples, self.samples_planned
            ));
        }
        lines.push(format!(
            "A fault-free engine fails an audit with a probability below {FAMILY_ERROR}, all tests together."
        ));
        lines
    }
}

/// A share as a percentage.
pub(super) fn size(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A p-value with as many digits as mean something.
pub(super) fn p_text(p: f64) -> String {
    match p {
        p if p >= 0.01 => format!("{p:.2}"),
        p if p > 1e-99 => format!("{p:.1e}"),
        _ => "0".to_owned(),
    }
}
