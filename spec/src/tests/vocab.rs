//! Every rule with drafters that know fewer tokens, more, or the same in another order.

use super::exact_law::TOLERANCE;
use crate::exact::{distance, emitted, joint};
use crate::{
    Block, Builder, Choices, Coupled, DrawMode, Draws, History, Law, Position, Proposal,
    ProposalError, RatioRule, Round, RowError, Sampling, Scratch, TargetRows, Token, TokenId,
    Traversal, Verdict, Verifier, VocabMap, coupled_sample, law,
};

const VOCAB: usize = 4;

fn logits(path: &[TokenId], salt: u32, vocab: usize) -> Vec<f32> {
    let state = path.iter().fold(salt, |h, &t| (h * 31 + t + 1) % 1009);
    (0..vocab as u32).map(|id| ((state * 7 + id * 13) % 11) as f32 / 4.0).collect()
}

fn as_law(row: &[f32]) -> Law {
    let (sampling, history) = (Sampling::default(), History::default());
    let sampling = Sampling { temperature: 1.0, ..sampling };
    let at = Position { sampling: &sampling, history: &history, path: &[], constraint: None };
    law(row, &at, &mut Scratch::default()).unwrap()
}

fn target(path: &[TokenId]) -> Law {
    as_law(&logits(path, 3, VOCAB))
}

/// The three kinds, a mixture of all, and drafters that are fed more than they say.
fn maps() -> [VocabMap; 7] {
    let map = |ids: &[Option<TokenId>]| VocabMap::new(ids.iter().copied(), VOCAB).unwrap();
    [
        map(&[Some(0), Some(1), Some(3)]),
        map(&[Some(0), Some(1), Some(2), Some(3), None, None]),
        map(&[Some(2), Some(0), Some(3), Some(1)]),
        map(&[None, Some(3), None, Some(1), Some(0)]),
        VocabMap::identity(4, VOCAB).unwrap().with_head(&[0, 2, 3]).unwrap(),
        map(&[Some(2), Some(0), Some(3), Some(1)]).with_head(&[3, 1, 0]).unwrap(),
        map(&[None, Some(3), None, Some(1), Some(0)]).with_head(&[4, 0, 3]).unwrap(),
    ]
}

/// The drafter's law after `path`, which it sees in its own ids.
fn drafted(map: &VocabMap, path: &[TokenId]) -> Law {
    let known: Vec<_> = path.iter().filter_map(|&token| map.to_draft(token)).collect();
    let mut row = Vec::new();
    map.row(&logits(&known, 5, 6), &mut row);
    as_law(&row)
}

fn tree(
    map: &VocabMap,
    (width, replacement): (usize, bool),
    builder: &mut Builder<'_>,
    choices: &mut dyn Choices,
) -> Result<(), ProposalError> {
    let mut level = vec![None];
    for _ in 0..2 {
        let mut next = Vec::new();
        for parent in level {
            let mut path = Vec::new();
            builder.proposal().path_tokens(parent, &mut path);
            let law = drafted(map, &path);
            next.extend(builder.sample(parent, law, width, replacement, choices)?.map(Some));
        }
        level = next;
    }
    Ok(())
}

#[test]
fn ratio_rules_are_exact() {
    let grid: [(&dyn RatioRule, usize, bool); 6] = [
        (&Token, 1, true),
        (&Block, 1, true),
        (&Token, 2, false),
        (&Token, 2, true),
        (&Traversal, 2, false),
        (&Traversal, 2, true),
    ];
    for (index, map) in maps().iter().enumerate() {
        for (rule, width, replacement) in grid {
            let round = emitted(rule, 6, &target, |builder, choices| {
                tree(map, (width, replacement), builder, choices)?;
                assert_eq!(builder.proposal().check(VOCAB), Ok(()));
                Ok(())
            })
            .unwrap();
            let error = distance(&round.completed(&target, 3), &joint(&target, 3));
            assert!(error < TOLERANCE, "map {index}, width {width}: {error:e}");
            assert!(round.accepted() > 0.3, "map {index}, width {width}");
        }
    }
}

/// A law that the drafter gives over ids the target does not have, unmapped: those are rejected,
/// and the law stays.
#[test]
fn unmapped_ids_cost_acceptance_only() {
    let q = Law::dense(vec![0.2, 0.1, 0.1, 0.1, 0.3, 0.2]).unwrap();
    for rule in [&Token as &dyn RatioRule, &Block, &Traversal] {
        let round = emitted(rule, 1, &target, |builder, choices| {
            builder.sample(None, q.clone(), 1, true, choices).map(|_| ())
        })
        .unwrap();
        let error = distance(&round.completed(&target, 2), &joint(&target, 2));
        assert!(error < TOLERANCE, "{error:e}");
    }
}

struct Rows<'a>(&'a [TokenId], &'a Proposal, Option<Law>);

impl TargetRows for Rows<'_> {
    fn law(&mut self, node: Option<u32>) -> Result<&Law, RowError> {
        let mut path = Vec::new();
        self.1.path_tokens(node, &mut path);
        Ok(self.2.insert(target(&[self.0, &path].concat())))
    }
}

#[test]
fn coupled_says_what_plain_decoding_says() {
    for map in &maps() {
        let mut kept = 0;
        for seed in 0..200 {
            let draws = Draws { seed, sample: 0 };
            let mut tokens = Vec::new();
            let (mut proposal, mut verdict, mut run) =
                (Proposal::new(), Verdict::default(), Vec::new());
            while tokens.len() < 8 {
                let round = draws.round(tokens.len() as u64);
                let mut builder = proposal.build(6);
                let mut parent = None;
                for _ in 0..2 {
                    let mut path = Vec::new();
                    builder.proposal().path_tokens(parent, &mut path);
                    let law = drafted(map, &[&tokens[..], &path].concat());
                    parent = builder
                        .draw(parent, law, 2, DrawMode::Shared, &round)
                        .map(|children| Some(children.start))
                        .unwrap();
                }
                let base = tokens.len() as u64;
                let mut rows = Rows(&tokens, &proposal, None);
                let round = Round { proposal: &proposal, base, draws };
                Coupled.verify(&round, &mut rows, &mut verdict).unwrap();
                verdict.tokens(&proposal, &mut run);
                kept += verdict.path.len();
                tokens.extend_from_slice(&run);
            }
            for (at, &token) in tokens.iter().enumerate() {
                assert_eq!(token, coupled_sample(&target(&tokens[..at]), &draws, at as u64));
            }
        }
        assert!(kept > 200, "{kept}");
    }
}

/// The drafter is the target with its tokens in another order: shared noise is named by the
/// target's ids, so every draft is kept.
#[test]
fn a_permuted_copy_is_always_accepted() {
    let map = VocabMap::new([Some(2), Some(0), Some(3), Some(1)], VOCAB).unwrap();
    for seed in 0..500 {
        let draws = Draws { seed, sample: 0 };
        let own = logits(&[], 3, VOCAB);
        let of_drafter: Vec<f32> =
            (0..4).map(|id| own[map.to_target(id).unwrap() as usize]).collect();
        let mut row = Vec::new();
        map.row(&of_drafter, &mut row);
        let mut proposal = Proposal::new();
        let round = draws.round(0);
        proposal.build(1).draw(None, as_law(&row), 1, DrawMode::Shared, &round).unwrap();
        let mut verdict = Verdict::default();
        let mut rows = Rows(&[], &proposal, None);
        let round = Round { proposal: &proposal, base: 0, draws };
        Coupled.verify(&round, &mut rows, &mut verdict).unwrap();
        assert_eq!(verdict.path, [0]);
    }
}
