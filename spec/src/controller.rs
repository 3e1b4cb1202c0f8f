//! [`Controller`]: how many drafts each sequence is worth, step by step.

mod acceptance;
mod allot;
mod cost;
mod invest;
mod shaping;
mod workspace;

use crate::TreeLimits;
use acceptance::{Sequence, Tallies};
use cost::TimeTable;
use rustc_hash::FxHashMap;
use workspace::Workspace;

/// A sequence that has a round in the coming step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// The sequence.
    pub seq: u64,
    /// Which drafter it uses: sequences of one drafter share a prior. A small index.
    pub drafter: usize,
    /// Whether drafting costs model passes; false for n-grams and the like.
    pub passes: bool,
    /// Committed tokens.
    pub context: usize,
    /// Drafts it could use at most: offer, remaining tokens, model length and request cap taken
    /// into account. 0 refuses speculation.
    pub nodes: usize,
    /// Tokens it may still emit.
    pub remaining: usize,
    /// Committed tokens, the last one apart, that the drafter's lane has not seen.
    pub lane_gap: usize,
    /// A number of drafts fixed by the request, instead of the controller's choice.
    pub pinned: Option<usize>,
    /// How far its trees may spread; `None` for a drafter of chains.
    pub tree: Option<TreeLimits>,
}

/// What a finished step took. Times are measured by the caller; the crate has no clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepTiming {
    /// Sequences with a round.
    pub seqs: usize,
    /// Rows of the target's pass: prefill, committed tokens and drafts.
    pub rows: usize,
    /// Sum of the contexts of the sequences with a round.
    pub context_tokens: usize,
    /// Passes of drafters with a model, and the rows of all those passes together.
    pub draft_passes: usize,
    /// Rows of all draft passes together.
    pub draft_tokens: usize,
    /// Seconds spent in draft passes.
    pub draft_s: f64,
    /// Seconds of the whole step, from planning to commit, less `draft_s`: the target's pass and
    /// all that surrounds it.
    pub verify_s: f64,
}

/// Settings of a [`Controller`]. The defaults are meant to be left alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControllerConfig {
    /// Weight kept by a sequence's older observations at each new one.
    pub decay: f64,
    /// The same for what all sequences of a drafter share.
    pub prior_decay: f64,
    /// Observations the shared prior counts for in a sequence's estimate.
    pub prior_strength: f64,
    /// Acceptance assumed of a drafter never observed.
    pub acceptance: f64,
    /// Acceptance assumed of a sibling never observed, given that those before it are rejected.
    pub sibling: f64,
    /// Cost assumed of a draft pass never measured, in target passes.
    pub draft_cost: f64,
    /// Cost assumed of one more row never measured, in one-row passes. On the low side, so that
    /// unmeasured widths are tried, and then known.
    pub row_cost: f64,
    /// Share of the time of steps with rounds that may go into exploration; time of sequences whose drafts are fixed counts for
    /// nothing.
    pub explore: f64,
    /// Steps before a sequence that is off may be probed again: at first, and at most.
    pub probe_steps: (u32, u32),
}

impl Default for ControllerConfig {
    fn default() -> Self {
        Self {
            decay: 0.98,
            prior_decay: 0.99,
            prior_strength: 8.0,
            acceptance: 0.6,
            sibling: 0.35,
            draft_cost: 0.2,
            row_cost: 0.1,
            explore: 0.01,
            probe_steps: (8, 128),
        }
    }
}

/// Draft budgets by goodput.
///
/// Each step all draft slots of all sequences compete. A slot is worth the probability that it is
/// accepted: the product of the estimates along its path, by depth and rank among siblings. The best B slots are granted, where B
/// maximises (n + sum of their worth) / (T_draft + T_verify), tokens per second, with times
/// measured on this machine. As worth falls along a path and among siblings, the best B are a tree
/// in every sequence. B = 0 is plain decoding. B is looked for under each of a few bounds on the
/// depth: a level costs a draft pass, about the same for one sequence as for many, and a sibling
/// only a row. (Goodput: Liu et al., SmartSpec, 2024, arXiv 2406.14066; marginal form as
/// in vLLM's `adaptive_verification.py`.)
///
/// Estimates come only from finished rounds, so a budget never looks at a draft it is for.
///
/// Simplifications: a step's time depends on its rows and mean context, not on how rows spread over sequences; draft passes are
/// timed at their mean width; all drafters that cost passes share one table of times.
#[derive(Debug)]
pub struct Controller {
    config: ControllerConfig,
    /// Indexed by [`Candidate::drafter`].
    priors: Vec<Tallies>,
    sequences: FxHashMap<u64, Sequence>,
    verify: TimeTable,
    draft: TimeTable,
    /// Seconds that exploration may still spend. Below 0 where a catch-up was paid in advance.
    account_s: f64,
    /// The dearest catch-up refused since the last one paid: what the account saves for.
    goal_s: f64,
    /// Steps since the last one without drafts.
    since_plain: u32,
    work: Workspace,
}

