//! Trees of a draft model: outputs do not depend on their shape, and what is accepted is what the models say it
//! must be. A lane filled, moved or counted wrongly shows as acceptance, never as output.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use redline::spec::{
    CopyOp, DraftError, DraftJob, Drafter, History, LaneNeed, Position, Proposal, Scratch,
    TreeLimits, law, nominal_shape,
};
use redline::{
    Batch, DraftLength, Draw, GenerateRequest, LoadError, ModelRunner, RequestOutput, Rows,
    TokenId, Tree, verifier,
};
use redline_kv_cache::BlockId;
use redline_tests::requests::{greedy, mixed, prompt, stop_midway};
use redline_tests::rig::{Draft, Rig, model, run, said, tree_drafter};

const fn sized(width: usize, depth: usize) -> Tree {
    Tree::Sized { width, depth }
}

const SHAPES: [(Tree, DraftLength); 8] = [
    (sized(2, 3), DraftLength::Fixed(8)),
    (sized(4, 2), DraftLength::Fixed(8)),
    (sized(3, 3), DraftLength::Fixed(40)),
    (sized(8, 1), DraftLength::Fixed(64)),
    (sized(2, 32), DraftLength::Fixed(5)),
    (Tree::Auto, DraftLength::Fixed(8)),
    (Tree::Auto, DraftLength::Auto),
    (sized(2, 4), DraftLength::Auto),
];

const DRAWS: [Draw; 4] = [Draw::Rule, Draw::Without, Draw::With, Draw::Top];

/// Requests that nothing ends before their length.
fn endless(seed: u64, n: usize) -> Vec<GenerateRequest> {
    let mut requests = mixed(seed, n);
    for (i, request) in requests.iter_mut().enumerate() {
        request.ignore_eos = true;
        request.max_tokens = 30 + i;
        if i % 3 == 0 {
            // Of the path, too, or a draft is not the target's own.
            let sampling = &mut request.sampling;
            (sampling.temperature, sampling.frequency_penalty) = (1.0, 2.0);
            sampling.logit_bias = vec![(9, 9.0)];
        }
    }
    requests
}

#[test]
fn under_coupled_no_shape_changes_a_token() {
    let mut requests = mixed(31, 16);
    let plain = |requests: &[GenerateRequest]| {
        run(&mut Rig { length: DraftLength::Fixed(0), ..Rig::default() }.build(), requests)
    };
    let first = plain(&requests);
    stop_midway(&mut requests, &first);
    let expected = said(&plain(&requests));
    assert!(expected.iter().filter(|said| said.stopped()).count() >= 4);
    let (mut drafted, mut accepted) = (0, 0);
    for (index, (tree, length)) in SHAPES.into_iter().enumerate() {
        for (draw, noise, blocks) in [
            (Draw::Rule, 0.15, 256),
            (Draw::Rule, 0.0, 12),
            (DRAWS[1 + index % 3], 0.3, 12),
            (Draw::Top, 1.0, 256),
        ] {
            let mut engine = Rig {
                drafter: tree_drafter(noise, 1),
                length,
                tree,
                draw,
                blocks,
                prefix_cache: index % 2 == 0,
                seqs: [8, 3][index % 2],
                ..Rig::default()
            }
            .build();
            let outputs = run(&mut engine, &requests);
            assert_eq!(expected, said(&outputs), "{tree}, {length:?}, {draw:?}, noise {noise}");
            drafted += outputs.iter().map(|output| output.speculation.drafted).sum::<usize>();
            accepted += outputs.iter().map(|output| output.speculation.accepted).sum::<usize>();
        }
    }
    assert!(accepted > 2_000 && drafted > 2 * accepted, "{accepted} of {drafted} say little");
}

