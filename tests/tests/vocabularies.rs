//! Draft models whose vocabulary is another than the target's: a permutation of it, larger or smaller. Weights are
//! the same, row for row, so that what is drafted must be the same, token for token.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use redline::kernels::AlignedBytes;
use redline::spec::{Drafter, VocabMap};
use redline::{CpuRunner, DraftLength, DraftModel, RequestOutput, RunOptions, Tree, verifier};
use redline_tests::requests::{Random, mixed};
use redline_tests::rig::{Rig, run, said, tiny};
use redline_tests::words::VOCAB;

/// A permutation of the target's ids.
fn shuffled(seed: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..VOCAB as u32).collect();
    let mut random = Random(seed);
    for i in (1..order.len()).rev() {
        order.swap(i, random.below(i + 1));
    }
    order
}

/// The noisy target with these of its tokens, in this order; `None` is a token that it does not have.
fn with_rows(noise: f32, rows: &[Option<u32>]) -> Box<CpuRunner> {
    let model = tiny(noise);
    let mut tensors = model.tensors().unwrap();
    for name in ["token_embd.weight", "output.weight"] {
        let tensor = tensors.get_mut(name).unwrap();
        let all = tensor.bytes.as_slice().to_vec();
        let size = all.len() / VOCAB;
        // What only the draft knows is made to be its favourite: some other row, enlarged.
        let row = |row: &Option<u32>| match row {
            Some(row) => all[*row as usize * size..][..size].to_vec(),
            None => all[..size].chunks_exact(4).flat_map(louder).collect(),
        };
        let bytes: Vec<u8> = rows.iter().flat_map(row).collect();
        tensor.dims = vec![model.width, rows.len()];
        tensor.bytes = AlignedBytes::from(bytes.as_slice());
    }
    let options = RunOptions { threads: 1, ..RunOptions::default() };
    Box::new(CpuRunner::build(model.config(), &mut tensors, options).unwrap())
}

fn louder(number: &[u8]) -> [u8; 4] {
    (f32::from_le_bytes(number.try_into().unwrap()) * 4.0).to_le_bytes()
}

/// A draft model with these rows, which are translated `by_map` or the target's first ones as they are.
fn drafter(rows: &[Option<u32>], by_map: bool, trees: bool) -> Box<dyn Drafter> {
    let map = VocabMap::new(rows.iter().copied(), VOCAB).unwrap();
    let mut model = DraftModel::new("draft", with_rows(0.15, rows), rows.len());
    if by_map {
        model = model.with_map(map);
    }
    Box::new(if trees { model.with_trees() } else { model })
}

fn outputs(drafter: Box<dyn Drafter>, rule: &str, tree: Tree) -> Vec<RequestOutput> {
    let rig = Rig {
        drafter: Some(drafter),
        rule: verifier(rule).unwrap(),
        length: DraftLength::Fixed(6),
        tree,
        token_budget: 4096,
        ..Rig::default()
    };
    run(&mut rig.build(), &mixed(61, 12))
}

/// Every token, and how many drafts of each round were accepted.
#[track_caller]
fn assert_alike(found: &[RequestOutput], expected: &[RequestOutput], what: &str) {
    assert_eq!(said(found), said(expected), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.speculation, expected.speculation, "{what}");
    }
}

#[test]
fn drafts_do_not_depend_on_how_their_model_numbers_tokens() {
    let order = shuffled(1);
    let permuted: Vec<_> = order.iter().copied().map(Some).collect();
    // Tokens of the draft's own between them.
    let larger: Vec<_> = permuted.iter().flat_map(|&row| [row, None]).collect();
    let few = VOCAB * 2 / 3;
    let mut fewer: Vec<_> =
        permuted.iter().copied().filter(|row| *row < Some(few as u32)).collect();
    // Its first token stands in for those that it lacks, as in the draft that it is compared with.
    let first = fewer.iter().position(|&row| row == Some(0)).unwrap();
    fewer.swap(0, first);
    for (rule, tree) in [
        ("coupled", Tree::Chain),
        ("coupled", Tree::Sized { width: 2, depth: 3 }),
        ("token", Tree::Chain),
        ("token", Tree::Sized { width: 3, depth: 2 }),
        ("block", Tree::Chain),
        ("traversal", Tree::Sized { width: 2, depth: 3 }),
    ] {
        let draft = |rows: &[Option<u32>], by_map| {
            outputs(drafter(rows, by_map, tree.branches()), rule, tree)
        };
        let head = |n: usize| -> Vec<_> { (0..n as u32).map(Some).collect() };
        let plain = draft(&head(VOCAB), false);
        let accepted: usize = plain.iter().map(|output| output.speculation.accepted).sum();
        assert!(accepted > 40, "{rule}, {tree}: {accepted} accepted");
        assert_alike(&draft(&permuted, true), &plain, &format!("permuted, {rule}, {tree}"));
        assert_alike(&draft(&larger, true), &plain, &format!("larger, {rule}, {tree}"));
        let small = draft(&head(few), false);
        assert_alike(&draft(&fewer, true), &small, &format!("smaller, {rule}, {tree}"));
        let fewer: usize = small.iter().map(|output| output.speculation.accepted).sum();
        assert!(0 < fewer && fewer < accepted, "{rule}, {tree}: {fewer} of {accepted}");
    }
}
