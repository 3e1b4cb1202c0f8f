//! 128 values in 8 bits by AVX-512: the twin of [`quantise`](super::quantise::quantise), with four sub-blocks side by side.

use std::arch::x86_64::*;
use std::mem::transmute;

use super::isa::{BIAS, ROUND};
use super::quantise::{Codes, SUBS};
use super::tiles::{SUB, VECTORS};

/// The bits of infinity: those of a finite number without its sign are less, those of NaN more.
const INFINITE: i32 = f32::INFINITY.to_bits().cast_signed();

/// The first 4 values of each vector, then the second ones, and so on, to vector after vector.
static IN_ORDER: [i32; 16] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn quantise(x: &[[f32; SUB]; SUBS], out: &mut [Codes; SUBS]) {
    // SAFETY: arrays of the same size, of plain numbers.
    let (x, in_order) = unsafe {
        (
            transmute::<[[f32; SUB]; SUBS], [__m512; 2 * SUBS]>(*x),
            transmute::<[i32; 16], __m512i>(IN_ORDER),
        )
    };
    let largest = largest(&x);
    let inverse = _mm_div_ps(_mm_set1_ps(127.0), _mm_castsi128_ps(largest));
    // Neither of zero or nearly zero, whose inverse is infinite, nor of what is not finite itself.
    let infinite = _mm_set1_epi32(INFINITE);
    let finite = _mm_cmplt_epi32_mask(largest, infinite);
    let usable = _mm_mask_cmplt_epi32_mask(finite, _mm_castps_si128(inverse), infinite);
    let scales = _mm_div_ps(_mm_castsi128_ps(largest), _mm_set1_ps(127.0));
    let scales = _mm_mask_mov_ps(_mm_set1_ps(f32::NAN), finite, scales);
    // SAFETY: arrays of the same size, of plain numbers.
    let (inverse, scales) = unsafe {
        let inverse = _mm_maskz_mov_ps(usable, inverse);
        (transmute::<__m128, [f32; SUBS]>(inverse), transmute::<__m128, [f32; SUBS]>(scales))
    };
    let whole = |s: usize, half: usize| {
        let shifted =
            _mm512_fmadd_ps(x[2 * s + half], _mm512_set1_ps(inverse[s]), _mm512_set1_ps(ROUND));
        _mm512_sub_epi32(_mm512_castps_si512(shifted), _mm512_set1_epi32(BIAS))
    };
    // Two sub-blocks at a time.
    let narrow = |s: usize| {
        let first = _mm512_packs_epi32(whole(s, 0), whole(s, 1));
        let second = _mm512_packs_epi32(whole(s + 1, 0), whole(s + 1, 1));
        _mm512_permutexvar_epi32(in_order, _mm512_packs_epi16(first, second))
    };
    let codes = [narrow(0), narrow(2)];
    let sums = half_sums(codes, in_order);
    // SAFETY: arrays of the same size, of plain numbers.
    let (codes, sums) = unsafe {
        (
            transmute::<[__m512i; 2], [[[i8; 4]; VECTORS]; SUBS]>(codes),
            transmute::<__m256i, [[i32; 2]; SUBS]>(sums),
        )
    };
    for (s, out) in out.iter_mut().enumerate() {
        *out = Codes { codes: codes[s], scale: scales[s], sums: sums[s] };
    }
}

/// Of each sub-block the largest value without its sign, as bits: in their order numbers come, then infinity, then NaN.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn largest(x: &[__m512; 2 * SUBS]) -> __m128i {
    let size = |i: usize| _mm512_and_si512(_mm512_castps_si512(x[i]), _mm512_set1_epi32(i32::MAX));
    let both = |s: usize| _mm512_max_epi32(size(2 * s), size(2 * s + 1));
    let two = |s: usize| {
        let (a, b) = (both(s), both(s + 1));
        _mm512_max_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b))
    };
    let (a, b) = (two(0), two(2));
    let all = _mm512_max_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    let all = _mm512_max_epi32(all, _mm512_shuffle_i64x2::<0b01_00_11_10>(all, all));
    let all = _mm512_max_epi32(all, _mm512_shuffle_i64x2::<0b10_11_00_01>(all, all));
    _mm512_castsi512_si128(all)
}

/// Sums of 16 codes each.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn half_sums(codes: [__m512i; 2], in_order: __m512i) -> __m256i {
    let four =
        |i: usize| _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), codes[i]);
    let (a, b) = (four(0), four(1));
    let sums = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let sums = _mm512_add_epi32(sums, _mm512_shuffle_epi32::<0b01_00_11_10>(sums));
    _mm512_castsi512_si256(_mm512_permutexvar_epi32(in_order, sums))
}
