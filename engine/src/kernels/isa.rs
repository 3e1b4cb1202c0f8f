//! The vector operations that kernels are written over: 16 lanes of f32, and 64 8-bit products.

use super::quantise::{self, Codes, SUBS};
use super::tiles::SUB;

/// Lanes of a vector.
pub(super) const LANES: usize = 16;
/// 8-bit values multiplied at once: 16 lanes of 4 neighbours.
pub(super) const GROUP: usize = 64;

/// 16 lanes in a line of the cache: of those that are not, each access would be two. What is spilled beside them is
/// aligned with them.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(super) struct Line(pub(super) [f32; LANES]);

/// 1.5 · 2²³: adding it to a small number rounds that to an integer, in the low bits.
pub(super) const ROUND: f32 = 12_582_912.0;

/// [`ROUND`]'s bits.
pub(super) const BIAS: i32 = ROUND.to_bits().cast_signed();

/// An instruction set. The value is the proof that the machine has it. Every implementation gives
/// the same bits: `fma` rounds once, sums of products are exact, [`Isa::sum`] is one fixed tree.
pub(super) trait Isa: Copy {
    /// 16 lanes of f32.
    type V: Copy;
    /// 64 signed 8-bit weights, prepared for [`Isa::dot`].
    type W: Copy;
    /// Rows of activations that a weight is multiplied with at once: what the registers hold.
    const ROWS: usize;
    /// The same for a tile of weights.
    const TILE_ROWS: usize;
    /// Strips of tiles that rows are multiplied with at once: 1 or 2.
    const STRIPS: usize;
    /// Whether [`Isa::dot_columns`] takes weights above 127 as fast as others.
    const WIDE: bool;

    fn splat(self, x: f32) -> Self::V;
    fn load(self, x: &[f32; LANES]) -> Self::V;
    /// Loads 16 IEEE half-precision numbers.
    fn load_half(self, x: &[u16; LANES]) -> Self::V;
    fn store(self, v: Self::V, to: &mut [f32; LANES]);
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a > b ? a : b`, lane by lane: `b` where one is NaN.
    fn larger(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a < b ? a : b`, lane by lane: `b` where one is NaN.
    fn smaller(self, a: Self::V, b: Self::V) -> Self::V;
    /// `2^n`, where `n` is the integer in the low bits of `shifted - `[`ROUND`].
    fn power_of_two(self, shifted: Self::V) -> Self::V;
    /// Lane `l` of the result is lane `4 * quarter + l / 4` of `v`.
    fn spread(self, v: Self::V, quarter: usize) -> Self::V;
    /// Sum of the lanes: halves on halves, 16 to 8 to 4 to 2 to 1.
    fn sum(self, v: Self::V) -> f32;
    /// Four times [`Isa::sum`].
    fn sums(self, v: [Self::V; 4]) -> [f32; 4];
    /// Of each the largest lane by [`Isa::larger`], halves on halves.
    fn largests(self, v: [Self::V; 4]) -> [f32; 4];

    fn weights(self, codes: &[i8; GROUP]) -> Self::W;
    /// Lane `l`: the sum over `i` in `4l..4l+4` of `w[i] * (x[i] - 128)`, exact. No `x` is 0.
    fn dot(self, w: Self::W, x: &[u8; GROUP]) -> Self::V;

    /// Asks for a line of memory that will be read soon.
    fn prefetch(self, line: &[u8]);

    /// One half-precision number.
    fn half(self, bits: u16) -> f32;

