//! Bytes that start on a cache line, in large pages where there are many of them.
//!
//! A pass reads every weight once, far more than the processor keeps translations of 4 KiB pages for.
//! A matrix may be smaller than a page of 2 MiB, so those of a model lie next to each other in an
//! [`Arena`].

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use super::pages;

/// Where bytes start: on a line of the cache.
const LINE: usize = 64;
/// What an arena asks the system for at once. What is never written takes no memory.
const REGION: usize = 64 << 20;

/// Bytes, zero at first, aligned to 64.
#[derive(Default)]
pub struct AlignedBytes {
    /// `None` if there are no bytes.
    region: Option<Arc<Region>>,
    /// A part of the region that no other `AlignedBytes` has.
    at: usize,
    len: usize,
}

impl AlignedBytes {
    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        Arena::apart().zeroed(len)
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        let Some(region) = &self.region else { return &[] };
        // SAFETY: `at..at + len` lies in the region (see `Arena::zeroed`), is initialised, lives as
        // long as the region that `self` holds, and is written through `&mut self` only.
        unsafe { std::slice::from_raw_parts(region.start.add(self.at).as_ptr(), self.len) }
    }

    /// The bytes, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let Some(region) = &self.region else { return &mut [] };
        // SAFETY: as in `as_slice`; no other `AlignedBytes` has a byte of this part, so `&mut self`
        // makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(region.start.add(self.at).as_ptr(), self.len) }
    }
}

impl From<&[u8]> for AlignedBytes {
    fn from(bytes: &[u8]) -> Self {
        let mut all = Self::zeroed(bytes.len());
        all.as_mut_slice().copy_from_slice(bytes);
        all
    }
}

impl Clone for AlignedBytes {
    fn clone(&self) -> Self {
        self.as_slice().into()
    }
}

impl fmt::Debug for AlignedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBytes").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Hands out bytes. They stay when the arena goes; what they lie in is given back with the last of them.
#[derive(Debug, Default)]
pub struct Arena {
    /// Bytes of a region, at least.
    grain: usize,
    region: Option<Arc<Region>>,
    used: usize,
}

impl Arena {
    /// For many pieces that are read together: they lie next to each other.
    pub fn joint() -> Self {
        Self { grain: REGION, region: None, used: 0 }
    }

    /// For a few: each has memory of its own.
    pub fn apart() -> Self {
        Self::default()
    }

    /// `len` zero bytes.
    pub fn zeroed(&mut self, len: usize) -> AlignedBytes {
        if len == 0 {
            return AlignedBytes::default();
        }
        let room = |region: &Arc<Region>| region.size - self.used;
        let region = match self.region.take().filter(|r| self.grain > 0 && room(r) >= len) {
            Some(region) => region,
            None => {
                self.used = 0;
                Arc::new(match self.grain {
                    0 => Region::allocated(len),
                    grain => Region::mapped(len.max(grain)),
                })
            }
        };
        let at = self.used;
        self.used = (at + len).next_multiple_of(LINE).min(region.size);
        self.region = Some(Arc::clone(&region));
        AlignedBytes { region: Some(region), at, len }
    }
}

/// Memory of its own.
#[derive(Debug)]
struct Region {
    start: NonNull<u8>,
    size: usize,
    is_mapped: bool,
}

// SAFETY: it is memory that nothing else refers to, and hands nothing out by itself.
unsafe impl Send for Region {}
// SAFETY: as above; the parts that `AlignedBytes` makes of it do not overlap.
unsafe impl Sync for Region {}

impl Region {
    /// At least `len` zero bytes in large pages, if there are such pages.
    fn mapped(len: usize) -> Self {
        let size = len.checked_next_multiple_of(pages::LARGE);
        match size.and_then(|size| Some((size, pages::map(size)?))) {
            Some((size, start)) => Self { start, size, is_mapped: true },
            None => Self::allocated(len),
        }
    }

    /// `len` zero bytes, `len` not 0.
    fn allocated(len: usize) -> Self {
        let layout = Self::layout(len);
        // SAFETY: the size is not 0.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Self { start, size: len, is_mapped: false }
    }

    fn layout(size: usize) -> Layout {
        // As `Vec` does it: more than the address space is a bug of the caller's.
        #[allow(clippy::expect_used, reason = "a size that no allocator takes")]
        Layout::from_size_align(size, LINE).expect("bytes beyond the address space")
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.is_mapped {
            // SAFETY: mapped in `mapped` with this size; nobody has a part of it any more.
            unsafe { pages::unmap(self.start, self.size) };
        } else {
            // SAFETY: allocated in `allocated` with this layout; nobody has a part of it any more.
            unsafe { dealloc(self.start.as_ptr(), Self::layout(self.size)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_an_arena_are_aligned_zero_apart_and_outlive_it() {
        let mut arena = Arena::joint();
        let sizes = [0, 1, 63, 64, 65, 3 << 20, REGION - (4 << 20), REGION + 5, 7];
        let mut parts: Vec<_> = sizes.iter().map(|&len| arena.zeroed(len)).collect();
        drop(arena);
        for (i, part) in parts.iter_mut().enumerate() {
            assert!(part.as_slice().iter().all(|&b| b == 0), "part {i}");
            assert_eq!(part.as_slice().len(), sizes[i]);
            let is_aligned = part.as_slice().as_ptr().addr().is_multiple_of(LINE);
            assert!(is_aligned || sizes[i] == 0, "part {i}");
            part.as_mut_slice().fill(i as u8 + 1);
        }
        for (i, part) in parts.iter().enumerate() {
            assert!(part.as_slice().iter().all(|&b| b == i as u8 + 1), "part {i}");
        }
    }

    #[test]
    fn bytes_of_any_size_are_zero_and_can_be_copied() {
        for len in [0, 1, 63, 64, 65, 5000] {
            let mut bytes = AlignedBytes::zeroed(len);
            assert!(bytes.as_slice().iter().all(|&b| b == 0) && bytes.as_slice().len() == len);
            bytes.as_mut_slice().fill(7);
            assert_eq!(bytes.clone().as_slice(), bytes.as_slice());
        }
    }
}
