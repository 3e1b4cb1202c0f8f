//! One output written by several threads, each its own part.

use std::marker::PhantomData;

/// A mutable slice that threads may write to in parts that do not overlap.
pub(super) struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    _slice: PhantomData<&'a mut [T]>,
}

// SAFETY: it is a `&mut [T]` whose parts go to different threads; `T: Send` may be written from any
// of them.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    pub(super) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), _slice: PhantomData }
    }

    /// Elements `at..at + len`.
    ///
    /// # Safety
    /// No other part that overlaps this one is alive, on any thread.
    #[allow(clippy::mut_from_ref, reason = "that is the point; the caller keeps parts apart")]
    #[inline(always)]
    pub(super) unsafe fn part(&self, at: usize, len: usize) -> &mut [T] {
        assert!(at <= self.len && len <= self.len - at, "part outside the slice");
        // SAFETY: inside the slice (asserted), exclusive (the caller's promise), lives as long as
        // the borrow.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(at), len) }
    }
}
