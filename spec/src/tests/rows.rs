//! `law()` against a plain reading of its definition, and rows along a draft path.

use crate::{
    Constraint, Coupled, Draws, History, Law, LawError, LogitRows, Position, Proposal, Round,
    RowError, Sampling, Scratch, TargetRows, Token, TokenFilter, TokenId, Verdict, Verifier,
    VerifyError, law,
};
use proptest::prelude::*;

/// The definition, step by step, sorting everything.
fn by_definition(
    logits: &[f32],
    sampling: &Sampling,
    prompt: &[TokenId],
    output: &[TokenId],
    banned: &[TokenId],
) -> Option<Vec<f64>> {
    let mut x: Vec<f32> = logits.to_vec();
    for &(token, bias) in &sampling.logit_bias {
        if let Some(x) = x.get_mut(token as usize) {
            *x += bias;
        }
    }
    for token in 0..x.len() as TokenId {
        let count = output.iter().filter(|&&t| t == token).count();
        let x = &mut x[token as usize];
        if prompt.contains(&token) || count > 0 {
            let r = sampling.repetition_penalty as f32;
            *x = if *x > 0.0 { *x / r } else { *x * r };
        }
        *x -= sampling.frequency_penalty as f32 * count as f32;
        *x -= sampling.presence_penalty as f32 * f32::from(u8::from(count > 0));
        if banned.contains(&token) {
            *x = f32::NEG_INFINITY;
        }
    }
    let mut order: Vec<usize> = (0..x.len()).filter(|&i| x[i] > f32::NEG_INFINITY).collect();
    order.sort_by(|&a, &b| x[b].total_cmp(&x[a]).then(a.cmp(&b)));
    let first = *order.first()?;
    let mut p = vec![0.0; x.len()];
    if sampling.temperature == 0.0 {
        p[first] = 1.0;
        return Some(p);
    }
    let weight = |i: usize| ((f64::from(x[i]) - f64::from(x[first])) / sampling.temperature).exp();
    order.retain(|&i| weight(i) >= sampling.min_p);
    if sampling.top_k > 0 {
        order.truncate(sampling.top_k as usize);
    }
    let goal = sampling.top_p * order.iter().map(|&i| weight(i)).sum::<f64>();
    let mut before = 0.0;
    order.retain(|&i| {
        let stays = i == first || sampling.top_p == 1.0 || before < goal;
        before += weight(i);
        stays
    });
    let total: f64 = order.iter().map(|&i| weight(i)).sum();
    order.iter().for_each(|&i| p[i] = weight(i) / total);
    Some(p)
}

fn samplings() -> impl Strategy<Value = Sampling> {
    let temperature = prop_oneof![1 => Just(0.0), 1 => Just(1e-3), 4 => 0.2..2.0f64];
    let top_k = prop_oneof![1 => Just(0u32), 2 => 1u32..60];
    let top_p = prop_oneof![1 => Just(1.0), 2 => 0.05..1.0f64];
    let min_p = prop_oneof![2 => Just(0.0), 1 => 0.0..1.0f64, 1 => Just(1.0)];
    let repetition = prop_oneof![1 => Just(1.0), 1 => 0.5..2.0f64];
    let penalty = || prop_oneof![1 => Just(0.0), 1 => -2.0..2.0f64];
    let bias = prop::collection::btree_map(0u32..90, -100.0..100.0f32, 0..4);
    (temperature, top_k, top_p, min_p, repetition, penalty(), penalty(), bias).prop_map(
        |(temperature, top_k, top_p, min_p, repetition_penalty, presence, frequency, bias)| {
            Sampling {
                temperature,
                top_k,
                top_p,
                min_p,
                repetition_penalty,
                presence_penalty: presence,
                frequency_penalty: frequency,
                logit_bias: bias.into_iter().collect(),
            }
        },
    )
}

fn logit() -> impl Strategy<Value = f32> {
    prop_oneof![6 => -8.0..8.0f32, 2 => (-4i8..4).prop_map(f32::from), 1 => Just(f32::NEG_INFINITY)]
}

