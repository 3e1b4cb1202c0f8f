//! Tiles of the formats with blocks of 256: scales and minimums of 6 or 8 bits, codes behind them.

use super::isa::{GROUP, Isa, LANES};
use super::tiles::{Tile, bytes, halfs, put, put_words, vector};

/// Bytes before the codes of the large formats.
const K_HEADER: usize = 320;

/// Scales and minimums of Q4_K and Q5_K: `d | -dmin | 8 x 16 scales | 8 x 16 minimums`.
fn pack_six_bits(block: &[u8], row: usize, tile: &mut [u8]) {
    put::<2>(block, 0, tile, 2 * row);
    put::<2>(block, 2, tile, 32 + 2 * row);
    tile[32 + 2 * row + 1] ^= 0x80;
    let packed = &block[4..16];
    for sub in 0..8 {
        let (scale, min) = if sub < 4 {
            (packed[sub] & 63, packed[sub + 4] & 63)
        } else {
            let high = |at: usize| packed[at] >> 6 << 4;
            (packed[sub + 4] & 15 | high(sub - 4), packed[sub + 4] >> 4 | high(sub))
        };
        (tile[64 + 16 * sub + row], tile[192 + 16 * sub + row]) = (scale, min);
    }
}

#[inline(always)]
fn six_bit_scale<I: Isa>(isa: I, tile: &[u8], sub: usize, part: f32) -> I::V {
    let scale = isa.mul(halfs(isa, tile, 0), isa.splat(part));
    isa.mul(scale, isa.unsigned(bytes(tile, 64 + 16 * sub)))
}

#[inline(always)]
fn six_bit_min<I: Isa>(isa: I, tile: &[u8], sub: usize) -> I::V {
    isa.mul(halfs(isa, tile, 32), isa.unsigned(bytes(tile, 192 + 16 * sub)))
}

/// Q4_K: 4 parts of 64 columns, 8 vectors each; low nibbles are the first 32 of them.
pub(super) struct K4;

impl Tile for K4 {
    const FILE_BYTES: usize = 144;
    const BYTES: usize = K_HEADER + 2048;
    const PARTS: usize = 4;
    const SUBS: usize = 2;
    const OFFSET: i32 = 0;
    const HAS_MIN: bool = true;

    #[inline(always)]
    fn code<I: Isa>(isa: I, tile: &[u8], part: usize, sub: usize, t: usize) -> I::U {
        let at = K_HEADER + 512 * part;
        let nibbles = vector(isa, tile, at + GROUP * t);
        match sub {
            0 => isa.down(nibbles, 0, 15),
            // 16 times the code, which the scale makes up for.
            _ if I::WIDE => isa.down(nibbles, 0, 0xf0),
            _ => isa.down(nibbles, 4, 15),
        }
    }

    #[inline(always)]
    fn scale<I: Isa>(isa: I, tile: &[u8], sub: usize, _: usize) -> I::V {
        six_bit_scale(isa, tile, sub, if I::WIDE && sub % 2 == 1 { 1.0 / 16.0 } else { 1.0 })
    }

    #[inline(always)]
    fn min<I: Isa>(isa: I, tile: &[u8], sub: usize, _: usize) -> I::V {
        six_bit_min(isa, tile, sub)
    }

    fn pack(file: &[u8], row: usize, tile: &mut [u8]) {
        pack_six_bits(file, row, tile);
        put_words(&file[16..], row, &mut tile[K_HEADER..], |word| word);
    }
}

/// Q5_K: as Q4_K, with 8 vectors of fifth bits in front: bit s of a byte is sub-block s's.
pub(super) struct K5;

impl Tile for K5 {
    const FILE_BYTES: usize = 176;
    const BYTES: usize = K_HEADER + 512 + 2048;
    const PARTS: usize = 4;
    const SUBS: usize = 2;
    const OFFSET: i32 = 0;
    const HAS_MIN: bool = true;

    #[inline(always)]
    fn code<I: Isa>(isa: I, tile: &[u8], part: usize, sub: usize, t: usize) -> I::U {
        let at = K_HEADER + 512 + 512 * part;
        let four = isa.down(vector(isa, tile, at + GROUP * t), 4 * sub as u32, 15);
        let fifth = vector(isa, tile, K_HEADER + GROUP * t);
        let bit = isa.down(fifth, (2 * part + sub) as u32, 1);
        isa.both(four, isa.up(bit, 4, 16))
    }

