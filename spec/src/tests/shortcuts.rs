//! Bounds, heads and races without a law, against the plain definition: every token weighed, everything sorted, every
//! token's noise drawn. The same bits are asked for, not close ones.

use crate::exp::exp;
use crate::{
    Builder, Constraint, Coupled, DrawMode, Draws, History, Law, LawError, LogitRows, Position,
    Proposal, Round, RowError, Sampling, Scratch, TargetRows, TokenFilter, TokenId, Verdict,
    Verifier, coupled_sample, coupled_top, law,
};
use proptest::prelude::*;

/// The law of edited logits, for a temperature above zero.
fn plain(x: &[f32], sampling: &Sampling) -> Option<Law> {
    let mut order: Vec<usize> = (0..x.len()).filter(|&i| x[i] > f32::NEG_INFINITY).collect();
    order.sort_by(|&a, &b| x[b].total_cmp(&x[a]).then(a.cmp(&b)));
    let max = f64::from(x[*order.first()?]);
    let weight = |i: usize| exp((f64::from(x[i]) - max) / sampling.temperature);
    if sampling.top_k > 0 {
        order.truncate(sampling.top_k as usize);
    }
    if sampling.min_p > 0.0 {
        order.retain(|&i| weight(i) >= sampling.min_p);
    }
    let whole: Vec<f64> = {
        let mut kept = order.clone();
        kept.sort_unstable();
        let truncated = sampling.top_k > 0 && (sampling.top_k as usize) < x.len();
        match truncated || sampling.min_p > 0.0 {
            true => kept.iter().map(|&i| weight(i)).collect(),
            false => (0..x.len()).map(weight).collect(),
        }
    };
    if sampling.top_p < 1.0 {
        let (goal, mut before) = (sampling.top_p * law::sum(&whole), 0.0);
        let mut first = true;
        // By weight: far apart at a high temperature two logits may weigh the same.
        order.sort_by(|&a, &b| weight(b).total_cmp(&weight(a)).then(a.cmp(&b)));
        order.retain(|&i| {
            let stays = std::mem::take(&mut first) || before < goal;
            before += weight(i);
            stays && weight(i) > 0.0
        });
    }
    order.sort_unstable();
    let (ids, weights) = order.iter().map(|&i| (i as TokenId, weight(i))).unzip();
    Law::sparse(ids, weights).ok()
}

/// The race under a law, everybody running.
fn everybody(law: &Law, draws: &Draws, position: u64, width: usize) -> Vec<TokenId> {
    let score = |(id, w): (TokenId, f64)| (draws.exponential(position, id) / w, id);
    let mut all: Vec<_> = law.weighted().map(score).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    all.into_iter().take(width).map(|(_, id)| id).collect()
}

fn logit() -> impl Strategy<Value = f32> {
    prop_oneof![
        8 => -12.0..4.0f32,
        3 => (-4i8..4).prop_map(f32::from),
        2 => Just(f32::NEG_INFINITY),
        1 => -800.0..0.0f32,
    ]
}

/// Rows of several groups, most with a rest: ordinary ones, some with ties, some flat, some of extreme values.
fn row() -> impl Strategy<Value = Vec<f32>> {
    prop_oneof![
        4 => prop::collection::vec(logit(), 1..500),
        2 => prop::collection::vec((-2i8..2).prop_map(f32::from), 1..700),
        2 => (1usize..900, -50.0..50.0f32).prop_map(|(len, x)| vec![x; len]),
        1 => prop::collection::vec(prop_oneof![Just(3.0e38_f32), Just(-3.0e38), Just(1e-40), Just(-0.0)], 1..200),
        1 => (1usize..200).prop_map(|len| vec![f32::NEG_INFINITY; len]),
    ]
}

fn temperature() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => Just(1.0),
        4 => 0.2..2.0f64,
        1 => Just(1e-3),
        1 => Just(5e-324),
        1 => Just(1e9),
        1 => Just(1e300),
    ]
}

fn samplings() -> impl Strategy<Value = Sampling> {
    let top_k = prop_oneof![3 => Just(0u32), 1 => 1u32..80, 1 => Just(1_000)];
    let top_p = prop_oneof![2 => Just(1.0), 2 => 0.05..1.0f64, 1 => Just(0.999_999)];
    let min_p = prop_oneof![3 => Just(0.0), 1 => 0.0..1.0f64, 1 => Just(1.0), 1 => Just(1e-300)];
    (temperature(), top_k, top_p, min_p).prop_map(|(temperature, top_k, top_p, min_p)| Sampling {
        temperature,
        top_k,
        top_p,
        min_p,
        ..Sampling::default()
    })
}

fn at<'a>(sampling: &'a Sampling, history: &'a History) -> Position<'a> {
    Position { sampling, history, path: &[], constraint: None }
}

