//! An engine over tiny parts, and running requests on it with everything checked that can be.

use redline::model::tiny::Tiny;
use redline::spec::{Drafter, Ngram, NgramConfig, Verifier};
use redline::{
    BLOCK_SIZE, DraftLength, DraftModel, Drafting, Draw, Engine, EngineOptions, Event,
    FinishReason, GenerateRequest, LoadError, ModelRunner, Origin, RequestId, RequestOutput,
    RunOptions, Target, TokenEvent, Tree, assemble, verifier,
};
use redline_kv_cache::LaneGeometry;

use crate::words::{VOCAB, tokenizer};

/// The tiny target; its drafts are the same with noise.
pub fn tiny(noise: f32) -> Tiny {
    Tiny {
        width: 32,
        heads: 2,
        kv_heads: 1,
        ffn: 64,
        vocab: VOCAB,
        context: 2048,
        seed: 7,
        noise,
        ..Tiny::default()
    }
}

/// A tiny model on the CPU kernels.
pub fn model(noise: f32, threads: usize) -> Box<dyn ModelRunner> {
    Box::new(tiny(noise).build(RunOptions { threads, ..RunOptions::default() }).unwrap())
}

/// The drafters that come with the engine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Draft {
    /// Plain decoding.
    None,
    /// Prompt lookup.
    Ngram,
    /// A draft model: the target with noise. 0 is the target itself.
    Model(f32),
}

impl Draft {
    /// The drafter.
    pub fn drafter(self, threads: usize) -> Option<Box<dyn Drafter>> {
        match self {
            Self::None => None,
            Self::Ngram => {
                let config = NgramConfig { min_n: 1, ..NgramConfig::default() };
                Some(Box::new(Ngram::new(config).unwrap()))
            }
            Self::Model(noise) => {
                Some(Box::new(DraftModel::new("tiny-draft", model(noise, threads), VOCAB)))
            }
        }
    }
}

/// A drafter of trees: the target with noise.
pub fn tree_drafter(noise: f32, threads: usize) -> Option<Box<dyn Drafter>> {
    let model = DraftModel::new("tiny-draft", model(noise, threads), VOCAB);
    Some(Box::new(model.with_trees()))
}

/// The parts and sizes of an engine.
pub struct Rig {
    /// The target.
    pub target: Box<dyn ModelRunner>,
    /// The drafter.
    pub drafter: Option<Box<dyn Drafter>>,
    /// The rule.
    pub rule: Box<dyn Verifier>,
    /// Drafts of a round.
    pub length: DraftLength,
    /// Their shape.
    pub tree: Tree,
    /// How they are drawn.
    pub draw: Draw,
    /// Sequences at a time.
    pub seqs: usize,
    /// KV blocks.
    pub blocks: u64,
    /// Rows of a step.
    pub token_budget: usize,
    /// Whether prefixes are reused.
    pub prefix_cache: bool,
    /// Requests that may wait.
    pub queue_len: usize,
    /// Longest prompt and output.
    pub max_model_len: Option<usize>,
    /// Whether there is a tokenizer.
    pub text: bool,
}

impl Default for Rig {
    fn default() -> Self {
        Self {
            target: model(0.0, 1),
            drafter: None,
            rule: verifier("coupled").unwrap(),
            length: DraftLength::Fixed(4),
            tree: Tree::Chain,
            draw: Draw::Rule,
            seqs: 8,
            blocks: 256,
            token_budget: 512,
            prefix_cache: true,
            queue_len: 4096,
            max_model_len: None,
            text: true,
        }
    }
}

impl Rig {
    /// The engine.
    pub fn build(self) -> Engine {
        self.try_build().unwrap()
    }

    /// The engine, or why there can be none.
    pub fn try_build(self) -> Result<Engine, LoadError> {
        let lane = self.drafter.as_ref().and_then(|drafter| drafter.lane());
        let lanes = [
            Some(self.target.info().lane),
            lane.map(|need| LaneGeometry {
                layers: need.layers,
                kv_heads: need.kv_heads,
                head_dim: need.head_dim,
                element_bytes: need.element_bytes,
            }),
        ];
        let token: u64 = lanes.iter().flatten().map(|lane| lane.bytes_per_token().unwrap()).sum();
        let options = EngineOptions {
            max_seqs: self.seqs,
            kv_memory: Some(token * u64::from(BLOCK_SIZE) * self.blocks),
            max_model_len: self.max_model_len,
            token_budget: self.token_budget,
            queue_len: self.queue_len,
            prefix_cache: self.prefix_cache,
        };
        let tokenizer = self.text.then(tokenizer);
        let target = Target { runner: self.target, tokenizer, template: None };
        let drafting = Drafting { length: self.length, tree: self.tree, draw: self.draw };
        assemble(target, self.drafter, self.rule, drafting, &options)
    }
}

/// What may not depend on speculation, batch, schedule or cache.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    ids: Vec<u32>,
    text: String,
    finish: FinishReason,
    error: Option<String>,
    usage: (usize, usize),
    seed: u64,
}

impl From<&RequestOutput> for Said {
    fn from(output: &RequestOutput) -> Self {
        Self {
            ids: output.token_ids.clone(),
            text: output.text.clone(),
            finish: output.finish_reason,
            error: output.error.clone(),
            usage: (output.usage.prompt_tokens, output.usage.completion_tokens),
            seed: output.seed,
        }
    }
}

