//! Estimates of acceptance by depth.

use super::ControllerConfig;

/// Depths told apart; deeper ones count as the last.
pub(super) const DEPTHS: usize = 16;

/// The exploration account holds at most this many steps' time, or what a catch-up it could not
/// pay for would take.
pub(super) const ACCOUNT_STEPS: f64 = 20.0;

/// Observations a depth's prior is worth inside the shared tallies.
const SHARED_STRENGTH: f64 = 4.0;

/// Discounted counts of accepted and rejected drafts, by depth, given that the depth was reached.
#[derive(Clone, Debug, Default)]
pub(super) struct Tallies {
    hits: [f64; DEPTHS],
    seen: [f64; DEPTHS],
}

impl Tallies {
    pub(super) fn observe(&mut self, depth: usize, hit: bool, decay: f64) {
        let at = depth.min(DEPTHS - 1);
        self.hits[at] = self.hits[at] * decay + f64::from(u8::from(hit));
        self.seen[at] = self.seen[at] * decay + 1.0;
    }

    /// Mean at `depth` where `prior` counts for `strength` observations.
    fn mean(&self, depth: usize, prior: f64, strength: f64) -> f64 {
        let at = depth.min(DEPTHS - 1);
        (self.hits[at] + strength * prior) / (self.seen[at] + strength)
    }
}

/// What is known of one sequence.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    pub(super) drafter: usize,
    pub(super) tallies: Tallies,
    /// Steps since its last draft, while it got none for lack of worth.
    pub(super) idle: u32,
    /// Steps it has to be idle before it may be probed.
    pub(super) patience: u32,
    /// Whether the round in flight is a probe.
    pub(super) probing: bool,
    /// Load class when it was last probed.
    pub(super) load: u32,
    /// Acceptance at which a draft paid for itself when it was last probed.
    pub(super) need: f64,
    /// Seconds that an accepted draft was worth when it was last probed.
    pub(super) pace_s: f64,
    /// Seconds that the last probe brought: they pay for another, whatever the account holds.
    pub(super) won_s: f64,
    /// While its lane is being caught up out of the account: the gap that was paid for. The probe
    /// that follows is paid for, too. 0 otherwise.
    pub(super) catching: usize,
    /// Tokens it had still to emit when it was first seen.
    pub(super) begun: usize,
}

impl Sequence {
    pub(super) fn new(drafter: usize, patience: u32, remaining: usize) -> Self {
        let tallies = Tallies::default();
        Self {
            drafter,
            tallies,
            idle: 0,
            patience,
            probing: false,
            load: 0,
            need: 0.0,
            pace_s: 0.0,
            won_s: 0.0,
            catching: 0,
            begun: remaining,
        }
    }

    /// Weight that older observations keep. What a probe finds after a long silence counts for
    /// more.
    pub(super) fn decay(&self, decay: f64) -> f64 {
        if self.probing { decay.powi(PROBE_AGEING) } else { decay }
    }

    /// Settles the patience after a probe, `rate` being what is now thought of the first draft.
    pub(super) fn after_probe(&mut self, accepted: usize, rate: f64, most: u32) {
        self.probing = false;
        self.won_s = accepted as f64 * self.pace_s;
        if self.need >= 1.0 {
            // Not even perfect drafts would pay at this load.
            self.patience = most;
        } else if rate > CLOSE * self.need || (accepted > 0 && self.need < RARE) {
            // It may well pay again: look at once, not after the next pause.
            self.patience = 1;
        } else {
            self.patience = self.patience.max(1).saturating_mul(2).min(most);
        }
    }

    /// Estimated acceptance at depth 1, 2, … given that the depth is reached. Where little is known
    /// of a depth, the estimate leans on the drafter's mean there and on this sequence's one depth
    /// above.
    pub(super) fn rates(
        &self,
        prior: &Tallies,
        config: &ControllerConfig,
    ) -> impl Iterator<Item = f64> {
        let (mut shared, mut own) = (config.acceptance, None);
        let strength = config.prior_strength;
        (0..).map(move |depth| {
            shared = prior.mean(depth, shared, SHARED_STRENGTH);
            let leaning = own.map_or(shared, |above| (shared + above) / 2.0);
            let rate = self.tallies.mean(depth, leaning, strength).clamp(1e-3, 0.999);
            own = Some(rate);
            rate
        })
    }
}

/// Share of the break-even acceptance from which an estimate counts as close to it.
const CLOSE: f64 = 0.75;

/// Break-even acceptance below which a single accepted probe is news: above it, a drafter that does
/// not pay is still often right.
const RARE: f64 = 0.5;

/// Ordinary observations that one probe makes older ones age by.
const PROBE_AGEING: i32 = 4;
