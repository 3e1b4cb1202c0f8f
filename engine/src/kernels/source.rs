//! Where the weights of a sub-block come from: unpacked before several blocks of rows meet them, or out of tiles when they are
//! needed, with what comes after them asked for on the way.

use super::isa::{Isa, ROUND};
use super::tiles::{Tile, VECTORS, each};

/// Bytes by which reading runs ahead of arithmetic: into the first cache, and into the second one. The
/// first has room for few lines that are on their way, too few to hide the memory behind them.
pub(super) const NEAR: usize = 4096;
pub(super) const FAR: usize = 3 * 4096;
/// Further ahead, one line in so many is asked for of a single stream: the processor's own prefetching has then begun with a page
/// before the others are asked for there.
const SCOUT: usize = 4 * 4096;
const SCOUT_EVERY: usize = 8;

/// Where a sub-block's weights come from.
#[derive(Clone, Copy)]
pub(super) enum Source<'a, I: Isa, const N: usize> {
    /// Several blocks of rows meet them.
    Unpacked(&'a [Weights<I>; N]),
    /// One block does: they are unpacked when they are needed, since registers are few, and what comes after them is asked
    /// for on the way.
    Tiles(Place<'a, N>),
}

impl<I: Isa, const N: usize> Source<'_, I, N> {
    /// Vector `t` of codes.
    #[inline(always)]
    pub(super) fn code<T: Tile>(self, isa: I, t: usize) -> [I::U; N] {
        match self {
            Self::Unpacked(weights) => {
                let mut codes = [weights[0].codes[t]; N];
                for n in 1..N {
                    codes[n] = weights[n].codes[t];
                }
                codes
            }
            Self::Tiles(place) => {
                fetch_lines::<I, T, N>(isa, place, t);
                let (tiles, part, sub, _) = place;
                let mut codes = [T::code(isa, tiles[0], part, sub, t); N];
                for n in 1..N {
                    codes[n] = T::code(isa, tiles[n], part, sub, t);
                }
                codes
            }
        }
    }

    /// Scales of a half.
    #[inline(always)]
    pub(super) fn scales<T: Tile>(self, isa: I, half: usize) -> [I::V; N] {
        let mut scales = [isa.splat(0.0); N];
        for n in 0..N {
            scales[n] = match self {
                Self::Unpacked(weights) => weights[n].scales[half],
                Self::Tiles((tiles, part, sub, _)) => {
                    T::scale(isa, tiles[n], part * T::SUBS + sub, half)
                }
            };
        }
        scales
    }

    /// What takes [`ROUND`] times the first scale off.
    #[inline(always)]
    pub(super) fn backs<T: Tile>(self, isa: I) -> [I::V; N] {
        let mut backs = self.scales::<T>(isa, 0);
        for n in 0..N {
            backs[n] = match self {
                Self::Unpacked(weights) => weights[n].back,
                Self::Tiles(_) => isa.mul(backs[n], isa.splat(-ROUND)),
            };
        }
        backs
    }

    /// Minimums of a half, where there are any.
    #[inline(always)]
    pub(super) fn mins<T: Tile>(self, isa: I, half: usize) -> [I::V; N] {
        let mut mins = [isa.splat(0.0); N];
        if T::HAS_MIN {
            for n in 0..N {
                mins[n] = match self {
                    Self::Unpacked(weights) => weights[n].mins[half],
                    Self::Tiles((tiles, part, sub, _)) => {
                        T::min(isa, tiles[n], part * T::SUBS + sub, half)
                    }
                };
            }
        }
        mins
    }
}

/// A sub-block of a tile, unpacked. Where it is not in halves, the second ones are the first.
#[derive(Clone, Copy)]
pub(super) struct Weights<I: Isa> {
    codes: [I::U; VECTORS],
    scales: [I::V; 2],
    /// What takes [`ROUND`] times the first scale off.
    back: I::V,
    mins: [I::V; 2],
}

impl<I: Isa> Weights<I> {
    // Spelt out rather than mapped: see `each`.
    #[inline(always)]
    pub(super) fn of_all<T: Tile, const N: usize>(
        isa: I,
        tiles: [&[u8]; N],
        part: usize,
        sub: usize,
    ) -> [Self; N] {
        let mut all = [Self::of::<T>(isa, tiles[0], part, sub); N];
        if N == 2 {
            all[1] = Self::of::<T>(isa, tiles[1], part, sub);
        }
        all
    }

    #[inline(always)]
    fn of<T: Tile>(isa: I, tile: &[u8], part: usize, sub: usize) -> Self {
        let (at, second) = (part * T::SUBS + sub, usize::from(T::HALVES));
        let scale = T::scale(isa, tile, at, 0);
        let mins = if T::HAS_MIN {
            [T::min(isa, tile, at, 0), T::min(isa, tile, at, second)]
        } else {
            [isa.splat(0.0); 2]
        };
        Self {
            codes: each!(t, T::code(isa, tile, part, sub, t)),
            scales: [scale, T::scale(isa, tile, at, second)],
            back: isa.mul(scale, isa.splat(-ROUND)),
            mins,
        }
    }
}

/// A sub-block of tiles: part, sub-block of the part, and what is read after it.
pub(super) type Place<'a, const N: usize> = ([&'a [u8]; N], usize, usize, Ahead);

/// Bytes from what is read to what is asked for: into the first cache, into the second one, and by scouts.
#[derive(Clone, Copy)]
pub(super) struct Ahead(usize, usize, usize);

impl Ahead {
    /// From a tile at a place in strips that go by together: behind a strip come the others, which are read at the same
    /// time, and then what is read next.
    #[inline(always)]
    pub(super) fn of<const N: usize>(strips: [&[u8]; N], at: usize) -> Self {
        let len = strips[0].len();
        let skip = |lead: usize| if at + lead < len { lead } else { lead + (N - 1) * len };
        Self(skip(NEAR), skip(FAR), skip(SCOUT))
    }
}

/// Asks for what will be read: the lines of a part, spread over the arithmetic of its sub-blocks, since there is room
/// for few lines that are on their way.
#[inline(always)]
pub(super) fn fetch_lines<I: Isa, T: Tile, const N: usize>(
    isa: I,
    (tiles, part, sub, ahead): Place<'_, N>,
    vector: usize,
) {
    let (lines, all) = ((T::BYTES / T::PARTS).div_ceil(64), T::SUBS * VECTORS);
    for line in [sub * VECTORS + vector, sub * VECTORS + vector + all] {
        if line < lines {
            for tile in tiles {
                let at = tile.as_ptr().wrapping_add(part * (T::BYTES / T::PARTS) + 64 * line);
                isa.fetch(at.wrapping_add(ahead.0));
                isa.fetch_far(at.wrapping_add(ahead.1));
                if N == 1 && line % SCOUT_EVERY == 0 {
                    isa.fetch_far(at.wrapping_add(ahead.2));
                }
            }
        }
    }
}
