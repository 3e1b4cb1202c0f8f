//! Memory in pages of 2 MiB, where the system has them: straight from it, since an allocator's memory
//! has been touched before anyone could ask for large pages.

use std::ptr::NonNull;

/// A large page.
pub(super) const LARGE: usize = 2 << 20;

/// `size` zero bytes at an address that is a multiple of [`LARGE`], as `size` is; `None` where the
/// system has no such thing, or no memory.
#[cfg(target_os = "linux")]
pub(super) fn map(size: usize) -> Option<NonNull<u8>> {
    debug_assert!(size.is_multiple_of(LARGE) && size > 0);
    let whole = size.checked_add(LARGE)?;
    let (read_write, private) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new memory at an address of the system's choice.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), whole, read_write, private, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    let start = NonNull::new(start.cast::<u8>())?;
    let before = start.as_ptr().align_offset(LARGE);
    // SAFETY: `before < LARGE`, so all three parts lie in what has just been mapped, and the first and
    // last are nobody's. Each is a multiple of a page, as `start` is.
    unsafe {
        let aligned = start.add(before);
        for (at, len) in [(start, before), (aligned.add(size), LARGE - before)] {
            if len > 0 {
                unmap(at, len);
            }
        }
        if libc::madvise(aligned.as_ptr().cast(), size, libc::MADV_HUGEPAGE) != 0 {
            let error = std::io::Error::last_os_error();
            tracing::debug!(%error, size, "no large pages for weights");
        }
        Some(aligned)
    }
}

/// Gives memory back.
///
/// # Safety
/// It comes from [`map`], whole or whole pages of it, and nobody uses it any more.
#[cfg(target_os = "linux")]
pub(super) unsafe fn unmap(start: NonNull<u8>, size: usize) {
    // SAFETY: the caller's promise.
    let result = unsafe { libc::munmap(start.as_ptr().cast(), size) };
    debug_assert_eq!(result, 0, "memory that was mapped can be unmapped");
}

#[cfg(not(target_os = "linux"))]
pub(super) fn map(_size: usize) -> Option<NonNull<u8>> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(super) unsafe fn unmap(_start: NonNull<u8>, _size: usize) {}
