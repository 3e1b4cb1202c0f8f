//! Promise P1 on whole models: a row's logits have the same bits whatever is computed with it,
//! however its context came into the cache, wherever it lies there, and at any thread count and
//! kernel level.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use redline::gguf::TensorType;
use redline::kernels::Level;
use redline::kv_store::CacheType;
use redline::model::Architecture;
use redline::model::tiny::Tiny;
use redline::model_runner::{CpuRunner, RunOptions};
use redline::runner::{Batch, ModelRunner, Rows, RunnerError};
use redline_kv_cache::{BlockCopy, BlockId, SlotMove};

const BLOCK: u32 = 32;

fn options(threads: usize) -> RunOptions {
    RunOptions { threads, ..RunOptions::default() }
}

/// A tiny model in a format; K-quants need rows of 256.
fn tiny(dtype: TensorType) -> Tiny {
    let small = Tiny { dtype, vocab: 90, ..Tiny::default() };
    if dtype.block_len() == 256 {
        return Tiny {
            width: 256,
            heads: 4,
            kv_heads: 2,
            head_dim: 64,
            ffn: 256,
            layers: 1,
            ..small
        };
    }
    small
}

fn build(tiny: &Tiny, options: RunOptions) -> CpuRunner {
    let mut model = tiny.build(options).unwrap();
    model.allocate(64, BLOCK).unwrap();
    model
}

fn tokens(count: usize, vocab: usize) -> Vec<u32> {
    (0..count).map(|i| ((i * i * 7 + i * 13 + 5) % vocab) as u32).collect()
}

fn straight(count: usize) -> Vec<BlockId> {
    (0..count.div_ceil(BLOCK as usize) as u32).map(BlockId).collect()
}

/// Feeds `tokens` in chunks of the given sizes over `table`; every row's logits as bits.
fn feed(
    model: &mut CpuRunner,
    tokens: &[u32],
    chunks: &[usize],
    table: &[BlockId],
) -> Vec<Vec<u32>> {
    let (mut batch, mut rows, mut all, mut from) = (Batch::default(), Rows::default(), vec![], 0);
    for &chunk in chunks.iter().cycle() {
        let to = (from + chunk).min(tokens.len());
        batch.clear();
        batch.push_seq(table);
        for (i, &token) in tokens.iter().enumerate().take(to).skip(from) {
            let row = batch.push_row(token, i as u32);
            batch.want.push(row);
        }
        model.forward(&batch, &mut rows).unwrap();
        all.extend(rows_of(&rows, model.info().vocab_size));
        from = to;
        if from == tokens.len() {
            return all;
        }
    }
    all
}

fn rows_of(rows: &Rows, vocab: usize) -> impl Iterator<Item = Vec<u32>> {
    rows.logits.chunks(vocab).map(|row| row.iter().map(|x| x.to_bits()).collect())
}

#[test]
fn chunks_threads_levels_and_tables_do_not_matter() {
    for dtype in TensorType::ALL {
        let spec = tiny(dtype);
        let tokens = tokens(70, spec.vocab);
        let whole = feed(&mut build(&spec, options(1)), &tokens, &[70], &straight(70));
        assert!(whole.iter().flatten().all(|&b| f32::from_bits(b).is_finite()), "{dtype:?}");
        for (threads, chunks) in
            [(1, &[1][..]), (2, &[1, 2, 3, 4, 5, 6, 7, 8]), (3, &[33]), (4, &[64, 2, 1])]
        {
            let shuffled: Vec<BlockId> = [9, 3, 60, 0, 17].map(BlockId).to_vec();
            let some = feed(&mut build(&spec, options(threads)), &tokens, chunks, &shuffled);
            assert_eq!(some, whole, "{dtype:?}, {threads} threads, chunks {chunks:?}");
        }
        for level in Level::available() {
            let options = RunOptions { level: Some(level), ..options(2) };
            let some = feed(&mut build(&spec, options), &tokens[..20], &[5], &straight(20));
            assert_eq!(some, whole[..20], "{dtype:?}, {}", level.name());
        }
    }
}

#[test]
fn architectures_and_cache_types_hold_it_too() {
    for architecture in [Architecture::Llama, Architecture::Qwen2, Architecture::Qwen3] {
        for cache in [CacheType::F16, CacheType::F32] {
            for tied in [false, true] {
                let spec = Tiny { architecture, tied, dtype: TensorType::Q8_0, ..Tiny::default() };
                let options = |threads| RunOptions { cache, ..options(threads) };
                let tokens = tokens(50, spec.vocab);
                let whole = feed(&mut build(&spec, options(1)), &tokens, &[50], &straight(50));
                let some = feed(&mut build(&spec, options(2)), &tokens, &[1, 7], &straight(50));
                assert_eq!(some, whole, "{architecture:?} {cache:?} {tied}");
            }
        }
    }
}

