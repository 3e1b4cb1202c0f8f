//! AVX-512 with VNNI.
//!
//! Values are loaded and stored by transmuting arrays, not through the load intrinsics: those go
//! through pointers, whose debug checks cost more than the load in a build with debug assertions.

use std::arch::x86_64::*;
use std::mem::transmute;

use super::isa::{BIAS, GROUP, Isa, LANES};
use super::isa_avx2::{Avx2, Pair};
use super::isa_avx512_quantise;
use super::quantise::{Codes, SUBS};
use super::tiles::SUB;

/// Proof that the machine has AVX-512 F, BW, DQ, VL and VNNI.
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

impl Avx512 {
    /// # Safety
    /// The machine has AVX-512 F, BW, DQ, VL, VNNI, AVX2, FMA and F16C.
    #[inline(always)]
    pub(super) unsafe fn new() -> Self {
        Self(())
    }

    /// The level below, whose byte operations serve here too.
    #[inline(always)]
    fn avx2(self) -> Avx2 {
        // SAFETY: `new` was promised AVX2, FMA and F16C as well.
        unsafe { Avx2::new() }
    }

    #[inline(always)]
    fn pair(self, v: __m512) -> Pair<__m256> {
        // SAFETY: `self` proves the instructions exist.
        unsafe { Pair(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v)) }
    }
}

/// Weights, and −128 times the sum of each lane's four: it undoes the +128 of the activations.
#[derive(Clone, Copy)]
pub(super) struct Weights {
    codes: __m512i,
    start: __m512i,
}

#[inline(always)]
const fn spread_index(quarter: i32) -> [i32; LANES] {
    let mut index = [0; LANES];
    let mut l = 0;
    while l < LANES {
        index[l] = 4 * quarter + l as i32 / 4;
        l += 1;
    }
    index
}

static SPREAD: [[i32; LANES]; 4] =
    [spread_index(0), spread_index(1), spread_index(2), spread_index(3)];

/// A number in all lanes. Written out, or the compiler would load it once and copy the register.
#[inline]
#[target_feature(enable = "avx512f")]
fn broadcast(n: &i32) -> __m512i {
    let lanes;
    // SAFETY: reads the 4 bytes of the reference, and writes nothing but the register.
    unsafe {
        std::arch::asm!(
            "vpbroadcastd {}, dword ptr [{}]",
            lateout(zmm_reg) lanes,
            in(reg) n,
            options(readonly, nostack, preserves_flags)
        );
    }
    lanes
}

impl Isa for Avx512 {
    type V = __m512;
    type W = Weights;
    const ROWS: usize = 4;
    const TILE_ROWS: usize = 8;
    const STRIPS: usize = 2;
    const WIDE: bool = true;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: `self` proves the instructions exist.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> __m512 {
        // SAFETY: `self` proves the instructions exist; both types are 64 plain bytes.
        unsafe { transmute(*x) }
    }

    #[inline(always)]
    fn load_half(self, x: &[u16; LANES]) -> __m512 {
        // SAFETY: `self` proves the instructions exist; both types are 32 plain bytes.
        unsafe { _mm512_cvtph_ps(transmute::<[u16; LANES], __m256i>(*x)) }
    }

    #[inline(always)]
    fn store(self, v: __m512, to: &mut [f32; LANES]) {
        // SAFETY: `self` proves the instructions exist; both types are 64 plain bytes.
        *to = unsafe { transmute::<__m512, [f32; LANES]>(v) };
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves the instructions exist.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: `self` proves the instructions exist.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves the instructions exist.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves the instructions exist.
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves the instructions exist.
        unsafe { _mm512_div_ps(a, b) }
    }

    #[inline(always)]
    fn larger(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves the instructions exist.
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    fn smaller(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves the instructions exist.
        unsafe { _mm512_min_ps(a, b) }
    }

    #[inline(always)]
    fn power_of_two(self, shifted: __m512) -> __m512 {
        const OFFSET: i32 = 127_i32.wrapping_sub(BIAS);
        // SAFETY: `self` proves the instructions exist.
        unsafe {
            let exponent =
                _mm512_add_epi32(_mm512_castps_si512(shifted), _mm512_set1_epi32(OFFSET));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(exponent))
        }
    }

    #[inline(always)]
    fn spread(self, v: __m512, quarter: usize) -> __m512 {
        // SAFETY: `self` proves the instructions exist; both types are 64 plain bytes.
        unsafe { _mm512_permutexvar_ps(transmute::<[i32; LANES], __m512i>(SPREAD[quarter]), v) }
    }

    #[inline(always)]
    fn sum(self, v: __m512) -> f32 {
        self.avx2().sum(self.pair(v))
    }

    #[inline(always)]
    fn sums(self, [a, b, c, d]: [__m512; 4]) -> [f32; 4] {
        self.avx2().sums([self.pair(a), self.pair(b), self.pair(c), self.pair(d)])
    }

    #[inline(always)]
    fn largests(self, [a, b, c, d]: [__m512; 4]) -> [f32; 4] {
        self.avx2().largests([self.pair(a), self.pair(b), self.pair(c), self.pair(d)])
    }

