//! What the scheduler costs: the time of `plan`, `settle` and `commit` per step, without a model.
//!
//! Every sequence decodes with drafts, half of them with a lane to fill. All cells of the table are set
//! up first and then take turns, so that whatever else the machine does hits each of them alike. The
//! last two columns should stay near 1: a sequence costs the same in a large batch as among 32, and
//! with a long context as with a short one.

use std::io::Write;
use std::time::Instant;

use anyhow::{Result, ensure};
use redline_kv_cache::{KvCache, KvConfig, Lane, MAX_LANES};
use redline_scheduler::{
    Config, DraftBudget, Offer, Outcome, Request, Room, RoundView, Scan, Scheduler, SeqId,
    StepPlan, StopRule, TokenId,
};

const SEQUENCES: [usize; 4] = [1, 32, 256, 512];
const CONTEXTS: [usize; 2] = [1024, 32 * 1024];
const BLOCK_SIZE: usize = 32;
const DRAFTS: usize = 4;
/// Drafts accepted, in turn. The mean of a step is three tokens.
const ACCEPTED: [usize; 3] = [0, 4, 2];
const TURNS: usize = 25;
const STEPS: usize = 16;
/// Steps of a turn before those that are timed: they bring the cell back into the caches.
const WARM: usize = 2;

/// Grants what can be used.
struct All;

impl DraftBudget for All {
    fn allot(&mut self, rounds: &[RoundView], _: Room, grants: &mut Vec<usize>) {
        grants.extend(rounds.iter().map(|round| round.nodes));
    }

    fn invest(&mut self, _: &RoundView) -> bool {
        true
    }
}

/// Nothing stops anyone.
struct Never;

impl StopRule for Never {
    fn scan(&mut self, _: SeqId, _: TokenId) -> Scan {
        Scan::Go
    }
}

/// Prints the table.
pub(crate) fn schedule() -> Result<()> {
    let mut cells = Vec::new();
    for context in CONTEXTS {
        for sequences in SEQUENCES {
            cells.push(Cell::new(sequences, context)?);
        }
    }
    for _ in 0..TURNS {
        cells.iter_mut().try_for_each(Cell::turn)?;
    }
    let mut out = std::io::stdout();
    writeln!(out, "plan + settle + commit, {DRAFTS} drafts a round; medians of {TURNS} turns")?;
    let titles = ["context", "sequences", "us/step", "ns/seq", "to 32 seqs", "to 1k"];
    let [context, sequences, step, each, wide, long] = titles;
    writeln!(out, "{context:>8} {sequences:>9} {step:>8} {each:>7} {wide:>10} {long:>6}")?;
    let (short, _) = cells.split_at(SEQUENCES.len());
    for row in cells.chunks(SEQUENCES.len()) {
        for (cell, short) in row.iter().zip(short) {
            let (context, sequences) = (cell.context, cell.sequences);
            let each = median(cell.turns.iter().copied());
            let (wide, long) = (cell.ratio_to(&row[1]), cell.ratio_to(short));
            let (each, step) = (each * 1e9, each * 1e6 * sequences as f64);
            write!(out, "{context:>8} {sequences:>9} {step:>8.2} {each:>7.0}")?;
            writeln!(out, " {wide:>10.2} {long:>6.2}")?;
        }
    }
    Ok(())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A batch of sequences of one length.
struct Cell {
    sequences: usize,
    context: usize,
    kv: KvCache,
    scheduler: Scheduler,
    plan: StepPlan,
    offers: Vec<Offer>,
    shapes: Vec<usize>,
    /// The outcomes of a whole step, one after the other.
    outcomes: [Vec<Outcome>; ACCEPTED.len()],
    steps: usize,
    /// Seconds per step and sequence, by turn.
    turns: Vec<f64>,
}

impl Cell {
    fn new(sequences: usize, context: usize) -> Result<Self> {
        let room = context + (DRAFTS + 1) * TURNS * (WARM + STEPS + 1) + BLOCK_SIZE;
        let kv = KvConfig {
            blocks: u32::try_from(sequences * room.div_ceil(BLOCK_SIZE))?,
            block_size: BLOCK_SIZE as u32,
            lanes: 2,
            prefix_cache: true,
            hash_key: [0; 32],
            with_target_lanes: [false; MAX_LANES],
        };
        let config = Config {
            max_seqs: sequences,
            token_budget: sequences * room,
            chunk_max: room,
            queue_len: sequences,
            max_model_len: room,
            ..Config::default()
        };
        let offer = |id: usize| Offer {
            seq: SeqId(id as u64),
            nodes: DRAFTS,
            lane: id.is_multiple_of(2).then_some(Lane(1)),
            draft_context: usize::MAX,
        };
        let outcome = |accepted: usize| Outcome::Round {
            path: (0..accepted as u32).collect(),
            tokens: vec![1; accepted + 1],
            draft_fed: DRAFTS,
        };
        let outcomes = ACCEPTED.map(|accepted| vec![outcome(accepted); sequences]);
        let mut cell = Self {
            sequences,
            context,
            kv: KvCache::new(&kv)?,
            scheduler: Scheduler::new(config)?,
            plan: StepPlan::default(),
            offers: (0..sequences).map(offer).collect(),
            shapes: vec![DRAFTS; sequences],
            outcomes,
            steps: 0,
            turns: Vec::new(),
        };
        cell.start(room)?;
        Ok(cell)
    }

    /// Computes the prompts and fills the lanes.
    fn start(&mut self, room: usize) -> Result<()> {
        for id in 0..self.sequences {
            let first = [id as TokenId + 1000];
            let prompt = first.into_iter().chain((1..self.context).map(|at| at as TokenId % 997));
            let request = Request::new(SeqId(id as u64), prompt.collect(), room);
            self.scheduler.submit(request, &self.kv)?;
        }
        for _ in 0..4 {
            self.scheduler.plan(&mut self.kv, &mut All, &self.offers, &mut self.plan);
            let outcome = |drafts: usize| Outcome::Round {
                path: (0..drafts as u32).collect(),
                tokens: vec![1; drafts + 1],
                draft_fed: drafts,
            };
            let outcomes: Vec<_> =
                self.plan.spans.iter().map(|span| outcome(span.drafts)).collect();
            self.scheduler.commit(&mut self.kv, &self.plan, &outcomes, &mut Never);
        }
        ensure!(self.plan.drafts() == self.sequences * DRAFTS, "not all of them draft");
        Ok(())
    }

    fn step(&mut self) {
        self.scheduler.plan(&mut self.kv, &mut All, &self.offers, &mut self.plan);
        let _ = self.scheduler.settle(&mut self.kv, &mut self.plan, &self.shapes);
        let outcomes = &self.outcomes[self.steps % ACCEPTED.len()];
        self.scheduler.commit(&mut self.kv, &self.plan, outcomes, &mut Never);
        self.steps += 1;
    }

    fn turn(&mut self) -> Result<()> {
        (0..WARM).for_each(|_| self.step());
        let started = Instant::now();
        (0..STEPS).for_each(|_| self.step());
        let seconds = started.elapsed().as_secs_f64();
        self.turns.push(seconds / (STEPS * self.sequences) as f64);
        ensure!(self.plan.drafts() == self.sequences * DRAFTS, "a step was not like the others");
        Ok(())
    }

    /// Turn by turn, so that both were measured under the same conditions.
    fn ratio_to(&self, other: &Self) -> f64 {
        median(self.turns.iter().zip(&other.turns).map(|(own, other)| own / other))
    }
}
