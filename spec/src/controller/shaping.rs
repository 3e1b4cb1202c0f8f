//! The shape of the trees that are granted.

use super::acceptance::{DEPTHS, RANKS};
use super::{Candidate, Controller};
use crate::shape::Grower;
use crate::{Place, TreeLimits};

/// Deepest chain or tree that is ever granted without being pinned.
pub(super) const DEPTH_MAX: usize = 2 * DEPTHS;

/// Bounds on the depth of a step's trees that are weighed against each other, besides none.
pub(super) const DEPTH_BOUNDS: [usize; 10] = [0, 1, 2, 3, 4, 5, 6, 8, 12, 16];

/// Places worth less are not looked at where they have siblings: no row is that cheap.
const LEAST: f64 = 0.005;

/// Places looked at in a step, over all sequences, about.
const PLACES: usize = 512;

/// Buffers, and what the last allotment decided about shapes.
#[derive(Debug)]
pub(super) struct Shaper {
    /// Bound on the depth of the last step's trees.
    pub(super) depth: usize,
    pub(super) places: Vec<(f64, Place)>,
    rates: Vec<[f64; RANKS]>,
    grower: Grower,
}

impl Default for Shaper {
    fn default() -> Self {
        let (places, rates, grower) = (Vec::new(), Vec::new(), Grower::default());
        Self { depth: usize::MAX, places, rates, grower }
    }
}

impl Shaper {
    /// Places of one candidate's trees that compete where there are `candidates`.
    pub(super) fn places_each(candidates: usize) -> usize {
        (PLACES / candidates.max(1)).clamp(8, 64)
    }
}

impl Controller {
    /// Where the `nodes` drafts granted to `candidate` are to go, appended to `out`: to be asked
    /// after [`Controller::allot`]. If its number is pinned, the controller did not weigh it, and
    /// the depth is chosen here, as if all of the step's `alike` sequences were like it.
    pub fn shape(
        &mut self,
        candidate: &Candidate,
        nodes: usize,
        alike: usize,
        out: &mut Vec<Place>,
    ) {
        self.meet(candidate);
        let mut places = std::mem::take(&mut self.work.shaper.places);
        if candidate.pinned.is_some() {
            self.curves(candidate.context, alike);
            self.best_shape(candidate, nodes, alike, &mut places);
        } else {
            places.clear();
            let bound = if candidate.passes { self.work.shaper.depth } else { usize::MAX };
            self.grow(candidate, nodes, bound, &mut places);
        }
        out.extend(places.iter().map(|&(_, place)| place));
        self.work.shaper.places = places;
    }

    /// The worthiest places of a candidate's tree, not deeper than `bound`, appended to `out`.
    pub(super) fn grow(
        &mut self,
        candidate: &Candidate,
        nodes: usize,
        bound: usize,
        out: &mut Vec<(f64, Place)>,
    ) {
        let Some(sequence) = self.sequences.get(&candidate.seq) else { return };
        let chain = TreeLimits { width: 1, depth: usize::MAX };
        let TreeLimits { width, depth } = candidate.tree.unwrap_or(chain);
        let limits = TreeLimits { width: width.min(RANKS), depth: depth.min(bound) };
        if nodes == 0 || limits.depth == 0 {
            return;
        }
        let (depths, least) = (limits.depth.min(nodes).min(DEPTH_MAX), 0.0);
        let least = if width > 1 && candidate.pinned.is_none() { LEAST } else { least };
        let super::workspace::Workspace { shaper, .. } = &mut self.work;
        let Shaper { rates, grower, .. } = shaper;
        let prior = &self.priors[candidate.drafter];
        sequence.by_rank(prior, &self.config, (depths, limits.width), rates);
        let rate = |depth: usize, rank: usize| rates[depth.min(depths - 1)][rank];
        grower.grow(limits, nodes, least, rate, out);
    }

    /// The shape of `nodes` nodes that makes tokens per second largest, into `out`, in a step of
    /// `alike` sequences that all do the same.
    pub(super) fn best_shape(
        &mut self,
        candidate: &Candidate,
        nodes: usize,
        alike: usize,
        out: &mut Vec<(f64, Place)>,
    ) {
        let mut best = (0.0, usize::MAX);
        if candidate.passes && candidate.tree.is_some_and(|tree| tree.width > 1) {
            let bounds = DEPTH_BOUNDS.into_iter().filter(|&bound| 0 < bound && bound < nodes);
            for bound in bounds.chain([usize::MAX]) {
                out.clear();
                self.grow(candidate, nodes, bound, out);
                // Too shallow for so many nodes.
                if out.len() < nodes && bound != usize::MAX {
                    continue;
                }
                let pace = self.pace_of(out, alike.max(1) as f64);
                if pace > best.0 {
                    best = (pace, bound);
                }
            }
        }
        out.clear();
        self.grow(candidate, nodes, best.1, out);
    }

    /// Tokens per second of `alike` sequences that all draft these places.
    fn pace_of(&self, places: &[(f64, Place)], alike: f64) -> f64 {
        let tokens = 1.0 + places.iter().map(|&(worth, _)| worth).sum::<f64>();
        let mut time_s = self.work.verify.at(alike * (1.0 + places.len() as f64));
        for depth in 1..=DEPTH_MAX as u32 {
            let fed = places.iter().filter(|(_, p)| p.depth == depth && p.rank == 0).count();
            if fed == 0 {
                break;
            }
            time_s += self.work.draft.at(alike * fed as f64);
        }
        alike * tokens / time_s.max(f64::MIN_POSITIVE)
    }
}
