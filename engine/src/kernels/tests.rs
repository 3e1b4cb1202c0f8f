//! Kernels against plain arithmetic, levels against each other, rows against themselves.

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};

use super::activations::Activations;
use super::input::Input;
use super::isa::{BIAS, Isa, Portable, ROUND};
use super::linear::{Linear, Scratch, linears};
use super::tiles::is_tiled;
use super::{AlignedBytes, Level, Pool, Weights, vector};
use crate::gguf::TensorType;

/// SplitMix64 with a normal-ish output.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn next(&mut self) -> f32 {
        let bits = self.bits();
        (0..4).map(|i| (bits >> (16 * i) & 0xffff) as f32 / 65_536.0 - 0.5).sum::<f32>() * 1.73
    }

    pub(super) fn vec(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.next()).collect()
    }
}

fn candle_type(dtype: TensorType) -> GgmlDType {
    match dtype {
        TensorType::F32 => GgmlDType::F32,
        TensorType::F16 => GgmlDType::F16,
        TensorType::BF16 => GgmlDType::BF16,
        TensorType::Q4_0 => GgmlDType::Q4_0,
        TensorType::Q4_1 => GgmlDType::Q4_1,
        TensorType::Q5_0 => GgmlDType::Q5_0,
        TensorType::Q5_1 => GgmlDType::Q5_1,
        TensorType::Q8_0 => GgmlDType::Q8_0,
        TensorType::Q8_1 => GgmlDType::Q8_1,
        TensorType::Q2_K => GgmlDType::Q2K,
        TensorType::Q3_K => GgmlDType::Q3K,
        TensorType::Q4_K => GgmlDType::Q4K,
        TensorType::Q5_K => GgmlDType::Q5K,
        TensorType::Q6_K => GgmlDType::Q6K,
        TensorType::Q8_K => GgmlDType::Q8K,
    }
}

/// A random matrix of a format, and its values as candle (an independent reader) dequantises them.
fn matrix(dtype: TensorType, rows: usize, cols: usize, seed: u64) -> (Weights, Vec<f32>) {
    let dense =
        Tensor::from_vec(Random(seed).vec(rows * cols), (rows, cols), &Device::Cpu).unwrap();
    let q = QTensor::quantize(&dense, candle_type(dtype)).unwrap();
    let values = q.dequantize(&Device::Cpu).unwrap().flatten_all().unwrap().to_vec1().unwrap();
    let bytes = AlignedBytes::from(&*q.data().unwrap());
    (Weights::new(dtype, rows, cols, bytes).unwrap(), values)
}

fn multiply(level: Level, threads: usize, w: &Weights, x: &[f32]) -> Vec<f32> {
    let mut out = vec![f32::NAN; x.len() / w.cols() * w.rows()];
    let mut pool = Pool::new(threads).unwrap();
    let layer = Linear { weights: w, bias: None, out: &mut out, add: false };
    linears(level, &mut pool, Input::Rows(x), [layer], &mut Scratch::default());
    out
}

pub(super) fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Widths that are and are not whole super-blocks; K-quants only have the former.
fn widths(dtype: TensorType) -> &'static [usize] {
    match dtype.block_len() {
        1 => &[1, 15, 64, 100, 256],
        32 => &[32, 64, 96, 256, 576, 896],
        _ => &[256, 768],
    }
}

#[test]
fn dequantised_rows_are_candles() {
    for dtype in TensorType::ALL {
        for &cols in widths(dtype) {
            let (w, values) = matrix(dtype, 3, cols, 5);
            for level in Level::available() {
                for row in 0..3 {
                    let mut out = vec![0.0; cols];
                    w.dequantise_row(level, row, &mut out);
                    for (&ours, &theirs) in out.iter().zip(&values[row * cols..]) {
                        let close = (ours - theirs).abs() <= 1e-6 * (1.0 + theirs.abs());
                        assert!(close, "{dtype:?} {cols} {}: {ours} {theirs}", level.name());
                    }
                }
            }
        }
    }
}

