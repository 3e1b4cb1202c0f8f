//! The global ranking of draft slots.

use super::acceptance::{DEPTHS, Sequence, Tallies};
use super::cost::Curve;
use super::{Candidate, Controller};

/// Deepest chain that is ever granted without being pinned.
const DEPTH_MAX: usize = 2 * DEPTHS;

/// Steps with drafts after which a plain one is measured again.
const PLAIN_EVERY: u32 = 256;

/// Buffers kept from step to step.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    slots: Vec<Slot>,
    /// Rows of draft pass 1, 2, …
    passes: Vec<f64>,
    pub(super) verify: Curve,
    pub(super) draft: Curve,
    pub(super) last: Step,
}

/// One draft slot that a sequence could get.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Probability that it is accepted.
    worth: f64,
    candidate: usize,
    /// 0 for the first draft.
    depth: usize,
}

/// A step as planned: what [`Controller::invest`] measures a gain against.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Step {
    /// Rows of the target's pass.
    pub(super) rows: f64,
    /// Tokens expected of it.
    pub(super) tokens: f64,
    /// Seconds expected of it.
    pub(super) time_s: f64,
    /// Sequences that draft in passes.
    pub(super) drafting: f64,
}

impl Controller {
    /// Grants drafts to the `candidates` of the coming step, one number each into `grants`, none
    /// above its `nodes`, their sum not above `slots`. `base_rows`: rows the target's pass has
    /// without any draft, prefill included (an estimate will do).
    ///
    /// Deterministic. O(s log s) in the slots that compete; allocates only while buffers grow.
    pub fn allot(
        &mut self,
        base_rows: usize,
        slots: usize,
        candidates: &[Candidate],
        grants: &mut Vec<usize>,
    ) {
        grants.clear();
        grants.resize(candidates.len(), 0);
        let context = candidates.iter().map(|c| c.context).sum::<usize>() / candidates.len().max(1);
        self.curves(context, base_rows);
        for candidate in candidates {
            self.meet(candidate);
        }
        let mut step =
            Step { rows: base_rows as f64, tokens: candidates.len() as f64, ..Step::default() };
        self.work.passes.clear();
        let mut left = slots;
        for (candidate, grant) in candidates.iter().zip(grants.iter_mut()) {
            if let Some(pinned) = candidate.pinned {
                *grant = pinned.min(candidate.nodes).min(left);
                left -= *grant;
                self.take_pinned(candidate, *grant, &mut step);
            }
        }
        step.time_s += self.work.verify.at(step.rows);
        self.rank(candidates);
        // Drafts are judged against the plain step, so that one is measured first and then kept
        // fresh. Rows that other work adds vary from step to step and are only estimated: such a
        // step is judged by the curve as a whole.
        let mixed = base_rows > candidates.len() && self.work.verify.is_known();
        let plain_known = mixed || self.verify.knows(step.rows as usize, context);
        if plain_known && self.since_plain < PLAIN_EVERY {
            let best = self.best_prefix(candidates, left, &mut step);
            for slot in &self.work.slots[..best] {
                grants[slot.candidate] += 1;
            }
            self.probe(candidates, grants, left - best, &mut step);
        }
        let plain = grants.iter().all(|&grant| grant == 0);
        self.since_plain = if plain { 0 } else { self.since_plain.saturating_add(1) };
        self.work.last = step;
    }

    /// The curves of times at this context.
    pub(super) fn curves(&mut self, context: usize, base_rows: usize) {
        self.verify.curve(context, &mut self.work.verify);
        self.draft.curve(context, &mut self.work.draft);
        if !self.work.draft.is_known() {
            let whole = self.work.verify.at(base_rows.max(1) as f64);
            self.work.draft.assume(self.config.draft_cost * whole);
        }
    }

    /// Makes sure a candidate's sequence and prior exist.
    pub(super) fn meet(&mut self, candidate: &Candidate) {
        if self.priors.len() <= candidate.drafter {
            self.priors.resize_with(candidate.drafter + 1, Tallies::default);
        }
        let Candidate { drafter, remaining, .. } = *candidate;
        let fresh = || Sequence::new(drafter, self.config.probe_steps.0, remaining);
        let sequence = self.sequences.entry(candidate.seq).or_insert_with(fresh);
        if sequence.drafter != candidate.drafter {
            *sequence = fresh();
        }
    }

    /// Adds a pinned candidate's rows, passes and expected tokens to the step.
    fn take_pinned(&mut self, candidate: &Candidate, grant: usize, step: &mut Step) {
        step.rows += grant as f64;
        let Some(sequence) = self.sequences.get(&candidate.seq) else { return };
        let rates = sequence.rates(&self.priors[candidate.drafter], &self.config);
        let mut worth = 1.0;
        for (depth, rate) in rates.take(grant).enumerate() {
            worth *= rate;
            step.tokens += worth;
            step.time_s += self.work.pass(candidate, depth);
        }
        step.drafting += f64::from(u8::from(candidate.passes && grant > 0));
    }

