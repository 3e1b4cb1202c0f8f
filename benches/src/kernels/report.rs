//! T(M) as a table, as JSON and as a plot.

use std::fmt::Write;

use serde::Serialize;

use super::measure::Row;
use crate::machine::MachineInfo;
use crate::plot::{Series, times_plot};

/// All that was measured.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    pub(crate) model: String,
    pub(crate) backend: String,
    pub(crate) machine: MachineInfo,
    pub(crate) rows: Vec<Row>,
}

/// The machine in a line.
pub(crate) fn machine_line(machine: &MachineInfo) -> String {
    format!(
        "{} threads, {}: reads {:.1} GB/s ({:.1} over 4 KiB pages, {:.1} over 2 MiB pages), multiplies {:.0} GMAC/s",
        machine.threads,
        machine.level,
        machine.ceiling.read_gb_s,
        machine.read_gb_s_4k_pages,
        machine.read_gb_s_2m_pages,
        machine.ceiling.int8_gmacs
    )
}

impl Report {
    pub(crate) fn table(&self) -> String {
        let mut text =
            format!("{}, {}, {}\n", self.model, self.backend, machine_line(&self.machine));
        let head = "  ctx    M        ms  /T(1)   GB/s  GMAC/s  roofline  share | machine GB/s  GMAC/s | linears attention    head    rest | sampling";
        text += head;
        text.push('\n');
        for row in &self.rows {
            // Writing to a string can't fail.
            let _ = write!(
                text,
                "{:>5} {:>4} {:>9.2} {:>6.2} {:>6.1} {:>7.0} {:>9.2} {:>5.0} % | {:>12.1} {:>7.0} |",
                row.context,
                row.m,
                row.ms,
                row.ratio,
                row.gb_s,
                row.gmacs,
                row.roofline_ms,
                100.0 * row.roofline_share,
                row.ceiling.read_gb_s,
                row.ceiling.int8_gmacs,
            );
            if let Some(p) = &row.parts {
                let _ = write!(
                    text,
                    " {:>7.2} {:>9.2} {:>7.2} {:>7.2} | {:>8.2}",
                    p.linears, p.attention, p.head, p.rest, p.sampling
                );
            }
            text.push('\n');
        }
        text
    }

    /// T(M) and the roofline at the smallest and the largest context.
    pub(crate) fn plot(&self) -> String {
        let mut contexts: Vec<u32> = self.rows.iter().map(|row| row.context).collect();
        contexts.sort_unstable();
        contexts.dedup();
        if contexts.len() > 2 {
            contexts = vec![contexts[0], contexts[contexts.len() - 1]];
        }
        let mut series = Vec::new();
        for context in contexts {
            let points = |of: fn(&Row) -> f64| {
                let rows = self.rows.iter().filter(|row| row.context == context);
                rows.map(|row| (f64::from(row.m), of(row))).collect()
            };
            let name = format!("redline, context {context}");
            series.push(Series { name, points: points(|row| row.ms) });
            let name = format!("roofline, context {context}");
            series.push(Series { name, points: points(|row| row.roofline_ms) });
        }
        times_plot(&format!("{}: time of a pass", self.model), &series)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::measure::Parts;
    use crate::roofline::Ceiling;

    fn report() -> Report {
        let ceiling = Ceiling { read_gb_s: 50.0, int8_gmacs: 400.0 };
        let parts = Parts { linears: 1.0, attention: 2.0, head: 3.0, rest: 4.0, sampling: 5.0 };
        let row = |m| Row {
            m,
            context: 128,
            ms: 20.0 * f64::from(m),
            ratio: f64::from(m),
            gb_s: 50.0,
            gmacs: 80.0,
            roofline_share: 0.5,
            roofline_ms: 10.0,
            ceiling,
            parts: Some(parts),
        };
        Report {
            model: "a <model>".to_owned(),
            backend: "cpu".to_owned(),
            machine: MachineInfo {
                ceiling,
                threads: 2,
                level: "avx512",
                read_gb_s_4k_pages: 40.0,
                read_gb_s_2m_pages: 50.0,
            },
            rows: vec![row(1), row(2)],
        }
    }

    #[test]
    fn the_json_has_the_names_that_scripts_rely_on() {
        let json = serde_json::to_value(report()).unwrap();
        for name in ["read_gb_s", "int8_gmacs", "threads"] {
            assert!(json["machine"][name].is_number(), "{name}");
        }
        let rows = json["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2);
        for name in ["m", "context", "ms", "ratio", "gb_s", "roofline_share"] {
            assert!(rows[1][name].is_number(), "{name}");
        }
        for name in ["linears", "attention", "head", "sampling", "rest"] {
            assert!(rows[1]["parts"][name].is_number(), "{name}");
        }
    }

    #[test]
    fn table_and_plot_show_every_row() {
        let report = report();
        assert_eq!(report.table().lines().count(), 4);
        let svg = report.plot();
        assert!(svg.contains("roofline, context 128") && svg.contains("a &lt;model&gt;"), "{svg}");
    }
}
