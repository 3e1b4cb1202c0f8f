//! Known wrong variants as test doubles: each must be caught, or the tests prove nothing. Every double also exists without
//! its bug and then passes, so that nothing is caught for the wrong reason.
//!
//! Most are wrong for any random numbers, and enumeration sees them. What is wrong with the numbers themselves, with their
//! names or with the way from logits to a rule is seen by injecting numbers at their boundary, by tests of the generator, or
//! by the sampling suite, on the real engine. `redline-tests teeth` runs them all; [`Finding`] is a row of its table.

pub mod command;

mod block;
mod boundary;
mod coupled;
mod doubles;
mod generator;
mod sampled;
mod token;
mod traversal;

use std::fmt;

use redline::spec::exact::WalkError;
use redline::spec::{RatioRule, VerifyError};

use crate::exact::hostile::Pair;
use crate::exact::plan::{Make, Plan};
use crate::exact::{round, try_round};

/// What catches a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The exact law over all branches.
    Enumeration,
    /// The oracle's names: a number is used twice.
    Names,
    /// The rule itself, by name.
    Refusal,
    /// Equality with the plain sampler for each noise.
    Equality,
    /// Numbers at the boundary of what the generator gives.
    Boundary,
    /// A test of the generator.
    Generator,
    /// The sampling suite on the engine.
    Sampling,
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Enumeration => "enumeration",
            Self::Names => "the oracle's names",
            Self::Refusal => "refusal by name",
            Self::Equality => "equality with the plain sampler",
            Self::Boundary => "boundary injection",
            Self::Generator => "generator test",
            Self::Sampling => "sampling",
        })
    }
}

/// What became of a variant.
#[derive(Debug, Clone)]
pub struct Finding {
    /// Under which rule.
    pub rule: &'static str,
    /// What is wrong.
    pub variant: String,
    /// Where it has been seen.
    pub seen_in: &'static str,
    /// What caught it.
    pub by: By,
    /// How far off it is.
    pub found: String,
    /// How many samples that took, and the worst p-value over repetitions.
    pub samples: Option<(u64, f64)>,
    /// The largest error of a law, where it was enumerated.
    pub error: f64,
    /// How probably it would not have been seen.
    pub unseen: f64,
    /// Whether it was seen.
    pub caught: bool,
    /// It is no variant but the double without a bug, and must not be seen.
    pub control: bool,
}

impl Finding {
    /// Whether it is as it must be: a bug seen, with probability above 0.99, or no bug and nothing seen.
    pub fn holds(&self) -> bool {
        if self.control { !self.caught } else { self.caught && self.unseen < 0.01 }
    }

    /// By the largest error of a law.
    fn by_error(
        rule: &'static str,
        variant: &str,
        seen_in: &'static str,
        by: By,
        error: f64,
    ) -> Self {
        let variant = variant.to_owned();
        // Rounding is below 1e-14, and what must be seen is far above what the oracle tolerates.
        let (found, caught) = (format!("error {error:.1e}"), error > 1e-6);
        Self {
            rule,
            variant,
            seen_in,
            by,
            found,
            samples: None,
            error,
            unseen: 0.0,
            caught,
            control: false,
        }
    }

    /// It is the double without a bug. Seen is then whatever is more than rounding.
    fn sound(self) -> Self {
        Self { control: true, caught: self.caught || self.error > 1e-14, ..self }
    }
}

/// All findings; what sampling sees is looked at `runs` times each.
pub fn findings(seed: u64, runs: usize) -> Vec<Finding> {
    let mut findings = token::findings();
    findings.extend(block::findings());
    findings.extend(traversal::findings());
    findings.extend(coupled::findings());
    findings.extend(boundary::findings());
    findings.extend(generator::findings());
    findings.extend(sampled::findings(seed, runs));
    findings
}

/// Five pairs of laws: with three tokens, a path's law then depends on all of the path.
fn model() -> Pair {
    Pair::of_three([
        ([0.6, 0.4, 0.0], [0.45, 0.2, 0.35]),
        ([0.2, 0.3, 0.5], [0.5, 0.3, 0.2]),
        ([0.1, 0.8, 0.1], [0.3, 0.6, 0.1]),
        ([0.45, 0.45, 0.1], [0.05, 0.1, 0.85]),
        ([0.5, 0.1, 0.4], [0.1, 0.8, 0.1]),
    ])
}

/// What enumeration says of one round of a full tree.
fn enumerated(
    rule: &'static str,
    variant: &str,
    seen_in: &'static str,
    double: &dyn RatioRule,
    make: Make,
    (depth, width): (usize, usize),
) -> Finding {
    let by = |by: By, error: f64| Finding::by_error(rule, variant, seen_in, by, error);
    match try_round(double, &model(), &Plan::full(make, depth, width)) {
        Ok((_, error)) => by(By::Enumeration, error),
        Err(WalkError::Reused(site)) => {
            let found = format!("{:?} of node {} drawn twice", site.purpose, site.node);
            Finding { found, ..by(By::Names, 1.0) }
        }
        Err(WalkError::Verify(VerifyError::Refused { reason, .. })) => {
            Finding { found: reason.to_owned(), ..by(By::Refusal, 1.0) }
        }
        Err(error) => {
            Finding { found: error.to_string(), caught: false, ..by(By::Enumeration, 0.0) }
        }
    }
}

/// Whether a double without a bug does what the rule does, outcome by outcome.
fn same_outcomes(
    name: &'static str,
    rule: &dyn RatioRule,
    double: &dyn RatioRule,
    make: Make,
    (depth, width): (usize, usize),
) -> Finding {
    let plan = Plan::full(make, depth, width);
    let (rule, double) = (round(rule, &model(), &plan).0, round(double, &model(), &plan).0);
    let at = |outcome| double.outcomes.get(outcome).copied().unwrap_or_default();
    let error =
        rule.outcomes.iter().map(|(outcome, p)| (p - at(outcome)).abs()).fold(0.0, f64::max);
    let variant = "the double's outcomes are the rule's";
    let finding = Finding::by_error(name, variant, "", By::Enumeration, error);
    finding.sound()
}
