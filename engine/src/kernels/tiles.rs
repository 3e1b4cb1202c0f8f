//! How quantised weights lie in memory: tiles of 16 rows, 4 columns of each row side by side.
//!
//! A vector of 64 bytes holds 4 neighbouring columns of 16 rows, so that one instruction multiplies
//! them with the same 4 activations of all 16 outputs: there is nothing to sum up at the end, and
//! nothing to unpack but a shift and a mask. A tile is as many columns as the file's format has in a
//! block (twice 32 for the small ones, 256 for the large ones), with scales in front and everything
//! in the order of first use. Bits stay as the file has them: repacking moves words of 4 bytes. (Q6_K's bits are put where
//! three of four codes need nothing but a mask.)

use super::columns::Kind;
use super::isa::{BIAS, GROUP, Isa, LANES};
use crate::gguf::TensorType;

/// Rows of a tile.
pub(super) const ROWS: usize = LANES;
/// Columns of a sub-block, which share a scale (or, in halves, two).
pub(super) const SUB: usize = 32;
/// Vectors of a sub-block.
pub(super) const VECTORS: usize = SUB / 4;

/// A format in tiles. `value = scale * (code - OFFSET) + min`.
pub(super) trait Tile {
    /// Bytes of a row's part of a tile in the file, and of a tile.
    const FILE_BYTES: usize;
    const BYTES: usize;
    /// A tile's sub-blocks: parts that a loop runs over, times those written out in its body.
    const PARTS: usize;
    const SUBS: usize;
    const OFFSET: i32;
    /// Minus so many times the sum of activations is what goes with a sub-block's (or half's) products: what takes off
    /// the offset, or, where halves have minimums of their own, the sum that those are multiplied with.
    const STARTS: i32 = Self::OFFSET;
    const KIND: Kind = Kind {
        offset: Self::STARTS,
        bias: if Self::OFFSET == 0 { 0 } else { BIAS },
        apart: Self::HALVES,
    };
    /// Whether codes may be above 127.
    const WIDE: bool = false;
    /// Whether the two halves of a sub-block have scales of their own.
    const HALVES: bool = false;
    const HAS_MIN: bool;

    /// Vector `t` of the codes of a sub-block.
    fn code<I: Isa>(isa: I, tile: &[u8], part: usize, sub: usize, t: usize) -> I::U;
    /// Scales of half `half` of sub-block `sub` of the tile.
    fn scale<I: Isa>(isa: I, tile: &[u8], sub: usize, half: usize) -> I::V;
    /// Minimums of half `half` of sub-block `sub`; only where there are any.
    fn min<I: Isa>(isa: I, tile: &[u8], sub: usize, half: usize) -> I::V;
    /// Puts row `row` (its blocks as in the file) into a tile.
    fn pack(file: &[u8], row: usize, tile: &mut [u8]);
}

/// Evaluates an expression in which `$T` is the format of a type, or another for types that are not
/// kept in tiles.
macro_rules! with_tile {
    ($dtype:expr, $T:ident => $some:expr, else $none:expr) => {{
        use $crate::kernels::tiles::{Bytes, FiveBits, FourBits};
        use $crate::kernels::tiles_k::{K2, K3, K4, K5, K6};
        macro_rules! of {
            ($format:ty) => {{
                type $T = $format;
                $some
            }};
        }
        match $dtype {
            TensorType::Q4_0 => of!(FourBits<false>),
            TensorType::Q4_1 => of!(FourBits<true>),
            TensorType::Q5_0 => of!(FiveBits<false>),
            TensorType::Q5_1 => of!(FiveBits<true>),
            TensorType::Q8_0 => of!(Bytes),
            TensorType::Q2_K => of!(K2),
            TensorType::Q3_K => of!(K3),
            TensorType::Q4_K => of!(K4),
            TensorType::Q5_K => of!(K5),
            TensorType::Q6_K => of!(K6),
            _ => $none,
        }
    }};
}
pub(super) use with_tile;

/// Whether weights of a type are kept in tiles.
pub(super) const fn is_tiled(dtype: TensorType) -> bool {
    use TensorType::{Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0};
    matches!(dtype, Q4_0 | Q4_1 | Q5_0 | Q5_1 | Q8_0 | Q2_K | Q3_K | Q4_K | Q5_K | Q6_K)
}

