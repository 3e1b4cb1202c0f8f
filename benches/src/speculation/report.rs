//! Speed by kind of prompt, as a table, as JSON and as a plot.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use crate::machine::MachineInfo;
use crate::plot::{Gains, gains_plot};
use crate::roofline::Ceiling;
use crate::stats::geomean;

/// All that was measured.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    pub(crate) model: String,
    pub(crate) draft: String,
    pub(crate) concurrency: usize,
    pub(crate) temperature: f64,
    pub(crate) machine: MachineInfo,
    pub(crate) categories: Vec<CategoryRow>,
    pub(crate) geomean_auto_speedup: Option<f64>,
}

/// One kind of prompt. Rates are of all sequences together, while all of them run.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct CategoryRow {
    pub(crate) category: String,
    pub(crate) prompts: usize,
    pub(crate) off_tok_s: f64,
    pub(crate) auto_tok_s: f64,
    /// By number of drafts.
    pub(crate) fixed: BTreeMap<usize, f64>,
    pub(crate) auto_speedup: f64,
    /// Tokens a round under `auto`.
    pub(crate) mean_acceptance_length: f64,
    /// Of the best number of drafts, by T(M), T_draft and how deep drafts are accepted.
    pub(crate) predicted_speedup: f64,
    pub(crate) predicted_fixed: BTreeMap<usize, f64>,
    pub(crate) acceptance_length_fixed: BTreeMap<usize, f64>,
    pub(crate) draft_tokens_auto: f64,
    pub(crate) prefill_tok_s: f64,
    /// `auto_speedup` when every run computes its prompts, too.
    pub(crate) whole_auto_speedup: f64,
    /// Of 1, 2, … rows for every sequence.
    pub(crate) passes_ms: Vec<f64>,
    pub(crate) draft_ms: f64,
    pub(crate) machine: Ceiling,
}

impl CategoryRow {
    /// In a line.
    pub(crate) fn line(&self) -> String {
        let mut text =
            format!("{:<16} {:>7.1} {:>7.1}", self.category, self.off_tok_s, self.auto_tok_s);
        for rate in self.fixed.values() {
            // Writing to a string can't fail.
            let _ = write!(text, " {rate:>7.1}");
        }
        let _ = write!(
            text,
            " {:>6.2} {:>9.2} {:>7.2} {:>9.1} {:>7.1} {:>8.2} {:>8.1}",
            self.auto_speedup,
            self.predicted_speedup,
            self.mean_acceptance_length,
            self.draft_tokens_auto,
            self.passes_ms.first().copied().unwrap_or(f64::NAN),
            self.draft_ms,
            self.machine.read_gb_s
        );
        text
    }
}

impl Report {
    /// What is said of all categories together.
    pub(crate) fn finish(&mut self) {
        let all = self.categories.iter().map(|row| row.auto_speedup);
        self.geomean_auto_speedup = (!self.categories.is_empty()).then(|| geomean(all));
    }

    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "{} with drafts of {}, {} at a time, temperature {}: tokens/s while decoding\n{:<16} {:>7} {:>7}",
            self.model, self.draft, self.concurrency, self.temperature, "category", "off", "auto"
        );
        for drafts in self.categories.iter().take(1).flat_map(|row| row.fixed.keys()) {
            let _ = write!(text, " {:>7}", format!("K={drafts}"));
        }
        text += "   auto predicted tokens/  drafts/    T(1)  T_draft  machine\n";
        let blanks = 32 + 8 * self.categories.first().map_or(0, |row| row.fixed.len());
        let _ = writeln!(
            text,
            "{:blanks$}   /off           round    round      ms       ms     GB/s",
            ""
        );
        for row in &self.categories {
            text += &row.line();
            text.push('\n');
        }
        if let Some(mean) = self.geomean_auto_speedup {
            let _ = writeln!(text, "geometric mean of auto over off: {mean:.3}");
        }
        text
    }

    pub(crate) fn plot(&self) -> String {
        let fixed: Vec<usize> =
            self.categories.iter().take(1).flat_map(|row| row.fixed.keys().copied()).collect();
        let gain = |row: &CategoryRow, drafts: usize| {
            row.fixed.get(&drafts).map_or(f64::NAN, |rate| rate / row.off_tok_s)
        };
        let mut names = vec!["0".to_owned()];
        let mut gains = Gains { measured: vec![1.0], predicted: vec![1.0], each: vec![Vec::new()] };
        for &drafts in &fixed {
            names.push(drafts.to_string());
            let each: Vec<f64> = self.categories.iter().map(|row| gain(row, drafts)).collect();
            gains.measured.push(geomean(each.iter().copied()));
            let predicted = self.categories.iter().map(|row| row.predicted_fixed[&drafts]);
            gains.predicted.push(geomean(predicted));
            gains.each.push(each);
        }
        names.push("auto".to_owned());
        gains.measured.push(self.geomean_auto_speedup.unwrap_or(f64::NAN));
        gains.predicted.push(geomean(self.categories.iter().map(|row| row.predicted_speedup)));
        gains.each.push(self.categories.iter().map(|row| row.auto_speedup).collect());
        let title = format!("{} with drafts of {}", self.model, self.draft);
        gains_plot(&title, &names, &gains)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let ceiling = Ceiling { read_gb_s: 50.0, int8_gmacs: 400.0 };
        let row = |name: &str, auto_speedup: f64| CategoryRow {
            category: name.to_owned(),
            prompts: 3,
            off_tok_s: 20.0,
            auto_tok_s: 20.0 * auto_speedup,
            fixed: [(1, 24.0), (4, 30.0)].into(),
            auto_speedup,
            mean_acceptance_length: 2.5,
            predicted_speedup: 1.6,
            predicted_fixed: [(1, 1.3), (4, 1.6)].into(),
            acceptance_length_fixed: [(1, 1.8), (4, 2.9)].into(),
            draft_tokens_auto: 3.3,
            prefill_tok_s: 300.0,
            whole_auto_speedup: 1.2,
            passes_ms: vec![30.0, 31.0],
            draft_ms: 8.0,
            machine: ceiling,
        };
        Report {
            model: "t".to_owned(),
            draft: "d".to_owned(),
            concurrency: 1,
            temperature: 0.0,
            machine: MachineInfo {
                ceiling,
                threads: 2,
                level: "avx512",
                read_gb_s_4k_pages: 40.0,
                read_gb_s_2m_pages: 50.0,
            },
            categories: vec![row("code", 2.0), row("chat", 0.5)],
            geomean_auto_speedup: None,
        }
    }

    #[test]
    fn the_json_has_the_names_that_scripts_rely_on() {
        let mut report = report();
        report.finish();
        let json = serde_json::to_value(report).unwrap();
        assert_eq!(json["geomean_auto_speedup"], 1.0);
        let row = &json["categories"][0];
        let numbers = [
            "off_tok_s",
            "auto_tok_s",
            "auto_speedup",
            "mean_acceptance_length",
            "predicted_speedup",
        ];
        for name in numbers {
            assert!(row[name].is_number(), "{name}");
        }
        assert_eq!((&row["category"], &row["fixed"]["4"]), (&"code".into(), &30.0.into()));
    }

    #[test]
    fn table_and_plot_show_every_category_and_setting() {
        let mut report = report();
        report.finish();
        let table = report.table();
        assert_eq!(table.lines().count(), 6, "{table}");
        assert!(table.contains("K=4") && table.contains("1.000"));
        let svg = report.plot();
        for tick in [">0<", ">1<", ">4<", ">auto<"] {
            assert!(svg.contains(tick), "{tick}");
        }
    }
}
