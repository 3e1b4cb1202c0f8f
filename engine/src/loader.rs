//! From names and numbers to a running [`Engine`].
//!
//! [`load`] goes from a model's name; [`assemble`] from parts that an embedder brings: its own runner, drafter
//! or verifier. Everything that can be wrong with the combination is found here, before the first request.

use std::sync::Arc;

use redline_kv_cache::{KvCache, KvConfig, LaneGeometry, MAX_LANES, blocks_within};
use redline_scheduler::{Config, Scheduler};
use redline_spec::{Drafter, Fill, Verifier};

use crate::budget::Budget;
use crate::draft_loader::load_draft;
use crate::draft_policy::DraftPolicy;
use crate::drafting::Drafters;
use crate::engine::Engine;
use crate::frontend::Frontend;
use crate::grammar::Grammars;
use crate::load_error::LoadError;
use crate::load_options::{Backend, EngineOptions, LoadOptions};
use crate::memory::default_kv_bytes;
use crate::model::DraftQuant;
use crate::model::slim::Slim;
use crate::model_file::{Machine, ModelFile};
use crate::random::random_key;
use crate::registry::{DrafterContext, Registry, verifier};
use crate::runner::ModelRunner;
use crate::score::Scorer;
use crate::step::{Core, Parts};
use crate::text::{ChatTemplate, Tokenizer};
use crate::verify::Verification;

/// Tokens of a KV block: a multiple of 32, as paged flash attention needs, and the tile of the CPU's attention.
pub const BLOCK_SIZE: u32 = 32;

/// Rows that prefill gets in every step in which a prompt is to be computed.
const PREFILL_FLOOR: usize = 64;

/// A target, and what comes with it, for [`assemble`].
pub struct Target {
    /// The model.
    pub runner: Box<dyn ModelRunner>,
    /// Its tokenizer; without one the engine takes token ids only.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// Its chat template, if it has one.
    pub template: Option<ChatTemplate>,
}

/// An engine from a model's name, with the built-in drafters.
///
/// # Errors
/// [`LoadError`] names what can't be used.
pub fn load(options: &LoadOptions) -> Result<Engine, LoadError> {
    load_with(options, &Registry::default())
}

/// Like [`load`], with the drafters of `registry`.
///
/// # Errors
/// [`LoadError`] names what can't be used.
pub fn load_with(options: &LoadOptions, registry: &Registry) -> Result<Engine, LoadError> {
    let rule = verifier(&options.verify)?;
    options.draft_model(registry)?;
    let target = load_target(options)?;
    let drafter = match registry.make(&options.draft, &drafter_context(&target))? {
        Some(drafter) => drafter,
        None => {
            let draft = load_draft(options, &target)?;
            Some(draft.drafter(&options.draft, options.tree))
        }
    };
    assemble(target, drafter, rule, options.drafting(), &options.engine)
}

/// The target by its name.
///
/// # Errors
/// [`LoadError`] names what can't be used.
pub fn load_target(options: &LoadOptions) -> Result<Target, LoadError> {
    let file = ModelFile::open(&options.model)?;
    let tokenizer = file.tokenizer()?;
    let template = ChatTemplate::from_gguf(&file.header, &tokenizer)
        .map_err(|source| LoadError::Template { path: file.path.clone(), source })?;
    let machine = Machine { backend: options.backend, threads: options.threads };
    Ok(Target { runner: file.runner(machine)?, tokenizer: Some(tokenizer), template })
}

/// What a drafter's factory may know.
pub(crate) fn drafter_context(target: &Target) -> DrafterContext<'_> {
    DrafterContext {
        vocab: target.runner.info().vocab_size,
        context_length: target.runner.info().context_length,
        tokenizer: target.tokenizer.as_ref(),
    }
}

