//! A steady step allocates nothing in its pass: buffers are kept from pass to pass.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use redline::gguf::TensorType;
use redline::model::tiny::Tiny;
use redline::model_runner::RunOptions;
use redline::runner::{Batch, ModelRunner, Rows};
use redline_kv_cache::BlockId;

/// On one thread, since the counter is a thread's own.
#[test]
fn a_pass_like_the_one_before_allocates_nothing() {
    for dtype in [TensorType::Q4_0, TensorType::Q8_0, TensorType::Q3_K, TensorType::F16] {
        let wide = dtype.block_len() == 256;
        let (width, head_dim) = if wide { (256, 64) } else { (64, 16) };
        let tiny = Tiny {
            dtype,
            width,
            heads: 4,
            kv_heads: 2,
            head_dim,
            ffn: 256,
            vocab: 90,
            ..Tiny::default()
        };
        let mut model = tiny.build(RunOptions { threads: 1, ..RunOptions::default() }).unwrap();
        model.allocate(8, 32).unwrap();
        let table: Vec<BlockId> = (0..4).map(BlockId).collect();
        let (mut batch, mut rows) = (Batch::default(), Rows::default());
        // Two sequences' rounds of five rows each, behind ever longer contexts.
        let mut pass = |from: u32| {
            batch.clear();
            for blocks in table.chunks(2) {
                batch.push_seq(blocks);
                for i in 0..5 {
                    let row = batch.push_row((7 * i + from) % 90, from + i);
                    batch.want.push(row);
                }
            }
            let counted = allocation_counter::measure(|| model.forward(&batch, &mut rows).unwrap());
            counted.count_total
        };
        let first = pass(0);
        assert!(first > 0, "the counter counts");
        pass(3);
        for from in [6, 9, 30, 33] {
            assert_eq!(pass(from), 0, "{dtype:?}, context of {from}");
        }
    }
}
