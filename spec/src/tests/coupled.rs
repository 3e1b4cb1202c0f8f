//! `coupled`: the plain sampler's tokens for every noise, the sampler's law, the acceptance.

use super::hostile::{Pair, pair};
use super::statistics::g_test;
use crate::{
    Coupled, DrawMode, Draws, Law, Proposal, Round, RowError, TargetRows, Verdict, Verifier,
    coupled_sample, coupled_top,
};
use proptest::prelude::*;

/// Rows of a table model after `prefix`; counts how often they are read.
pub(super) struct Rows<'a> {
    pub(super) pair: &'a Pair,
    pub(super) prefix: &'a [u32],
    pub(super) proposal: &'a Proposal,
    pub(super) law: Option<Law>,
}

impl TargetRows for Rows<'_> {
    fn law(&mut self, node: Option<u32>) -> Result<&Law, RowError> {
        let mut path = Vec::new();
        self.proposal.path_tokens(node, &mut path);
        Ok(self.law.insert(self.pair.p(&[self.prefix, &path].concat())))
    }
}

/// A tree of the drafter's laws after `prefix`, grown in the given mode.
pub(super) fn draft(
    pair: &Pair,
    prefix: &[u32],
    (draws, mode): (Draws, DrawMode),
    widths: &[usize],
    proposal: &mut Proposal,
) {
    let round = draws.round(prefix.len() as u64);
    let mut builder = proposal.build(16);
    let mut level = vec![None];
    for &width in widths {
        let mut next = Vec::new();
        for parent in level {
            let mut path = Vec::new();
            builder.proposal().path_tokens(parent, &mut path);
            if builder.room() > 0 {
                let q = pair.q(&[prefix, &path].concat());
                next.extend(builder.draw(parent, q, width, mode, &round).unwrap().map(Some));
            }
        }
        level = next;
    }
}