    #[inline(always)]
    fn weights(self, codes: &[i8; GROUP]) -> Weights {
        // SAFETY: `self` proves the instructions exist; both types are 64 plain bytes.
        unsafe {
            let codes = transmute::<[i8; GROUP], __m512i>(*codes);
            let sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(-128), codes);
            Weights { codes, start: _mm512_sub_epi32(_mm512_setzero_si512(), sums) }
        }
    }

    #[inline(always)]
    fn dot(self, w: Weights, x: &[u8; GROUP]) -> __m512 {
        // SAFETY: `self` proves the instructions exist; both types are 64 plain bytes.
        unsafe {
            let x = transmute::<[u8; GROUP], __m512i>(*x);
            _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(w.start, x, w.codes))
        }
    }

    #[inline(always)]
    fn prefetch(self, line: &[u8]) {
        self.avx2().prefetch(line);
    }

    #[inline(always)]
    fn half(self, bits: u16) -> f32 {
        // SAFETY: `self` proves the instructions exist.
        unsafe { _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits.into()))) }
    }

    type N = __m512i;
    type U = __m512i;

    #[inline(always)]
    fn whole(self, n: i32) -> __m512i {
        // SAFETY: `self` proves the instructions exist.
        unsafe { _mm512_set1_epi32(n) }
    }

    #[inline(always)]
    fn whole_from(self, n: &i32) -> __m512i {
        // SAFETY: `self` proves the instructions exist.
        unsafe { broadcast(n) }
    }

    #[inline(always)]
    fn add_whole(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the instructions exist.
        unsafe { _mm512_add_epi32(a, b) }
    }

    #[inline(always)]
    fn floats(self, n: __m512i) -> __m512 {
        // SAFETY: `self` proves the instructions exist.
        unsafe { _mm512_cvtepi32_ps(n) }
    }

    #[inline(always)]
    fn as_floats(self, n: __m512i) -> __m512 {
        // SAFETY: `self` proves the instructions exist.
        unsafe { _mm512_castsi512_ps(n) }
    }

    #[inline(always)]
    fn rounded(self, shifted: __m512) -> __m512i {
        // SAFETY: `self` proves the instructions exist.
        unsafe {
            let start = _mm512_set1_epi32(BIAS);
            _mm512_sub_epi32(_mm512_castps_si512(shifted), start)
        }
    }

    #[inline(always)]
    fn narrow(self, n: __m512i) -> [i8; LANES] {
        // SAFETY: `self` proves the instructions exist; both types of the transmute are 16 bytes.
        unsafe { transmute::<__m128i, [i8; LANES]>(_mm512_cvtepi32_epi8(n)) }
    }

    #[inline(always)]
    fn columns(self, x: &[u8; GROUP]) -> __m512i {
        // SAFETY: both types are 64 plain bytes.
        unsafe { transmute(*x) }
    }

    #[inline(always)]
    fn down(self, a: __m512i, shift: u32, mask: u8) -> __m512i {
        // SAFETY: `self` proves the instructions exist. Pairs of bytes are shifted together; the
        // mask below removes what comes over from the neighbour.
        unsafe {
            let shifted = _mm512_srl_epi16(a, _mm_cvtsi32_si128(shift.cast_signed()));
            _mm512_and_si512(shifted, _mm512_set1_epi8((mask & (0xff >> shift)).cast_signed()))
        }
    }

    #[inline(always)]
    fn up(self, a: __m512i, shift: u32, mask: u8) -> __m512i {
        // SAFETY: as above.
        unsafe {
            let shifted = _mm512_sll_epi16(a, _mm_cvtsi32_si128(shift.cast_signed()));
            _mm512_and_si512(shifted, _mm512_set1_epi8((mask & (0xff << shift)).cast_signed()))
        }
    }

    #[inline(always)]
    fn both(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the instructions exist.
        unsafe { _mm512_or_si512(a, b) }
    }

    #[inline(always)]
    fn dot_columns(self, sum: __m512i, w: __m512i, x: [i8; 4], _: bool) -> __m512i {
        // SAFETY: `self` proves the instructions exist; both types of the transmute are 4 plain
        // bytes.
        unsafe { _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32(transmute::<[i8; 4], i32>(x))) }
    }

    #[inline(always)]
    fn quantise(self, x: &[[f32; SUB]; SUBS], out: &mut [Codes; SUBS]) {
        // SAFETY: `self` proves the instructions exist.
        unsafe { isa_avx512_quantise::quantise(x, out) }
    }

    #[inline(always)]
    fn unsigned(self, x: &[u8; LANES]) -> __m512 {
        // SAFETY: `self` proves the instructions exist; both types of the transmute are 16 bytes.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(transmute::<[u8; LANES], __m128i>(*x))) }
    }

    #[inline(always)]
    fn signed(self, x: &[u8; LANES]) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(transmute::<[u8; LANES], __m128i>(*x))) }
    }

    #[inline(always)]
    fn fetch(self, at: *const u8) {
        self.avx2().fetch(at);
    }

    #[inline(always)]
    fn fetch_far(self, at: *const u8) {
        self.avx2().fetch_far(at);
    }
}