/// An array of something for each vector of a sub-block. Spelt out rather than mapped by a closure,
/// which the compiler might keep apart, and then without the level's instructions.
macro_rules! each {
    ($t:ident, $body:expr) => {
        each!(@ $t, $body, 0 1 2 3 4 5 6 7)
    };
    (@ $t:ident, $body:expr, $($value:literal)*) => {
        [$({
            let $t: usize = $value;
            $body
        }),*]
    };
}
pub(super) use each;

/// Bytes `at..at + N`.
#[inline(always)]
pub(super) fn bytes<const N: usize>(of: &[u8], at: usize) -> &[u8; N] {
    &of[at..at + N].as_chunks().0[0]
}

#[inline(always)]
pub(super) fn vector<I: Isa>(isa: I, tile: &[u8], at: usize) -> I::U {
    isa.columns(bytes(tile, at))
}

#[inline(always)]
pub(super) fn halfs<I: Isa>(isa: I, tile: &[u8], at: usize) -> I::V {
    let pairs: &[[u8; 2]; LANES] = &tile[at..at + 2 * LANES].as_chunks().0.as_chunks().0[0];
    isa.load_half(&pairs.map(u16::from_le_bytes))
}

/// Words of 4 bytes of a row to the vectors they belong to, one after the other.
pub(super) fn put_words(words: &[u8], row: usize, tile: &mut [u8], change: impl Fn(u32) -> u32) {
    for (word, vector) in words.as_chunks::<4>().0.iter().zip(tile.as_chunks_mut::<GROUP>().0) {
        let word = change(u32::from_le_bytes(*word)).to_le_bytes();
        vector.as_chunks_mut::<4>().0[row] = word;
    }
}

pub(super) fn put<const N: usize>(from: &[u8], at: usize, tile: &mut [u8], to: usize) {
    tile[to..to + N].copy_from_slice(&from[at..at + N]);
}

/// Q4_0 and Q4_1: `d | m | 2 x 4 vectors`; low nibbles are columns 0 to 15, high ones 16 to 31.
pub(super) struct FourBits<const MIN: bool>;

impl<const MIN: bool> FourBits<MIN> {
    const BLOCK: usize = if MIN { 20 } else { 18 };
    const HEADER: usize = if MIN { 128 } else { 64 };
}

impl<const MIN: bool> Tile for FourBits<MIN> {
    const FILE_BYTES: usize = 2 * Self::BLOCK;
    const BYTES: usize = Self::HEADER + 512;
    const PARTS: usize = 1;
    const SUBS: usize = 2;
    const OFFSET: i32 = if MIN { 0 } else { 8 };
    const HAS_MIN: bool = MIN;

    #[inline(always)]
    fn code<I: Isa>(isa: I, tile: &[u8], _: usize, sub: usize, t: usize) -> I::U {
        nibble(isa, tile, Self::HEADER + 256 * sub, t)
    }

    #[inline(always)]
    fn scale<I: Isa>(isa: I, tile: &[u8], sub: usize, _: usize) -> I::V {
        halfs(isa, tile, 32 * sub)
    }

    #[inline(always)]
    fn min<I: Isa>(isa: I, tile: &[u8], sub: usize, _: usize) -> I::V {
        halfs(isa, tile, 64 + 32 * sub)
    }

    fn pack(file: &[u8], row: usize, tile: &mut [u8]) {
        for (sub, block) in file.chunks_exact(Self::BLOCK).enumerate() {
            put::<2>(block, 0, tile, 32 * sub + 2 * row);
            if MIN {
                put::<2>(block, 2, tile, 64 + 32 * sub + 2 * row);
            }
            let vectors = &mut tile[Self::HEADER + 256 * sub..];
            put_words(&block[Self::BLOCK - 16..], row, vectors, |word| word);
        }
    }
}

/// Of the low nibbles of 4 vectors, then their high nibbles, vector `t`.
#[inline(always)]
fn nibble<I: Isa>(isa: I, tile: &[u8], at: usize, t: usize) -> I::U {
    let packed = vector(isa, tile, at + GROUP * (t % 4));
    isa.down(packed, if t < 4 { 0 } else { 4 }, 15)
}

