//! NEON with the dot product (Armv8.2 and later): each vector of 16 lanes is four registers.

use std::arch::aarch64::*;
use std::arch::asm;
use std::mem::transmute;

use super::isa::{BIAS, GROUP, Isa, LANES, half_to_f32};

/// Proof that the machine has NEON and its dot product.
#[derive(Clone, Copy)]
pub(super) struct Neon(());

/// Lanes 0 to 3, and so on.
#[derive(Clone, Copy)]
pub(super) struct Quad<T>([T; 4]);

/// The same of each register.
macro_rules! each {
    ($i:ident, $body:expr) => {
        Quad([each!(@ $i, 0, $body), each!(@ $i, 1, $body), each!(@ $i, 2, $body), each!(@ $i, 3, $body)])
    };
    (@ $i:ident, $value:literal, $body:expr) => {{
        let $i: usize = $value;
        // SAFETY: whoever writes a body has a `Neon`, which proves that the instructions exist.
        #[allow(unused_unsafe, reason = "not every body calls for it")]
        unsafe { $body }
    }};
}

/// Each lane of `sum`, plus the sum of four products. The intrinsic is not stable yet.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn dot(mut sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: one instruction on registers, which this function says exists.
    unsafe {
        asm!(
            "sdot {sum:v}.4s, {a:v}.16b, {b:v}.16b",
            sum = inout(vreg) sum, a = in(vreg) a, b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sum
}

/// Four half-precision numbers as floats. The intrinsic wants a type that is not stable yet.
#[inline]
#[target_feature(enable = "neon")]
fn floats_of_halves(halves: uint16x4_t) -> float32x4_t {
    let floats;
    // SAFETY: one instruction on registers, which this function says exists.
    unsafe {
        asm!(
            "fcvtl {floats:v}.4s, {halves:v}.4h",
            floats = lateout(vreg) floats, halves = in(vreg) halves,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    floats
}

impl Neon {
    /// The largest lane, halves on halves.
    #[inline(always)]
    fn largest(self, v: <Self as Isa>::V) -> f32 {
        let larger = |a: f32, b: f32| if a > b { a } else { b };
        // SAFETY: `self` proves the instructions exist.
        unsafe {
            let four = |a, b| vbslq_f32(vcgtq_f32(a, b), a, b);
            let four = four(four(v.0[0], v.0[2]), four(v.0[1], v.0[3]));
            let (low, high) = (vget_low_f32(four), vget_high_f32(four));
            let two = vbsl_f32(vcgt_f32(low, high), low, high);
            larger(vget_lane_f32::<0>(two), vget_lane_f32::<1>(two))
        }
    }

    /// # Safety
    /// The machine has NEON and its dot product.
    #[inline(always)]
    pub(super) unsafe fn new() -> Self {
        Self(())
    }

    /// 16 bytes, widened to 32 bits.
    #[inline(always)]
    fn widened(self, x: &[u8; LANES]) -> Quad<uint32x4_t> {
        // SAFETY: `self` proves the instructions exist; both types of the transmute are 16 bytes.
        unsafe {
            let x = transmute::<[u8; LANES], uint8x16_t>(*x);
            let (low, high) = (vmovl_u8(vget_low_u8(x)), vmovl_high_u8(x));
            Quad([
                vmovl_u16(vget_low_u16(low)),
                vmovl_high_u16(low),
                vmovl_u16(vget_low_u16(high)),
                vmovl_high_u16(high),
            ])
        }
    }
}

impl Isa for Neon {
    type V = Quad<float32x4_t>;
    type W = Quad<int8x16_t>;
    const ROWS: usize = 2;
    const TILE_ROWS: usize = 4;
    const STRIPS: usize = 1;
    const WIDE: bool = false;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        each!(_i, vdupq_n_f32(x))
    }

    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Self::V {
        // SAFETY: both types are 64 plain bytes.
        Quad(unsafe { transmute::<[f32; LANES], [float32x4_t; 4]>(*x) })
    }

    #[inline(always)]
    fn load_half(self, x: &[u16; LANES]) -> Self::V {
        // SAFETY: both types are 32 plain bytes.
        let x = unsafe { transmute::<[u16; LANES], [uint16x4_t; 4]>(*x) };
        each!(i, floats_of_halves(x[i]))
    }

    #[inline(always)]
    fn store(self, v: Self::V, to: &mut [f32; LANES]) {
        // SAFETY: both types are 64 plain bytes.
        *to = unsafe { transmute::<[float32x4_t; 4], [f32; LANES]>(v.0) };
    }

    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        each!(i, vmulq_f32(a.0[i], b.0[i]))
    }

    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        each!(i, vfmaq_f32(c.0[i], a.0[i], b.0[i]))
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        each!(i, vaddq_f32(a.0[i], b.0[i]))
    }

    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        each!(i, vsubq_f32(a.0[i], b.0[i]))
    }

    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        each!(i, vdivq_f32(a.0[i], b.0[i]))
    }

    // Not by the instructions for maximum and minimum: these give NaN where either is.
    #[inline(always)]
    fn larger(self, a: Self::V, b: Self::V) -> Self::V {
        each!(i, vbslq_f32(vcgtq_f32(a.0[i], b.0[i]), a.0[i], b.0[i]))
    }

    #[inline(always)]
    fn smaller(self, a: Self::V, b: Self::V) -> Self::V {
        each!(i, vbslq_f32(vcltq_f32(a.0[i], b.0[i]), a.0[i], b.0[i]))
    }

    #[inline(always)]
    fn power_of_two(self, shifted: Self::V) -> Self::V {
        const OFFSET: i32 = 127_i32.wrapping_sub(BIAS);
        each!(i, {
            let exponent = vaddq_s32(vreinterpretq_s32_f32(shifted.0[i]), vdupq_n_s32(OFFSET));
            vreinterpretq_f32_s32(vshlq_n_s32::<23>(exponent))
        })
    }

    #[inline(always)]
    fn spread(self, v: Self::V, quarter: usize) -> Self::V {
        let v = v.0[quarter];
        // SAFETY: `self` proves the instructions exist.
        unsafe {
            Quad([
                vdupq_laneq_f32::<0>(v),
                vdupq_laneq_f32::<1>(v),
                vdupq_laneq_f32::<2>(v),
                vdupq_laneq_f32::<3>(v),
            ])
        }
    }

    #[inline(always)]
    fn sum(self, v: Self::V) -> f32 {
        // SAFETY: `self` proves the instructions exist.
        unsafe {
            let four = vaddq_f32(vaddq_f32(v.0[0], v.0[2]), vaddq_f32(v.0[1], v.0[3]));
            let two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
            vget_lane_f32::<0>(two) + vget_lane_f32::<1>(two)
        }
    }

    #[inline(always)]
    fn sums(self, v: [Self::V; 4]) -> [f32; 4] {
        v.map(
            #[inline(always)]
            |v| self.sum(v),
        )
    }

    #[inline(always)]
    fn largests(self, v: [Self::V; 4]) -> [f32; 4] {
        v.map(
            #[inline(always)]
            |v| self.largest(v),
        )
    }

    #[inline(always)]
    fn weights(self, codes: &[i8; GROUP]) -> Self::W {
        // SAFETY: both types are 64 plain bytes.
        Quad(unsafe { transmute::<[i8; GROUP], [int8x16_t; 4]>(*codes) })
    }

    #[inline(always)]
    fn dot(self, w: Self::W, x: &[u8; GROUP]) -> Self::V {
        // SAFETY: both types are 64 plain bytes.
        let x = unsafe { transmute::<[u8; GROUP], [uint8x16_t; 4]>(*x) };
        each!(i, {
            let x = vreinterpretq_s8_u8(veorq_u8(x[i], vdupq_n_u8(0x80)));
            vcvtq_f32_s32(dot(vdupq_n_s32(0), w.0[i], x))
        })
    }

    #[inline(always)]
    fn prefetch(self, line: &[u8]) {
        self.fetch(line.as_ptr());
    }

    #[inline(always)]
    fn half(self, bits: u16) -> f32 {
        half_to_f32(bits)
    }

    type N = Quad<int32x4_t>;
    type U = Quad<uint8x16_t>;

    #[inline(always)]
    fn whole(self, n: i32) -> Self::N {
        each!(_i, vdupq_n_s32(n))
    }

    #[inline(always)]
    fn whole_from(self, n: &i32) -> Self::N {
        self.whole(*n)
    }

    #[inline(always)]
    fn add_whole(self, a: Self::N, b: Self::N) -> Self::N {
        each!(i, vaddq_s32(a.0[i], b.0[i]))
    }

    #[inline(always)]
    fn floats(self, n: Self::N) -> Self::V {
        each!(i, vcvtq_f32_s32(n.0[i]))
    }

    #[inline(always)]
    fn as_floats(self, n: Self::N) -> Self::V {
        each!(i, vreinterpretq_f32_s32(n.0[i]))
    }

    #[inline(always)]
    fn rounded(self, shifted: Self::V) -> Self::N {
        each!(i, vsubq_s32(vreinterpretq_s32_f32(shifted.0[i]), vdupq_n_s32(BIAS)))
    }

    #[inline(always)]
    fn narrow(self, n: Self::N) -> [i8; LANES] {
        // SAFETY: `self` proves the instructions exist; both types of the transmute are 16 bytes.
        unsafe {
            let low = vmovn_high_s32(vmovn_s32(n.0[0]), n.0[1]);
            let high = vmovn_high_s32(vmovn_s32(n.0[2]), n.0[3]);
            transmute::<int8x16_t, [i8; LANES]>(vmovn_high_s16(vmovn_s16(low), high))
        }
    }

    #[inline(always)]
    fn columns(self, x: &[u8; GROUP]) -> Self::U {
        // SAFETY: both types are 64 plain bytes.
        Quad(unsafe { transmute::<[u8; GROUP], [uint8x16_t; 4]>(*x) })
    }

    #[inline(always)]
    fn down(self, a: Self::U, shift: u32, mask: u8) -> Self::U {
        let count = -(shift.cast_signed() as i8);
        each!(i, vandq_u8(vshlq_u8(a.0[i], vdupq_n_s8(count)), vdupq_n_u8(mask)))
    }

    #[inline(always)]
    fn up(self, a: Self::U, shift: u32, mask: u8) -> Self::U {
        let count = shift.cast_signed() as i8;
        each!(i, vandq_u8(vshlq_u8(a.0[i], vdupq_n_s8(count)), vdupq_n_u8(mask)))
    }

    #[inline(always)]
    fn both(self, a: Self::U, b: Self::U) -> Self::U {
        each!(i, vorrq_u8(a.0[i], b.0[i]))
    }

    #[inline(always)]
    fn dot_columns(self, sum: Self::N, w: Self::U, x: [i8; 4], wide: bool) -> Self::N {
        each!(i, {
            let x = vreinterpretq_s8_s32(vdupq_n_s32(i32::from_ne_bytes(x.map(i8::cast_unsigned))));
            if wide {
                // Both factors are signed: 128 is taken off the weights, and added as twice 64.
                let half = vdupq_n_s8(64);
                let w = vreinterpretq_s8_u8(veorq_u8(w.0[i], vdupq_n_u8(0x80)));
                dot(dot(dot(sum.0[i], w, x), half, x), half, x)
            } else {
                dot(sum.0[i], vreinterpretq_s8_u8(w.0[i]), x)
            }
        })
    }

    #[inline(always)]
    fn unsigned(self, x: &[u8; LANES]) -> Self::V {
        let x = self.widened(x);
        each!(i, vcvtq_f32_u32(x.0[i]))
    }

    #[inline(always)]
    fn signed(self, x: &[u8; LANES]) -> Self::V {
        // Of 128 more.
        let x = self.widened(&x.map(|x| x ^ 0x80));
        each!(i, vcvtq_f32_s32(vsubq_s32(vreinterpretq_s32_u32(x.0[i]), vdupq_n_s32(128))))
    }

    #[inline(always)]
    fn fetch(self, at: *const u8) {
        // SAFETY: a prefetch reads nothing that the program sees and never faults.
        unsafe {
            asm!("prfm pldl1keep, [{at}]", at = in(reg) at, options(nostack, preserves_flags));
        }
    }

    #[inline(always)]
    fn fetch_far(self, at: *const u8) {
        // SAFETY: as above.
        unsafe {
            asm!("prfm pldl2keep, [{at}]", at = in(reg) at, options(nostack, preserves_flags));
        }
    }
}
