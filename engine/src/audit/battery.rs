//! The tests of an audit, their p-values, and what each would have seen.
//!
//! A test has two p-values: one that holds at every moment, by betting, and one for the number of observations that
//! was planned. Its own is twice the smaller. Over the family Holm's procedure keeps the chance of any false alarm
//! below [`FAMILY_ERROR`].

use serde::Serialize;

use super::evidence::{Contrast, Pairs, Uniformity};
use super::judge::{Judged, Trial};
use super::theory::Expected;

/// Chance that anything is found in an engine without fault.
pub const FAMILY_ERROR: f64 = 0.001;

/// One test's result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TestResult {
    /// Its name.
    pub name: &'static str,
    /// Observations.
    pub n: u64,
    /// Corrected for the two ways of looking, not for the other tests.
    pub p_value: f64,
    /// The smallest deviation, of the kind the test is for, that is seen with probability 0.99 at this n; null where
    /// there is too little to say.
    pub detectable: Option<f64>,
    /// Whether nothing was found, the other tests taken into account.
    pub pass: bool,
    /// What the deviation is a size of.
    pub deviation: &'static str,
    /// Valid at every moment.
    pub p_anytime: f64,
    /// Valid at the planned number of observations only; null if the audit ended before.
    pub p_planned: Option<f64>,
}

/// All tests of an audit.
#[derive(Debug, Clone)]
pub(super) struct Battery {
    pub(super) by_likelihood: Uniformity,
    pub(super) by_draft: Uniformity,
    favoured: Contrast,
    pairs: Pairs,
    acceptance: Contrast,
    /// Tokens that the law could not have given.
    pub(super) impossible: u64,
}

/// Names in the order of [`Battery::results`].
const NAMES: [(&str, &str); 5] = [
    ("law, likely tokens first", "of probability moved between likely and unlikely tokens"),
    (
        "law, the draft's favourites first",
        "of probability moved between what the draft likes and the rest",
    ),
    ("tokens the draft overrates", "of probability moved to or from tokens with q > p"),
    ("successive tokens", "of correlation between a token's rank and that of the one before"),
    ("acceptance", "off the acceptance rate that the two laws give"),
];

impl Battery {
    pub(super) fn new() -> Self {
        Self {
            by_likelihood: Uniformity::new(),
            by_draft: Uniformity::new(),
            favoured: Contrast::new(),
            pairs: Pairs::new(),
            acceptance: Contrast::new(),
            impossible: 0,
        }
    }

    /// Takes in what a text told.
    pub(super) fn see(&mut self, judged: &Judged) {
        let mut before = None;
        for token in &judged.tokens {
            self.impossible += u64::from(token.impossible);
            let u = token.by_likelihood;
            self.by_likelihood.see(u);
            if let Some(before) = before.replace(u) {
                self.pairs.see(before, u);
            }
            if let Some(u) = token.by_draft {
                self.by_draft.see(u);
            }
            if let Some((probability, happened)) = token.favoured {
                self.favoured.see(probability, happened);
            }
        }
        for &Trial { accepted, expected, .. } in &judged.trials {
            if let Expected::Exactly(rate) = expected {
                self.acceptance.see(rate, accepted);
            }
        }
    }

    /// Tokens seen.
    pub(super) fn tokens(&self) -> u64 {
        self.by_likelihood.values().len() as u64
    }

    fn sizes(&self) -> [u64; 5] {
        let draft = self.by_draft.values().len() as u64;
        [self.tokens(), draft, self.favoured.n(), self.pairs.n(), self.acceptance.n()]
    }

    fn anytime(&self) -> [f64; 5] {
        [
            self.by_likelihood.p_anytime(),
            self.by_draft.p_anytime(),
            self.favoured.p_anytime(),
            self.pairs.p_anytime(),
            self.acceptance.p_anytime(),
        ]
    }

    /// The smallest p-value of the output so far, corrected for everything: below [`FAMILY_ERROR`] the audit may end.
    /// Acceptance alone ends none, since whether the output is wrong, too, would then not be known.
    pub(super) fn strongest(&self) -> f64 {
        let [output @ .., _acceptance] = self.anytime();
        let least = output.into_iter().fold(1.0, f64::min);
        (2.0 * NAMES.len() as f64 * least).min(1.0)
    }

