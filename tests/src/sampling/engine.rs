//! Runs a cell on the engine and counts what it says.

use std::collections::BTreeMap;

use redline::scheduler::{DraftBudget, Room, RoundView, SeqId};
use redline::spec::{Drafter, Verifier};
use redline::{
    BLOCK_SIZE, DraftLength, DraftPolicy, Engine, EngineOptions, Event, GenerateRequest,
    ModelRunner, Origin, Prompt, RequestId, Target, TokenEvent, TokenId, assemble, verifier,
};

use crate::random::Random;
use crate::runners::Table;

use super::drafts::drafter;
use super::grid::{Cell, Memory, Size};
use super::rounds::Kept;
use super::world::{Place, World, state};

/// Drafted rounds that are looked at.
pub const DRAFTED: usize = 3;
/// Stands for a round after the end.
pub const NO_ROUND: Kept = 7;

/// What was said, counted.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Whole sequences, in the order of places.
    pub joint: Vec<u64>,
    /// Whole sequences with the drafts kept in their first three drafted rounds.
    pub rounds: BTreeMap<(Place, Kept), u64>,
    /// The first two tokens of two samples of one request: vocab⁴ cells.
    pub siblings: Vec<u64>,
    /// Sequences.
    pub sequences: u64,
    /// Draft nodes verified.
    pub drafted: u64,
    /// Drafts that became output.
    pub accepted: u64,
    /// Rounds, those of prompts left out.
    pub drafted_rounds: u64,
    /// How often a sequence lost its blocks.
    pub preempted: u64,
}

/// What an engine is made of: the real parts, or a wrong variant of one of them.
pub struct Parts {
    /// The rule.
    pub verifier: Box<dyn Verifier>,
    /// The drafter.
    pub drafter: Box<dyn Drafter>,
    /// The target.
    pub target: Box<dyn ModelRunner>,
    /// From number and random seed of a request to the seed it gets.
    pub seed: fn(u64, u64) -> u64,
}

impl Parts {
    /// The real ones.
    pub fn of(cell: &Cell, world: &World) -> Self {
        Self {
            verifier: verifier(cell.rule).unwrap(),
            drafter: drafter(cell, world),
            target: target(world),
            seed: |_, seed| seed,
        }
    }
}

/// The target's table as a model.
pub fn target(world: &World) -> Box<dyn ModelRunner> {
    let (vocab, table) = (world.vocab, world.tables()[0].to_vec());
    Box::new(Table::new(vocab, 64, move |seen, logits| match seen.len() {
        // Nobody samples from what a lone first token predicts.
        0 | 1 => logits.fill(0.0),
        _ => logits.copy_from_slice(&table[state(vocab, seen)]),
    }))
}

/// Counts what at least `sequences` sequences of the cell say, each request with a fresh seed out of `seed`.
pub fn sample(cell: &Cell, world: &World, parts: Parts, sequences: u64, seed: u64) -> Tally {
    let Parts { verifier, drafter, target, seed: choose } = parts;
    let mut engine = build(cell, target, drafter, verifier);
    let vocab = world.vocab;
    let mut tally = Tally {
        joint: vec![0; vocab.pow(world.length as u32)],
        siblings: vec![0; if cell.samples > 1 { vocab.pow(4) } else { 0 }],
        ..Tally::default()
    };
    let mut counting =
        Counting { world, tally: &mut tally, running: BTreeMap::new(), siblings: BTreeMap::new() };
    let mut random = Random(seed);
    let (mut submitted, requests) = (0, sequences.div_ceil(cell.samples as u64));
    while submitted < requests || engine.has_work() {
        // Always somebody waiting, so that the batch is full.
        while submitted < requests && engine.scheduler().waiting_len() < cell.batch {
            let request = GenerateRequest {
                samples: cell.samples,
                max_tokens: world.length,
                sampling: world.sampling.clone(),
                seed: Some(choose(submitted, random.next_u64())),
                ignore_eos: true,
                ..GenerateRequest::new(Prompt::Tokens(world.prompt.clone()))
            };
            engine.submit(request).unwrap();
            submitted += 1;
        }
        engine.step().into_iter().for_each(|event| counting.take(event));
    }
    tally.preempted = engine.scheduler().stats().preempted;
    assert_eq!(engine.integrity_failures(), 0);
    tally
}

