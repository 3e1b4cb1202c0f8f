//! Tiled matrices times rows: which strips and which rows are multiplied together.
//!
//! Few rows are one block of rows times one strip of 16 outputs after the other: they wait for the memory, which is read best in
//! one stream. More rows than the registers hold are taken in blocks of the same size; several blocks share what is unpacked of
//! the weights, two strips what is loaded of the rows, and only so many rows are taken at a time as stay in the second cache
//! while all strips go by.

use std::ops::Range;

use super::Level;
use super::blocks::SHARING;
use super::columns::Columns;
use super::isa::{Isa, Line};
use super::linear::Shared;
use super::tile_dots;
use super::tiles::{ROWS, Tile};
use super::weights::strip_bytes;

#[inline(always)]
fn tile_rows_body<I: Isa>(_: I) -> usize {
    I::TILE_ROWS
}
super::level::dispatch! {
    pub(super) fn tile_rows() -> usize = tile_rows_body
}

/// First row, layer and first strip of a block.
type Place<'a, 'b> = (&'a Columns, usize, &'a Shared<'b>, usize);

/// Some of a layer's strips of 16 outputs, for all rows.
pub(super) fn strips_of<T: Tile>(
    level: Level,
    layer: &Shared<'_>,
    x: &Columns,
    strips: Range<usize>,
) {
    let (bytes, most) = (strip_bytes::<T>(layer.weights.cols()), x.blocks.most());
    let tiles = &layer.weights.bytes()[strips.start * bytes..strips.end * bytes];
    for rows in x.blocks.chunks() {
        for (pair, tiles) in tiles.chunks(2 * bytes).enumerate() {
            let (tiles, strip) = (tiles.split_at(bytes), strips.start + 2 * pair);
            let mut first = rows.start;
            while first < rows.end {
                let (count, (_, blocks)) = (x.blocks.count(first), x.blocks.group(first));
                let at = (x, first, layer, strip);
                macro_rules! counts {
                    ($($m:literal)*) => {
                        match count {
                            $($m if $m == most && blocks > 1 => blocks_of::<T, $m>(level, tiles, at, blocks),
                            $m => block_of::<T, $m>(level, tiles, at),)*
                            _ => unreachable!("{count} rows in a block"),
                        }
                    };
                }
                counts!(1 2 3 4 5 6 7 8);
                first += count * blocks;
            }
        }
    }
}

// A function for each format and number of rows: together they would take the compiler minutes.
super::level::dispatch! {
    fn block_of<T: Tile, const M: usize>(
        strips: (&[u8], &[u8]),
        at: Place<'_, '_>,
    ) = block_of_body
}
super::level::dispatch! {
    fn blocks_of<T: Tile, const M: usize>(
        strips: (&[u8], &[u8]),
        at: Place<'_, '_>,
        blocks: usize,
    ) = blocks_of_body
}

/// One or two strips, for a block of rows. The second strip is empty if there is only one.
#[inline(always)]
fn block_of_body<I: Isa, T: Tile, const M: usize>(
    isa: I,
    strips: (&[u8], &[u8]),
    (x, first, layer, strip): Place<'_, '_>,
) {
    // Constant conditions, so that nothing is compiled that a level has no registers for.
    if const { M <= I::TILE_ROWS } {
        let rows = x.block(T::KIND, first, M);
        for n in 0..count(strips) {
            let sums = tile_dots::dots::<I, T, M>(isa, [strips.0, strips.1][n], rows);
            write(&mut [sums], (x, first, layer, strip + n));
        }
    }
}

/// The same for several blocks of the same size, more than half of what the registers hold, which share what is unpacked;
/// strips share what is loaded of the rows.
#[inline(always)]
fn blocks_of_body<I: Isa, T: Tile, const M: usize>(
    isa: I,
    strips: (&[u8], &[u8]),
    (x, first, layer, strip): Place<'_, '_>,
    blocks: usize,
) {
    // `Blocks` makes none smaller, and nothing is compiled for them.
    assert!(const { M <= I::TILE_ROWS && 2 * M > I::TILE_ROWS }, "{M} rows in each of many blocks");
    if const { M <= I::TILE_ROWS && 2 * M > I::TILE_ROWS } {
        let rows = x.block(T::KIND, first, M * blocks);
        macro_rules! multiply {
            ($n:literal, $strips:expr, $strip:expr, $count:expr) => {{
                let mut sums = [[[Line::default(); M]; $n]; SHARING];
                let sums = &mut sums[..blocks];
                tile_dots::dots_of_many::<I, T, M, $n>(isa, $strips, rows, sums);
                for (block, sums) in sums.iter_mut().enumerate() {
                    write(&mut sums[..$count], (x, first + block * M, layer, $strip));
                }
            }};
        }
        if const { I::STRIPS == 2 } {
            multiply!(2, both(strips), strip, count(strips));
        } else {
            for n in 0..count(strips) {
                multiply!(1, [[strips.0, strips.1][n]], strip + n, 1);
            }
        }
    }
}

/// How many strips there are.
#[inline(always)]
fn count(strips: (&[u8], &[u8])) -> usize {
    1 + usize::from(!strips.1.is_empty())
}

/// Two strips to multiply: the first one twice if there is no second.
#[inline(always)]
fn both<'a>((first, second): (&'a [u8], &'a [u8])) -> [&'a [u8]; 2] {
    [first, if second.is_empty() { first } else { second }]
}

#[inline(always)]
fn write<const M: usize>(sums: &mut [[Line; M]], (x, first, layer, strip): Place<'_, '_>) {
    let first = first / x.terms;
    let given = x.given - first;
    for (n, sums) in sums.iter_mut().enumerate() {
        let at = (strip + n) * ROWS;
        if x.terms == 2 {
            for (m, [sums, rest]) in sums.as_chunks_mut().0.iter_mut().take(given).enumerate() {
                for (sum, rest) in sums.0.iter_mut().zip(&rest.0) {
                    *sum += *rest;
                }
                layer.write(first + m, at, &sums.0);
            }
        } else {
            for (m, sums) in sums.iter().take(given).enumerate() {
                layer.write(first + m, at, &sums.0);
            }
        }
    }
}
