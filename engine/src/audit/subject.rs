//! What is audited: an engine like any other, and beside it what it is measured against.

use redline_spec::{Drafter, TokenId, Verifier};

use super::draft_laws::DraftLaws;
use super::reader::{Reader, split};
use super::rounds::{RoundLog, Watched};
use crate::draft_loader::{DraftParts, load_draft};
use crate::draft_policy::Drafting;
use crate::engine::Engine;
use crate::load_error::LoadError;
use crate::load_options::{Backend, EngineOptions, LoadOptions};
use crate::loader::{Target, assemble, drafter_context, load_target};
use crate::registry::{Registry, verifier};

/// A drafter to be audited.
pub enum Drafted {
    /// None: the plain sampler.
    Nothing,
    /// Any drafter. `probe` is a second instance: it is asked after every token what it would propose, which makes
    /// the audit sharper where its proposals have a law or are chosen without chance. One that keeps a cache of its
    /// own can't be asked.
    Drafter {
        /// The one that the engine gets.
        drafter: Box<dyn Drafter>,
        /// Another of the same kind.
        probe: Option<Box<dyn Drafter>>,
    },
    /// A draft model, whose laws the audit computes by itself.
    Model {
        /// What it is called.
        name: String,
        /// The model, and what its tokens are to the target.
        parts: DraftParts,
    },
}

/// The parts of a [`Subject`].
pub struct Parts {
    /// The target.
    pub target: Target,
    /// The drafter.
    pub drafted: Drafted,
    /// The verification rule.
    pub rule: Box<dyn Verifier>,
    /// How many drafts, in which shape, drawn how; or a [`DraftLength`](crate::DraftLength) made one by `into`.
    pub drafting: Drafting,
    /// Sizes and limits. `max_model_len` bounds the longest text (the context length, at most 4096, if not given):
    /// cache for one is held beside the engine's.
    pub options: EngineOptions,
    /// Whether a row of the target has the same bits whatever else is in the batch (promise P1). If not, near ties may
    /// fall either way, and whether texts are identical is told but not judged.
    pub exact_rows: bool,
}

/// Texts are no longer than this unless somebody asks: a cache for one is held beside the engine's.
const LONGEST: usize = 4096;

/// An engine under audit.
pub struct Subject {
    pub(super) engine: Engine,
    pub(super) target: Reader,
    pub(super) drafts: DraftLaws,
    pub(super) log: RoundLog,
    pub(super) model: String,
    pub(super) drafter: String,
    pub(super) rule: &'static str,
    pub(super) drafting: Drafting,
    pub(super) exact_rows: bool,
    pub(super) has_template: bool,
}

impl Subject {
    /// Loads models by name, and drafters by their name in `registry`.
    ///
    /// # Errors
    /// [`LoadError`] names what can't be used.
    pub fn load(options: &LoadOptions, registry: &Registry) -> Result<Self, LoadError> {
        let rule = verifier(&options.verify)?;
        options.draft_model(registry)?;
        let target = load_target(options)?;
        let context = drafter_context(&target);
        let drafted = match registry.make(&options.draft, &context)? {
            Some(None) => Drafted::Nothing,
            Some(Some(drafter)) => {
                let probe = registry.make(&options.draft, &context)?.flatten();
                Drafted::Drafter { drafter, probe }
            }
            None => {
                let parts = load_draft(options, &target)?;
                Drafted::Model { name: options.draft.clone(), parts }
            }
        };
        let mut subject = Self::assemble(Parts {
            target,
            drafted,
            rule,
            drafting: options.drafting(),
            options: options.engine.clone(),
            exact_rows: options.backend == Backend::Cpu,
        })?;
        subject.model.clone_from(&options.model);
        Ok(subject)
    }

    /// Puts parts together as [`assemble`](crate::assemble) does.
    ///
    /// # Errors
    /// [`LoadError`] as there.
    pub fn assemble(parts: Parts) -> Result<Self, LoadError> {
        let Parts { target, drafted, rule, drafting, mut options, exact_rows } = parts;
        let Target { runner, tokenizer, template } = target;
        let info = runner.info().clone();
        let longest = options.max_model_len.unwrap_or(info.context_length.min(LONGEST));
        options.max_model_len = Some(longest);
        let has_template = template.is_some();
        let (runner, reader) = split(runner, longest);
        let (drafter, drafts): (Option<Box<dyn Drafter>>, _) = match drafted {
            Drafted::Nothing => (None, DraftLaws::Unknown),
            Drafted::Drafter { drafter, probe } => (Some(drafter), DraftLaws::probe(probe)),
            Drafted::Model { name, parts } => {
                let shared = parts.shared.min(parts.runner.info().logits);
                let (runner, reader) = split(parts.runner, longest);
                let laws = DraftLaws::model(reader, shared, parts.map.clone());
                let parts = DraftParts { runner: Box::new(runner), shared, map: parts.map };
                (Some(parts.drafter(&name, drafting.tree)), laws)
            }
        };
        let name = drafter.as_ref().map_or("none", |drafter| drafter.name()).to_owned();
        let (log, rule_name) = (RoundLog::default(), rule.name());
        let rule = Box::new(Watched { rule, log: log.clone() });
        let target = Target { runner: Box::new(runner), tokenizer, template };
        let engine = assemble(target, drafter, rule, drafting, &options)?;
        Ok(Self {
            engine,
            target: reader,
            drafts,
            log,
            model: info.name,
            drafter: name,
            rule: rule_name,
            drafting,
            exact_rows,
            has_template,
        })
    }

    /// Whether the model has a chat template.
    pub fn has_template(&self) -> bool {
        self.has_template
    }

    /// The tokens of a prompt, as the engine would feed them.
    pub(super) fn tokens(
        &self,
        prompt: &crate::request::Prompt,
    ) -> Result<Vec<TokenId>, crate::frontend::SubmitRefused> {
        self.engine.frontend().tokens(prompt)
    }
}