    #[inline(always)]
    fn scale<I: Isa>(isa: I, tile: &[u8], sub: usize, _: usize) -> I::V {
        six_bit_scale(isa, tile, sub, 1.0)
    }

    #[inline(always)]
    fn min<I: Isa>(isa: I, tile: &[u8], sub: usize, _: usize) -> I::V {
        six_bit_min(isa, tile, sub)
    }

    fn pack(file: &[u8], row: usize, tile: &mut [u8]) {
        pack_six_bits(file, row, tile);
        put_words(&file[16..], row, &mut tile[K_HEADER..], |word| word);
    }
}

/// Q6_K: `d | 16 x 16 scales | 2 x (3 x 8 vectors)`: of 128 columns, the codes of the first three sub-blocks, above each two
/// bits of the fourth one's.
pub(super) struct K6;

impl Tile for K6 {
    const FILE_BYTES: usize = 210;
    const BYTES: usize = K_HEADER + 2 * 24 * GROUP;
    const PARTS: usize = 2;
    const SUBS: usize = 4;
    const OFFSET: i32 = 32;
    const HALVES: bool = true;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn code<I: Isa>(isa: I, tile: &[u8], part: usize, sub: usize, t: usize) -> I::U {
        let at = K_HEADER + 24 * GROUP * part;
        let three = [0, 1, 2].map(|sub| at + GROUP * (8 * sub + t));
        if sub < 3 {
            return isa.down(vector(isa, tile, three[sub]), 0, 63);
        }
        let low = isa.down(vector(isa, tile, three[0]), 6, 3);
        let low = isa.both(low, isa.down(vector(isa, tile, three[1]), 4, 12));
        isa.both(low, isa.down(vector(isa, tile, three[2]), 2, 48))
    }

    #[inline(always)]
    fn scale<I: Isa>(isa: I, tile: &[u8], sub: usize, half: usize) -> I::V {
        isa.mul(halfs(isa, tile, 0), isa.signed(bytes(tile, 64 + 16 * (2 * sub + half))))
    }

    #[inline(always)]
    fn min<I: Isa>(isa: I, _: &[u8], _: usize, _: usize) -> I::V {
        isa.splat(0.0)
    }

    fn pack(file: &[u8], row: usize, tile: &mut [u8]) {
        put::<2>(file, 208, tile, 2 * row);
        for (i, &scale) in file[192..208].iter().enumerate() {
            tile[64 + 16 * i + row] = scale;
        }
        for part in 0..2 {
            let (low, high) = (&file[64 * part..][..64], &file[128 + 32 * part..][..32]);
            let code = |sub: usize, k: usize| {
                low[32 * (sub % 2) + k] >> (4 * (sub / 2)) & 15 | (high[k] >> (2 * sub) & 3) << 4
            };
            for sub in 0..3 {
                let words: [u8; 32] =
                    std::array::from_fn(|k| code(sub, k) | code(3, k) >> (2 * sub) << 6);
                let at = K_HEADER + GROUP * (24 * part + 8 * sub);
                put_words(&words, row, &mut tile[at..], |word| word);
            }
        }
    }
}

/// Bytes of a tile of Q2_K or Q3_K: header, high bits if any, then two bits of each code.
const TWO_BITS: usize = 16 * GROUP;

/// Two bits of each code of vector `t` of a sub-block: of 128 columns, 32 bytes, field s of a byte being sub-block s's.
#[inline(always)]
fn two_bits<I: Isa>(isa: I, tile: &[u8], at: usize, sub: usize, t: usize) -> I::U {
    isa.down(vector(isa, tile, at + GROUP * t), 2 * sub as u32, 3)
}

/// Q2_K: `d | -dmin | 16 x 16 bytes | 2 x 8 vectors`; low nibbles of the bytes are scales, high ones minimums.
pub(super) struct K2;

