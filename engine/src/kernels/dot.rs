//! The heart of a linear layer: unpacked weight rows times quantised activation rows.
//!
//! Per output element and group of 64: `acc += (exact integer products) * (weight scale * activation
//! scale)` in 16 lanes; at the end these are summed in one tree. The same operations in the same
//! order whatever `R` and `N` are.

use super::activations::{Activations, Block};
use super::isa::{Isa, LANES};
use super::unpack::{Ahead, SUPER, Unpacked};

/// Two weight rows are multiplied at once: each activation vector is loaded once for both.
pub(super) const WEIGHT_ROWS: usize = 2;

/// Repeats a body with `$i` = 0, 1, … below a constant of at most 8. Spelt out rather than looped,
/// so that arrays indexed by `$i` become registers at every optimisation level.
macro_rules! unroll {
    ($count:expr, $i:ident, $body:expr) => {
        unroll!(@one $count, $i, 0, $body);
        unroll!(@one $count, $i, 1, $body);
        unroll!(@one $count, $i, 2, $body);
        unroll!(@one $count, $i, 3, $body);
        unroll!(@one $count, $i, 4, $body);
        unroll!(@one $count, $i, 5, $body);
        unroll!(@one $count, $i, 6, $body);
        unroll!(@one $count, $i, 7, $body);
    };
    (@one $count:expr, $i:ident, $value:literal, $body:expr) => {
        if $value < $count {
            let $i: usize = $value;
            $body;
        }
    };
}
pub(super) use unroll;

type Acc<V, const R: usize> = [[V; WEIGHT_ROWS]; R];

/// `out[r][n]` = weight row `n` · activation row `first + r`.
#[inline(always)]
pub(super) fn dots<I: Isa, const R: usize>(
    isa: I,
    weights: &[Unpacked; WEIGHT_ROWS],
    ahead: &mut Ahead<'_>,
    x: &Activations,
    first: usize,
) -> [[f32; WEIGHT_ROWS]; R] {
    let mut rows = [x.row(first); R];
    unroll!(R, r, rows[r] = x.row(first + r));
    let groups = Unpacked::groups(x.cols);
    let mut acc = [[isa.splat(0.0); WEIGHT_ROWS]; R];
    for s in 0..rows[0].len() {
        ahead.step(isa);
        let mut blocks = [&rows[0][s]; R];
        unroll!(R, r, blocks[r] = &rows[r][s]);
        let mut scales = acc;
        unroll!(WEIGHT_ROWS, n, {
            let scale = isa.load(&weights[n].scales[s]);
            unroll!(R, r, scales[r][n] = isa.mul(scale, isa.load(&blocks[r].scales)));
        });
        let codes = [&weights[0].codes[s], &weights[1].codes[s]];
        if groups >= 4 * s + 4 {
            unroll!(4, g, group(isa, codes, blocks, g, &scales, &mut acc));
        } else {
            for g in 0..groups - 4 * s {
                group(isa, codes, blocks, g, &scales, &mut acc);
            }
        }
    }
    sums(isa, acc)
}

#[inline(always)]
fn group<I: Isa, const R: usize>(
    isa: I,
    codes: [&[i8; SUPER]; WEIGHT_ROWS],
    blocks: [&Block; R],
    g: usize,
    scales: &Acc<I::V, R>,
    acc: &mut Acc<I::V, R>,
) {
    let at = |n: usize| &codes[n].as_chunks().0[g];
    let w = [isa.weights(at(0)), isa.weights(at(1))];
    unroll!(R, r, {
        let x = &blocks[r].codes.as_chunks().0[g];
        unroll!(WEIGHT_ROWS, n, {
            let products = isa.dot(w[n], x);
            acc[r][n] = isa.fma(products, isa.spread(scales[r][n], g), acc[r][n]);
        });
    });
}

#[inline(always)]
fn sums<I: Isa, const R: usize>(isa: I, acc: Acc<I::V, R>) -> [[f32; WEIGHT_ROWS]; R] {
    let mut out = [[0.0; WEIGHT_ROWS]; R];
    unroll!(R, r, unroll!(WEIGHT_ROWS, n, out[r][n] = isa.sum(acc[r][n])));
    out
}

/// `out[r][n]` for float weights: 16 lanes, lane = column % 16, one multiply-add after the other.
#[inline(always)]
pub(super) fn float_dots<I: Isa, const R: usize>(
    isa: I,
    weights: &[Vec<f32>; WEIGHT_ROWS],
    x: &Activations,
    first: usize,
) -> [[f32; WEIGHT_ROWS]; R] {
    let padded = x.cols.next_multiple_of(LANES);
    let mut rows: [&[[f32; LANES]]; R] = [&[]; R];
    unroll!(R, r, rows[r] = x.floats[(first + r) * padded..][..padded].as_chunks().0);
    let mut acc = [[isa.splat(0.0); WEIGHT_ROWS]; R];
    let weights = [weights[0].as_chunks().0, weights[1].as_chunks().0];
    for c in 0..padded / LANES {
        let w = [isa.load(&weights[0][c]), isa.load(&weights[1][c])];
        unroll!(R, r, {
            let x = isa.load(&rows[r][c]);
            unroll!(WEIGHT_ROWS, n, acc[r][n] = isa.fma(w[n], x, acc[r][n]));
        });
    }
    sums(isa, acc)
}
