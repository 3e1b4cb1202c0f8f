//! A model file, loaded once for a whole check.

use std::sync::Arc;

use anyhow::Context;
use redline::gguf::Header;
use redline::hub::{self, TerminalProgress};
use redline::text::{ChatTemplate, Tokenizer};
use redline::{
    CpuRunner, DraftModel, DraftParts, LoadOptions, ModelInfo, ModelRunner, RunOptions, Scorer,
    Target, Tree, load_draft,
};
use redline_spec::{Drafter, VocabMap};

use super::shared::SharedRunner;

/// A model whose weights are in memory.
pub(crate) struct Loaded {
    /// As it was asked for.
    pub(crate) name: String,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) template: Option<ChatTemplate>,
    runner: SharedRunner,
}

impl Loaded {
    pub(crate) fn open(name: &str, threads: Option<usize>) -> anyhow::Result<Self> {
        let path = hub::resolve(name, &mut TerminalProgress::new())?;
        let (header, file) = Header::open(&path).with_context(|| path.display().to_string())?;
        let tokenizer = Arc::new(Tokenizer::from_gguf(&header)?);
        let template = ChatTemplate::from_gguf(&header, &tokenizer)?;
        let mut options = RunOptions::default();
        options.threads = threads.unwrap_or(options.threads);
        let runner = SharedRunner::new(Box::new(CpuRunner::load(&header, file, options)?));
        Ok(Self { name: name.to_owned(), tokenizer, template, runner })
    }

    pub(crate) fn info(&self) -> &ModelInfo {
        self.runner.info()
    }

    /// As a target for [`redline::assemble`]; prompts are given as tokens.
    pub(crate) fn target(&self) -> Target {
        Target {
            runner: Box::new(self.runner.clone()),
            tokenizer: Some(Arc::clone(&self.tokenizer)),
            template: None,
        }
    }

    /// As a drafter for a target with so many entries.
    pub(crate) fn drafter(&self, target_vocab: usize) -> DraftModel {
        DraftModel::new(&self.name, Box::new(self.runner.clone()), target_vocab)
    }

    pub(crate) fn scorer(&self) -> Scorer {
        Scorer::new(Box::new(self.runner.clone()), Arc::clone(&self.tokenizer))
    }
}

/// A draft model of a target, loaded once.
pub(crate) struct LoadedDraft {
    name: String,
    runner: SharedRunner,
    shared: usize,
    map: Option<VocabMap>,
}

impl LoadedDraft {
    pub(crate) fn open(options: &LoadOptions, target: &Target) -> anyhow::Result<Self> {
        let DraftParts { runner, shared, map } = load_draft(options, target)?;
        let runner = SharedRunner::new(runner);
        Ok(Self { name: options.draft.clone(), runner, shared, map })
    }

    pub(crate) fn info(&self) -> &ModelInfo {
        self.runner.info()
    }

    /// As a drafter of chains.
    pub(crate) fn drafter(&self) -> Box<dyn Drafter> {
        let (shared, map) = (self.shared, self.map.clone());
        let parts = DraftParts { runner: Box::new(self.runner.clone()), shared, map };
        parts.drafter(&self.name, Tree::Chain)
    }
}