#[test]
fn products_are_those_of_the_dequantised_values() {
    for dtype in TensorType::ALL {
        for &cols in widths(dtype) {
            let rows = 9;
            let (w, values) = matrix(dtype, rows, cols, 7);
            let mut x = Random(8).vec(5 * cols);
            x[cols..2 * cols].fill(0.0);
            x[2 * cols..3 * cols].fill(-1.0);
            x[3 * cols] = 40.0; // an outlier
            let out = multiply(Level::detect(), 2, &w, &x);
            for (m, x) in x.chunks(cols).enumerate() {
                // What 8-bit activations may cost: half a step of 1/127 of the largest of each 32
                // values, random signs.
                let exact = |n: usize| -> (f64, f64) {
                    let row = &values[n * cols..][..cols];
                    let sum = row.iter().zip(x).map(|(&w, &x)| f64::from(w) * f64::from(x)).sum();
                    let step = |i: usize| {
                        x[i / 32 * 32..(i / 32 * 32 + 32).min(cols)]
                            .iter()
                            .fold(0.0f32, |a, x| a.max(x.abs()))
                            / 254.0
                    };
                    let noise: f64 =
                        row.iter().enumerate().map(|(i, &w)| f64::from(w * step(i)).powi(2)).sum();
                    (sum, noise.sqrt())
                };
                for n in 0..rows {
                    let (sum, noise) = exact(n);
                    // Few columns keep 16 bits where weights lie in tiles.
                    let steps = if cols < 768 && is_tiled(dtype) { 4.0 / 127.0 } else { 4.0 };
                    let allowed = if dtype.block_len() == 1 { 0.0 } else { steps * noise } + 1e-4;
                    let off = (f64::from(out[m * rows + n]) - sum).abs();
                    assert!(
                        off <= allowed,
                        "{dtype:?} {cols} row {m} {n}: off by {off}, allowed {allowed}"
                    );
                }
            }
        }
    }
}

#[test]
fn levels_threads_and_row_counts_agree_bit_for_bit() {
    for dtype in TensorType::ALL {
        let cols = widths(dtype)[widths(dtype).len() - 1];
        let (w, _) = matrix(dtype, 21, cols, 9);
        let x = Random(10).vec(128 * cols);
        let all = bits(&multiply(Level::portable(), 1, &w, &x));
        for level in Level::available() {
            for threads in 1..=4 {
                for m in (1..=33).chain([64, 128]).step_by(threads) {
                    let some = bits(&multiply(level, threads, &w, &x[..m * cols]));
                    assert_eq!(some, all[..m * 21], "{dtype:?} {} {threads} {m}", level.name());
                }
            }
        }
    }
}

/// More rows than are kept in the second cache at once, and strips that do not come in pairs.
#[test]
fn rows_beyond_a_chunk_agree_bit_for_bit() {
    for (dtype, rows) in [(TensorType::Q4_K, 33), (TensorType::Q6_K, 16), (TensorType::Q5_0, 48)] {
        let (w, _) = matrix(dtype, rows, 8192, 9);
        let x = Random(10).vec(197 * 8192);
        let all = bits(&multiply(Level::portable(), 1, &w, &x));
        for level in Level::available() {
            for m in [16, 17, 24, 100, 197] {
                let some = bits(&multiply(level, 2, &w, &x[..m * 8192]));
                assert_eq!(some, all[..m * rows], "{dtype:?} {} {m}", level.name());
            }
        }
    }
}

/// A broken file: what comes of an infinite scale does not depend on the number of rows either.
#[test]
fn an_infinite_scale_is_the_same_for_any_number_of_rows() {
    let dense = Tensor::from_vec(Random(3).vec(16 * 256), (16, 256), &Device::Cpu).unwrap();
    let q = QTensor::quantize(&dense, GgmlDType::Q4K).unwrap();
    let mut bytes = q.data().unwrap().to_vec();
    bytes[..2].copy_from_slice(&0x7c00_u16.to_le_bytes());
    let w = Weights::new(TensorType::Q4_K, 16, 256, AlignedBytes::from(&bytes[..])).unwrap();
    let x = Random(10).vec(24 * 256);
    let all = multiply(Level::portable(), 1, &w, &x);
    assert!((0..24).all(|row| all[16 * row].is_nan() && all[16 * row + 1].is_finite()));
    for level in Level::available() {
        for m in [1, 8, 16, 24] {
            let some = multiply(level, 1, &w, &x[..m * 256]);
            let same =
                |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
            assert!(some.iter().zip(&all).all(same), "{} {m}", level.name());
        }
    }
}

