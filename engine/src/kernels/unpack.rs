//! From the blocks of a file format to signed codes and scales, for those that have no tiles.
//!
//! Each becomes the same thing: `value[i] = scale[i / 16] * code[i]` with 8-bit codes. A row is unpacked once into a scratch buffer that stays in the
//! first-level cache and is then multiplied with all activation rows, so a verify pass pays for
//! unpacking once. The loops here are plain Rust: compiled for each level, the compiler vectorises
//! them, and the results are the same by construction.

use super::isa::{GROUP, Isa};
use crate::gguf::TensorType;

/// Values that share one scale.
pub(super) const SUB: usize = 16;
/// Values whose scales fill one vector.
pub(super) const SUPER: usize = 256;
/// Scales of a super-block.
pub(super) const SCALES: usize = SUPER / SUB;

/// One weight row, unpacked. Padded with zero codes and scales to whole super-blocks.
#[derive(Debug, Clone, Default)]
pub(super) struct Unpacked {
    pub(super) codes: Vec<[i8; SUPER]>,
    pub(super) scales: Vec<[f32; SCALES]>,
}

impl Unpacked {
    /// Room for rows of `cols` values, all zero.
    pub(super) fn resize(&mut self, cols: usize) {
        let supers = cols.div_ceil(SUPER);
        self.codes.clear();
        self.codes.resize(supers, [0; SUPER]);
        self.scales.clear();
        self.scales.resize(supers, [0.0; SCALES]);
    }

    /// Groups of 64 values that `cols` values touch.
    pub(super) fn groups(cols: usize) -> usize {
        cols.div_ceil(GROUP)
    }
}

/// Weights that will be read next. Their lines are asked for a few at a time, between steps of
/// arithmetic, so that memory and arithmetic overlap without filling the processor's queues.
pub(super) struct Ahead<'a> {
    rest: &'a [u8],
    /// Bytes per step.
    step: usize,
}

impl<'a> Ahead<'a> {
    /// Asks for `next` over about `steps` steps.
    pub(super) fn new(next: &'a [u8], steps: usize) -> Self {
        Self { rest: next, step: next.len().div_ceil(steps.max(1)).next_multiple_of(LINE) }
    }

    #[inline(always)]
    pub(super) fn step<I: Isa>(&mut self, isa: I) {
        let (now, later) = self.rest.split_at(self.step.min(self.rest.len()));
        self.rest = later;
        for line in now.chunks(LINE) {
            isa.prefetch(line);
        }
    }
}

/// Bytes of a line of memory.
const LINE: usize = 64;

/// Whether the format is quantised (else it is a float format, multiplied in f32).
pub(super) const fn is_quantised(dtype: TensorType) -> bool {
    dtype.block_len() > 1
}

/// Unpacks one row (whole blocks of `dtype`) over `out`, which has been sized for it.
#[inline(always)]
pub(super) fn unpack<I: Isa>(
    isa: I,
    dtype: TensorType,
    row: &[u8],
    out: &mut Unpacked,
    ahead: &mut Ahead<'_>,
) {
    match dtype {
        TensorType::Q8_K => large(isa, row, out, ahead, q8_k::<I>),
        _ => debug_assert!(false, "neither kept in tiles nor multiplied as floats"),
    }
}

/// Formats with blocks of 256.
#[inline(always)]
fn large<I: Isa, const B: usize>(
    isa: I,
    row: &[u8],
    out: &mut Unpacked,
    ahead: &mut Ahead<'_>,
    f: impl Fn(I, &[u8; B], &mut [i8; SUPER], &mut Scales),
) {
    let supers = out.codes.iter_mut().zip(&mut out.scales).zip(row.as_chunks::<B>().0);
    for ((codes, scales), block) in supers {
        ahead.step(isa);
        f(isa, block, codes, scales);
    }
}

/// `N` bytes of a block.
#[inline(always)]
fn part<const N: usize>(block: &[u8], at: usize) -> &[u8; N] {
    &block[at..at + N].as_chunks().0[0]
}

type Scales = [f32; SCALES];

#[inline(always)]
fn q8_k<I: Isa>(_: I, b: &[u8; 292], codes: &mut [i8; SUPER], scales: &mut Scales) {
    scales.fill(f32::from_le_bytes(*part(b, 0)));
    for (code, &byte) in codes.iter_mut().zip(&b[4..]) {
        *code = byte.cast_signed();
    }
}

/// Unpacks a row of a float format to f32. `out` is padded; only whole values of `row` are written.
#[inline(always)]
pub(super) fn unpack_floats<I: Isa>(isa: I, dtype: TensorType, row: &[u8], out: &mut [f32]) {
    match dtype {
        TensorType::F32 => {
            for (bytes, x) in row.as_chunks::<4>().0.iter().zip(out) {
                *x = f32::from_le_bytes(*bytes);
            }
        }
        TensorType::BF16 => {
            for (bytes, x) in row.as_chunks::<2>().0.iter().zip(out) {
                *x = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
            }
        }
        _ => {
            for (bytes, x) in row.as_chunks::<2>().0.iter().zip(out) {
                *x = isa.half(u16::from_le_bytes(*bytes));
            }
        }
    }
}

/// Dequantises one row to f32.
#[inline(always)]
pub(super) fn dequantise_body<I: Isa>(
    isa: I,
    dtype: TensorType,
    row: &[u8],
    out: &mut [f32],
    scratch: &mut Unpacked,
) {
    if !is_quantised(dtype) {
        return unpack_floats(isa, dtype, row, out);
    }
    scratch.resize(out.len());
    unpack(isa, dtype, row, scratch, &mut Ahead::new(&[], 1));
    let codes = scratch.codes.as_flattened().chunks(SUB);
    let subs = codes.zip(scratch.scales.as_flattened());
    for (out, (codes, &scale)) in out.chunks_mut(SUB).zip(subs) {
        for (out, &code) in out.iter_mut().zip(codes) {
            *out = scale * f32::from(code);
        }
    }
}
super::level::dispatch! {
    /// Dequantises one row (whole blocks of `dtype`) to f32.
    pub(super) fn dequantise(
        dtype: TensorType,
        row: &[u8],
        out: &mut [f32],
        scratch: &mut Unpacked,
    ) = dequantise_body
}
