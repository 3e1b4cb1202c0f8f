//! Progress and results.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

/// One line on standard error.
pub(crate) fn note(line: &str) {
    // Nobody can be told that standard error is closed.
    let _ = writeln!(io::stderr(), "{line}");
}

/// The result: as JSON, the table going to standard error; or the table.
pub(crate) fn print(result: &impl Serialize, table: &str, json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        note(table.trim_end());
        serde_json::to_writer(&mut out, result)?;
        writeln!(out)?;
    } else {
        write!(out, "{table}")?;
    }
    Ok(out.flush()?)
}

/// Writes a plot.
pub(crate) fn save(path: &Path, svg: &str) -> anyhow::Result<()> {
    std::fs::write(path, svg).with_context(|| format!("can't write {}", path.display()))
}
