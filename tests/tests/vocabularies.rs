//! Draft models whose vocabulary is another than the target's: a permutation of it, larger or smaller; and those that say
//! fewer tokens than they are fed. Weights are the same, row for row, so that what is drafted must be the same, token for
//! token.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use redline::kernels::AlignedBytes;
use redline::model::slim::{Slim, SlimSource};
use redline::spec::{Drafter, VocabMap};
use redline::{
    Batch, CpuRunner, DraftLength, DraftModel, ModelInfo, ModelRunner, RequestOutput, Rows,
    RunOptions, RunnerError, Tree, verifier,
};
use redline_kv_cache::{BlockCopy, SlotMove};
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
    outputs_of(Some(drafter), rule, tree)
}

fn outputs_of(drafter: Option<Box<dyn Drafter>>, rule: &str, tree: Tree) -> Vec<RequestOutput> {
    let rig = Rig {
        drafter,
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

/// A model that computes everything and keeps quiet about all but some of its tokens.
struct Hushed {
    model: Box<dyn ModelRunner>,
    said: Vec<bool>,
}

impl ModelRunner for Hushed {
    fn info(&self) -> &ModelInfo {
        self.model.info()
    }

    fn allocate(&mut self, blocks: u32, block_size: u32) -> Result<(), RunnerError> {
        self.model.allocate(blocks, block_size)
    }

    fn forward(&mut self, batch: &Batch, out: &mut Rows) -> Result<(), RunnerError> {
        self.model.forward(batch, out)?;
        for row in out.logits.chunks_mut(self.said.len()) {
            let quiet = row.iter_mut().zip(&self.said).filter(|(_, said)| !**said);
            quiet.for_each(|(logit, _)| *logit = f32::NEG_INFINITY);
        }
        Ok(())
    }

    fn relocate(&mut self, copies: &[BlockCopy], moves: &[SlotMove]) -> Result<(), RunnerError> {
        self.model.relocate(copies, moves)
    }
}

/// The draft model with a head of `kept` only, tied to its embedding or apart from it, whose ids are the target's by `order`.
fn cut(order: &[u32], kept: &[u32], trees: bool) -> Box<dyn Drafter> {
    let model = tiny(0.15);
    let mut tensors = model.tensors().unwrap();
    for name in ["token_embd.weight", "output.weight"] {
        let tensor = tensors.get_mut(name).unwrap();
        let all = tensor.bytes.as_slice().to_vec();
        let size = all.len() / VOCAB;
        let rows = order.iter().flat_map(|&row| all[row as usize * size..][..size].to_vec());
        tensor.bytes = AlignedBytes::from(rows.collect::<Vec<_>>().as_slice());
    }
    // In the target's ids, so that the same tokens are kept whatever their order.
    let own = |token: u32| order.iter().position(|&id| id == token).unwrap() as u32;
    let head: Vec<u32> = kept.iter().map(|&token| own(token)).collect();
    let map = VocabMap::new(order.iter().copied().map(Some), VOCAB).unwrap();
    let map = map.with_head(&head).unwrap();
    let slim = Slim { head: Some(head), ..Slim::default() };
    let mut source = SlimSource::new(&mut tensors, slim);
    let options = RunOptions { threads: 1, ..RunOptions::default() };
    let runner = CpuRunner::build(model.config(), &mut source, options).unwrap();
    let model = DraftModel::new("draft", Box::new(runner), VOCAB).with_map(map);
    Box::new(if trees { model.with_trees() } else { model })
}

#[test]
fn a_cut_head_drafts_by_the_law_over_what_it_keeps() {
    let kept: Vec<u32> = (0..VOCAB as u32).filter(|id| id % 3 != 1).collect();
    for (rule, tree) in [
        ("coupled", Tree::Chain),
        ("coupled", Tree::Sized { width: 2, depth: 3 }),
        ("token", Tree::Chain),
        ("token", Tree::Sized { width: 3, depth: 2 }),
        ("block", Tree::Chain),
        ("traversal", Tree::Sized { width: 2, depth: 3 }),
    ] {
        let what = format!("{rule}, {tree}");
        let whole: Vec<_> = (0..VOCAB as u32).map(Some).collect();
        let said_tokens = (0..VOCAB as u32).map(|id| kept.contains(&id)).collect();
        let hushed = Hushed { model: with_rows(0.15, &whole), said: said_tokens };
        let hushed = DraftModel::new("draft", Box::new(hushed), VOCAB);
        let hushed: Box<dyn Drafter> =
            Box::new(if tree.branches() { hushed.with_trees() } else { hushed });
        let expected = outputs(hushed, rule, tree);
        let accepted: usize = expected.iter().map(|output| output.speculation.accepted).sum();
        assert!(accepted > 20, "{what}: {accepted} accepted");
        let in_order: Vec<u32> = (0..VOCAB as u32).collect();
        for order in [in_order, shuffled(2)] {
            let found = outputs(cut(&order, &kept, tree.branches()), rule, tree);
            assert_alike(&found, &expected, &what);
        }
        if rule == "coupled" {
            let plain = outputs_of(None, rule, Tree::Chain);
            assert_eq!(said(&expected), said(&plain), "{what}");
        }
    }
}

/// What `--draft-head N` stands on: of what the reference models say, a fifth of the vocabulary is nearly all.
#[test]
fn low_ids_are_the_frequent_ones() {
    for (model, vocab, marks) in [
        ("qwen2.5-coder-1.5b", 151_936, 151_643),
        ("qwen2.5-coder-0.5b", 151_936, 151_643),
        ("smollm2-135m", 49_152, 49_152),
    ] {
        let path = format!("{}/data/reference/{model}.jsonl", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let outputs = text.lines().map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            serde_json::from_value::<Vec<u64>>(line["greedy_token_ids"].clone()).unwrap()
        });
        let said: Vec<u64> = outputs.flatten().collect();
        let low = said.iter().filter(|&&id| id < vocab / 5 || id >= marks).count();
        assert!(
            said.len() > 500 && low * 100 >= said.len() * 90,
            "{model}: {low} of {}",
            said.len()
        );
    }
}
