//! The exponential race: Gumbel-max sampling with noise that draft and target share.
//!
//! Daliri, Musco, Suresh: "Coupling without communication and drafter-invariant speculative
//! decoding", 2024 (arXiv 2408.07978), with `E = exp(−G)`: argmax of ln p + G is argmin of E/p.

use crate::draws::{Draws, GROUP, GroupNoise};
use crate::process::Scratch;
use crate::row::Row;
use crate::{Law, TokenId};

/// The token at `position` drawn from `law` with the shared noise: **the plain sampler** of the
/// engine and the target's sample under `coupled`. Exactly equal scores go to the lowest id. A
/// point law gives its point.
#[must_use]
pub fn coupled_sample(law: &Law, draws: &Draws, position: u64) -> TokenId {
    let mut best = [NOBODY];
    run(law, draws, position, &mut best);
    let [(_, first)] = best;
    first
}

/// The `width` tokens of `law` that are first in the race at `position`, best first: the children
/// of a node under `coupled` (top-k of ln q + the target's own noise). The first is
/// [`coupled_sample`]; fewer if the support is smaller.
#[must_use]
pub fn coupled_top(law: &Law, draws: &Draws, position: u64, width: usize) -> Vec<TokenId> {
    coupled_race(law, draws, position, width).into_iter().map(|(_, id)| id).collect()
}

/// [`coupled_top`] with the score of each, ascending.
pub(crate) fn coupled_race(
    law: &Law,
    draws: &Draws,
    position: u64,
    width: usize,
) -> Vec<(f64, TokenId)> {
    let mut best = vec![NOBODY; width.min(law.parts().1.len())];
    run(law, draws, position, &mut best);
    best.retain(|&place| place != NOBODY);
    best
}

/// A place in the race that nobody has taken: behind everyone.
pub(crate) const NOBODY: (f64, TokenId) = (f64::INFINITY, TokenId::MAX);

/// Runs the race for as many places as `best` has, all empty before, and leaves (score, id) in
/// them, ascending.
///
/// A group of ids is skipped if its least noise over its largest weight is above the worst score
/// kept: rounding is monotone, so no member could do better. The likeliest token runs first to make
/// that bound tight at once; a vocabulary of 152 k costs about 2,400 blocks instead of 76 k.
pub(crate) fn run(law: &Law, draws: &Draws, position: u64, best: &mut [(f64, TokenId)]) {
    let Some(last) = best.len().checked_sub(1) else { return };
    let favourite = law.argmax();
    // The scaling of laws gives the likeliest token weight 1.
    enter(best, (draws.exponential(position, favourite), favourite));
    let mut members = |group: u32, ids: Option<&[TokenId]>, weights: &[f64]| {
        let noise = draws.group_noise(position, group);
        let top = largest(weights);
        if top == 0.0 || noise.least / top > best[last].0 {
            return;
        }
        for (index, &weight) in weights.iter().enumerate() {
            let id = ids.map_or_else(|| group * GROUP + index as u32, |ids| ids[index]);
            let beaten = noise.least / weight > best[last].0;
            if weight > 0.0 && id != favourite && !beaten {
                let score = draws.token_noise(position, id, noise) / weight;
                enter(best, (score, id));
            }
        }
    };
    match law.parts() {
        (None, weights) => {
            for (group, weights) in weights.chunks(GROUP as usize).enumerate() {
                members(group as u32, None, weights);
            }
        }
        (Some(ids), weights) => {
            let mut from = 0;
            for ids in ids.chunk_by(|a, b| a / GROUP == b / GROUP) {
                members(ids[0] / GROUP, Some(ids), &weights[from..from + ids.len()]);
                from += ids.len();
            }
        }
    }
}

/// What bounds are moved by, up or down: far more than anything is rounded.
const SLACK: f64 = 1.0 / (1_u64 << 40) as f64;