fn tokens(len: usize) -> impl Strategy<Value = Vec<TokenId>> {
    prop::collection::vec(0u32..90, 0..len)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn law_is_its_definition(
        logits in prop::collection::vec(logit(), 1..80),
        sampling in samplings(),
        (prompt, output, path) in (tokens(9), tokens(9), tokens(5)),
        banned in prop::option::of(tokens(20)),
    ) {
        sampling.validate().unwrap();
        let mut history = History::new(&prompt);
        output.iter().for_each(|&token| history.push(token));
        let filter = banned.clone().map(TokenFilter::ban);
        let constraint = filter.as_ref().map(|f| f as &dyn Constraint);
        let at = Position { sampling: &sampling, history: &history, path: &path, constraint };
        let mut scratch = Scratch::default();
        let expected = by_definition(
            &logits,
            &sampling,
            &prompt,
            &[output, path.clone()].concat(),
            &banned.unwrap_or_default(),
        );
        // Twice, the second time with used buffers.
        for _ in 0..2 {
            let got = law(&logits, &at, &mut scratch);
            match &expected {
                None => prop_assert_eq!(got, Err(LawError::NoMass)),
                Some(expected) => {
                    let got = got.unwrap();
                    for (id, &p) in expected.iter().enumerate() {
                        let error = (got.p(id as TokenId) - p).abs();
                        prop_assert!(error < 1e-12, "token {}: {} {}", id, got.p(id as TokenId), p);
                    }
                    scratch.recycle(got);
                }
            }
        }
    }
}

fn plain_law(logits: &[f32], sampling: &Sampling) -> Result<Law, LawError> {
    let history = History::default();
    let at = Position { sampling, history: &history, path: &[], constraint: None };
    law(logits, &at, &mut Scratch::default())
}

#[test]
fn bad_rows_are_named_wherever_the_value_is() {
    for sampling in
        [Sampling::default(), Sampling { temperature: 1.0, top_k: 2, ..Sampling::default() }]
    {
        for at in [0, 15, 16, 40] {
            for bad in [f32::NAN, -f32::NAN, f32::INFINITY] {
                let mut logits = vec![0.5; 41];
                logits[at] = bad;
                let error = plain_law(&logits, &sampling).unwrap_err();
                assert!(
                    matches!(error, LawError::NotFinite { token, .. } if token as usize == at),
                    "{error}"
                );
            }
        }
        assert_eq!(plain_law(&[f32::NEG_INFINITY; 3], &sampling), Err(LawError::NoMass));
        assert_eq!(plain_law(&[], &sampling), Err(LawError::NoMass));
    }
    // Overflow in a processor is found too.
    let sampling = Sampling { repetition_penalty: 0.5, ..Sampling::default() };
    let history = History::new(&[1]);
    let at = Position { sampling: &sampling, history: &history, path: &[], constraint: None };
    let error = law(&[0.0, f32::MAX], &at, &mut Scratch::default()).unwrap_err();
    assert!(matches!(error, LawError::NotFinite { token: 1, .. }));
    // A parameter that never passed the door does not panic.
    let sampling = Sampling { top_p: f64::NAN, ..Sampling::default() };
    assert!(matches!(plain_law(&[1.0], &sampling), Err(LawError::Sampling(_))));
}

#[test]
fn extreme_temperatures_and_logits_stay_laws() {
    for temperature in [f64::MIN_POSITIVE, 1e-300, 1e-5, 1e308] {
        let sampling = Sampling { temperature, ..Sampling::default() };
        let got = plain_law(&[f32::MAX, f32::MIN, 0.0], &sampling).unwrap();
        let sum: f64 = got.iter().map(|(_, p)| p).sum();
        assert!((sum - 1.0).abs() < 1e-12 && got.argmax() == 0, "{temperature}");
    }
    assert_eq!(plain_law(&[1.0, 2.0, 2.0], &Sampling::default()).unwrap().as_point(), Some(1));
}

/// Rows of a round whose logits are those of one table row per token: what plain decoding would
/// see.
struct World {
    vocab: usize,
    sampling: Sampling,
}

impl World {
    fn logits(&self, last: TokenId) -> Vec<f32> {
        let f = |id: usize| ((id * 7 + last as usize * 3) % 11) as f32 / 4.0;
        (0..self.vocab).map(f).collect()
    }

