//! Runs cells on threads and judges them together.
//!
//! All tests of all cells and those of each rule's sums are one family: Holm's procedure with a family error of
//! 0.001. What is rejected is run again on fresh seeds, once; it has failed if it is rejected again.

use std::collections::BTreeMap;

use crate::random::Random;
use crate::stats::holm;
use crate::stats::power::noncentrality;

use super::engine::{Parts, Tally, sample};
use super::grid::{Cell, RULES};
use super::judge::{Check, Sums, judge};
use super::world::World;

/// The family error.
pub const ALPHA: f64 = 1e-3;
/// How probably a deviation is seen, by which it is called detectable.
pub const POWER: f64 = 0.99;

/// What became of a cell.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The cell.
    pub cell: Cell,
    /// Its tests.
    pub checks: Vec<Check>,
    /// What its rule gets.
    pub sums: Sums,
    /// Draft nodes, drafts kept, drafted rounds, preemptions.
    pub counts: [u64; 4],
}

/// A test that was rejected, and again on fresh seeds.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Of which cell, or of which rule.
    pub of: String,
    /// The test.
    pub check: String,
    /// Its p-value, first and second time.
    pub p_values: [f64; 2],
}

/// What a rule's cells come to.
#[derive(Debug, Clone)]
pub struct OfRule {
    /// The rule.
    pub rule: &'static str,
    /// Its cells.
    pub cells: usize,
    /// Added up.
    pub sums: Sums,
    /// Tests of the sums.
    pub checks: Vec<Check>,
    /// Draft nodes, drafts kept, drafted rounds, preemptions.
    pub counts: [u64; 4],
    /// The total variation, by test, that is seen with probability [`POWER`].
    pub detectable: Vec<(String, f64)>,
}

/// The whole.
#[derive(Debug, Clone)]
pub struct Report {
    /// Tests in the family.
    pub tests: usize,
    /// Its least p-value, and what it is of.
    pub least: (f64, String),
    /// By rule.
    pub rules: Vec<OfRule>,
    /// Rejected once, and not again.
    pub cleared: Vec<Failure>,
    /// Rejected twice.
    pub failures: Vec<Failure>,
}

/// Runs `cells` with so many sequences each, or somewhat more, on so many threads. `watch` sees each cell that is done.
pub fn run(
    cells: &[Cell],
    sequences: u64,
    seed: u64,
    threads: usize,
    mut watch: impl FnMut(&Outcome),
) -> Report {
    let outcomes = run_all(cells, sequences, seed, threads, &mut watch);
    let tests = family(&outcomes);
    let p_values: Vec<f64> = tests.iter().map(|test| test.1.fit.p).collect();
    let suspects: Vec<&(String, Check)> =
        holm(&p_values, ALPHA).into_iter().map(|i| &tests[i]).collect();
    let (failures, cleared) = if suspects.is_empty() {
        (Vec::new(), Vec::new())
    } else {
        let again =
            |cell: &&Cell| suspects.iter().any(|s| s.0 == cell.to_string() || s.0 == cell.rule);
        let again: Vec<Cell> = cells.iter().filter(again).copied().collect();
        let outcomes = run_all(&again, sequences, !seed, threads, &mut watch);
        second(&suspects, &family(&outcomes))
    };
    let least = tests.iter().min_by(|a, b| a.1.fit.p.total_cmp(&b.1.fit.p));
    Report {
        tests: tests.len(),
        least: least.map(|(of, c)| (c.fit.p, format!("{of}: {}", c.name))).unwrap_or_default(),
        rules: of_rules(&outcomes, tests.len()),
        cleared,
        failures,
    }
}

fn second(
    suspects: &[&(String, Check)],
    tests: &[(String, Check)],
) -> (Vec<Failure>, Vec<Failure>) {
    let again = |(of, first): &(String, Check)| {
        let found = tests.iter().find(|(o, check)| o == of && check.name == first.name);
        // What can no longer be tested at all has not been cleared.
        found.map_or(0.0, |(_, check)| check.fit.p)
    };
    let p_values: Vec<f64> = suspects.iter().map(|suspect| again(suspect)).collect();
    let rejected = holm(&p_values, ALPHA);
    let failure = |i: usize| Failure {
        of: suspects[i].0.clone(),
        check: suspects[i].1.name.clone(),
        p_values: [suspects[i].1.fit.p, p_values[i]],
    };
    let (failed, cleared): (Vec<usize>, Vec<usize>) =
        (0..suspects.len()).partition(|i| rejected.contains(i));
    (failed.into_iter().map(failure).collect(), cleared.into_iter().map(failure).collect())
}

