//! What becomes of tensors: how far they are off, which are left alone, and that rows of a head keep their bits.

use std::collections::BTreeMap;

use redline_kv_cache::BlockId;

use super::super::load::{EMBEDDING, HEAD, Tensor, TensorSource, weights_of};
use super::super::requantise::{DraftQuant, requantise};
use super::super::tiny::Tiny;
use super::{Slim, SlimSource};
use crate::gguf::TensorType;
use crate::kernels::{Arena, Level, Pool};
use crate::model_runner::{CpuRunner, RunOptions};
use crate::runner::{Batch, ModelRunner, Rows};

fn values(tensor: &Tensor) -> Vec<f32> {
    let (cols, rows) = (tensor.dims[0], tensor.dims[1]);
    let place = (&mut Arena::apart(), &mut Pool::alone());
    let weights = weights_of(place, tensor.clone()).unwrap();
    let mut out = vec![0.0; cols * rows];
    for (row, out) in out.chunks_mut(cols).enumerate() {
        weights.dequantise_row(Level::detect(), row, out);
    }
    out
}

/// Root of the mean square, relative to that of the original.
fn distance(a: &[f32], b: &[f32]) -> f64 {
    let square = |x: f32| f64::from(x).powi(2);
    let off: f64 = a.iter().zip(b).map(|(&a, &b)| square(a - b)).sum();
    (off / a.iter().map(|&a| square(a)).sum::<f64>()).sqrt()
}

fn matrix(dtype: TensorType, cols: usize) -> Tensor {
    let tiny = Tiny { dtype, width: cols, ffn: 256, heads: 16, vocab: 203, ..Tiny::default() };
    let mut tensors = tiny.tensors().unwrap();
    tensors.remove(EMBEDDING).unwrap()
}

#[test]
fn what_is_requantised_stays_near_and_does_not_depend_on_threads() {
    use TensorType::{F16, F32, Q2_K, Q3_K, Q4_0, Q5_0, Q6_K, Q8_0};
    for (from, to, cols, limit) in [
        (F32, Q4_0, 96, 0.12),
        (F16, Q4_0, 96, 0.12),
        (Q5_0, Q4_0, 896, 0.12),
        (Q8_0, Q4_0, 576, 0.12),
        (Q6_K, Q4_0, 512, 0.12),
        (Q8_0, Q3_K, 512, 0.2),
        (Q6_K, Q2_K, 256, 0.42),
    ] {
        let before = matrix(from, cols);
        let all: Vec<Tensor> =
            (1..=3).map(|n| requantise(before.clone(), to, n).unwrap()).collect();
        let after = &all[0];
        assert_eq!((after.dtype, &after.dims), (to, &before.dims));
        assert!(all.iter().all(|one| one.bytes.as_slice() == after.bytes.as_slice()));
        let off = distance(&values(&before), &values(after));
        assert!((limit / 2.0..limit).contains(&off), "{from:?} to {to:?}: {off}");
    }
}

#[test]
fn only_what_has_more_bits_and_fits_changes() {
    use TensorType::{F32, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q6_K, Q8_0};
    for (quant, from, cols, to) in [
        (DraftQuant::Q4_0, Q5_0, 896, Some(Q4_0)),
        (DraftQuant::Q4_0, Q4_1, 576, Some(Q4_0)),
        (DraftQuant::Q4_0, Q4_0, 896, None),
        (DraftQuant::Q4_0, Q4_K, 1536, None),
        (DraftQuant::Q4_0, Q3_K, 1536, None),
        (DraftQuant::Q4_0, F32, 100, None),
        (DraftQuant::Q3_K, Q4_K, 1536, Some(Q3_K)),
        (DraftQuant::Q3_K, Q6_K, 4864, Some(Q3_K)),
        (DraftQuant::Q3_K, Q5_0, 896, Some(Q4_0)),
        (DraftQuant::Q3_K, Q4_0, 896, None),
        (DraftQuant::Q2_K, Q3_K, 256, Some(Q2_K)),
        (DraftQuant::Q2_K, Q2_K, 256, None),
        (DraftQuant::Q2_K, Q8_0, 576, Some(Q4_0)),
    ] {
        assert_eq!(quant.target(from, cols), to, "{quant} {from:?} {cols}");
    }
    assert!(DraftQuant::ALL.iter().all(|quant| quant.name().parse() == Ok(*quant)));
    assert!("q9".parse::<DraftQuant>().unwrap_err().contains("q4_0, q3_k, q2_k"));
}

