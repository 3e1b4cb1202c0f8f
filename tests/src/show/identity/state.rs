//! What a killed run had finished: one JSON object a line.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use redline::{DraftQuant, LoadOptions};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::show::loaded::Loaded;
use crate::show::prompts::Prompt;

/// Finished cells, in memory and, if asked for, in a file.
pub(super) struct State {
    setup: String,
    finished: BTreeMap<String, Value>,
    file: Option<File>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    setup: String,
    cell: String,
    result: Value,
}

/// Everything that results depend on and that cells don't say, this program included: what another build has found
/// says nothing about this one.
pub(super) fn setup(
    target: &Loaded,
    prompts: &[Prompt],
    tokens: usize,
    options: &LoadOptions,
) -> anyhow::Result<String> {
    let mut hasher = DefaultHasher::new();
    let program = std::env::current_exe().and_then(std::fs::read);
    program.context("can't read this program")?.hash(&mut hasher);
    (options.draft_quant.map(DraftQuant::name), format!("{:?}", options.draft_head))
        .hash(&mut hasher);
    for prompt in prompts {
        prompt.tokens.hash(&mut hasher);
    }
    let level = redline::kernels::Level::detect();
    Ok(format!("{} {level:?} {tokens} tokens {:016x}", target.name, hasher.finish()))
}

impl State {
    /// Reads what was finished under the same setup; other lines stay in the file and are not looked at.
    pub(super) fn open(path: Option<&Path>, setup: String) -> anyhow::Result<Self> {
        let mut state = Self { setup, finished: BTreeMap::new(), file: None };
        let Some(path) = path else { return Ok(state) };
        let shown = || path.display().to_string();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(shown),
        };
        // The last line is cut short if the run was killed while writing it; it is simply not finished.
        for line in text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok()) {
            if line.setup == state.setup {
                state.finished.insert(line.cell, line.result);
            }
        }
        let mut file =
            OpenOptions::new().append(true).create(true).open(path).with_context(shown)?;
        if !text.is_empty() && !text.ends_with('\n') {
            writeln!(file)?;
        }
        state.file = Some(file);
        Ok(state)
    }

    /// The result of a cell that was finished before.
    pub(super) fn finished(&self, cell: &str) -> Option<&Value> {
        self.finished.get(cell)
    }

    /// Keeps a result.
    pub(super) fn record(&mut self, cell: &str, result: Value) -> anyhow::Result<()> {
        if let Some(file) = &mut self.file {
            let line =
                Line { setup: self.setup.clone(), cell: cell.to_owned(), result: result.clone() };
            writeln!(file, "{}", serde_json::to_string(&line)?)?;
            file.sync_data()?;
        }
        self.finished.insert(cell.to_owned(), result);
        Ok(())
    }
}
