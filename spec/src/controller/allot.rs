//! The global ranking of draft slots.

use super::acceptance::{Sequence, Tallies};
use super::shaping::{DEPTH_BOUNDS, DEPTH_MAX, Shaper};
use super::workspace::{Slot, Step, Workspace};
use super::{Candidate, Controller};

/// Steps with drafts after which a plain one is measured again.
const PLAIN_EVERY: u32 = 256;

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
        self.rank(candidates, left);
        // Drafts are judged against the plain step, so that one is measured first and then kept
        // fresh. Rows that other work adds vary from step to step and are only estimated: such a
        // step is judged by the curve as a whole.
        let mixed = base_rows > candidates.len() && self.work.verify.is_known();
        let plain_known = mixed || self.verify.knows(step.rows as usize, context);
        if plain_known && self.since_plain < PLAIN_EVERY {
            let granted = self.grant_best(candidates, left, &mut step, grants);
            // What is gained is measured against the step without probes, which cost and bring little.
            self.work.last = step;
            self.probe(candidates, grants, left - granted, step);
        } else {
            self.work.last = step;
        }
        let plain = grants.iter().all(|&grant| grant == 0);
        self.since_plain = if plain { 0 } else { self.since_plain.saturating_add(1) };
        let pins = candidates.iter().filter(|c| c.pinned.is_some()).count();
        self.work.pins = pins as f64 / candidates.len().max(1) as f64;
        self.gather_idle(candidates, grants);
    }

    /// Notes who could join those that draft ([`Controller::invest`]).
    fn gather_idle(&mut self, candidates: &[Candidate], grants: &[usize]) {
        self.work.crowd = None;
        self.work.idle.clear();
        for (candidate, &grant) in candidates.iter().zip(grants) {
            let Some(sequence) = self.sequences.get_mut(&candidate.seq) else { continue };
            if candidate.nodes > 0 {
                sequence.reach = candidate.nodes;
            }
            let nodes = sequence.reach.min(candidate.remaining.saturating_sub(1));
            if grant == 0 && nodes > 0 && candidate.passes && candidate.pinned.is_none() {
                self.work.idle.push(Candidate { nodes, ..*candidate });
            }
        }
    }

    /// The curves of times at this context.
    pub(super) fn curves(&mut self, context: usize, base_rows: usize) {
        self.verify.curve(context, &mut self.work.verify);
        self.draft.curve(context, &mut self.work.draft);
        let Workspace { verify, draft, .. } = &mut self.work;
        let whole = verify.at(base_rows.max(1) as f64);
        draft.borrow(verify, (base_rows.max(1) as f64, self.config.draft_cost * whole));
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
        let mut places = std::mem::take(&mut self.work.shaper.places);
        self.best_shape(candidate, grant, 1, &mut places);
        for &(worth, place) in &places {
            step.tokens += worth;
            let depth = place.depth as usize - 1;
            step.time_s += self.work.pass(candidate, depth, place.rank == 0);
        }
        self.work.shaper.places = places;
        step.drafting += f64::from(u8::from(candidate.passes && grant > 0));
    }

    /// All slots that compete, the worthiest first.
    fn rank(&mut self, candidates: &[Candidate], left: usize) {
        self.work.slots.clear();
        let each = Shaper::places_each(candidates.len());
        let mut places = std::mem::take(&mut self.work.shaper.places);
        for (index, candidate) in candidates.iter().enumerate() {
            if candidate.pinned.is_some() {
                continue;
            }
            places.clear();
            self.grow(candidate, candidate.nodes.min(each).min(left), DEPTH_MAX, &mut places);
            let slot = |(place, &(worth, at)): (usize, &(f64, crate::Place))| {
                let depth = at.depth as usize - 1;
                Slot { worth, candidate: index, depth, place, eldest: at.rank == 0 }
            };
            self.work.slots.extend(places.iter().enumerate().map(slot));
        }
        self.work.shaper.places = places;
        // Along a path and among siblings worth does not rise, and a place comes after those it
        // needs: heads of this order are trees of every sequence.
        self.work.slots.sort_unstable_by(|a, b| {
            let tie = (a.candidate, a.place).cmp(&(b.candidate, b.place));
            b.worth.total_cmp(&a.worth).then(tie)
        });
    }

    /// Grants the slots that make tokens per second largest, the fewest among equals, and says how
    /// many. Leaves the step as it is then.
    ///
    /// Worth alone would give the best sequences a level more before the others have theirs, and for
    /// these few a whole pass: so the depth that passes may reach is tried, too.
    fn grant_best(
        &mut self,
        candidates: &[Candidate],
        left: usize,
        step: &mut Step,
        grants: &mut [usize],
    ) -> usize {
        let trees = candidates.iter().any(|c| c.tree.is_some_and(|tree| tree.width > 1));
        let passing = self.work.slots.iter().filter(|slot| candidates[slot.candidate].passes);
        let deepest = passing.map(|slot| slot.depth + 1).max().unwrap_or(0);
        let plain = *step;
        // Trees can grow wide at once. One far beyond what was measured would leave a gap in the
        // curve, and a straight line over it hides where rows begin to cost.
        let near = self.work.verify.reach().saturating_sub(plain.rows as usize).max(1);
        let left = if trees { left.min(near) } else { left };
        self.work.pinned.clone_from(&self.work.passes);
        let mut best = (0, usize::MAX);
        let bounds = DEPTH_BOUNDS.into_iter().filter(|&bound| bound < deepest);
        for bound in bounds.chain([usize::MAX]) {
            let (count, then) = self.best_within(bound, candidates, left, plain);
            if then.beats(step) {
                (best, *step) = ((count, bound), then);
            }
        }
        let (count, bound) = best;
        self.work.shaper.depth = bound;
        self.work.passes.clone_from(&self.work.pinned);
        let mut granted = 0;
        for at in 0..self.work.slots.len() {
            let slot = self.work.slots[at];
            let candidate = &candidates[slot.candidate];
            if granted < count && slot.is_within(candidate, bound) {
                granted += 1;
                grants[slot.candidate] += 1;
                self.work.pass(candidate, slot.depth, slot.eldest);
            }
        }
        count
    }

    /// How many of the slots, as they are ranked, make tokens per second largest if passes reach
    /// down to a bound, and the step as it is then.
    fn best_within(
        &mut self,
        bound: usize,
        candidates: &[Candidate],
        left: usize,
        plain: Step,
    ) -> (usize, Step) {
        self.work.passes.clone_from(&self.work.pinned);
        let mut draft_s = plain.time_s - self.work.verify.at(plain.rows);
        let (mut best, mut then, mut now, mut count) = (0, plain, plain, 0);
        for at in 0..self.work.slots.len() {
            let slot = self.work.slots[at];
            let candidate = &candidates[slot.candidate];
            if count == left {
                break;
            }
            if !slot.is_within(candidate, bound) {
                continue;
            }
            count += 1;
            now.rows += 1.0;
            now.tokens += slot.worth;
            draft_s += self.work.pass(candidate, slot.depth, slot.eldest);
            now.drafting += f64::from(u8::from(candidate.passes && slot.place == 0));
            now.time_s = draft_s + self.work.verify.at(now.rows);
            if now.beats(&then) {
                (best, then) = (count, now);
            }
        }
        (best, then)
    }

    /// Gives one draft each to sequences that have been off for long enough, as far as the account
    /// (or what the last probe brought) covers what it would cost if rejected; and to those whose
    /// lane was caught up for it, which is paid for already.
    fn probe(
        &mut self,
        candidates: &[Candidate],
        grants: &mut [usize],
        mut left: usize,
        mut step: Step,
    ) {
        let load = candidates.len().max(1).ilog2() + 1;
        let (need_free, need_passes) = self.needs(candidates, &step);
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
                step.time_s += self.work.pass(candidate, 0, true) + target_s;
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
