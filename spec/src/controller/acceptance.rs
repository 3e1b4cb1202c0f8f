//! Estimates of acceptance by depth and by rank among siblings.

use super::ControllerConfig;

/// Depths told apart; deeper ones count as the last.
pub(super) const DEPTHS: usize = 16;

/// Siblings told apart; a controller shapes no wider trees.
pub(super) const RANKS: usize = 8;

/// The exploration account holds at most this many steps' time, or what a catch-up it could not
/// pay for would take.
pub(super) const ACCOUNT_STEPS: f64 = 20.0;

/// Observations a depth's prior is worth inside the shared tallies.
const SHARED_STRENGTH: f64 = 4.0;

/// Discounted counts of accepted and rejected drafts, by depth and rank, given that the depth was
/// reached and every elder sibling rejected.
#[derive(Clone, Debug, Default)]
pub(super) struct Tallies {
    hits: [[f64; DEPTHS]; RANKS],
    seen: [[f64; DEPTHS]; RANKS],
}

impl Tallies {
    /// Takes in what became of `children` siblings at `depth`, of which that of rank `accepted` was
    /// the one kept. Those behind it say nothing.
    pub(super) fn observe(
        &mut self,
        depth: usize,
        (children, accepted): (usize, Option<usize>),
        decay: f64,
    ) {
        let at = depth.min(DEPTHS - 1);
        let judged = accepted.map_or(children, |rank| rank + 1).min(children);
        for rank in 0..judged.min(RANKS) {
            let hit = accepted == Some(rank);
            self.hits[rank][at] = self.hits[rank][at] * decay + f64::from(u8::from(hit));
            self.seen[rank][at] = self.seen[rank][at] * decay + 1.0;
        }
    }

    /// Mean of `rank` at `depth` where `prior` counts for `strength` observations.
    fn mean(&self, depth: usize, rank: usize, prior: f64, strength: f64) -> f64 {
        let at = depth.min(DEPTHS - 1);
        (self.hits[rank][at] + strength * prior) / (self.seen[rank][at] + strength)
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
    /// Drafts it could use when last asked about with its lane level, or as if it were.
    pub(super) reach: usize,
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
            reach: 0,
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

    /// Estimated acceptance of first children at depth 1, 2, … given that the depth is reached.
    /// Where little is known of a depth, the estimate leans on the drafter's mean there and on this
    /// sequence's one depth above.
    pub(super) fn rates(
        &self,
        prior: &Tallies,
        config: &ControllerConfig,
    ) -> impl Iterator<Item = f64> {
        self.hazards(prior, config, 0)
    }

    /// The same for the child of `rank`, given that its elder siblings are rejected.
    fn hazards(
        &self,
        prior: &Tallies,
        config: &ControllerConfig,
        rank: usize,
    ) -> impl Iterator<Item = f64> {
        let (mut shared, mut own) =
            (if rank == 0 { config.acceptance } else { config.sibling }, None);
        let strength = config.prior_strength;
        (0..).map(move |depth| {
            shared = prior.mean(depth, rank, shared, SHARED_STRENGTH);
            let leaning = own.map_or(shared, |above| (shared + above) / 2.0);
            let rate = self.tallies.mean(depth, rank, leaning, strength).clamp(1e-3, 0.999);
            own = Some(rate);
            rate
        })
    }

    /// Estimated probability that the child of each rank below `width` is the accepted one, for the
    /// first `depths` depths, into `out`. Not rising with rank: no place is worth more than its elder.
    pub(super) fn by_rank(
        &self,
        prior: &Tallies,
        config: &ControllerConfig,
        (depths, width): (usize, usize),
        out: &mut Vec<[f64; RANKS]>,
    ) {
        out.clear();
        out.resize(depths, [0.0; RANKS]);
        for rank in 0..width.min(RANKS) {
            for (rates, hazard) in out.iter_mut().zip(self.hazards(prior, config, rank)) {
                let elders = &rates[..rank];
                let rest = 1.0 - elders.iter().sum::<f64>();
                let most = elders.last().copied().unwrap_or(1.0);
                rates[rank] = (rest.max(0.0) * hazard).min(most);
            }
        }
    }
}

/// Share of the break-even acceptance from which an estimate counts as close to it.
const CLOSE: f64 = 0.75;

/// Break-even acceptance below which a single accepted probe is news: above it, a drafter that does
/// not pay is still often right.
const RARE: f64 = 0.5;

/// Ordinary observations that one probe makes older ones age by.
const PROBE_AGEING: i32 = 4;