    /// All slots that compete, the worthiest first.
    fn rank(&mut self, candidates: &[Candidate]) {
        self.work.slots.clear();
        for (index, candidate) in candidates.iter().enumerate() {
            let Some(sequence) = self.sequences.get(&candidate.seq) else { continue };
            if candidate.pinned.is_some() {
                continue;
            }
            let rates = sequence.rates(&self.priors[candidate.drafter], &self.config);
            let mut worth = 1.0;
            for (depth, rate) in rates.take(candidate.nodes.min(DEPTH_MAX)).enumerate() {
                worth *= rate;
                self.work.slots.push(Slot { worth, candidate: index, depth });
            }
        }
        // Along a path worth falls strictly (rates are below 1), so prefixes of this order are
        // prefixes of every path.
        self.work.slots.sort_unstable_by(|a, b| {
            let tie = (a.candidate, a.depth).cmp(&(b.candidate, b.depth));
            b.worth.total_cmp(&a.worth).then(tie)
        });
    }

    /// The number of slots that makes tokens per second largest; the least among equals. Leaves the
    /// step as it is then.
    fn best_prefix(&mut self, candidates: &[Candidate], left: usize, step: &mut Step) -> usize {
        let mut best = 0;
        let mut draft_s = step.time_s - self.work.verify.at(step.rows);
        let mut now = *step;
        for count in 1..=self.work.slots.len().min(left) {
            let slot = self.work.slots[count - 1];
            let candidate = &candidates[slot.candidate];
            now.rows += 1.0;
            now.tokens += slot.worth;
            draft_s += self.work.pass(candidate, slot.depth);
            now.drafting += f64::from(u8::from(candidate.passes && slot.depth == 0));
            now.time_s = draft_s + self.work.verify.at(now.rows);
            // Cross-multiplied: tokens/time above the best so far.
            if now.tokens * step.time_s > step.tokens * now.time_s {
                (best, *step) = (count, now);
            }
        }
        best
    }

    /// Gives one draft each to sequences that have been off for long enough, as far as the account
    /// (or what the last probe brought) covers what it would cost if rejected; and to those whose
    /// lane was caught up for it, which is paid for already.
    fn probe(
        &mut self,
        candidates: &[Candidate],
        grants: &mut [usize],
        mut left: usize,
        step: &mut Step,
    ) {
        let load = candidates.len().max(1).ilog2() + 1;
        let (need_free, need_passes) = self.needs(candidates, step);
        for (candidate, grant) in candidates.iter().zip(grants) {
            let Some(sequence) = self.sequences.get_mut(&candidate.seq) else { continue };
            sequence.probing = false;
            if *grant > 0 {
                (sequence.idle, sequence.catching) = (0, 0);
            }
            if *grant > 0 || candidate.nodes == 0 || candidate.pinned.is_some() {
                continue;
            }
            sequence.idle = sequence.idle.saturating_add(1);
            let paid = sequence.catching > 0;
            let due = paid || sequence.idle >= sequence.patience || sequence.load != load;
            if !due || left == 0 {
                continue;
            }
            let rows = step.rows + 1.0;
            let target_s = self.work.verify.at(rows) - self.work.verify.at(step.rows);
            let cost_s = target_s.max(0.0) + self.work.first_pass(candidate);
            if paid || cost_s <= self.account_s.max(sequence.won_s) {
                self.account_s -= if paid { 0.0 } else { cost_s };
                (sequence.idle, sequence.probing, sequence.load) = (0, true, load);
                (sequence.catching, sequence.won_s) = (0, 0.0);
                sequence.need = if candidate.passes { need_passes } else { need_free };
                sequence.pace_s = step.time_s / step.tokens.max(1.0);
                (*grant, left) = (1, left - 1);
                step.rows = rows;
                step.time_s += self.work.pass(candidate, 0) + target_s;
            }
        }
    }

    /// The acceptance at which a draft would pay for itself if every sequence had one: of a drafter
    /// that is free, and of one that takes passes.
    fn needs(&self, candidates: &[Candidate], step: &Step) -> (f64, f64) {
        let all = candidates.len().max(1) as f64;
        let drafting = candidates.iter().filter(|c| c.passes).count().max(1) as f64;
        let (verify, draft) = (&self.work.verify, &self.work.draft);
        let target_s = (verify.at(step.rows + all) - verify.at(step.rows)).max(0.0) / all;
        let pace_s = (step.time_s / step.tokens.max(1.0)).max(f64::MIN_POSITIVE);
        (target_s / pace_s, (target_s + draft.at(drafting) / drafting) / pace_s)
    }
}

impl Workspace {
    /// Seconds that one more draft at `depth` adds to the draft passes, and counts it in. The first
    /// pass also feeds what the lane has not seen.
    fn pass(&mut self, candidate: &Candidate, depth: usize) -> f64 {
        if !candidate.passes {
            return 0.0;
        }
        if self.passes.len() <= depth {
            self.passes.resize(depth + 1, 0.0);
        }
        let rows = if depth == 0 { candidate.lane_gap as f64 + 1.0 } else { 1.0 };
        let before = self.passes[depth];
        self.passes[depth] += rows;
        let idle = if before > 0.0 { self.draft.at(before) } else { 0.0 };
        self.draft.at(before + rows) - idle
    }

    /// Seconds that a first draft would add, without counting it in.
    fn first_pass(&self, candidate: &Candidate) -> f64 {
        if !candidate.passes {
            return 0.0;
        }
        let before = self.passes.first().copied().unwrap_or_default();
        let idle = if before > 0.0 { self.draft.at(before) } else { 0.0 };
        self.draft.at(before + candidate.lane_gap as f64 + 1.0) - idle
    }
}
