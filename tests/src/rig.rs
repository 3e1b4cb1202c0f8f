//! An engine over tiny parts, and running requests on it with everything checked that can be.

use redline::model::tiny::Tiny;
use redline::spec::{Drafter, Ngram, NgramConfig, Verifier};
use redline::{
    BLOCK_SIZE, DraftLength, DraftModel, Engine, EngineOptions, Event, FinishReason,
    GenerateRequest, ModelRunner, Origin, RequestId, RequestOutput, RunOptions, Target, TokenEvent,
    assemble, verifier,
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
        assemble(target, self.drafter, self.rule, self.length, &options).unwrap()
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

/// Submits all requests, runs to the end, checks what must always hold; outputs in order of submission.
pub fn run(engine: &mut Engine, requests: &[GenerateRequest]) -> Vec<RequestOutput> {
    let submit = |request: &GenerateRequest| engine.submit(request.clone()).unwrap();
    let ids: Vec<_> = requests.iter().map(submit).collect();
    drain(engine, &ids)
}

/// Runs to the end; checks; outputs of `ids` in their order.
pub fn drain(engine: &mut Engine, ids: &[RequestId]) -> Vec<RequestOutput> {
    let mut tokens: Vec<Vec<TokenEvent>> = vec![Vec::new(); ids.len()];
    let mut outputs: Vec<Option<RequestOutput>> = vec![None; ids.len()];
    while engine.has_work() {
        for event in engine.step() {
            let at = ids.iter().position(|&id| id == event.id()).unwrap();
            assert!(outputs[at].is_none(), "an event after the last");
            match event {
                Event::Tokens { tokens: new, .. } => tokens[at].extend(new),
                Event::Finished { output, .. } => outputs[at] = Some(*output),
            }
        }
        engine.audit().unwrap();
    }
    assert_clean(engine);
    let outputs: Vec<_> = outputs.into_iter().map(|output| output.expect("an end")).collect();
    for (output, tokens) in outputs.iter().zip(&tokens) {
        check_events(output, tokens);
    }
    outputs
}

/// No blocks held, nothing waiting, books in order.
pub fn assert_clean(engine: &Engine) {
    engine.audit().unwrap();
    assert_eq!(engine.kv().usage().used, 0, "blocks are still held");
    assert_eq!(engine.scheduler().running_len() + engine.scheduler().waiting_len(), 0);
}

/// The events of a request add up to its output, and its statistics to each other.
fn check_events(output: &RequestOutput, events: &[TokenEvent]) {
    let ids: Vec<_> = events.iter().map(|event| event.id).collect();
    assert_eq!(ids, output.token_ids);
    let text: String = events.iter().map(|event| event.text.as_str()).collect();
    match output.finish_reason {
        FinishReason::Stop | FinishReason::Length => assert_eq!(text, output.text),
        FinishReason::Cancelled | FinishReason::Error => assert!(output.text.starts_with(&text)),
    }
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
