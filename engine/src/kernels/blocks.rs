//! Which rows of activations are multiplied together.

use std::ops::Range;

/// Blocks of a group, at most: their sums stay in the first cache.
pub(super) const SHARING: usize = 8;

/// Rows of zeros that a group may be filled up with.
const PADDING: usize = 2;

/// Bytes of codes that share the second cache with the weights that go by.
const CHUNK_BYTES: usize = 3 << 18;

/// Rows in blocks of as many as the registers hold, and blocks in groups that share what is unpacked of the weights.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Blocks {
    /// Some of the last ones may be zeros that nobody asked for.
    rows: usize,
    /// Rows of a block, at most.
    most: usize,
    /// Blocks of a group, at most, and groups of a chunk.
    sharing: usize,
    groups: usize,
}

impl Blocks {
    /// Of rows of `bytes` bytes; blocks have at most `most` rows, and `terms` rows are never parted.
    pub(super) fn new(rows: usize, terms: usize, most: usize, bytes: usize) -> Self {
        let most = (most / terms * terms).max(terms);
        let fitting = CHUNK_BYTES / bytes.max(1) / most;
        let sharing = fitting.clamp(1, SHARING);
        let (rows, most) = evened(rows, terms, most, sharing);
        Self { rows, most, sharing, groups: (fitting / sharing).max(1) }
    }

    /// Rows of a block, at most.
    pub(super) fn most(self) -> usize {
        self.most
    }

    pub(super) fn rows(self) -> usize {
        self.rows
    }

    /// Rows, in chunks of whole groups that stay in the second cache while weights go by.
    pub(super) fn chunks(self) -> impl Iterator<Item = Range<usize>> {
        let many = self.most * self.sharing * self.groups;
        let size = if self.are_many() { many } else { self.rows.max(1) };
        (0..self.rows).step_by(size).map(move |first| first..self.rows.min(first + size))
    }

    /// Rows of the block that starts at row `first`: as many as can be.
    pub(super) fn count(self, first: usize) -> usize {
        self.most.min(self.rows - first)
    }

    /// Where the group begins that the block that starts at row `first` is in, and how many blocks it has. A block of fewer
    /// rows than there could be is a group of its own.
    pub(super) fn group(self, first: usize) -> (usize, usize) {
        if !self.are_many() || self.rows - first < self.most {
            return (first, 1);
        }
        let size = self.most * self.sharing;
        let start = first / size * size;
        (start, ((self.rows - start) / self.most).min(self.sharing))
    }

    /// Whether there are groups of blocks.
    pub(super) fn are_many(self) -> bool {
        self.rows >= 2 * self.most
    }
}

/// The rows of one group, and rows of a block, with blocks of one size where that takes few rows of zeros: a smaller block behind
/// the others would have all weights unpacked once more.
fn evened(rows: usize, terms: usize, most: usize, sharing: usize) -> (usize, usize) {
    let blocks = rows.div_ceil(most);
    if blocks < 2 || blocks > sharing {
        return (rows, most);
    }
    let size = rows.div_ceil(blocks).next_multiple_of(terms);
    if size * blocks <= rows + PADDING { (size * blocks, size) } else { (rows, most) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_one_block_of_one_group() {
        for terms in [1, 2] {
            for (most, bytes) in [(2, 64), (8, 1536), (8, 8960), (8, 1 << 20), (7, 20_000)] {
                for rows in (0..600).step_by(terms) {
                    let blocks = Blocks::new(rows, terms, most, bytes);
                    assert!((rows..=rows + PADDING).contains(&blocks.rows()), "{blocks:?}");
                    assert!(blocks.most() <= most / terms * terms);
                    walk(blocks, terms);
                }
            }
        }
    }

    #[test]
    fn rows_that_need_another_block_are_spread_evenly() {
        let blocks = |rows| {
            let blocks = Blocks::new(rows, 1, 8, 1536);
            (blocks.rows(), blocks.most())
        };
        assert_eq!([8, 9, 12, 15].map(blocks), [(8, 8), (10, 5), (12, 6), (16, 8)]);
        assert_eq!([17, 24, 25, 26].map(blocks), [(18, 6), (24, 8), (25, 8), (28, 7)]);
        assert_eq!(blocks(72), (72, 8));
    }

    fn walk(blocks: Blocks, terms: usize) {
        let mut next = 0;
        for chunk in blocks.chunks() {
            assert_eq!(chunk.start, next);
            while next < chunk.end {
                let (count, (start, many)) = (blocks.count(next), blocks.group(next));
                assert!(start == next && (1..=SHARING).contains(&many), "{blocks:?} at {next}");
                assert!(0 < count && count <= blocks.most && count % terms == 0);
                for block in 0..many {
                    let first = start + block * count;
                    assert_eq!((blocks.count(first), blocks.group(first)), (count, (start, many)));
                }
                next += count * many;
            }
            assert_eq!(chunk.end, next);
        }
        assert_eq!(next, blocks.rows());
    }
}