/// Q5_0 and Q5_1: `d | m | 2 fifth bits | 2 x 4 vectors`. Bit t of a fifth-bit byte is that of the
/// same byte of vector t.
pub(super) struct FiveBits<const MIN: bool>;

impl<const MIN: bool> FiveBits<MIN> {
    const BLOCK: usize = if MIN { 24 } else { 22 };
    const HEADER: usize = if MIN { 128 } else { 64 };
}

impl<const MIN: bool> Tile for FiveBits<MIN> {
    const FILE_BYTES: usize = 2 * Self::BLOCK;
    const BYTES: usize = Self::HEADER + 128 + 512;
    const PARTS: usize = 1;
    const SUBS: usize = 2;
    const OFFSET: i32 = if MIN { 0 } else { 16 };
    const HAS_MIN: bool = MIN;

    #[inline(always)]
    fn code<I: Isa>(isa: I, tile: &[u8], _: usize, sub: usize, t: usize) -> I::U {
        let fifth = vector(isa, tile, Self::HEADER + GROUP * sub);
        let four = nibble(isa, tile, Self::HEADER + 128 + 256 * sub, t);
        isa.both(four, fifth_bits(isa, fifth, t as u32))
    }

    #[inline(always)]
    fn scale<I: Isa>(isa: I, tile: &[u8], sub: usize, _: usize) -> I::V {
        halfs(isa, tile, 32 * sub)
    }

    #[inline(always)]
    fn min<I: Isa>(isa: I, tile: &[u8], sub: usize, _: usize) -> I::V {
        halfs(isa, tile, 64 + 32 * sub)
    }

    fn pack(file: &[u8], row: usize, tile: &mut [u8]) {
        for (sub, block) in file.chunks_exact(Self::BLOCK).enumerate() {
            put::<2>(block, 0, tile, 32 * sub + 2 * row);
            if MIN {
                put::<2>(block, 2, tile, 64 + 32 * sub + 2 * row);
            }
            let fifth = u32::from_le_bytes(*bytes(block, Self::BLOCK - 20));
            let spread = (0..SUB).map(|k| (fifth >> k & 1) << (8 * (k % 4) + k / 4)).sum::<u32>();
            let at = Self::HEADER + GROUP * sub + 4 * row;
            tile[at..at + 4].copy_from_slice(&spread.to_le_bytes());
            let vectors = &mut tile[Self::HEADER + 128 + 256 * sub..];
            put_words(&block[Self::BLOCK - 16..], row, vectors, |word| word);
        }
    }
}

/// Bit `bit` of each byte, as 16.
#[inline(always)]
fn fifth_bits<I: Isa>(isa: I, packed: I::U, bit: u32) -> I::U {
    if bit < 4 { isa.up(packed, 4 - bit, 16) } else { isa.down(packed, bit - 4, 16) }
}

/// Q8_0: `d | 2 x 8 vectors` of codes plus 128.
pub(super) struct Bytes;

impl Tile for Bytes {
    const FILE_BYTES: usize = 68;
    const BYTES: usize = 64 + 1024;
    const PARTS: usize = 1;
    const SUBS: usize = 2;
    const OFFSET: i32 = 128;
    const WIDE: bool = true;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn code<I: Isa>(isa: I, tile: &[u8], _: usize, sub: usize, t: usize) -> I::U {
        vector(isa, tile, 64 + 512 * sub + GROUP * t)
    }

    #[inline(always)]
    fn scale<I: Isa>(isa: I, tile: &[u8], sub: usize, _: usize) -> I::V {
        halfs(isa, tile, 32 * sub)
    }

    #[inline(always)]
    fn min<I: Isa>(isa: I, _: &[u8], _: usize, _: usize) -> I::V {
        isa.splat(0.0)
    }

    fn pack(file: &[u8], row: usize, tile: &mut [u8]) {
        for (sub, block) in file.chunks_exact(34).enumerate() {
            put::<2>(block, 0, tile, 32 * sub + 2 * row);
            put_words(&block[2..], row, &mut tile[64 + 512 * sub..], |word| word ^ 0x8080_8080);
        }
    }
}