/// The leaders of the race of a row, without its law.
fn leaders(
    row: &[f32],
    sampling: &Sampling,
    (draws, position): (Draws, u64),
    width: usize,
) -> Result<Vec<TokenId>, crate::DraftError> {
    let history = History::default();
    let mut proposal = Proposal::new();
    let how = (DrawMode::Shared, &draws.round(position));
    let place = (row, &at(sampling, &history));
    proposal.build(width).draw_row(None, place, width, how, &mut Scratch::default())?;
    Ok(proposal.nodes().iter().map(|node| node.token).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn a_law_has_the_bits_of_its_definition(row in row(), sampling in samplings()) {
        let history = History::default();
        let got = law(&row, &at(&sampling, &history), &mut Scratch::default());
        let Some(expected) = plain(&row, &sampling) else {
            prop_assert_eq!(got, Err(LawError::NoMass));
            return Ok(());
        };
        let got = got.unwrap();
        prop_assert_eq!(got.argmax(), expected.argmax());
        prop_assert_eq!(got.weighted().collect::<Vec<_>>(), expected.weighted().collect::<Vec<_>>());
        // Sums go by place, and a dense law has other places than a sparse one.
        prop_assert!((got.total() / expected.total() - 1.0).abs() < 1e-13);
    }

    #[test]
    fn a_race_without_a_law_is_the_race_of_the_law(
        row in row(),
        sampling in samplings(),
        seed in any::<u64>(),
        position in 0..1u64 << 40,
        width in 1usize..6,
    ) {
        let draws = Draws { seed, sample: 0 };
        let got = leaders(&row, &sampling, (draws, position), width);
        let Some(law) = plain(&row, &sampling) else {
            prop_assert_eq!(got, Err(LawError::NoMass.into()));
            return Ok(());
        };
        let expected = everybody(&law, &draws, position, width);
        prop_assert_eq!(coupled_top(&law, &draws, position, width), expected.clone());
        prop_assert_eq!(got.unwrap(), expected);
    }

    /// Bias, penalties and constraint on the way, and what is asked of the rows of a round.
    #[test]
    fn rows_of_a_round_draw_what_their_laws_do(
        row in prop::collection::vec(logit(), 90..300),
        temperature in temperature(),
        (prompt, banned) in (prop::collection::vec(0u32..300, 0..9), prop::collection::vec(0u32..300, 0..40)),
        bias in prop::collection::btree_map(0u32..300, -100.0..100.0f32, 0..4),
        constrained in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let sampling = Sampling {
            temperature,
            repetition_penalty: 1.3,
            logit_bias: bias.into_iter().collect(),
            ..Sampling::default()
        };
        let filter = TokenFilter::ban(banned);
        let constraint = constrained.then_some(&filter as &dyn Constraint);
        let history = History::new(&prompt);
        let (draws, proposal) = (Draws { seed, sample: 1 }, Proposal::new());
        let mut scratch = Scratch::default();
        let mut rows =
            LogitRows::new((&row, row.len()), &proposal, (&sampling, &history), constraint, &mut scratch);
        let before = rows.coupled(None, &draws, 5);
        let expected = rows.law(None).map(|law| everybody(law, &draws, 5, 1)[0]);
        prop_assert_eq!(&before, &expected);
        prop_assert_eq!(rows.coupled(None, &draws, 5), expected);
    }
}

/// Laws as wide as a vocabulary: flat, where only noise decides; with a few tokens far ahead; and in between.
#[test]
fn large_vocabularies_too() {
    let vocab = 151_936_u32;
    let scrambled = |i: u32| f64::from(i.wrapping_mul(0x9E37_79B9) >> 8) / f64::from(1 << 24);
    for (spread, lead) in [(0.0, 0.0), (3.0, 0.0), (14.0, 6.0), (20.0, 18.0)] {
        let value =
            |i: u32| (scrambled(i) * spread + if i % 9_973 == 7 { lead } else { 0.0 }) as f32;
        let row: Vec<f32> = (0..vocab).map(value).collect();
        let sampling = Sampling { temperature: 1.0, ..Sampling::default() };
        let law = plain(&row, &sampling).unwrap();
        for position in 0..6 {
            let draws = Draws { seed: 3, sample: 0 };
            let expected = everybody(&law, &draws, position, 4);
            let got = leaders(&row, &sampling, (draws, position), 4).unwrap();
            assert_eq!(got, expected, "{spread} {lead} {position}");
        }
        for top_p in [0.3, 0.95, 0.999_999] {
            let sampling = Sampling { top_p, ..sampling.clone() };
            let history = History::default();
            let got = crate::law(&row, &at(&sampling, &history), &mut Scratch::default()).unwrap();
            let expected = plain(&row, &sampling).unwrap();
            let same = got.weighted().eq(expected.weighted());
            assert!(same, "{spread} {lead} {top_p}");
        }
    }
}

/// Many races in which the winner is often but little ahead of what a bound allows: flat laws, where it is the one with
/// the least noise of its group. A bound too tight by a ten-thousandth would lose some of them.
#[test]
fn no_bound_is_too_tight() {
    let steps = |i: u32| if i.is_multiple_of(64) { 0.0 } else { -0.001 * (i % 7) as f32 };
    let rows = [vec![0.25; 25_600], (0..25_600).map(steps).collect::<Vec<f32>>()];
    let sampling = Sampling { temperature: 1.0, ..Sampling::default() };
    let history = History::default();
    let (mut proposal, mut scratch) = (Proposal::new(), Scratch::default());
    for row in rows {
        let law = plain(&row, &sampling).unwrap();
        for position in 0..20_000 {
            let draws = Draws { seed: 8, sample: 0 };
            let (place, how) =
                ((&row[..], &at(&sampling, &history)), (DrawMode::Shared, &draws.round(position)));
            proposal.build(1).draw_row(None, place, 1, how, &mut scratch).unwrap();
            let token = proposal.node(0).map(|node| node.token);
            assert_eq!(token, Some(coupled_sample(&law, &draws, position)), "{position}");
        }
    }
}

#[test]
fn bad_rows_have_the_same_names_on_every_way() {
    let draws = Draws { seed: 0, sample: 0 };
    let history = History::default();
    for sampling in [
        Sampling::default(),
        Sampling { temperature: 1.0, ..Sampling::default() },
        Sampling { temperature: 1.0, top_p: 0.9, ..Sampling::default() },
        Sampling { temperature: 1.0, repetition_penalty: 1.5, ..Sampling::default() },
    ] {
        for place in [0, 15, 63, 64, 100, 129] {
            for bad in [f32::NAN, -f32::NAN, f32::INFINITY] {
                let mut row = vec![0.5; 130];
                row[place] = bad;
                let of_law = law(&row, &at(&sampling, &history), &mut Scratch::default());
                let Err(LawError::NotFinite { token, .. }) = of_law else { panic!("{of_law:?}") };
                assert_eq!(token as usize, place);
                let of_race = leaders(&row, &sampling, (draws, 0), 2).unwrap_err();
                assert_eq!(
                    of_race.to_string(),
                    crate::DraftError::from(of_law.unwrap_err()).to_string()
                );
            }
        }
    }
}

/// A target whose rows only ever give laws.
struct OnlyLaws<'a>(LogitRows<'a>);