#[test]
fn passes_larger_than_the_internal_chunk_are_cut_without_a_trace() {
    let spec = Tiny { layers: 1, ..tiny(TensorType::Q4_0) };
    let tokens = tokens(600, spec.vocab);
    let whole = feed(&mut build(&spec, options(2)), &tokens, &[600], &straight(600));
    let some = feed(&mut build(&spec, options(2)), &tokens, &[100], &straight(600));
    assert_eq!(some, whole);
}

#[test]
fn other_sequences_in_the_batch_do_not_matter() {
    let spec = tiny(TensorType::Q5_0);
    let mut model = build(&spec, options(2));
    let lengths = [40, 3, 17, 64, 1];
    let alone: Vec<_> = lengths
        .iter()
        .enumerate()
        .map(|(i, &n)| {
            feed(&mut build(&spec, options(1)), &tokens(n + i, spec.vocab)[i..], &[n], &straight(n))
        })
        .collect();
    let (mut batch, mut rows) = (Batch::default(), Rows::default());
    for (i, &n) in lengths.iter().enumerate() {
        let first = i as u32 * 8;
        batch.push_seq(&(first..first + 8).map(BlockId).collect::<Vec<_>>());
        for (position, &token) in tokens(n + i, spec.vocab)[i..].iter().enumerate() {
            let row = batch.push_row(token, position as u32);
            batch.want.push(row);
        }
    }
    model.forward(&batch, &mut rows).unwrap();
    let together: Vec<_> = rows_of(&rows, spec.vocab).collect();
    assert_eq!(together, alone.concat());
}

/// A tree after `prefix` committed tokens: node `i` has token `nodes[i].0` and parent `nodes[i].1`.
fn feed_tree(
    model: &mut CpuRunner,
    prefix: &[u32],
    nodes: &[(u32, Option<usize>)],
    table: &[BlockId],
) -> Vec<Vec<u32>> {
    let n = prefix.len() as u32;
    let (mut batch, mut rows) = (Batch::default(), Rows::default());
    batch.push_seq(table);
    for (i, &token) in prefix.iter().enumerate() {
        batch.push_row(token, i as u32);
    }
    for (i, &(token, parent)) in nodes.iter().enumerate() {
        let mut path = vec![n + i as u32];
        let mut at = parent;
        while let Some(p) = at {
            path.insert(0, n + p as u32);
            at = nodes[p].1;
        }
        let row = batch.push_node(token, n, &path);
        batch.want.push(row);
    }
    model.forward(&batch, &mut rows).unwrap();
    rows_of(&rows, model.info().vocab_size).collect()
}

#[test]
fn a_row_in_a_tree_has_the_bits_of_the_same_row_in_a_chain() {
    // Two branches, the second one longer; contexts that put the tree across tile and block
    // borders.
    let nodes = [
        (1, None),
        (2, None),
        (3, Some(0)),
        (4, Some(1)),
        (5, Some(3)),
        (6, Some(3)),
        (7, Some(4)),
    ];
    let paths: [&[usize]; 7] =
        [&[0], &[1], &[0, 2], &[1, 3], &[1, 3, 4], &[1, 3, 5], &[1, 3, 4, 6]];
    for dtype in [TensorType::F32, TensorType::Q4_1, TensorType::Q4_K] {
        let spec = tiny(dtype);
        for n in [1, 14, 15, 16, 29, 30, 31, 32, 61] {
            let prefix = tokens(n, spec.vocab);
            let table: Vec<BlockId> = [5, 2, 40, 11, 7].map(BlockId).to_vec();
            let tree = feed_tree(&mut build(&spec, options(2)), &prefix, &nodes, &table);
            for (node, path) in paths.iter().enumerate() {
                let chain: Vec<u32> =
                    prefix.iter().copied().chain(path.iter().map(|&p| nodes[p].0)).collect();
                let rows = feed(&mut build(&spec, options(1)), &chain, &[n, 1], &straight(80));
                assert_eq!(tree[node], rows[chain.len() - 1], "{dtype:?} prefix {n} node {node}");
            }
        }
    }
}

