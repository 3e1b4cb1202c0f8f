//! What the seats stand on, in one place: `tests/tests/seats.rs` puts loom's in its stead.

use std::sync::PoisonError;
pub(super) use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
pub(super) use std::sync::{Mutex, MutexGuard};
pub(super) use std::thread::{Thread, current, park};
use std::time::{Duration, Instant};

/// How long a thread spins before it sleeps: the gap between two kernels, or what a thread takes
/// longer than another for the same work. A core that sleeps is one that the system can move a
/// waiting thread to.
const SPIN: Duration = Duration::from_micros(100);

/// Whether it came true while the thread was spinning.
pub(super) fn spin_until(done: impl Fn() -> bool) -> bool {
    /// Rounds between two looks at the clock.
    const ROUNDS: usize = 32;
    let mut started = None;
    loop {
        for _ in 0..ROUNDS {
            if done() {
                return true;
            }
            std::hint::spin_loop();
        }
        if started.get_or_insert_with(Instant::now).elapsed() > SPIN {
            return false;
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
