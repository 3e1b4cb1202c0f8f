//! A fixed pool of threads that run one closure together.

use std::any::Any;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};

use super::disjoint::Disjoint;

/// Rounds of spinning before a thread goes to sleep: a few microseconds, the gap between two
/// kernels.
const SPINS: u32 = 4_000;

type Job = *const (dyn Fn(usize) + Sync);

struct Shared {
    /// Counts jobs; workers wait for it to move.
    epoch: AtomicUsize,
    /// The job of the current epoch.
    job: UnsafeCell<Option<Job>>,
    /// Workers that have not finished the current job.
    pending: AtomicUsize,
    stop: AtomicBool,
    /// The thread that waits for `pending` to reach 0.
    caller: Mutex<Option<Thread>>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `job` is written only by the caller while no worker reads it (`pending` is 0) and read
// only after the release of `epoch`; everything else synchronises itself.
unsafe impl Sync for Shared {}
// SAFETY: the job pointer is valid on any thread while it is set: `run` outlives the job and it is
// `Sync`.
unsafe impl Send for Shared {}

/// `threads` threads, the calling one among them. Work is split statically by thread index, so
/// results and their timing do not depend on who is faster.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish()
    }
}

impl Pool {
    /// A pool of `threads` threads (at least one).
    ///
    /// # Errors
    /// The system's error if a thread can't be started.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            epoch: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
            pending: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            caller: Mutex::new(None),
            panic: Mutex::new(None),
        });
        let mut pool = Self { shared, workers: Vec::new() };
        for index in 1..threads.max(1) {
            let shared = Arc::clone(&pool.shared);
            let name = format!("redline-{index}");
            let worker = thread::Builder::new().name(name).spawn(move || work(&shared, index))?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// Number of threads, the caller included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `f(0)`, …, `f(threads - 1)`, one on each thread, and returns when all are done. A panic
    /// in one of them goes on in the caller. Not reentrant: `&mut` keeps two jobs apart.
    pub fn run(&mut self, f: &(dyn Fn(usize) + Sync)) {
        if self.workers.is_empty() {
            return f(0);
        }
        *lock(&self.shared.caller) = Some(thread::current());
        // SAFETY: only the lifetime is forgotten. `run` does not return (nor unwind: see `Finish`)
        // before every worker has finished with the job, so the pointer is never used after `f`'s
        // borrow ends.
        let job: Job = unsafe { std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), Job>(f) };
        // SAFETY: no worker touches `job` now: the previous run waited until `pending` was 0.
        unsafe { *self.shared.job.get() = Some(job) };
        self.shared.pending.store(self.workers.len(), Ordering::Relaxed);
        self.shared.epoch.fetch_add(1, Ordering::Release);
        for worker in &self.workers {
            worker.thread().unpark();
        }
        let finish = Finish(&self.shared);
        f(0);
        drop(finish);
        let panic = lock(&self.shared.panic).take();
        if let Some(panic) = panic {
            std::panic::resume_unwind(panic);
        }
    }

    /// Runs `f(i, &mut items[i])` for each item, thread `i` taking item `i`. There are at most as
    /// many items as threads.
    pub fn run_each<T: Send>(&mut self, items: &mut [T], f: impl Fn(usize, &mut T) + Sync) {
        assert!(items.len() <= self.threads(), "more items than threads");
        let count = items.len();
        let items = Disjoint::new(items);
        self.run(&|i| {
            if i < count {
                // SAFETY: each thread index occurs once, so each item is borrowed once.
                let item = unsafe { items.part(i, 1) };
                item.iter_mut().for_each(|item| f(i, item));
            }
        });
    }
}

/// Part `index` of `parts` of `0..len`, in multiples of `step` (but for the end).
pub(super) fn share(len: usize, step: usize, index: usize, parts: usize) -> std::ops::Range<usize> {
    let steps = len.div_ceil(step);
    let at = |i: usize| (steps * i / parts * step).min(len);
    at(index)..at(index + 1)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits, also when unwinding, until the workers are done with the job.
struct Finish<'a>(&'a Shared);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        wait(|| self.0.pending.load(Ordering::Acquire) == 0);
    }
}

/// Spins, then sleeps until unparked, until `done`.
fn wait(done: impl Fn() -> bool) {
    for _ in 0..SPINS {
        if done() {
            return;
        }
        std::hint::spin_loop();
    }
    while !done() {
        thread::park();
    }
}

fn work(shared: &Shared, index: usize) {
    let mut seen = 0;
    loop {
        wait(|| shared.epoch.load(Ordering::Acquire) != seen);
        seen = shared.epoch.load(Ordering::Acquire);
        if shared.stop.load(Ordering::Acquire) {
            return;
        }
        // SAFETY: the epoch has moved, so the caller has set the job and waits for this worker
        // before changing it.
        let job = unsafe { *shared.job.get() };
        if let Some(job) = job {
            // SAFETY: the caller keeps the closure alive until `pending` is 0.
            let result =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| unsafe { (*job)(index) }));
            if let Err(panic) = result {
                *lock(&shared.panic) = Some(panic);
            }
        }
        let caller = lock(&shared.caller).clone();
        if shared.pending.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(caller) = caller
        {
            caller.unpark();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.epoch.fetch_add(1, Ordering::Release);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker's panic has been handed to the caller of `run` already.
            let _ = worker.join();
        }
    }
}