/// A draft that is the target is accepted along the best path, to its end, every round.
#[track_caller]
fn assert_full_depth(outputs: &[RequestOutput], depth: usize, what: &str) {
    for (i, output) in outputs.iter().enumerate() {
        let stats = &output.speculation;
        let tokens = output.token_ids.len();
        // Two rounds may pass before the lane is filled, and trees are smaller where few tokens are left.
        let most = 2 + (tokens.saturating_sub(2)).div_ceil(depth + 1) + depth.ilog2() as usize + 2;
        assert!(stats.rounds <= most, "request {i}, {what}: {} of {most} rounds", stats.rounds);
        let full = stats.acceptance_histogram.get(depth).copied().unwrap_or_default();
        let short: usize = stats.acceptance_histogram[..depth].iter().sum();
        let reasons = 2 + depth.ilog2() as usize + 2;
        assert!(full > 0 && short <= reasons, "request {i}, {what}: {stats:?}");
    }
}

/// Where the shape is planned, it is so to the last round: the eldest children of the places granted.
#[track_caller]
fn assert_planned(requests: &[GenerateRequest], outputs: &[RequestOutput], limits: (Tree, usize)) {
    let (Tree::Sized { width, depth }, length) = limits else { return };
    let shape = nominal_shape(TreeLimits { width, depth }, length);
    for (request, output) in requests.iter().zip(outputs) {
        if request.sampling.is_greedy() {
            continue;
        }
        // The prompt's own round has no drafts, and the next has none if a long prompt's lane is filled beside it.
        let expected = [1, 2].map(|quiet| {
            let (mut at, mut rounds, mut histogram) = (0, 0, vec![0; depth + 1]);
            while at < request.max_tokens {
                rounds += 1;
                let granted = length.min(request.max_tokens - at - 1).min(shape.len());
                let nodes = if rounds <= quiet { 0 } else { granted };
                let eldest = |parent| (0..nodes).find(|&i| shape[i].parent == parent);
                let path = std::iter::successors(eldest(None), |&i| eldest(Some(i as u32)));
                let accepted = path.count();
                histogram[accepted] += 1;
                at += accepted + 1;
            }
            while histogram.last() == Some(&0) {
                histogram.pop();
            }
            histogram
        });
        let found = &output.speculation.acceptance_histogram;
        assert!(expected.contains(found), "{limits:?}: {found:?}, not one of {expected:?}");
    }
}

#[test]
fn a_model_accepts_its_own_trees_to_their_full_depth() {
    let requests = endless(8, 12);
    let rules: [(&str, &[Draw]); 3] = [
        ("coupled", &[Draw::Rule]),
        ("token", &[Draw::Rule, Draw::With]),
        ("traversal", &[Draw::Rule, Draw::With]),
    ];
    for (rule, draws) in rules {
        for (draw, (tree, length, depth)) in draws.iter().flat_map(|&draw| {
            let shapes = [(sized(2, 3), 8, 3), (sized(4, 2), 8, 2), (sized(3, 5), 30, 5)];
            shapes.map(|shape| (draw, shape))
        }) {
            for (seqs, prefix_cache) in [(1, false), (8, true)] {
                let mut engine = Rig {
                    drafter: tree_drafter(0.0, 1),
                    rule: verifier(rule).unwrap(),
                    length: DraftLength::Fixed(length),
                    tree,
                    draw,
                    seqs,
                    prefix_cache,
                    token_budget: 2048,
                    ..Rig::default()
                }
                .build();
                let what = format!("{rule}, {tree}, {draw:?}, {seqs} at a time");
                let outputs = run(&mut engine, &requests);
                assert_full_depth(&outputs, depth, &what);
                if rule != "coupled" && seqs == 1 {
                    assert_planned(&requests, &outputs, (tree, length));
                }
                // Again: prompts now come out of the prefix cache, the drafter's lane with them.
                assert_full_depth(&run(&mut engine, &requests), depth, &format!("{what}, again"));
            }
        }
    }
}

/// A drafter that never says what its lane holds of its drafts: all of it is fed again in the next round.
struct Forgetful(Box<dyn Drafter>);

impl Drafter for Forgetful {
    fn name(&self) -> &str {
        "forgetful"
    }