impl TargetRows for OnlyLaws<'_> {
    fn law(&mut self, node: Option<u32>) -> Result<&Law, RowError> {
        self.0.law(node)
    }
}

/// A round over a tree of the target's own likeliest tokens.
#[test]
fn the_rule_keeps_the_same_path() {
    let (vocab, sampling) = (200, Sampling { temperature: 1.0, ..Sampling::default() });
    let history = History::default();
    for seed in 0..300_u64 {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f32 / 2e6
        };
        let logits: Vec<f32> = (0..4 * vocab).map(|_| next()).collect();
        let draws = Draws { seed, sample: 0 };
        let mut proposal = Proposal::new();
        let mut builder: Builder<'_> = proposal.build(3);
        let round = draws.round(9);
        let place = (&logits[..vocab], &at(&sampling, &history));
        let how = (DrawMode::Shared, &round);
        builder.draw_row(None, place, 2, how, &mut Scratch::default()).unwrap();
        builder.draw_row(Some(0), place, 1, how, &mut Scratch::default()).unwrap();
        let round = Round { proposal: &proposal, base: 9, draws };
        let (mut one, mut other) = (Scratch::default(), Scratch::default());
        let rows = |scratch| {
            LogitRows::new((&logits, vocab), &proposal, (&sampling, &history), None, scratch)
        };
        let (mut short, mut long) = (Verdict::default(), Verdict::default());
        Coupled.verify(&round, &mut rows(&mut one), &mut short).unwrap();
        Coupled.verify(&round, &mut OnlyLaws(rows(&mut other)), &mut long).unwrap();
        assert_eq!(short, long);
        assert_eq!(short.path.first(), Some(&0), "the root's row is the draft's");
    }
}

/// In every mode, what is drawn from a row is what is drawn from its law, and so is what is foreseen.
#[test]
fn drafts_of_a_row_are_those_of_its_law() {
    let sampling = Sampling { temperature: 0.8, ..Sampling::default() };
    let history = History::default();
    let row: Vec<f32> = (0..300).map(|i| ((i * 37) % 101) as f32 / 20.0).collect();
    let place = (&row[..], &at(&sampling, &history));
    let mut scratch = Scratch::default();
    for seed in 0..100 {
        let round = Draws { seed, sample: 0 }.round(4);
        for mode in [
            DrawMode::Shared,
            DrawMode::Point,
            DrawMode::Sampled { replacement: false },
            DrawMode::Sampled { replacement: true },
        ] {
            let of_law = || law(place.0, place.1, &mut Scratch::default()).unwrap();
            let (mut one, mut other) = (Proposal::new(), Proposal::new());
            one.build(5).draw_row(None, place, 3, (mode, &round), &mut scratch).unwrap();
            other.build(5).draw(None, of_law(), 3, mode, &round).unwrap();
            assert_eq!(one, other);
            let ahead = other.build(5).prospects(None, &of_law(), 3, mode, &round);
            let got = one.build(5).prospects_row(None, place, 3, (mode, &round), &mut scratch);
            assert_eq!(got.unwrap(), ahead);
        }
        let sample = coupled_sample(&law(place.0, place.1, &mut scratch).unwrap(), &round.draws, 4);
        assert_eq!(leaders(&row, &sampling, (round.draws, 4), 1).unwrap(), [sample]);
    }
}