/// Every test with the cell or rule it is of.
fn family(outcomes: &[Outcome]) -> Vec<(String, Check)> {
    let mut tests = Vec::new();
    for outcome in outcomes {
        let name = outcome.cell.to_string();
        tests.extend(outcome.checks.iter().map(|check| (name.clone(), check.clone())));
    }
    for (rule, (sums, _, _)) in added(outcomes) {
        let checks = sums.checks().into_iter().filter(|check| check.fit.freedom > 0);
        tests.extend(checks.map(|check| (rule.to_owned(), check)));
    }
    tests
}

/// Sums, counts and cells by rule.
fn added(outcomes: &[Outcome]) -> BTreeMap<&'static str, (Sums, [u64; 4], usize)> {
    let mut rules: BTreeMap<&'static str, (Sums, [u64; 4], usize)> = BTreeMap::new();
    for outcome in outcomes {
        let (sums, counts, cells) = rules.entry(outcome.cell.rule).or_default();
        sums.add(&outcome.sums);
        counts.iter_mut().zip(outcome.counts).for_each(|(sum, count)| *sum += count);
        *cells += 1;
    }
    rules
}

fn of_rules(outcomes: &[Outcome], tests: usize) -> Vec<OfRule> {
    let mut rules = added(outcomes);
    let rule = |&rule: &&'static str| {
        let (sums, counts, cells) = rules.remove(rule)?;
        let (checks, detectable) = (sums.checks(), detectable(&sums, tests));
        Some(OfRule { rule, cells, sums, checks, counts, detectable })
    };
    RULES.iter().filter_map(rule).collect()
}

/// The least shift of each token's law, or of each three tokens' law, that the sums see at the hardest step of Holm's
/// procedure, twice: the first time and on fresh seeds.
pub fn detectable(sums: &Sums, tests: usize) -> Vec<(String, f64)> {
    let (alpha, power) = (ALPHA / tests as f64, POWER.sqrt());
    let least = |freedom: usize, n: f64| (noncentrality(freedom, alpha, power) / (4.0 * n)).sqrt();
    // A shift by ε of every token moves the sum by ε for each.
    let contrast = noncentrality(1, alpha, power) * sums.contrast.1;
    vec![
        ("tokens with q > p".to_owned(), contrast.sqrt() / sums.tokens as f64),
        ("tokens ranked by q/p".to_owned(), least(2, sums.tokens as f64)),
        ("three tokens".to_owned(), least(sums.window.freedom, sums.sequences as f64)),
    ]
}

fn run_all(
    cells: &[Cell],
    sequences: u64,
    seed: u64,
    threads: usize,
    watch: &mut impl FnMut(&Outcome),
) -> Vec<Outcome> {
    let mut outcomes =
        crate::parallel::each(cells, threads, |cell| one(cell, sequences, seed), watch);
    outcomes.sort_by_key(|outcome| outcome.cell.number);
    outcomes
}

/// Runs and judges one cell.
pub fn one(cell: &Cell, sequences: u64, seed: u64) -> Outcome {
    let world = World::new(cell);
    let seed = Random(seed ^ (cell.number as u64) << 32).next_u64();
    let sequences = sequences * cell.weight().0 / cell.weight().1;
    let tally = sample(cell, &world, Parts::of(cell, &world), sequences, seed);
    let (checks, sums) = judge(cell, &world, &tally);
    let Tally { drafted, accepted, drafted_rounds, preempted, .. } = tally;
    Outcome { cell: *cell, checks, sums, counts: [drafted, accepted, drafted_rounds, preempted] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Fit;

    fn check(of: &str, p: f64) -> (String, Check) {
        let fit = Fit { statistic: 1.0, freedom: 1, p };
        (of.to_owned(), Check { name: "a test".to_owned(), fit })
    }

    /// What is rejected once has failed if it is rejected again, or cannot be tested again.
    #[test]
    fn a_second_run_decides() {
        let first = [check("a", 1e-9), check("b", 1e-8), check("c", 1e-9)];
        let suspects: Vec<_> = first.iter().collect();
        let again = [check("a", 0.4), check("b", 1e-7), check("d", 0.0)];
        let (failed, cleared) = second(&suspects, &again);
        let of = |failures: &[Failure]| failures.iter().map(|f| f.of.clone()).collect::<Vec<_>>();
        assert_eq!((of(&failed), of(&cleared)), (vec!["b".into(), "c".into()], vec!["a".into()]));
    }

    /// Sums see a shift of every token, by the formula for binomial counts: z = (z_α + z_β) / (2 ε √n).
    #[test]
    fn what_is_detectable_follows_from_the_number_of_tokens() {
        let sums = Sums { tokens: 133_000, contrast: (0.0, 133_000.0 / 4.0), ..Sums::default() };
        let shift = detectable(&sums, 1_000)[0].1;
        // α = 1e-6: 4.89; a power of √0.99: 2.58.
        let expected = (4.89 + 2.58) / (2.0 * 133_000.0_f64.sqrt());
        assert!((shift / expected - 1.0).abs() < 0.01, "{shift} {expected}");
    }
}