impl Default for Controller {
    fn default() -> Self {
        Self::new(ControllerConfig::default())
    }
}

impl Controller {
    /// A controller that has seen nothing yet.
    #[must_use]
    pub fn new(config: ControllerConfig) -> Self {
        Self {
            config,
            priors: Vec::new(),
            sequences: FxHashMap::default(),
            verify: TimeTable::new(config.row_cost),
            draft: TimeTable::new(config.row_cost),
            account_s: 0.0,
            goal_s: 0.0,
            since_plain: 0,
            work: Workspace::default(),
        }
    }

    /// Learns from a round: of a chain of `drafted` nodes, the first `accepted` were kept and, if
    /// any was not, the next one was rejected. Deeper ones say nothing.
    pub fn observe_round(&mut self, seq: u64, drafted: usize, accepted: usize) {
        let judged = drafted.min(accepted.saturating_add(1));
        self.observe_levels(seq, (0..judged).map(|depth| (1, (depth < accepted).then_some(0))));
    }

    /// Learns from a round of any shape: for the root and each kept node that had children, how
    /// many, and the rank of the one that was kept, if any. Nothing else was judged.
    pub fn observe_levels(
        &mut self,
        seq: u64,
        levels: impl IntoIterator<Item = (usize, Option<usize>)>,
    ) {
        let Some(sequence) = self.sequences.get_mut(&seq) else { return };
        let prior = &mut self.priors[sequence.drafter];
        let (mut judged, mut accepted) = (0, 0);
        for (depth, level) in levels.into_iter().enumerate() {
            prior.observe(depth, level, self.config.prior_decay);
            sequence.tallies.observe(depth, level, sequence.decay(self.config.decay));
            judged += 1;
            accepted += usize::from(level.1.is_some());
        }
        if judged > 0 && sequence.probing {
            let rate = sequence.rates(prior, &self.config).next().unwrap_or_default();
            sequence.after_probe(accepted, rate, self.config.probe_steps.1);
            // The probe was charged in full; what it brought comes back.
            self.account_s += sequence.won_s;
        }
    }

    /// Learns from a finished step how long it took.
    pub fn observe_time(&mut self, step: &StepTiming) {
        let context = step.context_tokens / step.seqs.max(1);
        self.verify.observe(step.rows, context, step.verify_s);
        if step.draft_passes > 0 {
            let passes = step.draft_passes as f64;
            let rows = (step.draft_tokens as f64 / passes).round() as usize;
            self.draft.observe(rows, context, step.draft_s / passes);
        }
        let spent = step.verify_s + step.draft_s;
        // Prompts alone earn nothing: those who wait for them would pay in their first rounds.
        if step.seqs > 0 && spent.is_finite() && spent > 0.0 {
            let most = self.goal_s.max(spent * acceptance::ACCOUNT_STEPS);
            let share = self.config.explore * (1.0 - self.work.pins);
            if self.account_s < most {
                self.account_s = (self.account_s + share * spent).min(most);
            }
        }
    }

    /// Drops what is known of a sequence.
    pub fn forget(&mut self, seq: u64) {
        self.sequences.remove(&seq);
    }

    /// The estimated probability that the draft at `depth` (1 for the first) of `seq` is accepted
    /// given that all before it are. `None` if the sequence is not known.
    #[must_use]
    pub fn acceptance(&self, seq: u64, depth: usize) -> Option<f64> {
        let sequence = self.sequences.get(&seq)?;
        let prior = self.priors.get(sequence.drafter)?;
        let rates = sequence.rates(prior, &self.config);
        rates.take(depth.max(1)).last()
    }
}

#[cfg(test)]
mod tests;
