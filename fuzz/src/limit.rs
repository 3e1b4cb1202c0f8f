//! An allocator with a limit. libFuzzer's own (`-malloc_limit_mb`) needs a sanitizer, and its `-rss_limit_mb` does not
//! see memory that was asked for and never touched, which is what a hostile count makes careless code do.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub(crate) struct Limited;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Runs `work`, which may hold `bytes` more than is held now; more ends the process, so that libFuzzer keeps the input.
pub(crate) fn within<R>(bytes: usize, work: impl FnOnce() -> R) -> R {
    LIMIT.store(LIVE.load(Relaxed).saturating_add(bytes), Relaxed);
    let done = work();
    LIMIT.store(usize::MAX, Relaxed);
    done
}

fn take(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Relaxed).saturating_add(bytes);
    let limit = LIMIT.load(Relaxed);
    if live > limit {
        // Saying so allocates.
        LIMIT.store(usize::MAX, Relaxed);
        eprintln!("memory: {bytes} bytes more make {live}, the limit is {limit}");
        std::process::abort();
    }
}

// SAFETY: everything is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: as the caller promised.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_sub(layout.size(), Relaxed);
        take(size);
        // SAFETY: as the caller promised.
        unsafe { System.realloc(block, layout, size) }
    }
}
