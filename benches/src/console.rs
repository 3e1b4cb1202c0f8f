//! Progress, results and Ctrl-C.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Set once the user has asked to stop, by Ctrl-C or the signal to terminate; the second one ends the process.
#[derive(Clone, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Starts listening. Without a handler Ctrl-C simply ends the process.
    pub(crate) fn listen() -> Self {
        let interrupt = Self::default();
        let asked = &interrupt.0;
        for signal in [SIGINT, SIGTERM] {
            // In this order, so that the first one does not see itself.
            let code = i32::from(crate::INTERRUPTED);
            let installed = flag::register_conditional_shutdown(signal, code, Arc::clone(asked))
                .and_then(|_| flag::register(signal, Arc::clone(asked)));
            if let Err(error) = installed {
                note(&format!("Ctrl-C will end the process at once: {error}"));
            }
        }
        interrupt
    }

    /// Whether the user has asked to stop.
    pub(crate) fn requested(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

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