#[test]
fn an_accepted_path_may_be_moved_and_gone_on_from() {
    let spec = tiny(TensorType::Q8_0);
    let (prefix, nodes) = (tokens(30, spec.vocab), [(1, None), (2, None), (3, Some(1))]);
    let table = straight(64);
    let mut model = build(&spec, options(2));
    feed_tree(&mut model, &prefix, &nodes, &table);
    // Path 1, 2 lies in slots 31 and 32 and belongs in 30 and 31.
    let slot = |s: u32| (BlockId(s / BLOCK), s % BLOCK);
    let moves: Vec<SlotMove> = [(31, 30), (32, 31)]
        .map(|(from, to)| {
            let ((from_block, from_slot), (to_block, to_slot)) = (slot(from), slot(to));
            SlotMove { from_block, from_slot, to_block, to_slot }
        })
        .to_vec();
    model.relocate(&[], &moves).unwrap();
    // Go on in a copy of the last block.
    model.relocate(&[BlockCopy { from: BlockId(1), to: BlockId(50), slots: 16 }], &[]).unwrap();
    model.poison(1);
    let table = [BlockId(0), BlockId(50), BlockId(51)];
    let (mut batch, mut rows) = (Batch::default(), Rows::default());
    batch.push_seq(&table);
    let row = batch.push_row(9, 32);
    batch.want.push(row);
    model.forward(&batch, &mut rows).unwrap();
    let whole: Vec<u32> = prefix.iter().copied().chain([2, 3, 9]).collect();
    let expected = feed(&mut build(&spec, options(1)), &whole, &[33], &straight(33));
    assert_eq!(rows_of(&rows, spec.vocab).next().as_ref(), expected.last());
}

#[test]
fn the_size_of_blocks_does_not_matter() {
    let spec = tiny(TensorType::Q8_0);
    let tokens = tokens(70, spec.vocab);
    let whole = feed(&mut build(&spec, options(1)), &tokens, &[70], &straight(70));
    for size in [8, 16, 64] {
        let mut model = spec.build(options(2)).unwrap();
        model.allocate(64, size).unwrap();
        // 7 is coprime to the number of blocks.
        let blocks = 70_u32.div_ceil(size);
        let table: Vec<BlockId> = (0..blocks).map(|b| BlockId(7 * b % 64)).collect();
        assert_eq!(feed(&mut model, &tokens, &[9, 1, 33], &table), whole, "blocks of {size}");
    }
}

#[test]
fn rows_that_make_no_sense_are_refused_by_name() {
    let spec = tiny(TensorType::F32);
    let mut model = build(&spec, options(1));
    let mut rows = Rows::default();
    let mut refuse = |change: &dyn Fn(&mut Batch), said: &str| {
        let mut batch = Batch::default();
        batch.push_seq(&straight(64));
        for i in 0..3 {
            batch.push_row(1, i);
        }
        batch.want.push(2);
        change(&mut batch);
        let error = model.forward(&batch, &mut rows).unwrap_err();
        assert!(matches!(error, RunnerError::Batch { .. }));
        assert!(error.to_string().contains(said), "{error} does not say {said}");
    };
    refuse(&|b| b.rows[1].token = 90, "vocabulary");
    refuse(&|b| b.rows[1].position = 5000, "context");
    refuse(&|b| b.rows[1].position = 2, "add up");
    refuse(&|b| b.rows[1].slot = 2, "itself");
    refuse(&|b| b.rows[1].extra = 0..9, "range");
    refuse(&|b| b.tables[1] = BlockId(64), "does not exist");
    refuse(&|b| b.seqs[0].table = 0..9, "does not exist");
    refuse(&|b| b.tables.truncate(0), "does not exist");
    refuse(&|b| b.want = vec![2, 1], "ascending");
    refuse(&|b| b.want = vec![3], "ascending");
    refuse(
        &|b| {
            b.rows.push(redline::runner::Row {
                position: 70,
                slot: 70,
                prefix: 71,
                ..Default::default()
            })
        },
        "outside the block table",
    );
    let copy = BlockCopy { from: BlockId(0), to: BlockId(64), slots: 1 };
    assert!(model.relocate(&[copy], &[]).is_err());
    assert!(model.allocate(4, 12).is_err());
}

#[test]
fn hidden_rows_come_with_the_logits_if_asked_for() {
    let spec = tiny(TensorType::F32);
    let mut model = build(&spec, options(1));
    let mut rows = Rows { keep_hidden: true, ..Rows::default() };
    let mut batch = Batch::default();
    batch.push_seq(&straight(3));
    for i in 0..3 {
        batch.push_row(i, i);
    }
    batch.want = vec![0, 2];
    model.forward(&batch, &mut rows).unwrap();
    assert_eq!(rows.hidden.len(), 2 * spec.width);
    assert_eq!(rows.logits.len(), 2 * spec.vocab);
}