/// What lets a sum be scaled without converting it: see `tile_dots`.
#[test]
fn a_biased_sum_times_a_scale_is_rounded_once() {
    let mut random = Random(5);
    for _ in 0..200_000 {
        let drawn = random.bits();
        // Any finite half-precision number, times a code of 8 bits.
        let half = Portable.half((drawn & 0xffff) as u16);
        let code = f32::from((drawn >> 16) as i8);
        let n = (drawn >> 24) as i32 % (1 << 22);
        let scale = half * code;
        if half.is_finite() {
            let biased = Portable.as_floats(Portable.whole(BIAS.wrapping_add(n)));
            let back = Portable.mul(Portable.splat(scale), Portable.splat(-ROUND));
            let scaled = Portable.fma(biased, Portable.splat(scale), back)[0];
            assert_eq!(scaled, n as f32 * scale, "{n} {half} {code}");
        }
    }
}

#[test]
fn several_layers_and_a_bias_in_one_call() {
    let (a, _) = matrix(TensorType::Q4_1, 5, 64, 1);
    let (b, _) = matrix(TensorType::F16, 7, 64, 2);
    let x = Random(3).vec(3 * 64);
    let bias = [1.0, 2.0, 3.0, 4.0, 5.0];
    let (mut out_a, mut out_b) = (vec![0.0; 15], vec![0.0; 21]);
    let layers = [
        Linear { weights: &a, bias: Some(&bias), out: &mut out_a, add: false },
        Linear { weights: &b, bias: None, out: &mut out_b, add: false },
    ];
    let mut pool = Pool::new(2).unwrap();
    linears(Level::detect(), &mut pool, Input::Rows(&x), layers, &mut Scratch::default());
    let plain = multiply(Level::detect(), 1, &a, &x);
    for (i, (with, without)) in out_a.iter().zip(plain).enumerate() {
        assert_eq!(*with, without + bias[i % 5]);
    }
    assert_eq!(out_b, multiply(Level::detect(), 1, &b, &x));
}

#[test]
fn a_non_finite_activation_shows_in_its_own_row_only() {
    for bad in [f32::NAN, f32::INFINITY] {
        for dtype in [TensorType::Q4_1, TensorType::Q8_0, TensorType::F32] {
            let (w, _) = matrix(dtype, 4, 64, 1);
            let mut x = Random(2).vec(3 * 64);
            let clean = multiply(Level::detect(), 1, &w, &x);
            x[64 + 7] = bad;
            let out = multiply(Level::detect(), 1, &w, &x);
            assert_eq!(bits(&out[..4]), bits(&clean[..4]));
            assert_eq!(bits(&out[8..]), bits(&clean[8..]));
            assert!(out[4..8].iter().all(|x| !x.is_finite()), "{dtype:?} {out:?}");
        }
    }
}

#[test]
fn quantised_activations_are_the_same_on_every_level() {
    let mut x = Random(4).vec(700);
    (x[3], x[400]) = (1e30, -1e-40);
    let mut all: Vec<Vec<u8>> = Vec::new();
    for level in Level::available() {
        let mut a = Activations::default();
        a.quantise(level, &mut Pool::new(1).unwrap(), &x, 700);
        let row = a.row(0);
        assert!(row.iter().all(|b| b.codes.iter().all(|&c| c >= 1)));
        all.push(row.iter().flat_map(|b| b.codes).collect());
    }
    assert!(all.windows(2).all(|w| w[0] == w[1]));
}

#[test]
fn exp_is_accurate() {
    use super::isa::{Isa, Portable};
    let exp = |x: f32| vector::exp(Portable, Portable.splat(x))[0];
    for i in -87_000..87_000 {
        let x = i as f32 / 1000.0;
        let (ours, exact) = (f64::from(exp(x)), f64::from(x).exp());
        assert!((ours / exact - 1.0).abs() < 3e-7, "{x}: {ours} {exact}");
    }
    assert!(exp(f32::NAN).is_nan());
    assert_eq!(exp(0.0), 1.0);
    assert!(exp(f32::NEG_INFINITY) < 1e-37 && exp(f32::INFINITY).is_finite());
}

