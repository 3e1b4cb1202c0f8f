//! Weight matrices in memory.

use super::disjoint::Disjoint;
use super::isa::Portable;
use super::tiles::{ROWS, SUB, Tile, VECTORS, each, is_tiled, with_tile};
use super::unpack::{self, Unpacked};
use super::{AlignedBytes, Arena, Level, Pool};
use crate::gguf::TensorType;

/// A weight matrix of `rows` rows (outputs) of `cols` values (inputs), one copy: in tiles, or row by
/// row as in the file where the kernels have no tiles for the type.
#[derive(Debug)]
pub struct Weights {
    dtype: TensorType,
    rows: usize,
    cols: usize,
    /// Bytes of a row, where there are no tiles.
    row_bytes: usize,
    bytes: AlignedBytes,
}

/// Bytes that do not make the matrix they are said to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{rows} x {cols} of {dtype:?} does not take {bytes} bytes")]
pub struct WeightsError {
    dtype: TensorType,
    rows: usize,
    cols: usize,
    bytes: usize,
}

impl Weights {
    /// A matrix out of its bytes, row after row, in memory of its own.
    ///
    /// # Errors
    /// [`WeightsError`] if the size does not fit or rows are not whole blocks.
    pub fn new(
        dtype: TensorType,
        rows: usize,
        cols: usize,
        bytes: AlignedBytes,
    ) -> Result<Self, WeightsError> {
        Self::new_in((&mut Arena::apart(), &mut Pool::alone()), dtype, rows, cols, bytes)
    }

    /// A matrix out of its bytes, row after row, next to others, made by all threads of a pool.
    ///
    /// # Errors
    /// [`WeightsError`] if the size does not fit or rows are not whole blocks.
    pub fn new_in(
        (arena, pool): (&mut Arena, &mut Pool),
        dtype: TensorType,
        rows: usize,
        cols: usize,
        bytes: AlignedBytes,
    ) -> Result<Self, WeightsError> {
        let row_bytes = cols / dtype.block_len() * dtype.block_bytes();
        let len = bytes.as_slice().len();
        if !cols.is_multiple_of(dtype.block_len()) || rows.checked_mul(row_bytes) != Some(len) {
            return Err(WeightsError { dtype, rows, cols, bytes: len });
        }
        let (dtype, row_bytes, bytes) = match dtype {
            TensorType::Q8_1 => (TensorType::Q8_0, row_bytes / 36 * 34, without_sums(&bytes)),
            _ => (dtype, row_bytes, bytes),
        };
        if is_tiled(dtype) {
            let file = bytes.as_slice();
            let bytes = with_tile!(
                dtype,
                T => repack::<T>((arena, pool), file, rows, (cols, row_bytes)),
                else AlignedBytes::default()
            );
            let row_bytes = 0;
            return Ok(Self { dtype, rows, cols, row_bytes, bytes });
        }
        let mut stored = arena.zeroed(bytes.as_slice().len());
        stored.as_mut_slice().copy_from_slice(bytes.as_slice());
        Ok(Self { dtype, rows, cols, row_bytes, bytes: stored })
    }

    /// Outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes in memory.
    pub fn byte_len(&self) -> usize {
        self.bytes.as_slice().len()
    }

    /// How values are stored.
    pub fn dtype(&self) -> TensorType {
        self.dtype
    }

    /// All of it, as it lies in memory.
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.as_slice()
    }

    /// Bytes of a row; where there are no tiles.
    pub(super) fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// A row as in the file; where there are no tiles.
    pub(super) fn row(&self, row: usize) -> &[u8] {
        &self.bytes.as_slice()[row * self.row_bytes..][..self.row_bytes]
    }

    /// Row `row` as f32 (an embedding).
    pub fn dequantise_row(&self, level: Level, row: usize, out: &mut [f32]) {
        with_tile!(
            self.dtype,
            T => dequantise::<T>(self.bytes.as_slice(), self.cols, row, out),
            else unpack::dequantise(level, self.dtype, self.row(row), out, &mut Unpacked::default())
        );
    }
}

/// Q8_1 as Q8_0: the sums in it are for a way of multiplying that is not ours.
fn without_sums(bytes: &AlignedBytes) -> AlignedBytes {
    let blocks = bytes.as_slice().as_chunks::<36>().0;
    let mut out = AlignedBytes::zeroed(blocks.len() * 34);
    for (block, out) in blocks.iter().zip(out.as_mut_slice().as_chunks_mut::<34>().0) {
        out[..2].copy_from_slice(&block[..2]);
        out[2..].copy_from_slice(&block[4..]);
    }
    out
}

/// Bytes of the tiles of 16 rows.
pub(super) const fn strip_bytes<T: Tile>(cols: usize) -> usize {
    cols.div_ceil(T::PARTS * T::SUBS * SUB) * T::BYTES
}

/// Tiles out of the rows of a file. Rows and columns that no tile is full of are zero.
fn repack<T: Tile>(
    (arena, pool): (&mut Arena, &mut Pool),
    file: &[u8],
    rows: usize,
    (cols, row_bytes): (usize, usize),
) -> AlignedBytes {
    let strip = strip_bytes::<T>(cols);
    let mut tiles = arena.zeroed(rows.div_ceil(ROWS) * strip);
    let to = Disjoint::new(tiles.as_mut_slice());
    pool.run(&|part| {
        for n in part.share(rows.div_ceil(ROWS), 1) {
            // SAFETY: parts do not overlap, so each strip goes to one thread.
            let strip = unsafe { to.part(n * strip, strip) };
            let rows = n * ROWS..rows.min((n + 1) * ROWS);
            for (row, n) in rows.enumerate() {
                let blocks = file[n * row_bytes..][..row_bytes].chunks(T::FILE_BYTES);
                for (tile, blocks) in strip.chunks_exact_mut(T::BYTES).zip(blocks) {
                    T::pack(blocks, row, tile);
                }
            }
        }
    });
    tiles
}

fn dequantise<T: Tile>(tiles: &[u8], cols: usize, row: usize, out: &mut [f32]) {
    let strip = strip_bytes::<T>(cols);
    let (tiles, row) = (&tiles[row / ROWS * strip..][..strip], row % ROWS);
    let per_tile = T::PARTS * T::SUBS * SUB;
    for (tile, out) in tiles.chunks_exact(T::BYTES).zip(out.chunks_mut(per_tile)) {
        for (at, out) in out.chunks_mut(SUB).enumerate() {
            let codes = each!(t, T::code(Portable, tile, at / T::SUBS, at % T::SUBS, t));
            let scales = [0, 1].map(|h| T::scale(Portable, tile, at, h * usize::from(T::HALVES)));
            let min = |h| T::min(Portable, tile, at, h * usize::from(T::HALVES))[row];
            let mins = if T::HAS_MIN { [0, 1].map(min) } else { [0.0; 2] };
            for (k, out) in out.iter_mut().enumerate() {
                let code = i32::from(codes[k / 4][4 * row + k % 4]) - T::OFFSET;
                let half = k / (4 * VECTORS / 2);
                *out = scales[half][row] * code as f32 + mins[half];
            }
        }
    }
}
