//! A worker's place: where it is offered a part, waits for the next, and is waited for.
//!
//! ```text
//!             offer             next              finish
//!   FREE ────────────▶ OFFERED ───────▶ TAKEN ──────────────▶ FREE
//!    │ ▲                  │               │ wait               ▲
//!    │ └── take_back ─────┘               ▼       finish       │
//!    │ next                            AWAITED ────────────────┘  (and wakes the caller)
//!    ▼         offer
//!  ASLEEP ────────────▶ OFFERED  (and wakes the worker)
//! ```
//!
//! Every change is one atomic operation on one word that tells its author what was there before; so
//! whoever is about to sleep has either said so before the other side acts, or sees what it did.

use std::time::Duration;

use super::sync::{AtomicU8, AtomicU64, Mutex, Ordering, Thread, current, lock, park, spin_until};

const FREE: u8 = 0;
const ASLEEP: u8 = 1;
const OFFERED: u8 = 2;
const TAKEN: u8 = 3;
const AWAITED: u8 = 4;
const CLOSED: u8 = 5;

/// On cache lines of its own (two, since they are fetched in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Seat {
    state: AtomicU8,
    /// When the worker was last done, in nanoseconds.
    finished: AtomicU64,
}

impl Seat {
    /// Offers a part, which is in the caller's hands again after `take_back` or `wait`.
    pub(super) fn offer(&self, worker: &Thread) {
        if self.state.swap(OFFERED, Ordering::AcqRel) == ASLEEP {
            worker.unpark();
        }
    }

    /// Whether the worker had not begun; then it never will.
    pub(super) fn take_back(&self) -> bool {
        self.swap_from(OFFERED, FREE).is_ok()
    }

    /// Until the worker is done with what it has taken.
    pub(super) fn wait(&self, caller: &Mutex<Option<Thread>>) {
        if spin_until(|| self.state.load(Ordering::Acquire) == FREE) {
            return;
        }
        *lock(caller) = Some(current());
        if self.swap_from(TAKEN, AWAITED).is_ok() {
            while self.state.load(Ordering::Acquire) == AWAITED {
                park();
            }
        }
    }

    /// When the worker was last done.
    pub(super) fn finished(&self) -> Duration {
        Duration::from_nanos(self.finished.load(Ordering::Relaxed))
    }

    /// No more offers. None is open.
    pub(super) fn close(&self, worker: &Thread) {
        if self.state.swap(CLOSED, Ordering::AcqRel) == ASLEEP {
            worker.unpark();
        }
    }

    /// The worker waits for an offer and takes it; or hears that there are no more.
    pub(super) fn next(&self) -> bool {
        loop {
            spin_until(|| self.state.load(Ordering::Relaxed) != FREE);
            match self.swap_from(OFFERED, TAKEN) {
                Ok(_) => return true,
                Err(CLOSED) => return false,
                Err(_) => {}
            }
            if self.swap_from(FREE, ASLEEP).is_ok() {
                while self.state.load(Ordering::Relaxed) == ASLEEP {
                    park();
                }
            }
        }
    }

    /// The worker is done, at a time.
    pub(super) fn finish(&self, at: Duration, caller: &Mutex<Option<Thread>>) {
        let nanos = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        self.finished.store(nanos, Ordering::Relaxed);
        if self.state.swap(FREE, Ordering::AcqRel) == AWAITED
            && let Some(caller) = &*lock(caller)
        {
            caller.unpark();
        }
    }

    fn swap_from(&self, from: u8, to: u8) -> Result<u8, u8> {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
    }
}