    fn draws_trees(&self) -> bool {
        true
    }

    fn lane(&self) -> Option<LaneNeed> {
        self.0.lane()
    }

    fn attach(&mut self, blocks: u32, block_size: u32) -> Result<(), DraftError> {
        self.0.attach(blocks, block_size)
    }

    fn relocate(&mut self, ops: &[CopyOp]) -> Result<(), DraftError> {
        self.0.relocate(ops)
    }

    fn offer(&mut self, seq: u64, tokens: &[TokenId]) -> usize {
        self.0.offer(seq, tokens)
    }

    fn propose(&mut self, jobs: &[DraftJob<'_>], out: &mut [Result<Proposal, DraftError>]) {
        self.0.propose(jobs, out);
    }

    fn forget(&mut self, seq: u64) {
        self.0.forget(seq);
    }
}

/// What was fed of a tree and accepted, moved where it belongs, is worth exactly what feeding it again would be: over
/// many rounds, every rank, preemption and prefix hits.
#[test]
fn a_lane_that_keeps_its_drafts_is_the_lane_fed_afresh() {
    let requests = endless(12, 14);
    for (rule, draw) in [
        ("coupled", Draw::Rule),
        ("coupled", Draw::Top),
        ("token", Draw::Rule),
        ("token", Draw::Top),
        ("traversal", Draw::With),
    ] {
        for (tree, length) in [(sized(4, 2), 8), (sized(3, 4), 24)] {
            for blocks in [256, 14] {
                let stats = |drafter| {
                    let mut engine = Rig {
                        drafter,
                        rule: verifier(rule).unwrap(),
                        length: DraftLength::Fixed(length),
                        tree,
                        draw,
                        blocks,
                        token_budget: 4096,
                        ..Rig::default()
                    }
                    .build();
                    let mut outputs = run(&mut engine, &requests);
                    outputs.extend(run(&mut engine, &requests));
                    let preempted = engine.scheduler().stats().preempted;
                    assert!(blocks > 14 || preempted > 3, "{preempted} preempted");
                    outputs
                };
                let kept = stats(tree_drafter(0.15, 1));
                let afresh = stats(Some(Box::new(Forgetful(tree_drafter(0.15, 1).unwrap()))));
                let what = format!("{rule}, {tree}, {draw:?}, {blocks} blocks");
                assert_eq!(said(&kept), said(&afresh), "{what}");
                let judged = |outputs: &[RequestOutput]| -> Vec<_> {
                    outputs.iter().map(|o| o.speculation.acceptance_histogram.clone()).collect()
                };
                assert_eq!(judged(&kept), judged(&afresh), "{what}");
                let sum = |outputs: &[RequestOutput]| -> usize {
                    outputs.iter().map(|o| o.speculation.accepted).sum()
                };
                assert!(sum(&kept) > 150, "{what}: {} accepted", sum(&kept));
            }
        }
    }
}

/// The model's greedy candidates after each prefix of `tokens`, fed one by one, the best first.
fn tops(model: &mut dyn ModelRunner, tokens: &[TokenId], width: usize) -> Vec<Vec<TokenId>> {
    let blocks = (tokens.len() as u32).div_ceil(32);
    model.allocate(blocks, 32).unwrap();
    let table: Vec<_> = (0..blocks).map(BlockId).collect();
    let (mut batch, mut rows) = (Batch::default(), Rows::default());
    batch.push_seq(&table);
    for (position, &token) in tokens.iter().enumerate() {
        let row = batch.push_row(token, position as u32);
        batch.want.push(row);
    }
    model.forward(&batch, &mut rows).unwrap();
    let history = History::default();
    let sampling = redline::Sampling { temperature: 1.0, ..redline::Sampling::default() };
    let at = Position { sampling: &sampling, history: &history, path: &[], constraint: None };
    let mut scratch = Scratch::default();
    let vocab = model.info().vocab_size;
    let best = |row: &[f32]| {
        let mut all: Vec<_> = law(row, &at, &mut scratch).unwrap().iter().collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        all.into_iter().take(width).map(|(id, _)| id).collect()
    };
    rows.logits.chunks(vocab).map(best).collect()
}

/// Of whole trees every node is known beforehand: the rounds follow from the two models alone.
#[test]
fn whole_trees_are_accepted_where_the_draft_has_the_token_among_its_best() {
    let nodes =
        |width: usize, depth: usize| (1..=depth as u32).map(|d| width.pow(d)).sum::<usize>();
    for (noise, width, depth) in [(0.1, 2, 3), (0.3, 2, 3), (0.3, 3, 2), (1.0, 4, 2)] {
        let prompts: Vec<_> = (0..6).map(|i| prompt(40 + i, 12 + 17 * i as usize)).collect();
        let mut requests: Vec<_> = prompts.iter().map(|prompt| greedy(prompt, 60)).collect();
        requests.iter_mut().for_each(|request| request.ignore_eos = true);
        let mut engine = Rig {
            drafter: tree_drafter(noise, 1),
            length: DraftLength::Fixed(64),
            tree: sized(width, depth),
            token_budget: 4096,
            ..Rig::default()
        }
        .build();
        let outputs = run(&mut engine, &requests);
        let (mut total, mut by_rank) = (0, vec![0; width]);
        for (prompt, output) in prompts.iter().zip(&outputs) {
            let tokens = [&prompt[..], &output.token_ids].concat();
            let tops = tops(model(noise, 1).as_mut(), &tokens, width);
            let (mut at, mut histogram) = (prompt.len(), vec![0; depth + 1]);
            let mut rounds = 0;
            // While there is room for the whole tree.
            while tokens.len() - at > nodes(width, depth) {
                rounds += 1;
                let deep = if rounds <= 2 { 0 } else { depth };
                let rank = |i: usize| tops[at + i - 1].iter().position(|&t| t == tokens[at + i]);
                let ranks: Vec<_> = (0..deep).map_while(rank).collect();
                ranks.iter().for_each(|&rank| by_rank[rank] += 1);
                histogram[ranks.len()] += 1;
                at += ranks.len() + 1;
            }
            let found = &output.speculation.acceptance_histogram;
            for (accepted, &least) in histogram.iter().enumerate() {
                let found = found.get(accepted).copied().unwrap_or_default();
                // The last rounds draft smaller trees.
                let most = least + output.speculation.rounds - rounds;
                assert!((least..=most).contains(&found), "{noise}, {width}x{depth}: {histogram:?}");
            }
            total += rounds;
        }
        assert!(total > 60 && by_rank[1..].iter().all(|&n| n > 3), "{total} rounds, {by_rank:?}");
    }
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let tried = |drafter, rule: &str, tree| {
        let rig = Rig { drafter, rule: verifier(rule).unwrap(), tree, ..Rig::default() };
        rig.try_build().map(|_| ()).map_err(|error| {
            assert!(error.is_usage());
            error.to_string()
        })
    };
    let refused = tried(tree_drafter(0.0, 1), "block", sized(2, 3)).unwrap_err();
    assert!(refused.contains("block") && refused.contains("tiny-draft"), "{refused}");
    let refused = tried(Draft::Ngram.drafter(1), "coupled", sized(2, 3)).unwrap_err();
    assert!(refused.contains("`ngram`") && refused.contains("`2x3`"), "{refused}");
    let chains = Draft::Model(0.0).drafter(1);
    assert!(tried(chains, "coupled", Tree::Auto).unwrap_err().contains("`auto`"));
    // A chain by another name, and nobody who drafts.
    tried(Draft::Ngram.drafter(1), "block", sized(1, 4)).unwrap();
    tried(None, "block", sized(2, 3)).unwrap();
    let rig = Rig { drafter: Draft::Ngram.drafter(1), tree: Tree::Auto, ..Rig::default() };
    assert!(matches!(rig.try_build(), Err(LoadError::NoTrees { .. })));
}
