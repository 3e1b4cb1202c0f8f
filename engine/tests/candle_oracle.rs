//! The CPU kernels against candle, with which they share no arithmetic.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use candle_core::Device;
use redline::gguf::TensorType;
use redline::kv_store::CacheType;
use redline::model::Architecture;
use redline::model::tiny::Tiny;
use redline::model_runner::{CandleRunner, RunOptions};
use redline::runner::{Batch, ModelRunner, Rows};
use redline_kv_cache::{BlockId, SlotMove};

/// Logits of a prompt of 40 tokens with a small tree behind it, then of a token after the tree's
/// longer path was moved down.
fn run(model: &mut dyn ModelRunner) -> Vec<f32> {
    model.allocate(8, 16).unwrap();
    let table = [3, 1, 6].map(BlockId);
    let (mut batch, mut rows) = (Batch::default(), Rows::default());
    batch.push_seq(&table);
    for i in 0..40 {
        let row = batch.push_row(i * 37 % 256, i);
        batch.want.push(row);
    }
    for (token, path) in [(5, &[40][..]), (6, &[41]), (7, &[41, 42])] {
        let row = batch.push_node(token, 40, path);
        batch.want.push(row);
    }
    model.forward(&batch, &mut rows).unwrap();
    let mut all = rows.logits.clone();
    let down = |slot: u32| SlotMove {
        from_block: table[slot as usize / 16],
        from_slot: slot % 16,
        to_block: table[(slot as usize - 1) / 16],
        to_slot: (slot - 1) % 16,
    };
    model.relocate(&[], &[down(41), down(42)]).unwrap();
    batch.clear();
    batch.push_seq(&table);
    let row = batch.push_row(9, 42);
    batch.want.push(row);
    model.forward(&batch, &mut rows).unwrap();
    all.extend(&rows.logits);
    all
}

#[test]
fn the_kernels_compute_what_candle_computes() {
    for architecture in Architecture::ALL {
        // 8-bit weights and activations differ by the rounding of activations, f32 by order.
        // Logits are around 3.
        for (dtype, allowed) in [(TensorType::F32, 1e-3), (TensorType::Q8_0, 0.7)] {
            for cache in [CacheType::F32, CacheType::F16] {
                let spec = Tiny { architecture, dtype, ..Tiny::default() };
                let options = RunOptions { threads: 2, cache, ..RunOptions::default() };
                let ours = run(&mut spec.build(options).unwrap());
                let mut tensors = spec.tensors().unwrap();
                let config = spec.config();
                let candle = CandleRunner::build(config, &mut tensors, &Device::Cpu, cache);
                let theirs = run(&mut candle.unwrap());
                let largest =
                    ours.iter().zip(&theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(largest < allowed, "{architecture:?} {dtype:?} {cache:?}: {largest}");
            }
        }
    }
}