impl K2 {
    /// Nibbles of the bytes of a half of a sub-block.
    #[inline(always)]
    fn nibbles(tile: &[u8], at: usize, shift: u32) -> [u8; LANES] {
        let packed: &[u8; LANES] = bytes(tile, 64 + LANES * at);
        let mut out = [0; LANES];
        for l in 0..LANES {
            out[l] = packed[l] >> shift & 15;
        }
        out
    }
}

impl Tile for K2 {
    const FILE_BYTES: usize = 84;
    const BYTES: usize = K_HEADER + TWO_BITS;
    const PARTS: usize = 2;
    const SUBS: usize = 4;
    const OFFSET: i32 = 0;
    // Minimums of halves are multiplied with the sums of halves.
    const STARTS: i32 = -1;
    const HALVES: bool = true;
    const HAS_MIN: bool = true;

    #[inline(always)]
    fn code<I: Isa>(isa: I, tile: &[u8], part: usize, sub: usize, t: usize) -> I::U {
        two_bits(isa, tile, K_HEADER + 8 * GROUP * part, sub, t)
    }

    #[inline(always)]
    fn scale<I: Isa>(isa: I, tile: &[u8], sub: usize, half: usize) -> I::V {
        let scales = Self::nibbles(tile, 2 * sub + half, 0);
        isa.mul(halfs(isa, tile, 0), isa.unsigned(&scales))
    }

    #[inline(always)]
    fn min<I: Isa>(isa: I, tile: &[u8], sub: usize, half: usize) -> I::V {
        let mins = Self::nibbles(tile, 2 * sub + half, 4);
        isa.mul(halfs(isa, tile, 32), isa.unsigned(&mins))
    }

    fn pack(file: &[u8], row: usize, tile: &mut [u8]) {
        put::<2>(file, 80, tile, 2 * row);
        put::<2>(file, 82, tile, 32 + 2 * row);
        tile[32 + 2 * row + 1] ^= 0x80;
        for (i, &byte) in file[..16].iter().enumerate() {
            tile[64 + 16 * i + row] = byte;
        }
        put_words(&file[16..80], row, &mut tile[K_HEADER..], |word| word);
    }
}

/// Q3_K: `d | 16 x 16 scales | 8 vectors of third bits | 2 x 8 vectors`; bit s of a third-bit byte is
/// sub-block s's, and set where 4 is to be added.
pub(super) struct K3;

impl Tile for K3 {
    const FILE_BYTES: usize = 110;
    const BYTES: usize = K_HEADER + 8 * GROUP + TWO_BITS;
    const PARTS: usize = 2;
    const SUBS: usize = 4;
    const OFFSET: i32 = 4;
    const HALVES: bool = true;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn code<I: Isa>(isa: I, tile: &[u8], part: usize, sub: usize, t: usize) -> I::U {
        let low = two_bits(isa, tile, K_HEADER + 8 * GROUP * (1 + part), sub, t);
        let high = vector(isa, tile, K_HEADER + GROUP * t);
        let bit = isa.down(high, (4 * part + sub) as u32, 1);
        isa.both(low, isa.up(bit, 2, 4))
    }

    #[inline(always)]
    fn scale<I: Isa>(isa: I, tile: &[u8], sub: usize, half: usize) -> I::V {
        isa.mul(halfs(isa, tile, 0), isa.signed(bytes(tile, 64 + 16 * (2 * sub + half))))
    }

    #[inline(always)]
    fn min<I: Isa>(isa: I, _: &[u8], _: usize, _: usize) -> I::V {
        isa.splat(0.0)
    }

    fn pack(file: &[u8], row: usize, tile: &mut [u8]) {
        put::<2>(file, 108, tile, 2 * row);
        let packed = &file[96..108];
        for i in 0..16 {
            // Six bits: the low four in bytes 0..8 (low nibbles first), the high two in bytes 8..12.
            let four = packed[i % 8] >> (i / 8 * 4) & 15;
            let two = packed[8 + i % 4] >> (2 * (i / 4)) & 3;
            tile[64 + 16 * i + row] = (four | two << 4).wrapping_sub(32);
        }
        put_words(&file[..32], row, &mut tile[K_HEADER..], |word| word);
        put_words(&file[32..96], row, &mut tile[K_HEADER + 8 * GROUP..], |word| word);
    }
}
