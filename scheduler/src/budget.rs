//! Drafts: what drafters have to offer, and who decides how much of it is taken.

use crate::SeqId;
use redline_kv_cache::Lane;

/// What a drafter could propose for one sequence this step. A sequence without an offer gets no
/// drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Whose.
    pub seq: SeqId,
    /// Draft nodes, at most.
    pub nodes: usize,
    /// The lane in which the drafter keeps its own keys and values, if it has one.
    pub lane: Option<Lane>,
    /// Positions the drafter can hold; `usize::MAX` if it has no such bound.
    pub draft_context: usize,
}

/// One round of this step, as the budget sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundView {
    /// Whose.
    pub seq: SeqId,
    /// Committed tokens `n`.
    pub context: usize,
    /// Committed tokens that the round feeds: 1, or more at the end of a prefill.
    pub rows: usize,
    /// Tokens the sequence may still generate.
    pub remaining: usize,
    /// Draft nodes it can use: the offer, cut to the request's cap, to `remaining - 1` and to the
    /// drafter's context. In [`DraftBudget::allot`] it is 0 while the lane is too far behind; in
    /// [`DraftBudget::invest`] it is what could be used once it has caught up.
    pub nodes: usize,
    /// How far the drafter's lane is behind: positions `< n - 1` not filled. 0 without a lane.
    pub lane_gap: usize,
}

/// What a step has room for, and what else is in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    /// Drafts that all rounds together may have.
    pub slots: usize,
    /// Rows of the step beside those of the rounds and their drafts: the prefill that is due, as
    /// far as rows and blocks seem to last. An estimate, mostly from above: what drafts take is
    /// not taken off, and cached prefixes of waiting requests are not looked up.
    pub other_rows: usize,
}

/// Decides how many drafts each round may have.
pub trait DraftBudget {
    /// Pushes one grant per round onto `grants` (which comes empty): at most its `nodes` each, at
    /// most `room.slots` together. More than that is cut, missing ones count as 0. Called once per step
    /// that has rounds.
    fn allot(&mut self, rounds: &[RoundView], room: Room, grants: &mut Vec<usize>);

    /// Whether rows may be spent this step on filling this sequence's lane, which is too far behind
    /// to draft. Asked again for every chunk.
    fn invest(&mut self, round: &RoundView) -> bool;
}

/// The budget of an engine that does not speculate.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoDrafts;

impl DraftBudget for NoDrafts {
    fn allot(&mut self, _rounds: &[RoundView], _room: Room, _grants: &mut Vec<usize>) {}

    fn invest(&mut self, _round: &RoundView) -> bool {
        false
    }
}