impl Said {
    /// Whether it ended before its length.
    pub fn stopped(&self) -> bool {
        self.finish == FinishReason::Stop
    }

    /// The ids.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }
}

/// [`Said`] of each output.
pub fn said(outputs: &[RequestOutput]) -> Vec<Said> {
    outputs.iter().map(Said::from).collect()
}

/// Submits all requests, runs to the end, checks what must always hold; outputs in order of submission, those of
/// one request in order of samples.
pub fn run(engine: &mut Engine, requests: &[GenerateRequest]) -> Vec<RequestOutput> {
    let submit = |request: &GenerateRequest| {
        let id = engine.submit(request.clone()).unwrap();
        (0..request.samples).map(move |sample| (id, sample))
    };
    let mut names: Vec<_> = requests.iter().flat_map(submit).collect();
    drain_names(engine, &mut names, |_, _, _| {})
}

/// Runs to the end; checks; outputs of `ids`, which have one sample each, in their order.
pub fn drain(engine: &mut Engine, ids: &[RequestId]) -> Vec<RequestOutput> {
    drain_with(engine, &mut ids.to_vec(), |_, _, _| {})
}

/// Like [`drain`], with `before` called before every step with the number of steps so far. It may submit and add to the
/// ids, and cancel.
pub fn drain_with(
    engine: &mut Engine,
    ids: &mut Vec<RequestId>,
    mut before: impl FnMut(&mut Engine, &mut Vec<RequestId>, usize),
) -> Vec<RequestOutput> {
    let mut names: Vec<_> = ids.iter().map(|&id| (id, 0)).collect();
    drain_names(engine, &mut names, |engine, names, steps| {
        before(engine, ids, steps);
        names.extend(ids[names.len()..].iter().map(|&id| (id, 0)));
    })
}

/// A request and one of its samples.
type Name = (RequestId, usize);

fn drain_names(
    engine: &mut Engine,
    ids: &mut Vec<Name>,
    mut before: impl FnMut(&mut Engine, &mut Vec<Name>, usize),
) -> Vec<RequestOutput> {
    let mut tokens: Vec<Vec<TokenEvent>> = Vec::new();
    let mut outputs: Vec<Option<RequestOutput>> = Vec::new();
    let mut steps = 0;
    while engine.has_work() {
        before(engine, ids, steps);
        engine.audit().unwrap();
        tokens.resize(ids.len(), Vec::new());
        outputs.resize(ids.len(), None);
        for event in engine.step() {
            let at = ids.iter().position(|&id| id == event.name()).unwrap();
            assert!(outputs[at].is_none(), "an event after the last");
            match event {
                Event::Tokens { tokens: new, .. } => tokens[at].extend(new),
                Event::Finished { output, .. } => outputs[at] = Some(*output),
            }
        }
        engine.audit().unwrap();
        steps += 1;
    }
    assert_clean(engine);
    let outputs: Vec<_> = outputs.into_iter().map(|output| output.expect("an end")).collect();
    for ((output, tokens), &(_, sample)) in outputs.iter().zip(&tokens).zip(&*ids) {
        assert_eq!(output.sample, sample);
        check_events(output, tokens);
    }
    assert_eq!(engine.integrity_failures(), 0);
    outputs
}

/// No blocks held, nothing waiting, books in order.
pub fn assert_clean(engine: &Engine) {
    engine.audit().unwrap();
    let usage = engine.kv().usage();
    assert_eq!((usage.used, usage.free), (0, usage.total), "blocks are still held");
    assert_eq!(engine.scheduler().running_len() + engine.scheduler().waiting_len(), 0);
}

/// The events of a request add up to its output, and its statistics to each other.
fn check_events(output: &RequestOutput, events: &[TokenEvent]) {
    let ids: Vec<_> = events.iter().map(|event| event.id).collect();
    assert_eq!(ids, output.token_ids);
    let text: String = events.iter().map(|event| event.text.as_str()).collect();
    match output.finish_reason {
        FinishReason::Stop | FinishReason::Length => assert_eq!(text, output.text),
        FinishReason::Cancelled | FinishReason::Timeout | FinishReason::Error => {
            assert!(output.text.starts_with(&text));
        }
    }
    let told: Vec<_> = events.iter().filter_map(|event| event.logprob.as_deref()).collect();
    let content = output.logprobs.iter().flat_map(|logprobs| &logprobs.content);
    assert_eq!(told, content.collect::<Vec<_>>());
    assert!(output.logprobs.is_none() || told.len() == ids.len(), "one for each token");
    let stats = &output.speculation;
    let drafts = events.iter().filter(|event| event.origin == Origin::Draft).count();
    assert_eq!(stats.accepted, drafts);
    assert!(stats.accepted <= stats.drafted);
    assert_eq!(stats.acceptance_histogram.iter().sum::<usize>(), stats.rounds);
    let weighted = stats.acceptance_histogram.iter().enumerate().map(|(j, n)| j * n);
    assert_eq!(weighted.sum::<usize>(), stats.accepted);
    assert_eq!(output.usage.completion_tokens, output.token_ids.len());
    assert_eq!(output.error.is_some(), output.finish_reason == FinishReason::Error);
}
