//! AVX2 with FMA and F16C: each vector of 16 lanes is two registers.

use std::arch::x86_64::*;
use std::mem::transmute;

use super::isa::{BIAS, GROUP, Isa, LANES};

/// Proof that the machine has AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

impl Avx2 {
    /// # Safety
    /// The machine has AVX2, FMA and F16C.
    #[inline(always)]
    pub(super) unsafe fn new() -> Self {
        Self(())
    }

    /// Sums of lanes 4 apart, after those 8 apart.
    #[inline(always)]
    fn four(self, v: Pair<__m256>) -> __m128 {
        // SAFETY: `self` proves the instructions exist.
        unsafe {
            let eight = _mm256_add_ps(v.0, v.1);
            _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight))
        }
    }

    /// 8 lanes of four exact products each.
    #[inline(always)]
    fn half_dot(self, w: __m256i, x: __m256i) -> __m256 {
        // SAFETY: `self` proves the instructions exist.
        unsafe {
            let x = _mm256_xor_si256(x, _mm256_set1_epi8(-128));
            // |w| * (x with w's sign): a pair is at most 2 * 128 * 127, inside i16.
            let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
            _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        }
    }
}

/// Lanes 0 to 7 and 8 to 15.
#[derive(Clone, Copy)]
pub(super) struct Pair<T>(pub(super) T, pub(super) T);

