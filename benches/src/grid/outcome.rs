//! What a cell came to, and the file that remembers it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::Cell;
use crate::console::note;
use crate::speculation::arms::Arm;
use crate::stats::{lower_bound, mean};

/// What makes two measurements of a cell the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Setting {
    pub(super) model: String,
    pub(super) draft: String,
    pub(super) fixed: Vec<usize>,
    pub(super) blocks: usize,
    pub(super) tokens: usize,
    pub(super) temperature: f64,
}

/// A finished cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Outcome {
    #[serde(flatten)]
    pub(super) setting: Setting,
    #[serde(flatten)]
    pub(super) cell: Cell,
    /// Tokens per second of every block, by arm.
    pub(super) tok_s: BTreeMap<String, Vec<f64>>,
    /// `auto` over off: the mean over blocks, and the bound it is above 19 times of 20.
    pub(super) auto_over_off: f64,
    pub(super) lower_bound: f64,
    pub(super) best_fixed: usize,
    /// `auto` over the fixed number of drafts that has the highest mean, off among them.
    pub(super) auto_over_best_fixed: f64,
    /// `None` if most of it was computed already, for another cell.
    pub(super) prefill_tok_s: Option<f64>,
    pub(super) preempted: u64,
}

impl Outcome {
    pub(super) fn of(
        setting: Setting,
        cell: Cell,
        tok_s: BTreeMap<String, Vec<f64>>,
        (prefill_tok_s, preempted): (Option<f64>, u64),
    ) -> Self {
        let rates = |arm: Arm| tok_s.get(&arm.to_string()).map_or(&[][..], Vec::as_slice);
        let over = |below: Arm| -> Vec<f64> {
            rates(Arm::Auto).iter().zip(rates(below)).map(|(auto, other)| auto / other).collect()
        };
        let fixed = setting.fixed.iter().map(|&drafts| (drafts, Arm::Fixed(drafts)));
        let all = [(0, Arm::Off)].into_iter().chain(fixed);
        let best = all.max_by(|a, b| mean(rates(a.1)).total_cmp(&mean(rates(b.1))));
        let (best_fixed, best) = best.unwrap_or((0, Arm::Off));
        let ratios = over(Arm::Off);
        Self {
            auto_over_off: mean(&ratios),
            lower_bound: lower_bound(&ratios),
            best_fixed,
            auto_over_best_fixed: mean(&over(best)),
            prefill_tok_s,
            preempted,
            setting,
            cell,
            tok_s,
        }
    }
}

pub(super) const HEAD: &str = "  seqs  context      off     auto  auto/off  95 % above  best K  auto/best  prefill tok/s  preempted";

pub(super) fn line(outcome: &Outcome) -> String {
    let rate = |arm: Arm| outcome.tok_s.get(&arm.to_string()).map_or(f64::NAN, |rates| mean(rates));
    let mut text = String::new();
    // Writing to a string can't fail.
    let _ = write!(
        text,
        "{:>6} {:>8} {:>8.1} {:>8.1} {:>9.3} {:>11.3} {:>7} {:>10.3} {:>14} {:>10}",
        outcome.cell.concurrency,
        outcome.cell.context,
        rate(Arm::Off),
        rate(Arm::Auto),
        outcome.auto_over_off,
        outcome.lower_bound,
        outcome.best_fixed,
        outcome.auto_over_best_fixed,
        outcome.prefill_tok_s.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}")),
        outcome.preempted
    );
    text
}

/// The cells of a state file; none if there is no file yet. A last line that a kill has cut short does not count.
pub(super) fn read_state(path: Option<&Path>) -> anyhow::Result<Vec<Outcome>> {
    let Some(path) = path else { return Ok(Vec::new()) };
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => bail!("can't read {}: {error}", path.display()),
    };
    let mut outcomes = Vec::new();
    for line in text.lines() {
        match serde_json::from_str(line) {
            Ok(outcome) => outcomes.push(outcome),
            Err(error) => note(&format!("{}: a line is left out: {error}", path.display())),
        }
    }
    Ok(outcomes)
}

pub(super) fn append_state(path: Option<&Path>, outcome: &Outcome) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let at = || format!("can't write {}", path.display());
    let mut file = OpenOptions::new().create(true).append(true).open(path).with_context(at)?;
    writeln!(file, "{}", serde_json::to_string(outcome)?).with_context(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting() -> Setting {
        Setting {
            model: "m".to_owned(),
            draft: "d".to_owned(),
            fixed: vec![1, 2],
            blocks: 2,
            tokens: 48,
            temperature: 0.0,
        }
    }

    fn outcome(context: usize) -> Outcome {
        let rates = |a, b| vec![a, b];
        let tok_s = [
            ("off".to_owned(), rates(10.0, 20.0)),
            ("1".to_owned(), rates(12.0, 24.0)),
            ("2".to_owned(), rates(11.0, 20.0)),
            ("auto".to_owned(), rates(11.0, 24.0)),
        ];
        let cell = Cell { concurrency: 8, context };
        Outcome::of(setting(), cell, tok_s.into(), (Some(300.0), 0))
    }

    #[test]
    fn ratios_are_paired_by_block() {
        let outcome = outcome(128);
        assert!((outcome.auto_over_off - 1.15).abs() < 1e-12);
        assert_eq!(outcome.best_fixed, 1);
        assert!((outcome.auto_over_best_fixed - (11.0 / 12.0 + 1.0) / 2.0).abs() < 1e-12);
        // 1.1 and 1.2: a standard error of 0.05, and Student's 6.314 with one degree of freedom.
        assert!((outcome.lower_bound - (1.15 - 0.05 * 6.313_752)).abs() < 1e-4);
        assert_eq!(
            line(&outcome).split_whitespace().count(),
            HEAD.replace("95 % above", "bound")
                .replace("best K", "k")
                .replace("prefill tok/s", "prefill")
                .split_whitespace()
                .count()
        );
    }

    #[test]
    fn a_finished_cell_is_found_again_and_half_a_line_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.jsonl");
        assert!(read_state(Some(&path)).unwrap().is_empty());
        append_state(Some(&path), &outcome(128)).unwrap();
        append_state(Some(&path), &outcome(4096)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 9]).unwrap();
        let cells: Vec<_> = read_state(Some(&path)).unwrap().iter().map(|o| o.cell).collect();
        assert_eq!(cells, [outcome(128).cell]);
    }
}