fn modes() -> impl Strategy<Value = DrawMode> {
    prop_oneof![
        Just(DrawMode::Shared),
        Just(DrawMode::Point),
        any::<bool>().prop_map(|replacement| DrawMode::Sampled { replacement }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// Whatever the drafter, the mode and the tree: the tokens of plain decoding, noise for noise.
    #[test]
    fn emits_what_plain_decoding_emits(
        pair in pair(5),
        mode in modes(),
        widths in prop::collection::vec(0usize..3, 0..4),
        seed in any::<u64>(),
        sample in 0u32..3,
    ) {
        let draws = Draws { seed, sample };
        let mut plain = Vec::new();
        while plain.len() < 12 {
            let law = pair.p(&plain);
            plain.push(coupled_sample(&law, &draws, plain.len() as u64));
        }
        let (mut tokens, mut run) = (Vec::new(), Vec::new());
        let (mut proposal, mut verdict) = (Proposal::new(), Verdict::default());
        while tokens.len() < 12 {
            draft(&pair, &tokens, (draws, mode), &widths, &mut proposal);
            let mut rows = Rows { pair: &pair, prefix: &tokens, proposal: &proposal, law: None };
            let round = Round { proposal: &proposal, base: tokens.len() as u64, draws };
            Coupled.verify(&round, &mut rows, &mut verdict).unwrap();
            verdict.tokens(&proposal, &mut run);
            tokens.extend_from_slice(&run);
        }
        prop_assert_eq!(&tokens[..12], &plain[..]);
    }

    /// With p = q and the target's noise every draft is accepted.
    #[test]
    fn equal_laws_are_always_accepted(pair in pair(5), depth in 1usize..5, seed in any::<u64>()) {
        let same = Pair::new(5, vec![(pair.p(&[]), pair.p(&[]))]);
        let draws = Draws { seed, sample: 0 };
        let mut proposal = Proposal::new();
        draft(&same, &[], (draws, DrawMode::Shared), &vec![1; depth], &mut proposal);
        let mut rows = Rows { pair: &same, prefix: &[], proposal: &proposal, law: None };
        let mut verdict = Verdict::default();
        let round = Round { proposal: &proposal, base: 0, draws };
        Coupled.verify(&round, &mut rows, &mut verdict).unwrap();
        prop_assert_eq!(verdict.path.len(), depth);
    }
}

/// Narrow laws whose ids lie within one group, across groups, and mixed.
fn narrow() -> Vec<Law> {
    let weights = [0.4, 0.05, 0.25, 0.2, 0.0999, 0.0001];
    let of = |ids: [u32; 6]| Law::sparse(ids.to_vec(), weights.to_vec()).unwrap();
    vec![
        of([0, 1, 2, 3, 4, 5]),
        of([3, 64, 200, 7_000, 64_001, 151_000]),
        of([62, 63, 64, 65, 127, 128]),
        Law::dense(vec![0.7, 0.3]).unwrap(),
    ]
}

#[test]
fn the_sampler_draws_the_law() {
    for (index, law) in narrow().iter().enumerate() {
        for by_seed in [false, true] {
            let mut counts = vec![0_u64; law.support_len()];
            for i in 0..300_000_u64 {
                let (seed, position) = if by_seed { (i, 77) } else { (77, i) };
                let token = coupled_sample(law, &Draws { seed, sample: 0 }, position);
                counts[law.iter().position(|(id, _)| id == token).unwrap()] += 1;
            }
            let p = g_test(law.iter().map(|(_, p)| p).zip(counts));
            assert!(p > 1e-6, "law {index}, by_seed {by_seed}: p = {p:e}");
        }
    }
}

/// The first two of the race are a draw without replacement: P(a, b) = p(a) p(b) / (1 − p(a)).
#[test]
fn the_race_draws_without_replacement() {
    for law in narrow() {
        let ids: Vec<u32> = law.iter().map(|(id, _)| id).collect();
        let mut counts = vec![0_u64; ids.len() * ids.len()];
        for position in 0..200_000 {
            let top = coupled_top(&law, &Draws { seed: 5, sample: 2 }, position, 2);
            let at = |token| ids.iter().position(|&id| id == token).unwrap();
            counts[at(top[0]) * ids.len() + at(top[1])] += 1;
        }
        let pairs = ids.iter().flat_map(|&a| ids.iter().map(move |&b| (a, b)));
        let expected = pairs.map(|(a, b)| match a == b {
            true => 0.0,
            false => law.p(a) * law.p(b) / (1.0 - law.p(a)),
        });
        let p = g_test(expected.zip(counts));
        assert!(p > 1e-6, "p = {p:e}");
    }
}

/// P(the target's sample is i, and i is among the first `width` of the drafter's race), for each i,
/// both races with the same exponential noise.
///
/// Given that i wins at time t = E_i, token j has E_j ≥ t·r, r = p_j/p_i; it is before i in the
/// drafter's race iff E_j < t·s, s = q_j/q_i. Summed over the sets A of fewer than `width` such
/// tokens, products of exponentials in t are left, each of which integrates to the inverse of its
/// rate. For width 1 only A = ∅ remains, and the sum over i is Daliri et al.'s
/// Σᵢ 1 / Σⱼ max(pⱼ/pᵢ, qⱼ/qᵢ).
fn kept(p: &Law, q: &Law, vocab: u32, width: u32) -> Vec<f64> {
    let one = |i: u32| {
        if p.p(i) == 0.0 || q.p(i) == 0.0 {
            return 0.0;
        }
        let rates = |j: u32| (p.p(j) / p.p(i), q.p(j) / q.p(i));
        let others = |set: u32| (0..vocab).filter(move |&j| j != i && set & 1 << j != 0);
        let ahead: u32 =
            others(u32::MAX).filter(|&j| rates(j).1 > rates(j).0).map(|j| 1 << j).sum();
        let mut sum = 0.0;
        for set in (0..1_u32 << vocab).filter(|set| set & !ahead == 0 && set.count_ones() < width) {
            let behind: f64 = others(!set).map(|j| rates(j).0.max(rates(j).1)).sum();
            // Each member contributes exp(−tr) − exp(−ts).
            for late in (0..1_u32 << vocab).filter(|late| late & !set == 0) {
                let early: f64 = others(set & !late).map(|j| rates(j).0).sum();
                let late_sum: f64 = others(late).map(|j| rates(j).1).sum();
                let sign = if late.count_ones() % 2 == 0 { 1.0 } else { -1.0 };
                sum += sign / (1.0 + behind + early + late_sum);
            }
        }
        sum
    };
    (0..vocab).map(one).collect()
}

fn hostile_laws() -> [Pair; 4] {
    let law = |weights: [f64; 4]| Law::dense(weights.to_vec()).unwrap();
    let pair = |p, q, p2, q2| Pair::new(4, vec![(law(p), law(q)), (law(p2), law(q2))]);
    let flat = [0.25; 4];
    [
        pair([0.5, 0.3, 0.15, 0.05], flat, [0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]),
        pair([0.9, 0.1, 0.0, 0.0], [0.0, 0.1, 0.1, 0.8], [0.2, 0.4, 0.4, 0.0], flat),
        pair([0.01, 0.04, 0.05, 0.9], [0.02, 0.03, 0.15, 0.8], flat, [0.7, 0.1, 0.1, 0.1]),
        pair(flat, flat, [0.6, 0.2, 0.1, 0.1], [0.5, 0.2, 0.2, 0.1]),
    ]
}

/// On chains and on trees of shared-noise children: how many drafts are kept, as the closed form
/// has it.
#[test]
fn acceptance_has_its_closed_form() {
    for pair in hostile_laws() {
        for widths in [&[1, 1][..], &[2, 2], &[3, 1], &[4]] {
            let at = |path: &[u32], width| kept(&pair.p(path), &pair.q(path), 4, width as u32);
            let first = at(&[], widths[0]);
            let reached: f64 = first.iter().sum();
            let second = |&width: &usize| -> f64 {
                let below = |i: usize| at(&[i as u32], width).iter().sum::<f64>();
                (0..4).map(|i| first[i] * below(i)).sum()
            };
            let both = widths.get(1).map_or(0.0, second);
            let n = 20_000_u64;
            let (mut counts, mut proposal, mut verdict) =
                ([0_u64; 3], Proposal::new(), Verdict::default());
            for seed in 0..n {
                let draws = Draws { seed, sample: 0 };
                draft(&pair, &[], (draws, DrawMode::Shared), widths, &mut proposal);
                let mut rows = Rows { pair: &pair, prefix: &[], proposal: &proposal, law: None };
                let round = Round { proposal: &proposal, base: 0, draws };
                Coupled.verify(&round, &mut rows, &mut verdict).unwrap();
                counts[verdict.path.len()] += 1;
            }
            let expected = [1.0 - reached, reached - both, both].map(|p| p.max(0.0));
            let cells = expected.iter().map(|&p| if p < 1e-12 { 0.0 } else { p }).zip(counts);
            let p_value = g_test(cells);
            assert!(p_value > 1e-6, "{widths:?}: {expected:?} {counts:?}");
            println!("{widths:?}: {:.4}", reached + both);
        }
    }
}

/// Known: equal laws are always kept; a child for every token, too; more children keep more.
#[test]
fn the_closed_form_has_its_limits() {
    for pair in hostile_laws() {
        let (p, q) = (pair.p(&[]), pair.q(&[]));
        let of = |q: &Law, width| kept(&p, q, 4, width).iter().sum::<f64>();
        assert!((of(&p, 1) - 1.0).abs() < 1e-14);
        let both: f64 = p.iter().filter(|&(id, _)| q.p(id) > 0.0).map(|(_, p)| p).sum();
        assert!((of(&q, 4) - both).abs() < 1e-14);
        let tv: f64 = (0..4).map(|id| (p.p(id) - q.p(id)).abs()).sum::<f64>() / 2.0;
        assert!(of(&q, 1) <= 1.0 - tv + 1e-14 && of(&q, 1) >= (1.0 - tv) / (1.0 + tv) - 1e-14);
        assert!((1..4).all(|width| of(&q, width) <= of(&q, width + 1) + 1e-14));
    }
}