impl Isa for Avx2 {
    type V = Pair<__m256>;
    type W = Pair<__m256i>;
    const ROWS: usize = 2;
    const TILE_ROWS: usize = 2;
    const STRIPS: usize = 1;
    const WIDE: bool = false;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        // SAFETY: `self` proves the instructions exist.
        let v = unsafe { _mm256_set1_ps(x) };
        Pair(v, v)
    }

    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Self::V {
        // SAFETY: both types are 64 plain bytes.
        let [low, high] = unsafe { transmute::<[f32; LANES], [__m256; 2]>(*x) };
        Pair(low, high)
    }

    #[inline(always)]
    fn load_half(self, x: &[u16; LANES]) -> Self::V {
        // SAFETY: both types are 32 plain bytes.
        let [low, high] = unsafe { transmute::<[u16; LANES], [__m128i; 2]>(*x) };
        // SAFETY: `self` proves the instructions exist.
        unsafe { Pair(_mm256_cvtph_ps(low), _mm256_cvtph_ps(high)) }
    }

    #[inline(always)]
    fn store(self, v: Self::V, to: &mut [f32; LANES]) {
        // SAFETY: both types are 64 plain bytes.
        *to = unsafe { transmute::<[__m256; 2], [f32; LANES]>([v.0, v.1]) };
    }

    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: `self` proves the instructions exist.
        unsafe { Pair(_mm256_mul_ps(a.0, b.0), _mm256_mul_ps(a.1, b.1)) }
    }

    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        // SAFETY: `self` proves the instructions exist.
        unsafe { Pair(_mm256_fmadd_ps(a.0, b.0, c.0), _mm256_fmadd_ps(a.1, b.1, c.1)) }
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: `self` proves the instructions exist.
        unsafe { Pair(_mm256_add_ps(a.0, b.0), _mm256_add_ps(a.1, b.1)) }
    }

    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: `self` proves the instructions exist.
        unsafe { Pair(_mm256_sub_ps(a.0, b.0), _mm256_sub_ps(a.1, b.1)) }
    }

    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: `self` proves the instructions exist.
        unsafe { Pair(_mm256_div_ps(a.0, b.0), _mm256_div_ps(a.1, b.1)) }
    }

    #[inline(always)]
    fn larger(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: `self` proves the instructions exist.
        unsafe { Pair(_mm256_max_ps(a.0, b.0), _mm256_max_ps(a.1, b.1)) }
    }

    #[inline(always)]
    fn smaller(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: `self` proves the instructions exist.
        unsafe { Pair(_mm256_min_ps(a.0, b.0), _mm256_min_ps(a.1, b.1)) }
    }

    #[inline(always)]
    fn power_of_two(self, shifted: Self::V) -> Self::V {
        const OFFSET: i32 = 127_i32.wrapping_sub(BIAS);
        // SAFETY: `self` proves the instructions exist.
        unsafe {
            let offset = _mm256_set1_epi32(OFFSET);
            let low = _mm256_add_epi32(_mm256_castps_si256(shifted.0), offset);
            let high = _mm256_add_epi32(_mm256_castps_si256(shifted.1), offset);
            Pair(
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(low)),
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(high)),
            )
        }
    }

    #[inline(always)]
    fn spread(self, v: Self::V, quarter: usize) -> Self::V {
        let from = if quarter < 2 { v.0 } else { v.1 };
        let first = 4 * (quarter as i32 % 2);
        // SAFETY: `self` proves the instructions exist.
        unsafe {
            let index = _mm256_add_epi32(
                _mm256_set1_epi32(first),
                _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1),
            );
            let next = _mm256_add_epi32(index, _mm256_set1_epi32(2));
            Pair(_mm256_permutevar8x32_ps(from, index), _mm256_permutevar8x32_ps(from, next))
        }
    }

    #[inline(always)]
    fn sum(self, v: Self::V) -> f32 {
        let four = self.four(v);
        // SAFETY: `self` proves the instructions exist.
        unsafe {
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn sums(self, [a, b, c, d]: [Self::V; 4]) -> [f32; 4] {
        let (a, b, c, d) = (self.four(a), self.four(b), self.four(c), self.four(d));
        // SAFETY: `self` proves the instructions exist; both types of the transmute are 16 plain
        // bytes.
        unsafe {
            // Lanes 0 + 2 and 1 + 3 of a, then of b; the same of c and d.
            let ab = _mm_add_ps(_mm_movelh_ps(a, b), _mm_movehl_ps(b, a));
            let cd = _mm_add_ps(_mm_movelh_ps(c, d), _mm_movehl_ps(d, c));
            let even = _mm_shuffle_ps::<0b10_00_10_00>(ab, cd);
            let odd = _mm_shuffle_ps::<0b11_01_11_01>(ab, cd);
            transmute(_mm_add_ps(even, odd))
        }
    }

    #[inline(always)]
    fn largests(self, v: [Self::V; 4]) -> [f32; 4] {
        // SAFETY: `self` proves the instructions exist; both types of the transmute are 16 plain
        // bytes.
        unsafe {
            let four = |v: Self::V| {
                let eight = _mm256_max_ps(v.0, v.1);
                _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight))
            };
            let (a, b, c, d) = (four(v[0]), four(v[1]), four(v[2]), four(v[3]));
            // As in `sums`.
            let ab = _mm_max_ps(_mm_movelh_ps(a, b), _mm_movehl_ps(b, a));
            let cd = _mm_max_ps(_mm_movelh_ps(c, d), _mm_movehl_ps(d, c));
            let even = _mm_shuffle_ps::<0b10_00_10_00>(ab, cd);
            let odd = _mm_shuffle_ps::<0b11_01_11_01>(ab, cd);
            transmute(_mm_max_ps(even, odd))
        }
    }

    #[inline(always)]
    fn weights(self, codes: &[i8; GROUP]) -> Self::W {
        // SAFETY: both types are 64 plain bytes.
        let [low, high] = unsafe { transmute::<[i8; GROUP], [__m256i; 2]>(*codes) };
        Pair(low, high)
    }

    #[inline(always)]
    fn dot(self, w: Self::W, x: &[u8; GROUP]) -> Self::V {
        // SAFETY: both types are 64 plain bytes.
        let [low, high] = unsafe { transmute::<[u8; GROUP], [__m256i; 2]>(*x) };
        Pair(self.half_dot(w.0, low), self.half_dot(w.1, high))
    }

    #[inline(always)]
    fn prefetch(self, line: &[u8]) {
        // SAFETY: a prefetch reads nothing that the program sees and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) }
    }

    #[inline(always)]
    fn half(self, bits: u16) -> f32 {
        // SAFETY: `self` proves the instructions exist.
        unsafe { _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits.into()))) }
    }

    type N = Pair<__m256i>;
    type U = Pair<__m256i>;

    #[inline(always)]
    fn whole(self, n: i32) -> Self::N {
        // SAFETY: `self` proves the instructions exist.
        let n = unsafe { _mm256_set1_epi32(n) };
        Pair(n, n)
    }

    #[inline(always)]
    fn whole_from(self, n: &i32) -> Self::N {
        self.whole(*n)
    }

    #[inline(always)]
    fn add_whole(self, a: Self::N, b: Self::N) -> Self::N {
        // SAFETY: `self` proves the instructions exist.
        unsafe { Pair(_mm256_add_epi32(a.0, b.0), _mm256_add_epi32(a.1, b.1)) }
    }

    #[inline(always)]
    fn floats(self, n: Self::N) -> Self::V {
        // SAFETY: `self` proves the instructions exist.
        unsafe { Pair(_mm256_cvtepi32_ps(n.0), _mm256_cvtepi32_ps(n.1)) }
    }

    #[inline(always)]
    fn as_floats(self, n: Self::N) -> Self::V {
        // SAFETY: `self` proves the instructions exist.
        unsafe { Pair(_mm256_castsi256_ps(n.0), _mm256_castsi256_ps(n.1)) }
    }

    #[inline(always)]
    fn rounded(self, shifted: Self::V) -> Self::N {
        // SAFETY: `self` proves the instructions exist.
        unsafe {
            let start = _mm256_set1_epi32(BIAS);
            let whole = |x| _mm256_sub_epi32(_mm256_castps_si256(x), start);
            Pair(whole(shifted.0), whole(shifted.1))
        }
    }

    #[inline(always)]
    fn narrow(self, n: Self::N) -> [i8; LANES] {
        // SAFETY: `self` proves the instructions exist; both types of the transmute are 16 bytes.
        unsafe {
            // Packing works on halves of a vector: fours of lanes come out as 0, 2, 1, 3.
            let pairs = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(n.0, n.1));
            let low = _mm256_castsi256_si128(pairs);
            let high = _mm256_extracti128_si256::<1>(pairs);
            transmute::<__m128i, [i8; LANES]>(_mm_packs_epi16(low, high))
        }
    }

    #[inline(always)]
    fn columns(self, x: &[u8; GROUP]) -> Self::U {
        // SAFETY: both types are 64 plain bytes.
        let [low, high] = unsafe { transmute::<[u8; GROUP], [__m256i; 2]>(*x) };
        Pair(low, high)
    }

    #[inline(always)]
    fn down(self, a: Self::U, shift: u32, mask: u8) -> Self::U {
        // SAFETY: `self` proves the instructions exist. Pairs of bytes are shifted together; the
        // mask below removes what comes over from the neighbour.
        unsafe {
            let count = _mm_cvtsi32_si128(shift.cast_signed());
            let mask = _mm256_set1_epi8((mask & (0xff >> shift)).cast_signed());
            let field = |a| _mm256_and_si256(_mm256_srl_epi16(a, count), mask);
            Pair(field(a.0), field(a.1))
        }
    }

    #[inline(always)]
    fn up(self, a: Self::U, shift: u32, mask: u8) -> Self::U {
        // SAFETY: `self` proves the instructions exist. Pairs of bytes are shifted together; the
        // mask removes what comes over from the neighbour.
        unsafe {
            let count = _mm_cvtsi32_si128(shift.cast_signed());
            let mask = _mm256_set1_epi8((mask & (0xff << shift)).cast_signed());
            let up = |a| _mm256_and_si256(_mm256_sll_epi16(a, count), mask);
            Pair(up(a.0), up(a.1))
        }
    }

    #[inline(always)]
    fn both(self, a: Self::U, b: Self::U) -> Self::U {
        // SAFETY: `self` proves the instructions exist.
        unsafe { Pair(_mm256_or_si256(a.0, b.0), _mm256_or_si256(a.1, b.1)) }
    }

    #[inline(always)]
    fn dot_columns(self, sum: Self::N, w: Self::U, x: [i8; 4], wide: bool) -> Self::N {
        // SAFETY: `self` proves the instructions exist; both types of the transmute are 4 plain
        // bytes.
        unsafe {
            let x = _mm256_set1_epi32(transmute::<[i8; 4], i32>(x));
            let ones = _mm256_set1_epi16(1);
            // A pair is at most 2 * 127 * 127 or, of eighth bits alone, 2 * 128 * 127: inside i16.
            let four = |w| _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), ones);
            if wide {
                let (low, high) = (_mm256_set1_epi8(127), _mm256_set1_epi8(-128));
                let dot = |sum, w| {
                    let low = four(_mm256_and_si256(w, low));
                    let high = four(_mm256_and_si256(w, high));
                    _mm256_add_epi32(sum, _mm256_add_epi32(low, high))
                };
                Pair(dot(sum.0, w.0), dot(sum.1, w.1))
            } else {
                Pair(_mm256_add_epi32(sum.0, four(w.0)), _mm256_add_epi32(sum.1, four(w.1)))
            }
        }
    }

    #[inline(always)]
    fn unsigned(self, x: &[u8; LANES]) -> Self::V {
        // SAFETY: `self` proves the instructions exist; both types of the transmute are 16 bytes.
        unsafe {
            let x = transmute::<[u8; LANES], __m128i>(*x);
            let (low, high) =
                (_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128::<8>(x)));
            self.floats(Pair(low, high))
        }
    }

    #[inline(always)]
    fn signed(self, x: &[u8; LANES]) -> Self::V {
        // SAFETY: as above.
        unsafe {
            let x = transmute::<[u8; LANES], __m128i>(*x);
            let (low, high) =
                (_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(x)));
            self.floats(Pair(low, high))
        }
    }

    #[inline(always)]
    fn fetch(self, at: *const u8) {
        // SAFETY: a prefetch reads nothing that the program sees and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    fn fetch_far(self, at: *const u8) {
        // SAFETY: as above.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
    }
}