    fn rows(&self, last: TokenId, proposal: &Proposal) -> Vec<f32> {
        let nodes = proposal.nodes().iter().map(|node| node.token);
        std::iter::once(last).chain(nodes).flat_map(|token| self.logits(token)).collect()
    }
}

/// FAULTS B8: the row after a draft path is the row plain decoding would have after those tokens.
#[test]
fn penalties_and_constraints_follow_the_path() {
    let sampling = Sampling {
        temperature: 0.8,
        repetition_penalty: 1.3,
        presence_penalty: 0.4,
        frequency_penalty: 0.7,
        ..Sampling::default()
    };
    let world = World { vocab: 12, sampling };
    let history = History::new(&[1, 2, 3]);
    let mut proposal = Proposal::new();
    let mut builder = proposal.build(8);
    let a = builder.point(None, 5).unwrap();
    let b = builder.point(Some(a), 5).unwrap();
    builder.point(None, 2).unwrap();
    let c = builder.point(Some(b), 2).unwrap();
    let logits = world.rows(3, &proposal);
    let ban = TokenFilter::ban([7]);
    let mut scratch = Scratch::default();
    for node in [None, Some(a), Some(b), Some(c)] {
        let mut path = Vec::new();
        proposal.path_tokens(node, &mut path);
        let mut committed = history.clone();
        path.iter().for_each(|&token| committed.push(token));
        let at = Position {
            sampling: &world.sampling,
            history: &committed,
            path: &[],
            constraint: Some(&ban),
        };
        let last = path.last().copied().unwrap_or(3);
        let expected = law(&world.logits(last), &at, &mut Scratch::default()).unwrap();
        let mut rows = LogitRows::new(
            (&logits, world.vocab),
            &proposal,
            (&world.sampling, &history),
            Some(&ban),
            &mut scratch,
        );
        assert_eq!(rows.law(node).unwrap(), &expected, "{path:?}");
        // The mutant that forgets the path (stale penalties) is another law.
        if !path.is_empty() {
            let stale = Position { history: &history, ..at };
            let stale = law(&world.logits(last), &stale, &mut Scratch::default()).unwrap();
            assert_ne!(stale, expected);
        }
    }
}

/// DESIGN §4 law 4: only rows on the emitted path are read.
#[test]
fn a_bad_row_off_the_path_hurts_nobody() {
    let sampling = Sampling::default();
    let history = History::default();
    let mut proposal = Proposal::new();
    let mut builder = proposal.build(4);
    let right = builder.point(None, 1).unwrap();
    let wrong = builder.point(None, 0).unwrap();
    builder.point(Some(wrong), 2).unwrap();
    let row = [0.0, 1.0, 0.5];
    let nan = [f32::NAN; 3];
    let logits = [row, row, nan, nan].concat();
    let draws = Draws { seed: 1, sample: 0 };
    let round = Round { proposal: &proposal, base: 7, draws };
    let verifiers: [&dyn Verifier; 2] = [&Coupled, &Token];
    for verifier in verifiers {
        let mut scratch = Scratch::default();
        let mut verdict = Verdict::default();
        let mut rows =
            LogitRows::new((&logits, 3), &proposal, (&sampling, &history), None, &mut scratch);
        verifier.verify(&round, &mut rows, &mut verdict).unwrap();
        assert_eq!((&verdict.path[..], verdict.next), (&[right][..], 1));
        drop(rows);
        // On the path, it fails this request by name.
        let logits = [row, nan, row, row].concat();
        let mut rows =
            LogitRows::new((&logits, 3), &proposal, (&sampling, &history), None, &mut scratch);
        let error = verifier.verify(&round, &mut rows, &mut verdict).unwrap_err();
        let named = |node| matches!(node, Some(n) if n == right);
        assert!(matches!(error, VerifyError::Row(RowError::Bad { node, .. }) if named(node)));
        drop(rows);
        let mut rows =
            LogitRows::new((&logits[..3], 3), &proposal, (&sampling, &history), None, &mut scratch);
        let error = verifier.verify(&round, &mut rows, &mut verdict).unwrap_err();
        assert!(matches!(error, VerifyError::Row(RowError::Missing { .. })), "{error}");
    }
}