#[test]
fn norms_and_silu_of_any_width_are_the_same_on_every_level() {
    for cols in [1, 15, 100, 576] {
        let (x, w) = (Random(5).vec(3 * cols), Random(6).vec(cols));
        let run = |level| {
            let mut normed = vec![0.0; 3 * cols];
            vector::rms_norm(level, &x, &w, 1e-5, &mut normed);
            let mut in_place = x.clone();
            vector::rms_norm_in_place(level, &mut in_place, &w, 1e-5);
            assert_eq!(bits(&in_place), bits(&normed));
            let mut plain = super::input::Plain::default();
            let input = Input::Norm { x: &x, weight: &w, eps: 1e-5 };
            plain.take(level, &mut Pool::alone(), &input, cols);
            assert_eq!(bits(&plain.rows), bits(&normed));
            let input = Input::Silu { gate: &x, up: &normed };
            plain.take(level, &mut Pool::alone(), &input, cols);
            (bits(&normed), bits(&plain.rows))
        };
        let all: Vec<_> = Level::available().into_iter().map(run).collect();
        assert!(all.windows(2).all(|w| w[0] == w[1]), "{cols}");
    }
}

#[test]
fn norms_and_silu_on_the_way_are_those_of_their_own() {
    let cols = 768;
    // So many values that threads share them out.
    let rows = 12;
    assert!(rows * cols >= super::columns::PARALLEL);
    let (x, up) = (Random(5).vec(rows * cols), Random(7).vec(rows * cols));
    let weight = Random(6).vec(cols);
    let mut normed = vec![0.0; x.len()];
    vector::rms_norm(Level::portable(), &x, &weight, 1e-5, &mut normed);
    let mean: f64 = x[..cols].iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / cols as f64;
    let expected = f64::from(x[7]) / (mean + 1e-5).sqrt() * f64::from(weight[7]);
    assert!((f64::from(normed[7]) - expected).abs() < 1e-6);
    let silu = |g: f32| f64::from(g) / (1.0 + (-f64::from(g)).exp());
    for dtype in [TensorType::Q4_K, TensorType::Q3_K, TensorType::F16] {
        let (w, _) = matrix(dtype, 21, cols, 9);
        let mut all = Vec::new();
        for level in Level::available() {
            let mut other = vec![0.0; x.len()];
            vector::rms_norm(level, &x, &weight, 1e-5, &mut other);
            assert_eq!(bits(&other), bits(&normed));
            let mut gated = super::input::Plain::default();
            let input = Input::Silu { gate: &x, up: &up };
            gated.take(level, &mut Pool::alone(), &input, cols);
            let gated = gated.rows;
            for ((&gated, &x), &up) in gated.iter().zip(&x).zip(&up) {
                assert!((f64::from(gated) - silu(x) * f64::from(up)).abs() < 1e-6);
            }
            let run = |threads, input: Input<'_>, add| {
                let mut out = vec![1.5; rows * 21];
                let layer = Linear { weights: &w, bias: None, out: &mut out, add };
                let mut pool = Pool::new(threads).unwrap();
                linears(level, &mut pool, input, [layer], &mut Scratch::default());
                out
            };
            for threads in 1..=3 {
                let norm = Input::Norm { x: &x, weight: &weight, eps: 1e-5 };
                let apart = run(1, Input::Rows(&normed), false);
                assert_eq!(bits(&run(threads, norm, false)), bits(&apart), "{dtype:?}");
                let added: Vec<f32> = apart.iter().map(|y| 1.5 + y).collect();
                assert_eq!(bits(&run(threads, norm, true)), bits(&added));
                let apart = run(1, Input::Rows(&gated), false);
                assert_eq!(bits(&run(threads, input, false)), bits(&apart), "{dtype:?}");
                all.push(apart);
            }
        }
        assert!(all.windows(2).all(|w| bits(&w[0]) == bits(&w[1])));
    }
}
