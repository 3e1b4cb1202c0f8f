//! Runs one cell: an engine of its own over weights that are loaded once.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Context;
use redline::{
    BLOCK_SIZE, Engine, EngineOptions, Event, FinishReason, GenerateRequest, LoadOptions,
    Prompt as EnginePrompt, RequestId, RequestOutput, Sampling, assemble,
};
use redline_spec::{Drafter, Ngram};

use super::cells::{Cell, Memory, Temperature};
use crate::show::loaded::{Loaded, LoadedDraft};
use crate::show::prompts::Prompt;

/// Steps between submissions where one sequence at a time is to preempt another.
const STAGGER_STEPS: usize = 10;
/// Requests that are inside then.
const STAGGER_INSIDE: usize = 4;

/// What all cells share.
pub(super) struct Bench<'a> {
    target: &'a Loaded,
    drafts: BTreeMap<String, LoadedDraft>,
    prompts: &'a [Prompt],
    tokens: usize,
}

/// What a cell gave.
#[derive(Default)]
pub(super) struct Ran {
    /// In the order of the prompts.
    pub(super) outputs: Vec<Vec<u32>>,
    pub(super) errors: Vec<String>,
    pub(super) preemptions: u64,
    pub(super) blocks: usize,
    pub(super) tokens: usize,
    pub(super) rounds: usize,
    pub(super) drafted: usize,
    pub(super) accepted: usize,
    pub(super) seconds: f64,
}

impl<'a> Bench<'a> {
    pub(super) fn new(
        target: &'a Loaded,
        drafts: &[String],
        prompts: &'a [Prompt],
        tokens: usize,
        options: &LoadOptions,
    ) -> anyhow::Result<Self> {
        let models = drafts.iter().filter(|name| !["none", "ngram"].contains(&name.as_str()));
        let open = |name: &String| {
            let options = LoadOptions { draft: name.clone(), ..options.clone() };
            Ok((name.clone(), LoadedDraft::open(&options, &target.target())?))
        };
        let drafts = models.map(open).collect::<anyhow::Result<_>>()?;
        Ok(Self { target, drafts, prompts, tokens })
    }

    pub(super) fn run(&mut self, cell: &Cell) -> anyhow::Result<Ran> {
        let started = Instant::now();
        let mut engine = self.engine(cell)?;
        let mut done: BTreeMap<RequestId, Box<RequestOutput>> = BTreeMap::new();
        let mut ids = Vec::new();
        // With one seat, a request gives way to one of higher priority only; with several, memory does it.
        let stagger = cell.concurrency == 1 && cell.memory == Memory::Tight;
        let mut steps = 0;
        while ids.len() < self.prompts.len() || engine.has_work() {
            let next = ids.len();
            let inside = next - done.len();
            let room = !stagger || (steps % STAGGER_STEPS == 0 && inside < STAGGER_INSIDE);
            if next < self.prompts.len() && (room || !engine.has_work()) {
                let priority = if stagger { next as i32 } else { 0 };
                ids.push(engine.submit(self.request(cell, next, priority))?);
                if !stagger {
                    continue;
                }
            }
            for event in engine.step() {
                if let Event::Finished { id, output, .. } = event {
                    done.insert(id, output);
                }
            }
            steps += 1;
        }
        engine.audit().context("the audit after the last request")?;
        let mut ran = Ran {
            preemptions: engine.scheduler().stats().preempted,
            blocks: engine.kv().blocks(),
            seconds: started.elapsed().as_secs_f64(),
            ..Ran::default()
        };
        for id in &ids {
            ran.add(*done.remove(id).context("a request without an end")?);
        }
        Ok(ran)
    }

    fn request(&self, cell: &Cell, index: usize, priority: i32) -> GenerateRequest {
        let temperature = if cell.temperature == Temperature::Zero { 0.0 } else { 1.0 };
        GenerateRequest {
            max_tokens: self.tokens,
            sampling: Sampling { temperature, ..Sampling::default() },
            seed: Some(1000 + index as u64),
            priority,
            ..GenerateRequest::new(EnginePrompt::Tokens(self.prompts[index].tokens.clone()))
        }
    }

    fn engine(&self, cell: &Cell) -> anyhow::Result<Engine> {
        let mut token_bytes = self.target.info().lane.bytes_per_token()?;
        let drafter: Option<Box<dyn Drafter>> = match cell.draft.as_str() {
            "none" => None,
            "ngram" => Some(Box::new(Ngram::default())),
            name => {
                let draft = self.drafts.get(name).context("a draft model that was not loaded")?;
                token_bytes += draft.info().lane.bytes_per_token()?;
                Some(draft.drafter())
            }
        };
        let block_bytes = token_bytes * u64::from(BLOCK_SIZE);
        let options = EngineOptions {
            max_seqs: cell.concurrency,
            kv_memory: Some(self.blocks(cell) * block_bytes),
            ..EngineOptions::default()
        };
        let rule = redline::verifier("coupled")?;
        Ok(assemble(self.target.target(), drafter, rule, cell.length, &options)?)
    }

    /// Blocks of the cache. The longest request, alone, must fit in any case, or it would be refused.
    fn blocks(&self, cell: &Cell) -> u64 {
        let longest = self.prompts.iter().map(|prompt| prompt.tokens.len()).max().unwrap_or(0);
        let alone = (longest + self.tokens).div_ceil(BLOCK_SIZE as usize) as u64;
        match cell.memory {
            Memory::Ample => (alone + 1) * (cell.concurrency as u64 + 1),
            Memory::Tight => alone,
        }
    }
}

impl Ran {
    fn add(&mut self, output: RequestOutput) {
        self.tokens += output.token_ids.len();
        self.rounds += output.speculation.rounds;
        self.drafted += output.speculation.drafted;
        self.accepted += output.speculation.accepted;
        if output.finish_reason == FinishReason::Error {
            self.errors.push(output.error.unwrap_or_default());
        }
        self.outputs.push(output.token_ids);
    }
}