    /// 16 whole numbers, a lane for each row of a tile.
    type N: Copy;
    /// 64 bytes: 4 neighbouring columns of 16 rows.
    type U: Copy;
    fn whole(self, n: i32) -> Self::N;
    /// The same, loaded from memory each time: a copy of a register takes the place of a multiplication.
    fn whole_from(self, n: &i32) -> Self::N;
    fn add_whole(self, a: Self::N, b: Self::N) -> Self::N;
    /// Exact below 2^24.
    fn floats(self, n: Self::N) -> Self::V;
    /// The same bits as floats: of a whole number `n` below 2^22 plus [`BIAS`], the float [`ROUND`]` + n`.
    fn as_floats(self, n: Self::N) -> Self::V;
    /// The integers in the low bits of `shifted - `[`ROUND`].
    fn rounded(self, shifted: Self::V) -> Self::N;
    /// Lanes of -127 to 127 as bytes.
    fn narrow(self, n: Self::N) -> [i8; LANES];
    fn columns(self, x: &[u8; GROUP]) -> Self::U;
    /// `(a >> shift) & mask`, byte by byte; shift is at most 7.
    fn down(self, a: Self::U, shift: u32, mask: u8) -> Self::U;
    /// `(a << shift) & mask`, byte by byte; shift is at most 7.
    fn up(self, a: Self::U, shift: u32, mask: u8) -> Self::U;
    fn both(self, a: Self::U, b: Self::U) -> Self::U;
    /// Lane `l` of `sum` plus the sum over `i` in `4l..4l+4` of `w[i] * x[i % 4]`, exact. No `x` is
    /// -128. `wide`: whether a `w` may be above 127.
    fn dot_columns(self, sum: Self::N, w: Self::U, x: [i8; 4], wide: bool) -> Self::N;
    fn unsigned(self, x: &[u8; LANES]) -> Self::V;
    fn signed(self, x: &[u8; LANES]) -> Self::V;
    /// 32 values in 8 bits, four times: [`quantise::quantise`], or what gives the same bits.
    #[inline(always)]
    fn quantise(self, x: &[[f32; SUB]; SUBS], out: &mut [Codes; SUBS]) {
        quantise::quantise(self, x, out);
    }
    /// Asks for the line of memory at an address, which need not be anybody's.
    fn fetch(self, at: *const u8);
    /// The same for a line that is needed later: into the second cache.
    fn fetch_far(self, at: *const u8);
}

/// Plain Rust: for machines without the instructions, and the twin the others are tested against.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Portable {
    #[inline(always)]
    fn largest(mut v: [f32; LANES]) -> f32 {
        for half in [8, 4, 2, 1] {
            for l in 0..half {
                v[l] = if v[l] > v[l + half] { v[l] } else { v[l + half] };
            }
        }
        v[0]
    }
}