/// [`run`] under the law of a row that is neither greedy nor truncated, without working it out: the same scores in the
/// same places.
///
/// A group's largest weight is known from its largest logit, and its least noise is at least what the uniform
/// number says that it is made from. Where these rule the group out not even the noise's logarithm is taken, in the
/// others only tokens are weighed whose logit is near enough.
pub(crate) fn run_row(
    row: &Row<'_>,
    scratch: &mut Scratch,
    (draws, position): (&Draws, u64),
    best: &mut [(f64, TokenId)],
) {
    let Some(last) = best.len().checked_sub(1) else { return };
    let (scale, tops) = (row.scale(), row.tops());
    let math = scratch.math();
    let Scratch { bounds, noise, .. } = scratch;
    bounds.resize(tops.len(), 0.0);
    noise.resize(tops.len(), [0; 2]);
    math.weights(tops, scale, bounds);
    math.noise(draws, position, noise);
    let favourite = row.argmax();
    enter(best, (draws.exponential(position, favourite), favourite));
    for ((group, &words), &top) in (0_u32..).zip(&*noise).zip(&*bounds) {
        // Above the weight of every member, even where that is the smallest number there is.
        let top = top * (1.0 + SLACK) + f64::MIN_POSITIVE;
        if GroupNoise::floor(words) * (1.0 - SLACK) > best[last].0 * top {
            continue;
        }
        let noise = GroupNoise::new(group, words);
        if noise.least * (1.0 - SLACK) > best[last].0 * top {
            continue;
        }
        let reach = scale.reach(noise.least / best[last].0);
        for (id, &x) in (group * GROUP..).zip(row.group(group as usize)) {
            if scale.distance(x) < reach || id == favourite {
                continue;
            }
            let weight = scale.weight(x);
            if weight > 0.0 && noise.least / weight <= best[last].0 {
                enter(best, (draws.token_noise(position, id, noise) / weight, id));
            }
        }
    }
}

/// The largest of some non-negative weights.
fn largest(weights: &[f64]) -> f64 {
    let pick = |a: f64, b: f64| if b > a { b } else { a };
    // Lanes without dependence on each other.
    let mut lanes = [0.0; 8];
    let chunks = weights.chunks_exact(lanes.len());
    let rest = chunks.remainder().iter().copied().fold(0.0, pick);
    for chunk in chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, &w)| *lane = pick(*lane, w));
    }
    lanes.into_iter().fold(rest, pick)
}

/// Inserts a runner among the best, lower ids first among equal scores.
fn enter(best: &mut [(f64, TokenId)], runner: (f64, TokenId)) {
    let at = best.partition_point(|&place| place < runner);
    if let Some(behind) = best.get_mut(at..).filter(|behind| !behind.is_empty()) {
        behind.rotate_right(1);
        behind[0] = runner;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the race means, without any short cut.
    fn plain(law: &Law, draws: &Draws, position: u64, width: usize) -> Vec<TokenId> {
        let score = |(id, p): (TokenId, f64)| (draws.exponential(position, id) / p, id);
        let mut all: Vec<_> = law.weighted().map(score).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        all.into_iter().take(width).map(|(_, id)| id).collect()
    }

    fn weight() -> impl Strategy<Value = f64> {
        prop_oneof![
            2 => Just(0.0),
            3 => 0.0..1.0f64,
            3 => (-80.0..0.0f64).prop_map(f64::exp),
            1 => Just(1e-300),
            1 => Just(1.0),
        ]
    }

    proptest! {
        #[test]
        fn skipping_changes_nothing(
            weights in prop::collection::vec(weight(), 1..400),
            sparse in any::<bool>(),
            seed in any::<u64>(),
            position in 0..1u64 << 40,
            width in 1usize..5,
        ) {
            prop_assume!(weights.iter().any(|&w| w > 0.0));
            let law = if sparse {
                let ids = (0..weights.len() as u32).map(|i| i * 37 + i % 3).collect();
                Law::sparse(ids, weights).unwrap()
            } else {
                Law::dense(weights).unwrap()
            };
            let draws = Draws { seed, sample: 0 };
            let expected = plain(&law, &draws, position, width);
            prop_assert_eq!(coupled_sample(&law, &draws, position), expected[0]);
            prop_assert_eq!(coupled_top(&law, &draws, position, width), expected);
        }
    }

    #[test]
    fn a_large_vocabulary_agrees_too() {
        let weights: Vec<f64> =
            (0..151_936_u32).map(|i| (-(f64::from(i % 977)) / 60.0).exp()).collect();
        let law = Law::dense(weights).unwrap();
        for position in 0..20 {
            let draws = Draws { seed: 11, sample: 1 };
            assert_eq!(coupled_top(&law, &draws, position, 4), plain(&law, &draws, position, 4));
        }
    }

    #[test]
    fn points_and_zero_width() {
        let draws = Draws { seed: 1, sample: 0 };
        assert_eq!(coupled_sample(&Law::point(70_000), &draws, 5), 70_000);
        assert_eq!(coupled_top(&Law::point(3), &draws, 5, 4), [3]);
        assert!(coupled_top(&Law::point(3), &draws, 5, 0).is_empty());
    }
}
