//! What a check says: JSON lines on standard output, words on standard error, and the table of `scripts/show`.

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

/// How a line of the promises came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Verdict {
    /// It holds.
    Pass,
    /// It does not.
    Fail,
    /// It could not be looked at; the row says why. This is not a pass.
    Skip,
}

impl Verdict {
    /// Pass if `holds`.
    pub(crate) fn of(holds: bool) -> Self {
        if holds { Self::Pass } else { Self::Fail }
    }

    /// The worse of two.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Fail, _) | (_, Self::Fail) => Self::Fail,
            (Self::Skip, _) | (_, Self::Skip) => Self::Skip,
            _ => Self::Pass,
        }
    }
}

/// A row of `scripts/show`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    /// What is promised.
    pub(crate) line: String,
    /// What was found.
    pub(crate) measured: String,
    /// What is allowed.
    pub(crate) limit: String,
    /// Whether it holds.
    pub(crate) verdict: Verdict,
}

#[cfg(feature = "engine")]
impl Row {
    /// Prints the row and hands its verdict on.
    pub(crate) fn emit(self) -> io::Result<Verdict> {
        emit(&self)?;
        Ok(self.verdict)
    }
}

/// One JSON object on standard output.
#[cfg(feature = "engine")]
pub(crate) fn emit(object: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, object)?;
    writeln!(out)?;
    out.flush()
}

/// One line on standard error.
pub(crate) fn note(line: &str) {
    // Nobody can be told that standard error is closed.
    let _ = writeln!(io::stderr(), "{line}");
}

/// Reads JSON lines, prints those that are rows, and says the worst verdict.
pub(crate) fn table() -> anyhow::Result<Verdict> {
    let mut rows: Vec<Row> = Vec::new();
    for line in io::stdin().lock().lines() {
        // Other objects are a check's details.
        if let Ok(row) = serde_json::from_str(&line?) {
            rows.push(row);
        }
    }
    let width =
        |of: fn(&Row) -> &str| rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0);
    let (lines, measured, limits) =
        (width(|row| &row.line), width(|row| &row.measured), width(|row| &row.limit));
    let mut out = io::stdout().lock();
    let mut worst = Verdict::of(!rows.is_empty());
    for row in &rows {
        let verdict = format!("{:?}", row.verdict).to_uppercase();
        writeln!(
            out,
            "{:<lines$}  {:<measured$}  {:<limits$}  {verdict}",
            row.line, row.measured, row.limit
        )?;
        worst = worst.and(row.verdict);
    }
    Ok(worst)
}