/// An engine from its parts.
///
/// # Errors
/// [`LoadError`] when sizes contradict each other or memory can't be had.
pub fn assemble(
    mut target: Target,
    mut drafter: Option<Box<dyn Drafter>>,
    rule: Box<dyn Verifier>,
    drafts: impl Into<DraftPolicy>,
    options: &EngineOptions,
) -> Result<Engine, LoadError> {
    let drafts = drafts.into();
    if let Some(drafter) = &drafter {
        rule.admits(drafter.as_ref()).map_err(LoadError::Rule)?;
        if drafts.tree().branches() && !drafter.draws_trees() {
            let (drafter, tree) = (drafter.name().to_owned(), drafts.tree());
            return Err(LoadError::NoTrees { drafter, tree });
        }
    }
    let info = target.runner.info().clone();
    if info.logits != info.vocab_size {
        return Err(LoadError::CutTarget { model: info.name });
    }
    let max_model_len = options.max_model_len.unwrap_or(info.context_length);
    if max_model_len > info.context_length {
        let (asked, limit) = (max_model_len, info.context_length);
        return Err(LoadError::TooLong { asked, limit, model: info.name });
    }
    // Checked before anything is allocated.
    let scheduler = Scheduler::new(Config {
        max_seqs: options.max_seqs,
        token_budget: options.token_budget.max(options.max_seqs.saturating_add(PREFILL_FLOOR)),
        prefill_floor: PREFILL_FLOOR,
        queue_len: options.queue_len,
        max_model_len,
        ..Config::default()
    })?;
    let need = drafter.as_ref().and_then(|drafter| drafter.lane());
    if let (Some(drafter), Some(Fill::WithTarget)) = (&drafter, need.map(|need| need.fill)) {
        return Err(LoadError::NeedsHiddenRows { drafter: drafter.name().to_owned() });
    }
    let mut lanes = vec![info.lane];
    lanes.extend(need.map(|need| LaneGeometry {
        layers: need.layers,
        kv_heads: need.kv_heads,
        head_dim: need.head_dim,
        element_bytes: need.element_bytes,
    }));
    let (blocks, bytes) = size_cache(&lanes, max_model_len, options)?;
    target
        .runner
        .allocate(blocks, BLOCK_SIZE)
        .map_err(|source| LoadError::Memory { bytes, source })?;
    if let Some(drafter) = drafter.as_mut() {
        drafter.attach(blocks, BLOCK_SIZE).map_err(LoadError::Attach)?;
    }
    let kv = KvCache::new(&KvConfig {
        blocks,
        block_size: BLOCK_SIZE,
        lanes: lanes.len() as u8,
        prefix_cache: options.prefix_cache,
        // Random per process, so that nobody can prepare collisions.
        hash_key: random_key().map_err(LoadError::Random)?,
        with_target_lanes: [false; MAX_LANES],
    })?;
    // Rows that the tokenizer has no token for are padding: never fed, never emitted.
    let used = target.tokenizer.as_ref().map_or(usize::MAX, |t| t.vocab().len_used());
    let vocab = used.min(info.vocab_size);
    let Target { runner, tokenizer, template } = target;
    let frontend = Frontend { tokenizer, template, vocab, grammars: Grammars::default() };
    let core = Core::new(Parts {
        scheduler,
        kv,
        budget: Budget::new(drafts, lanes.len() > 1),
        drafters: Drafters::new(drafter, vocab),
        target: runner,
        verification: Verification::new(rule, vocab),
    });
    Ok(Engine::new(core, frontend, bytes / u64::from(blocks)))
}

/// Blocks, and the bytes they take over all lanes.
fn size_cache(
    lanes: &[LaneGeometry],
    max_model_len: usize,
    options: &EngineOptions,
) -> Result<(u32, u64), LoadError> {
    let mut token_bytes = 0_u64;
    for lane in lanes {
        token_bytes = token_bytes.saturating_add(lane.bytes_per_token()?);
    }
    let blocks_per_seq = (max_model_len as u64).div_ceil(u64::from(BLOCK_SIZE));
    let block_bytes = token_bytes.saturating_mul(u64::from(BLOCK_SIZE));
    let wanted = block_bytes.saturating_mul(blocks_per_seq).saturating_mul(options.max_seqs as u64);
    let bytes = options.kv_memory.unwrap_or_else(|| default_kv_bytes(wanted));
    let blocks = blocks_within(bytes, BLOCK_SIZE, lanes)?;
    Ok((blocks, block_bytes.saturating_mul(u64::from(blocks))))
}

/// The tokenizer of a model, without its weights.
///
/// # Errors
/// [`LoadError`] names what can't be used.
pub fn load_tokenizer(model: &str) -> Result<Arc<Tokenizer>, LoadError> {
    ModelFile::open(model)?.tokenizer()
}

/// A model for teacher forcing; its matrices re-quantised as those of a draft, if asked for.
///
/// # Errors
/// [`LoadError`] names what can't be used.
pub fn load_scorer(
    model: &str,
    backend: Backend,
    threads: Option<usize>,
    quant: Option<DraftQuant>,
) -> Result<Scorer, LoadError> {
    let file = ModelFile::open(model)?;
    let tokenizer = file.tokenizer()?;
    let machine = Machine { backend, threads };
    let runner = match quant {
        None => file.runner(machine)?,
        Some(_) => file.slim_runner(machine, Slim { quant, ..Slim::default() })?,
    };
    Ok(Scorer::new(runner, tokenizer))
}