impl Isa for Portable {
    type V = [f32; LANES];
    type W = [i8; GROUP];
    const ROWS: usize = 2;
    const TILE_ROWS: usize = 2;
    const STRIPS: usize = 1;
    const WIDE: bool = false;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [x; LANES]
    }

    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Self::V {
        *x
    }

    #[inline(always)]
    fn load_half(self, x: &[u16; LANES]) -> Self::V {
        x.map(|bits| self.half(bits))
    }

    #[inline(always)]
    fn store(self, v: Self::V, to: &mut [f32; LANES]) {
        *to = v;
    }

    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|l| a[l] * b[l])
    }

    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        std::array::from_fn(|l| a[l].mul_add(b[l], c[l]))
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|l| a[l] + b[l])
    }

    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|l| a[l] - b[l])
    }

    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|l| a[l] / b[l])
    }

    #[inline(always)]
    fn larger(self, a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|l| if a[l] > b[l] { a[l] } else { b[l] })
    }

    #[inline(always)]
    fn smaller(self, a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|l| if a[l] < b[l] { a[l] } else { b[l] })
    }

    #[inline(always)]
    fn power_of_two(self, shifted: Self::V) -> Self::V {
        let exponent = |x: f32| x.to_bits().wrapping_sub(BIAS.cast_unsigned()).wrapping_add(127);
        shifted.map(|x| f32::from_bits(exponent(x) << 23))
    }

    #[inline(always)]
    fn spread(self, v: Self::V, quarter: usize) -> Self::V {
        std::array::from_fn(|l| v[4 * quarter + l / 4])
    }

    #[inline(always)]
    fn sum(self, mut v: Self::V) -> f32 {
        for half in [8, 4, 2, 1] {
            for l in 0..half {
                v[l] += v[l + half];
            }
        }
        v[0]
    }

    #[inline(always)]
    fn sums(self, v: [Self::V; 4]) -> [f32; 4] {
        v.map(|v| self.sum(v))
    }

    #[inline(always)]
    fn largests(self, v: [Self::V; 4]) -> [f32; 4] {
        v.map(Self::largest)
    }

    #[inline(always)]
    fn weights(self, codes: &[i8; GROUP]) -> Self::W {
        *codes
    }

    #[inline(always)]
    fn dot(self, w: Self::W, x: &[u8; GROUP]) -> Self::V {
        let product = |i: usize| i32::from(w[i]) * (i32::from(x[i]) - 128);
        // At most 4 * 128 * 127: exact in f32.
        std::array::from_fn(|l| (4 * l..4 * l + 4).map(product).sum::<i32>() as f32)
    }

    #[inline(always)]
    fn prefetch(self, _: &[u8]) {}

    #[inline(always)]
    fn half(self, bits: u16) -> f32 {
        half_to_f32(bits)
    }

    type N = [i32; LANES];
    type U = [u8; GROUP];

    #[inline(always)]
    fn whole(self, n: i32) -> Self::N {
        [n; LANES]
    }

    #[inline(always)]
    fn whole_from(self, n: &i32) -> Self::N {
        self.whole(*n)
    }

    #[inline(always)]
    fn add_whole(self, a: Self::N, b: Self::N) -> Self::N {
        std::array::from_fn(|l| a[l].wrapping_add(b[l]))
    }

    #[inline(always)]
    fn floats(self, n: Self::N) -> Self::V {
        n.map(|n| n as f32)
    }

    #[inline(always)]
    fn as_floats(self, n: Self::N) -> Self::V {
        n.map(|n| f32::from_bits(n.cast_unsigned()))
    }

    #[inline(always)]
    fn rounded(self, shifted: Self::V) -> Self::N {
        shifted.map(|x| x.to_bits().cast_signed().wrapping_sub(BIAS))
    }

    #[inline(always)]
    fn narrow(self, n: Self::N) -> [i8; LANES] {
        n.map(|n| n as i8)
    }

    #[inline(always)]
    fn columns(self, x: &[u8; GROUP]) -> Self::U {
        *x
    }

    #[inline(always)]
    fn down(self, a: Self::U, shift: u32, mask: u8) -> Self::U {
        a.map(|a| a >> shift & mask)
    }

    #[inline(always)]
    fn up(self, a: Self::U, shift: u32, mask: u8) -> Self::U {
        a.map(|a| a << shift & mask)
    }

    #[inline(always)]
    fn both(self, a: Self::U, b: Self::U) -> Self::U {
        std::array::from_fn(|i| a[i] | b[i])
    }

    #[inline(always)]
    fn dot_columns(self, sum: Self::N, w: Self::U, x: [i8; 4], _: bool) -> Self::N {
        let product = |i: usize| i32::from(w[i]) * i32::from(x[i % 4]);
        std::array::from_fn(|l| (4 * l..4 * l + 4).map(product).fold(sum[l], i32::wrapping_add))
    }

    #[inline(always)]
    fn unsigned(self, x: &[u8; LANES]) -> Self::V {
        x.map(f32::from)
    }

    #[inline(always)]
    fn signed(self, x: &[u8; LANES]) -> Self::V {
        x.map(|x| f32::from(x.cast_signed()))
    }

    #[inline(always)]
    fn fetch(self, _: *const u8) {}

    #[inline(always)]
    fn fetch_far(self, _: *const u8) {}
}

/// IEEE half to single precision, exact; NaNs come out quiet, as from the processor's instruction.
pub(super) fn half_to_f32(bits: u16) -> f32 {
    let (sign, exponent, fraction) =
        (u32::from(bits >> 15) << 31, u32::from(bits >> 10 & 31), u32::from(bits & 1023));
    let magnitude = match (exponent, fraction) {
        (0, _) => return f32::from_bits(sign | (fraction as f32 * 2f32.powi(-24)).to_bits()),
        (31, 0) => 0x7f80_0000,
        (31, _) => 0x7fc0_0000 | fraction << 13,
        _ => (exponent + 112) << 23 | fraction << 13,
    };
    f32::from_bits(sign | magnitude)
}
