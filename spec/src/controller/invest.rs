//! Whether a lane that has fallen behind is worth catching up.

use super::acceptance::DEPTHS;
use super::{Candidate, Controller};

/// A gain must be this many times the cost. The cost is certain; the gain is a small difference of times that err by some
/// percent each, times an acceptance that is another in every text.
const MARGIN: f64 = 3.0;

/// A sequence is trusted to go on for this many times what it has emitted so far, as far as its
/// limit allows: it may end at any token, whatever its limit.
const HORIZON: usize = 15;

/// Times that the size of a crowd is corrected; it settles after a few.
const CROWD_STEPS: usize = 16;

impl Controller {
    /// Whether the lane of this sequence, `lane_gap` tokens behind, should be caught up: if the
    /// gain expected over the remaining tokens repays it, or else if the exploration account can
    /// pay.
    ///
    /// The gain of a round with k drafts is what its extra tokens would take at the pace of the
    /// last planned step, less what k drafts and k more rows cost; the best k counts. A pass costs
    /// little more for many sequences than for one, so those that do not draft yet are priced as
    /// the group that they would be: the largest one in which everybody gains if each bears the
    /// same share. Alone, the first would have to bear the whole pass, and none would ever begin.
    ///
    /// What the account pays for is a *probe*: the whole gap and one draft, charged once, when the
    /// sequence has been off for its patience. From then on the answer is true until the lane is
    /// level; the draft follows at once ([`Controller::allot`]), and the patience doubles or not by
    /// how it ends. A lane falls behind by a token a step, so the account alone would never reach a
    /// drafter whose row costs more than its share `explore` of a step. Therefore it pays in
    /// advance, against its share of the time that the sequence still has: the remaining tokens or
    /// `HORIZON` = 15 times those emitted, whichever is less. The debt is earned before anything else
    /// is explored: all in all, exploration takes its share of the time, plus at most one such
    /// advance for sequences that end early.
    ///
    /// With nothing else to explore, a row that costs c steps, a pass that costs b more and a gap
    /// of g at its start, a sequence is probed after at most
    /// `(c g + b) / (explore (1 + HORIZON) - c)` steps and its patience, as long as
    /// `c (g + emitted) < explore (emitted + remaining)`, less what was spent before.
    pub fn invest(&mut self, candidate: &Candidate) -> bool {
        self.meet(candidate);
        if let Some(pinned) = candidate.pinned {
            return pinned > 0;
        }
        if !candidate.passes || candidate.lane_gap == 0 {
            return true;
        }
        let last = self.work.last;
        self.curves(candidate.context, last.rows as usize);
        if let Some(sequence) = self.sequences.get_mut(&candidate.seq) {
            sequence.reach = candidate.nodes;
        }
        let crowd = self.crowd();
        if self.gains(candidate, crowd) {
            return true;
        }
        let (verify, draft) = (&self.work.verify, &self.work.draft);
        let gap_s = draft.at(candidate.lane_gap as f64);
        let rows = last.rows.max(1.0);
        let probe_s = draft.at(1.0) + (verify.at(rows + 1.0) - verify.at(rows)).max(0.0);
        let pace_s = self.pace_s();
        let Some(sequence) = self.sequences.get_mut(&candidate.seq) else { return false };
        let cost_s = match sequence.catching {
            0 => gap_s + probe_s,
            // More than was paid for: the lane lost ground, or rows were short.
            paid => (gap_s - draft.at(paid as f64)).max(0.0),
        };
        if sequence.catching == 0 {
            sequence.idle = sequence.idle.saturating_add(1);
            if sequence.idle < sequence.patience {
                return false;
            }
        }
        let emitted = sequence.begun.saturating_sub(candidate.remaining);
        let ahead = candidate.remaining.min(HORIZON.saturating_mul(emitted));
        let advance_s = self.config.explore * ahead as f64 * pace_s;
        if cost_s > 0.0 && cost_s > self.account_s + advance_s {
            self.goal_s = self.goal_s.max(cost_s);
            sequence.catching = 0;
            return false;
        }
        self.account_s -= cost_s;
        if sequence.catching == 0 {
            self.goal_s = 0.0;
        }
        (sequence.idle, sequence.catching) = (0, sequence.catching.max(candidate.lane_gap));
        true
    }

    /// Seconds per token in the last planned step.
    fn pace_s(&self) -> f64 {
        let last = self.work.last;
        if last.tokens > 0.0 { last.time_s / last.tokens } else { self.work.verify.at(1.0) }
    }

    /// How many of the sequences that do not draft in this step would do so together: the largest
    /// number of which each gains if that many share the passes. At least 1. Worked out once a step.
    fn crowd(&mut self) -> f64 {
        if let Some(known) = self.work.crowd {
            return known;
        }
        let mut size = self.work.idle.len();
        // The fewer share a pass, the fewer find it worth while: this only ever falls.
        for _ in 0..CROWD_STEPS {
            let willing = self.work.idle.iter().filter(|c| self.gains(c, size as f64)).count();
            if willing >= size {
                break;
            }
            size = willing;
        }
        let crowd = size.max(1) as f64;
        self.work.crowd = Some(crowd);
        crowd
    }

    /// Whether what speculation saves over the rest of the sequence, shared with a crowd, repays
    /// what its lane lacks.
    fn gains(&self, candidate: &Candidate, crowd: f64) -> bool {
        let gap = candidate.lane_gap as f64;
        // All catch up at once. Between row counts that were measured the curve errs to the cheap side: the dearer one holds.
        let draft = &self.work.draft;
        let gap_s = draft.at(gap).max(draft.at(crowd * gap) / crowd);
        self.gain_s(candidate, crowd) > MARGIN * gap_s
    }

    /// Seconds that speculation is expected to save over the rest of the sequence if as many as
    /// `crowd` join those that draft already.
    fn gain_s(&self, candidate: &Candidate, crowd: f64) -> f64 {
        let Some(sequence) = self.sequences.get(&candidate.seq) else { return 0.0 };
        let (verify, draft, last) = (&self.work.verify, &self.work.draft, self.work.last);
        let rows = last.rows.max(1.0);
        let pace_s = self.pace_s();
        let others = last.drafting;
        let running_s = if others > 0.0 { draft.at(others) } else { 0.0 };
        // Noise may say that more rows take less time. Nothing is gained by that.
        let pass_s = ((draft.at(others + crowd) - running_s) / crowd).max(0.0);
        let (mut worth, mut tokens, mut best) = (1.0, 1.0, 0.0_f64);
        let rates = sequence.rates(&self.priors[candidate.drafter], &self.config);
        for (depth, rate) in rates.take(candidate.nodes.min(2 * DEPTHS)).enumerate() {
            worth *= rate;
            tokens += worth;
            let k = depth as f64 + 1.0;
            let rows_s = ((verify.at(rows + crowd * k) - verify.at(rows)) / crowd).max(0.0);
            let rounds = candidate.remaining as f64 / tokens;
            best = best.max(rounds * ((tokens - 1.0) * pace_s - k * pass_s - rows_s));
        }
        best
    }
}
