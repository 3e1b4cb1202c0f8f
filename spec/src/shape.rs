//! [`Place`]: the shape of a draft tree, planned before any token is drawn.
//!
//! Under a ratio rule the shape may depend on nothing that is drawn in the round (not even on another
//! branch: `traversal` looks at one branch after the other). So it is planned as a list of places,
//! from what earlier rounds taught. A drafter takes the first so many of them; each place comes
//! after its parent and its elder siblings, so every head of the list is a tree.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Where one node of a tree is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the parent's place; `None` is the root, the last committed token.
    pub parent: Option<u32>,
    /// How many siblings come before it.
    pub rank: u32,
    /// Distance from the root: 1 for its children.
    pub depth: u32,
}

/// How far trees may spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeLimits {
    /// Children of a node, at least 1.
    pub width: usize,
    /// Distance from the root, at least 1.
    pub depth: usize,
}

/// A place that could be next: ordered by worth, then shallow before deep, then early parents and
/// elder siblings first.
#[derive(Clone, Copy, Debug)]
struct Bud {
    worth: f64,
    /// Worth of the parent.
    above: f64,
    place: Place,
}

impl Ord for Bud {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |bud: &Self| (bud.place.depth, bud.place.parent, bud.place.rank);
        self.worth.total_cmp(&other.worth).then(key(other).cmp(&key(self)))
    }
}

impl PartialOrd for Bud {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Bud {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Bud {}

/// Grows trees, the worthiest place first. Keeps its memory.
#[derive(Debug, Default)]
pub(crate) struct Grower {
    buds: BinaryHeap<Bud>,
}

impl Grower {
    /// Appends to `out` up to `nodes` places with what each is worth: the product along its path of
    /// `rate(depth, rank)`, the probability that the child of this rank is the accepted one given
    /// that `depth` (0 for the root's children) is reached. Rates below 1 that do not rise with
    /// rank make the worth fall along the list. Ends at places worth less than `least`.
    pub(crate) fn grow(
        &mut self,
        limits: TreeLimits,
        nodes: usize,
        least: f64,
        rate: impl Fn(usize, usize) -> f64,
        out: &mut Vec<(f64, Place)>,
    ) {
        self.buds.clear();
        let start = out.len();
        let first = Place { parent: None, rank: 0, depth: 1 };
        self.buds.push(Bud { worth: rate(0, 0), above: 1.0, place: first });
        while let Some(Bud { worth, above, place }) = self.buds.pop() {
            if out.len() - start == nodes || worth < least {
                return;
            }
            let index = (out.len() - start) as u32;
            out.push((worth, place));
            let (depth, next) = (place.depth as usize, place.rank as usize + 1);
            if next < limits.width {
                let sibling = Place { rank: place.rank + 1, ..place };
                let worth = above * rate(depth - 1, next);
                self.buds.push(Bud { worth, above, place: sibling });
            }
            if depth < limits.depth {
                let child = Place { parent: Some(index), rank: 0, depth: place.depth + 1 };
                self.buds.push(Bud { worth: worth * rate(depth, 0), above: worth, place: child });
            }
        }
    }
}

/// Acceptance by rank that a tree is laid out for when nothing is measured: shared-noise children of
/// a small model of the target's family on text.
const NOMINAL: [f64; 8] = [0.73, 0.13, 0.05, 0.03, 0.02, 0.01, 0.007, 0.005];

/// The shape of every round where no controller chooses: up to `width` children a node, `depth`
/// levels, at most `nodes` nodes, of which those stay that are usually accepted most often. The
/// first `n` are the shape of `n` nodes.
#[must_use]
pub fn nominal_shape(limits: TreeLimits, nodes: usize) -> Vec<Place> {
    let rate = |_, rank: usize| NOMINAL.get(rank).copied().unwrap_or(NOMINAL[7] / rank as f64);
    let mut out = Vec::new();
    Grower::default().grow(limits, nodes, 0.0, rate, &mut out);
    out.into_iter().map(|(_, place)| place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every place of a full tree with its worth, by brute force.
    fn all(limits: TreeLimits, rate: &dyn Fn(usize, usize) -> f64) -> Vec<f64> {
        let (mut found, mut level) = (Vec::new(), vec![1.0]);
        for depth in 0..limits.depth {
            let below = |&above: &f64| (0..limits.width).map(move |rank| above * rate(depth, rank));
            level = level.iter().flat_map(below).collect();
            found.extend(&level);
        }
        found.sort_by(|a: &f64, b| b.total_cmp(a));
        found
    }

    proptest! {
        #[test]
        fn the_worthiest_places_are_taken_and_each_head_is_a_tree(
            width in 1usize..4,
            depth in 1usize..5,
            nodes in 0usize..40,
            hazards in prop::collection::vec(0.001..0.999f64, 12),
        ) {
            let limits = TreeLimits { width, depth };
            let rate = |depth: usize, rank: usize| {
                let hazard = |rank: usize| hazards[(depth * 3 + rank) % 12];
                let (mut rest, mut least) = (1.0, 1.0_f64);
                for r in 0..=rank {
                    least = least.min(rest * hazard(r));
                    rest *= 1.0 - hazard(r);
                }
                least
            };
            let mut out = vec![(9.0, Place { parent: None, rank: 9, depth: 9 })];
            Grower::default().grow(limits, nodes, 0.0, rate, &mut out);
            let expected = all(limits, &rate);
            let worths: Vec<_> = out[1..].iter().map(|(worth, _)| *worth).collect();
            let most = nodes.min(expected.len());
            prop_assert_eq!(worths.len(), most);
            for (found, best) in worths.iter().zip(&expected) {
                prop_assert!((found - best).abs() <= 1e-12 * best);
            }
            let places: Vec<_> = out[1..].iter().map(|(_, place)| *place).collect();
            for (i, place) in places.iter().enumerate() {
                let above = place.parent.map(|parent| places[..i][parent as usize]);
                prop_assert_eq!(place.depth, above.map_or(0, |above| above.depth) + 1);
                let elder = places[..i].iter().filter(|other| other.parent == place.parent);
                prop_assert_eq!(elder.count(), place.rank as usize);
                prop_assert!((place.rank as usize) < width && (place.depth as usize) <= depth);
            }
        }
    }

    #[test]
    fn nominal_shapes_fill_what_they_may() {
        let shape = |width, depth, nodes| nominal_shape(TreeLimits { width, depth }, nodes);
        assert_eq!(shape(2, 3, 64).len(), 14);
        assert_eq!(shape(4, 2, 64).len(), 20);
        assert_eq!(shape(20, 1, 64).len(), 20);
        let chain: Vec<_> = shape(1, 4, 9).iter().map(|place| (place.parent, place.rank)).collect();
        assert_eq!(chain, [(None, 0), (Some(0), 0), (Some(1), 0), (Some(2), 0)]);
        assert_eq!(shape(2, 3, 14)[..8], shape(2, 3, 8)[..]);
    }
}
