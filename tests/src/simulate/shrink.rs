//! Makes a failing case smaller while it still fails: fewer steps and requests, nothing going wrong that need not, one
//! drafter, small sizes. Bounded in steps, and the same on every machine.

use super::drafter::Kind;
use super::episode::{Case, Episode, run};
use super::laws::Temperature;
use super::shape::{Grants, Mishaps};

/// Steps that all tries together may take.
const STEPS: u64 = 2_000_000;

struct Shrinking {
    case: Case,
    episode: Episode,
    left: u64,
}

/// The smallest case found that breaks a rule, and how it does.
pub(crate) fn shrink(case: &Case, episode: &Episode) -> (Case, Episode) {
    let (case, episode) = (case.clone(), episode.clone());
    let mut shrinking = Shrinking { case, episode, left: STEPS };
    shrinking.cut();
    loop {
        let before = shrinking.case.clone();
        shrinking.calm();
        shrinking.simplify();
        shrinking.thin();
        shrinking.lessen();
        if shrinking.case == before || shrinking.left == 0 {
            return (shrinking.case, shrinking.episode);
        }
    }
}

impl Shrinking {
    /// Takes the changed case if it still fails.
    fn attempt(&mut self, change: impl FnOnce(&mut Case)) -> bool {
        let mut case = self.case.clone();
        change(&mut case);
        if case == self.case || self.left == 0 {
            return false;
        }
        let episode = run(&case);
        self.left = self.left.saturating_sub(episode.counts.steps + 1);
        let refused = episode.counts.steps == 0;
        if refused || episode.broken.is_none() {
            return false;
        }
        (self.case, self.episode) = (case, episode);
        self.cut();
        true
    }

    /// Nothing after the violation matters.
    fn cut(&mut self) {
        let steps = self.episode.counts.steps;
        self.case.shape.steps = self.case.shape.steps.min(steps);
        self.case.shape.requests = self.case.shape.requests.min(4096);
    }

    /// Leaves out what goes wrong, one kind at a time.
    fn calm(&mut self) {
        self.attempt(|case| case.shape.mishaps = Mishaps::default());
        let kinds: [fn(&mut Mishaps) -> &mut usize; 13] = [
            |mishaps| &mut mishaps.copies,
            |mishaps| &mut mishaps.passes,
            |mishaps| &mut mishaps.rows,
            |mishaps| &mut mishaps.drafts,
            |mishaps| &mut mishaps.moves,
            |mishaps| &mut mishaps.cancels,
            |mishaps| &mut mishaps.preemptions,
            |mishaps| &mut mishaps.thefts,
            |mishaps| &mut mishaps.storms,
            |mishaps| &mut mishaps.pauses,
            |mishaps| &mut mishaps.deadlines,
            |mishaps| &mut mishaps.samples,
            |mishaps| &mut mishaps.holds,
        ];
        for kind in kinds {
            self.attempt(|case| *kind(&mut case.shape.mishaps) = 0);
        }
    }

    /// Fewer kinds of everything.
    fn simplify(&mut self) {
        self.attempt(|case| case.shape.grants = Grants::None);
        self.attempt(|case| case.shape.drafters = vec![Kind::None]);
        for kind in self.case.shape.drafters.clone() {
            self.attempt(|case| case.shape.drafters = vec![kind]);
        }
        self.attempt(|case| case.shape.temperatures = vec![Temperature::Zero]);
        self.attempt(|case| case.shape.prefix_cache = false);
        self.attempt(|case| case.shape.lanes = 1);
        self.attempt(|case| case.shape.stems = 1);
    }

    /// Leaves out requests: the last ones, then one by one.
    fn thin(&mut self) {
        let mut step = 2048;
        while step > 0 {
            while self.attempt(|case| {
                case.shape.requests = case.shape.requests.saturating_sub(step);
            }) {}
            step /= 2;
        }
        for number in (0..self.case.shape.requests.min(256)).rev() {
            self.attempt(|case| {
                if !case.omit.contains(&number) {
                    case.omit.push(number);
                    case.omit.sort_unstable();
                }
            });
        }
        let requests = self.case.shape.requests;
        self.case.omit.retain(|&number| number < requests);
    }

    /// Smaller numbers: the least, then halves, then one less.
    fn lessen(&mut self) {
        type Field = fn(&mut Case) -> &mut usize;
        let fields: [(usize, Field); 9] = [
            (1, |case| &mut case.shape.max_seqs),
            (1, |case| &mut case.shape.prefill_floor),
            (1, |case| &mut case.shape.chunk_max),
            (1, |case| &mut case.shape.queue_len),
            (2, |case| &mut case.shape.max_model_len),
            (1, |case| &mut case.shape.max_tokens),
            (1, |case| &mut case.shape.waiting),
            (1, |case| &mut case.shape.offer),
            (2, |case| &mut case.shape.token_budget),
        ];
        for (least, field) in fields {
            self.lower(least, |case| *field(case), |case, value| *field(case) = value);
        }
        let blocks = |case: &mut Case| case.shape.blocks as usize;
        self.lower(1, blocks, |case, value| case.shape.blocks = value as u32);
        self.attempt(|case| case.shape.block_size = 1);
        self.attempt(|case| case.shape.block_size = (case.shape.block_size / 2).max(1));
        self.attempt(|case| case.shape.retries = 0);
        self.attempt(|case| case.shape.ageing_steps = 1);
        self.lower(1, |case| case.shape.steps as usize, |case, n| case.shape.steps = n as u64);
    }

    fn lower(
        &mut self,
        least: usize,
        get: impl Fn(&mut Case) -> usize,
        set: impl Fn(&mut Case, usize),
    ) {
        let mut change = |to: &dyn Fn(usize) -> usize| {
            self.attempt(|case| {
                let value = get(case);
                set(case, to(value));
            })
        };
        if change(&|value| least.min(value)) {
            return;
        }
        while change(&|value| value.div_ceil(2).max(least).min(value)) {}
        for _ in 0..8 {
            if !change(&|value| value.saturating_sub(1).max(least).min(value)) {
                return;
            }
        }
    }
}