#[test]
fn a_tensor_that_is_too_short_is_named() {
    let mut short = matrix(TensorType::Q8_0, 64);
    short.dims[1] += 1;
    let error = requantise(short, TensorType::Q4_0, 2).unwrap_err().to_string();
    assert!(error.contains(EMBEDDING), "{error}");
}

/// Types of all tensors of a model after they went through.
fn types(tiny: &Tiny, slim: Slim) -> BTreeMap<String, TensorType> {
    let mut tensors = tiny.tensors().unwrap();
    let mut source = SlimSource::new(&mut tensors, slim);
    let mut names = source.names();
    names.sort_by_key(|name| name == HEAD);
    let take = |name: String| {
        let tensor = source.take(&name).unwrap().unwrap();
        (name, tensor.dtype)
    };
    names.into_iter().map(take).collect()
}

#[test]
fn a_table_that_is_only_looked_up_in_stays() {
    let quant = Some(DraftQuant::Q4_0);
    let some = Some(vec![3, 1]);
    for (tied, head, embedding, output) in [
        (false, None, TensorType::Q8_0, Some(TensorType::Q4_0)),
        (false, some.clone(), TensorType::Q8_0, Some(TensorType::Q4_0)),
        (true, None, TensorType::Q4_0, None),
        (true, some, TensorType::Q8_0, Some(TensorType::Q4_0)),
    ] {
        let tiny = Tiny { dtype: TensorType::Q8_0, tied, ..Tiny::default() };
        let found = types(&tiny, Slim { quant, head, threads: 2 });
        assert_eq!(found.get(EMBEDDING), Some(&embedding), "tied {tied}");
        assert_eq!(found.get(HEAD), output.as_ref(), "tied {tied}");
        assert_eq!(found.get("blk.0.attn_q.weight"), Some(&TensorType::Q4_0));
        assert_eq!(found.get("output_norm.weight"), Some(&TensorType::F32));
    }
}

fn logits(model: &mut CpuRunner) -> Vec<Vec<u32>> {
    model.allocate(1, 16).unwrap();
    let (mut batch, mut rows) = (Batch::default(), Rows::default());
    batch.push_seq(&[BlockId(0)]);
    for i in 0..5 {
        let row = batch.push_row(60 * i, i);
        batch.want.push(row);
    }
    model.forward(&batch, &mut rows).unwrap();
    let bits = |row| rows.row(row, model.info().logits).iter().map(|x| x.to_bits()).collect();
    (0..5).map(bits).collect()
}

#[test]
fn a_cut_head_says_what_the_whole_one_says_of_its_tokens() {
    let kept: Vec<u32> = vec![250, 0, 7, 8, 9, 100, 255];
    for tied in [false, true] {
        let tiny = Tiny { tied, dtype: TensorType::Q5_0, ..Tiny::default() };
        let options = RunOptions { threads: 2, ..RunOptions::default() };
        let whole = logits(&mut tiny.build(options).unwrap());
        let mut tensors = tiny.tensors().unwrap();
        let slim = Slim { head: Some(kept.clone()), ..Slim::default() };
        let mut source = SlimSource::new(&mut tensors, slim);
        let mut model = CpuRunner::build(tiny.config(), &mut source, options).unwrap();
        assert_eq!((model.info().vocab_size, model.info().logits), (256, kept.len()));
        for (cut, whole) in logits(&mut model).iter().zip(&whole) {
            let expected: Vec<_> = kept.iter().map(|&token| whole[token as usize]).collect();
            assert_eq!(*cut, expected, "tied {tied}");
        }
    }
}

#[test]
fn a_head_of_a_token_that_is_none_is_refused() {
    for tied in [false, true] {
        let tiny = Tiny { tied, ..Tiny::default() };
        let slim = Slim { head: Some(vec![1, 256]), ..Slim::default() };
        let mut tensors = tiny.tensors().unwrap();
        let mut source = SlimSource::new(&mut tensors, slim);
        let options = RunOptions { threads: 1, ..RunOptions::default() };
        let error = CpuRunner::build(tiny.config(), &mut source, options).unwrap_err().to_string();
        assert!(error.contains(if tied { EMBEDDING } else { HEAD }), "{error}");
    }
}