    /// The tests that had something to look at. `complete`: as many samples as planned.
    pub(super) fn results(&self, complete: bool) -> Vec<TestResult> {
        let (sizes, anytime) = (self.sizes(), self.anytime());
        let family = sizes.iter().filter(|&&n| n > 0).count().max(1) as f64;
        let alpha = FAMILY_ERROR / family / 2.0;
        let planned = [
            self.by_likelihood.p_planned(),
            self.by_draft.p_planned(),
            self.favoured.p_planned(),
            self.pairs.p_planned(),
            self.acceptance.p_planned(),
        ];
        let detectable = [
            self.by_likelihood.detectable(alpha),
            self.by_draft.detectable(alpha),
            self.favoured.detectable(alpha),
            self.pairs.detectable(alpha),
            self.acceptance.detectable(alpha),
        ];
        let mut results = Vec::new();
        for (i, (name, deviation)) in NAMES.into_iter().enumerate().filter(|&(i, _)| sizes[i] > 0) {
            let p_planned = complete.then_some(planned[i]);
            let best = p_planned.map_or(anytime[i], |p| p.min(anytime[i]));
            results.push(TestResult {
                name,
                n: sizes[i],
                p_value: (2.0 * best).min(1.0),
                detectable: detectable[i],
                pass: true,
                deviation,
                p_anytime: anytime[i],
                p_planned,
            });
        }
        holm(&mut results);
        results
    }
}

/// Holm's step-down procedure: the k-th smallest of m p-values against error / (m − k + 1), up to the first that holds.
fn holm(results: &mut [TestResult]) {
    let mut order: Vec<usize> = (0..results.len()).collect();
    order.sort_by(|&a, &b| results[a].p_value.total_cmp(&results[b].p_value));
    for (rank, &at) in order.iter().enumerate() {
        if results[at].p_value > FAMILY_ERROR / (order.len() - rank) as f64 {
            break;
        }
        results[at].pass = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::pit::Transformed;
    use crate::audit::uniforms::Uniforms;

    fn text(values: impl IntoIterator<Item = f64>) -> Judged {
        let token =
            |u| Transformed { by_likelihood: u, by_draft: None, favoured: None, impossible: false };
        Judged { tokens: values.into_iter().map(token).collect(), ..Judged::default() }
    }

    /// Whether anything is found in `n` values of which `shift` moved from the upper half to the lower, and `lag`
    /// repeat the one before; and the sizes that would have been.
    fn found(seed: u64, n: usize, shift: f64, lag: f64) -> (bool, Vec<Option<f64>>) {
        let mut random = Uniforms::new(seed);
        let mut battery = Battery::new();
        let mut before = random.next();
        let values = (0..n).map(|_| {
            if random.next() >= lag {
                let half = random.next() / 2.0;
                before = if random.next() < 0.5 + shift { half } else { half + 0.5 };
            }
            before
        });
        battery.see(&text(values.collect::<Vec<_>>()));
        let results = battery.results(true);
        let sizes = results.iter().map(|result| result.detectable).collect();
        (results.iter().any(|result| !result.pass), sizes)
    }

    #[test]
    fn what_is_called_detectable_is_detected() {
        let n = 4000;
        let (quiet, sizes) = found(1, n, 0.0, 0.0);
        assert!(!quiet);
        let runs = 150;
        for (at, share) in [(0, sizes[0].unwrap()), (1, sizes[1].unwrap())] {
            let (shift, lag) = if at == 0 { (share, 0.0) } else { (0.0, share) };
            let seen = (0..runs).filter(|&seed| found(seed, n, shift, lag).0).count();
            // 0.99 of 150 is 148.5; four standard deviations below are 143.6.
            assert!(seen >= 143, "test {at}: {seen} of {runs} at {share}");
        }
    }

    #[test]
    fn an_engine_without_fault_is_not_accused() {
        let accused = (0..300).filter(|&seed| found(seed, 800, 0.0, 0.0).0).count();
        // 0.3 expected; more than 4 has a probability of 2e-5.
        assert!(accused <= 4, "{accused}");
    }

    #[test]
    fn holm_goes_on_where_a_smaller_one_was_found() {
        let result = |p_value| TestResult {
            name: "",
            n: 1,
            p_value,
            detectable: None,
            pass: true,
            deviation: "",
            p_anytime: p_value,
            p_planned: None,
        };
        let mut results = [0.0009, 0.2, 0.0003].map(result);
        holm(&mut results);
        assert_eq!(results.map(|result| result.pass), [true, true, false]);
        let mut results = [0.0009, 0.0004, 0.0003].map(result);
        holm(&mut results);
        assert_eq!(results.map(|result| result.pass), [false; 3]);
    }
}
