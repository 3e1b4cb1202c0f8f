//! What an allotment works on: the slots that compete, the step as it grows, the draft passes in it.

use super::Candidate;
use super::cost::Curve;
use super::shaping::Shaper;

/// Buffers kept from step to step.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    pub(super) slots: Vec<Slot>,
    /// Rows of draft pass 1, 2, …
    pub(super) passes: Vec<f64>,
    /// The same of pinned candidates alone.
    pub(super) pinned: Vec<f64>,
    pub(super) shaper: Shaper,
    pub(super) verify: Curve,
    pub(super) draft: Curve,
    pub(super) last: Step,
    /// Those that get no draft in this step and could, with a lane that was level.
    pub(super) idle: Vec<Candidate>,
    /// How many of these would draft together, once that was asked.
    pub(super) crowd: Option<f64>,
    /// Share of the sequences in the last step whose drafts are fixed. Their time earns no
    /// exploration, or a few newcomers would spend at once what many others saved up.
    pub(super) pins: f64,
}

/// One draft slot that a sequence could get.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// Probability that it is accepted.
    pub(super) worth: f64,
    pub(super) candidate: usize,
    /// 0 for the first draft.
    pub(super) depth: usize,
    /// Index among the candidate's own places.
    pub(super) place: usize,
    /// Whether it is the first child of its parent, whose row then has to be fed.
    pub(super) eldest: bool,
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

impl Slot {
    /// Whether it needs no pass beyond the first `bound`.
    pub(super) fn is_within(&self, candidate: &Candidate, bound: usize) -> bool {
        !candidate.passes || self.depth < bound
    }
}

impl Step {
    /// Whether it brings more tokens a second (cross-multiplied).
    pub(super) fn beats(&self, other: &Self) -> bool {
        self.tokens * other.time_s > other.tokens * self.time_s
    }
}

impl Workspace {
    /// Seconds that one more draft at `depth` adds to the draft passes, and counts it in. The first
    /// pass also feeds what the lane has not seen. A sibling comes from its elders' row.
    pub(super) fn pass(&mut self, candidate: &Candidate, depth: usize, eldest: bool) -> f64 {
        if !candidate.passes || !eldest {
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
    pub(super) fn first_pass(&self, candidate: &Candidate) -> f64 {
        if !candidate.passes {
            return 0.0;
        }
        let before = self.passes.first().copied().unwrap_or_default();
        let idle = if before > 0.0 { self.draft.at(before) } else { 0.0 };
        self.draft.at(before + candidate.lane_gap as f64 + 1.0) - idle
    }
}