fn build(
    cell: &Cell,
    runner: Box<dyn ModelRunner>,
    drafter: Box<dyn Drafter>,
    rule: Box<dyn Verifier>,
) -> Engine {
    let blocks = match cell.memory {
        Memory::Ample | Memory::Rows => 2 * cell.batch as u64 + 2,
        // Enough for one, not for all.
        Memory::Blocks => cell.batch as u64 + 1,
    };
    let token = runner.info().lane.bytes_per_token().unwrap();
    let options = EngineOptions {
        max_seqs: cell.batch,
        kv_memory: Some(token * u64::from(BLOCK_SIZE) * blocks.max(3)),
        max_model_len: None,
        // The least there can be, of which prompts take a part.
        token_budget: if cell.memory == Memory::Rows { 1 } else { 512 },
        queue_len: 4096,
        prefix_cache: true,
    };
    let policy: DraftPolicy = match cell.size {
        Size::Staircase => {
            DraftPolicy::Custom(Box::new(Staircase { cell: *cell, seen: Vec::new() }))
        }
        _ => DraftLength::Fixed(cell.nodes()).into(),
    };
    let target = Target { runner, tokenizer: None, template: None };
    assemble(target, Some(drafter), rule, policy, &options).unwrap()
}

/// As many nodes as the round before committed tokens.
struct Staircase {
    cell: Cell,
    /// Committed tokens of each sequence when it was last asked about.
    seen: Vec<(SeqId, usize)>,
}

impl DraftBudget for Staircase {
    fn allot(&mut self, rounds: &[RoundView], room: Room, grants: &mut Vec<usize>) {
        let mut left = room.slots;
        for round in rounds {
            let before = self.seen.iter().find(|seen| seen.0 == round.seq);
            let last = before.map_or(1, |seen| (round.context - seen.1).max(1));
            let grant = self.cell.granted(round.remaining.max(1), last).min(round.nodes).min(left);
            left -= grant;
            grants.push(grant);
        }
        self.seen.clear();
        self.seen.extend(rounds.iter().map(|round| (round.seq, round.context)));
    }

    fn invest(&mut self, _: &RoundView) -> bool {
        true
    }
}

/// Sequences under way.
struct Counting<'a> {
    world: &'a World,
    tally: &'a mut Tally,
    /// Drafted rounds so far and drafts kept in them.
    running: BTreeMap<(RequestId, usize), (usize, Kept)>,
    /// The first two tokens of a sample whose sibling has not ended.
    siblings: BTreeMap<RequestId, (usize, Place)>,
}

impl Counting<'_> {
    fn take(&mut self, event: Event) {
        let name = event.name();
        match event {
            Event::Tokens { tokens, .. } => self.round(name, &tokens),
            Event::Finished { output, .. } => {
                assert_eq!(output.error, None);
                assert_eq!(output.token_ids.len(), self.world.length);
                self.tally.drafted += output.speculation.drafted as u64;
                self.tally.accepted += output.speculation.accepted as u64;
                self.tally.drafted_rounds += output.speculation.rounds as u64 - 1;
                self.end(name, &output.token_ids);
            }
        }
    }

    fn round(&mut self, name: (RequestId, usize), tokens: &[TokenEvent]) {
        let accepted = tokens.iter().filter(|token| token.origin == Origin::Draft).count();
        match self.running.get_mut(&name) {
            None => {
                self.running.insert(name, (0, 0));
            }
            Some((rounds, kept)) if *rounds < DRAFTED => {
                *rounds += 1;
                *kept = *kept * 8 + accepted as Kept;
            }
            Some(_) => {}
        }
    }

    fn end(&mut self, (id, sample): (RequestId, usize), tokens: &[TokenId]) {
        let (rounds, mut kept) = self.running.remove(&(id, sample)).unwrap_or_default();
        (rounds..DRAFTED).for_each(|_| kept = kept * 8 + NO_ROUND);
        let place = self.world.walk(0, tokens);
        self.tally.sequences += 1;
        self.tally.joint[place - self.world.first(self.world.length)] += 1;
        *self.tally.rounds.entry((place, kept)).or_default() += 1;
        if !self.tally.siblings.is_empty() {
            let square = self.world.vocab.pow(2);
            let two = self.world.walk(0, &tokens[..2]) - self.world.first(2);
            match self.siblings.remove(&id) {
                None => {
                    self.siblings.insert(id, (sample, two));
                }
                Some((0, other)) => self.tally.siblings[other * square + two] += 1,
                Some((_, other)) => self.tally.siblings[two * square + other] += 1,
            }
        }
    }
}
