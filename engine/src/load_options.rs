//! What can be said about an engine before there is one.

use crate::draft_head::DraftHead;
use crate::draft_policy::{DraftLength, Drafting, Draw, Tree};
use crate::model::DraftQuant;

/// Everything [`load`](crate::load) can be told. `..LoadOptions::default()` fills in the rest.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Target: alias, path of a `.gguf`, or `hf:OWNER/REPO/FILE.gguf`.
    pub model: String,
    /// Drafter: a name of the [`Registry`](crate::Registry) (`none`, `ngram`, an embedder's own), a draft model, or
    /// `self:q4_0` (`q3_k`, `q2_k`): the target's own weights, re-quantised.
    pub draft: String,
    /// What a draft model's matrices are re-quantised to that have more bits; `None`: none are.
    pub draft_quant: Option<DraftQuant>,
    /// The tokens that a draft model can say.
    pub draft_head: DraftHead,
    /// Verification rule: `coupled`, `token`, `block` or `traversal`.
    pub verify: String,
    /// Draft tokens per round.
    pub length: DraftLength,
    /// Their shape.
    pub tree: Tree,
    /// How they are drawn.
    pub draw: Draw,
    /// What computes the models.
    pub backend: Backend,
    /// Kernel threads; `None`: one per physical core.
    pub threads: Option<usize>,
    /// What holds for parts brought by an embedder too.
    pub engine: EngineOptions,
}

impl LoadOptions {
    /// What is said about drafts.
    #[must_use]
    pub fn drafting(&self) -> Drafting {
        Drafting { length: self.length, tree: self.tree, draw: self.draw }
    }
}

/// What computes the models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Backend {
    /// redline's own kernels
    #[default]
    Cpu,
    /// candle on the CPU, in f32: slow, and independent of the kernels it is compared with
    Candle,
}

/// Sizes and limits of an engine.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Sequences that run at a time.
    pub max_seqs: usize,
    /// Bytes for KV over all lanes; `None`: what `max_seqs` full sequences need, at most a quarter of the
    /// memory that is free.
    pub kv_memory: Option<u64>,
    /// Longest prompt plus output; `None`: the target's context length.
    pub max_model_len: Option<usize>,
    /// Rows of one step, drafts and lane fills included.
    pub token_budget: usize,
    /// Requests that may wait.
    pub queue_len: usize,
    /// Reuse the KV of common prefixes.
    pub prefix_cache: bool,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            max_seqs: 8,
            kv_memory: None,
            max_model_len: None,
            token_budget: 512,
            queue_len: 4096,
            prefix_cache: true,
        }
    }
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            model: "smollm2-135m".to_owned(),
            draft: "ngram".to_owned(),
            draft_quant: None,
            draft_head: DraftHead::Whole,
            verify: "coupled".to_owned(),
            length: DraftLength::Auto,
            tree: Tree::Chain,
            draw: Draw::Rule,
            backend: Backend::Cpu,
            threads: None,
            engine: EngineOptions::default(),
        }
    }
}
