//! A fixed pool of threads that run one closure together.
//!
//! Work is split statically, a part to a thread; what threads take from each other's parts is the job's own affair. Two
//! things keep a thread that the system has put aside from stopping all others. Whoever calls takes over parts that nobody
//! has begun; and where threads are waited for again and again, fewer take part ([`width`]). Neither shows in a result:
//! which parts there are decides only who computes an element, never how.

mod seat;
mod sync;
mod width;

#[cfg(test)]
mod tests;

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use super::disjoint::Disjoint;
use seat::Seat;
use sync::lock;
use width::Width;

/// One of the equal parts of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Which one.
    pub index: usize,
    /// Of how many.
    pub of: usize,
}

impl Part {
    /// All there is.
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// This part's share of `0..len`, in multiples of `step` (but for the end). The first part has at
    /// least as much as any other.
    pub fn share(self, len: usize, step: usize) -> std::ops::Range<usize> {
        let steps = len.div_ceil(step);
        let at = |i: usize| ((steps * i).div_ceil(self.of) * step).min(len);
        at(self.index)..at(self.index + 1)
    }
}

/// A closure that has forgotten how long it lives.
type Work = *const (dyn Fn(Part) + Sync);

struct Shared {
    seats: Vec<Seat>,
    /// What is to be done, and in how many parts; for those whose seat has an offer.
    job: UnsafeCell<Option<(Work, usize)>>,
    /// The thread in `run`, if it may be asleep.
    caller: Mutex<Option<Thread>>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    born: Instant,
}

impl Shared {
    fn new(seats: usize) -> Self {
        Self {
            seats: (0..seats).map(|_| Seat::default()).collect(),
            job: UnsafeCell::new(None),
            caller: Mutex::new(None),
            panic: Mutex::new(None),
            born: Instant::now(),
        }
    }
}

// SAFETY: `job` is written by the caller while no offer is open and no part under way, and read only
// by a worker that has taken an offer, which orders the two; everything else synchronises itself.
unsafe impl Sync for Shared {}
// SAFETY: the closure may be called on any thread (it is `Sync`) while an offer is open or a part
// under way, and nobody calls it later.
unsafe impl Send for Shared {}

/// Up to `threads` threads, the calling one among them.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    width: Width,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("threads", &self.threads())
            .field("width", &self.width.get())
            .finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool of `threads` threads (at least one).
    ///
    /// # Errors
    /// The system's error if a thread can't be started.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::new(threads.saturating_sub(1)));
        let mut pool = Self { width: Width::new(threads), shared, workers: Vec::new() };
        for index in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let name = format!("redline-{index}");
            let worker = thread::Builder::new().name(name).spawn(move || work(&shared, index))?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// The calling thread alone.
    pub fn alone() -> Self {
        let shared = Arc::new(Shared::new(0));
        Self { shared, workers: Vec::new(), width: Width::new(1) }
    }

    /// Number of threads, the caller included: most parts that a job is cut into.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `f` once for each part of a job and returns when all are done. There are as many parts as
    /// threads that can be had at the moment; the caller does the first. A panic in one of them goes on
    /// in the caller. Not reentrant: `&mut` keeps two jobs apart.
    pub fn run(&mut self, f: &(dyn Fn(Part) + Sync)) {
        self.run_in(self.threads(), f);
    }

    /// Runs `f(part, &mut items[part.index])` for each part of a job, of which there are at most as many
    /// as items.
    pub fn run_each<T: Send>(&mut self, items: &mut [T], f: impl Fn(Part, &mut T) + Sync) {
        let most = items.len();
        if most == 0 {
            return;
        }
        let items = Disjoint::new(items);
        self.run_in(most, &|part| {
            // SAFETY: each index occurs once, so each item is borrowed once.
            let item = unsafe { items.part(part.index, 1) };
            item.iter_mut().for_each(|item| f(part, item));
        });
    }

    fn run_in(&mut self, most: usize, f: &(dyn Fn(Part) + Sync)) {
        if self.workers.is_empty() {
            return f(Part::WHOLE);
        }
        let of = self.width.get().min(most).min(self.threads());
        let started = self.now();
        let mut lost = Duration::ZERO;
        if of == 1 {
            f(Part::WHOLE);
        } else {
            lost = self.fork(of, f, started);
        }
        let ended = self.now();
        if self.width.observe(ended, ended - started, lost) {
            let width = self.width.get();
            tracing::debug!(width, threads = self.threads(), "threads that take part");
        }
    }

    /// Runs the parts and says for how long some of the threads waited for one that did not get on.
    fn fork(&self, of: usize, f: &(dyn Fn(Part) + Sync), started: Duration) -> Duration {
        let seats = &self.shared.seats[..of - 1];
        // SAFETY: only the lifetime is forgotten. `Round` lets this function neither return nor unwind
        // before every offer is taken back or done, so the pointer is not used after `f`'s borrow ends.
        let work = unsafe { std::mem::transmute::<*const (dyn Fn(Part) + Sync + '_), Work>(f) };
        // SAFETY: no offer is open and no part under way, so nobody else looks at `job`.
        unsafe { *self.shared.job.get() = Some((work, of)) };
        let round = Round { shared: &self.shared, seats };
        for (seat, worker) in seats.iter().zip(&self.workers) {
            seat.offer(worker.thread());
        }
        f(Part { index: 0, of });
        let own = self.now() - started;
        let mut taken = 0;
        for (seat, index) in seats.iter().zip(1..) {
            if seat.take_back() {
                f(Part { index, of });
            } else {
                taken += 1;
            }
        }
        let free = self.now();
        drop(round);
        if let Some(panic) = lock(&self.shared.panic).take() {
            resume_unwind(panic);
        }
        if taken == 0 {
            return Duration::ZERO;
        }
        let waited = self.now() - free;
        let others = seats.iter().filter_map(|seat| seat.finished().checked_sub(started)).max();
        stalled(own, waited, others.unwrap_or(own))
    }

    /// Time since the pool was made.
    fn now(&self) -> Duration {
        self.shared.born.elapsed()
    }
}

/// The time that was lost to a thread that did not run: the caller did its part in `own` and `waited`
/// for others, the last of which was done after `others`. No part is larger than the caller's, which
/// may be twice as large where there is little to share out.
fn stalled(own: Duration, waited: Duration, others: Duration) -> Duration {
    /// What is not worth counting.
    const USUAL: Duration = Duration::from_micros(20);
    let lost = waited.saturating_sub(own / 4).max(own.saturating_sub(2 * others));
    if lost > USUAL { lost } else { Duration::ZERO }
}

/// Ends with every offer taken back or done, also when unwinding.
struct Round<'a> {
    shared: &'a Shared,
    seats: &'a [Seat],
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        for seat in self.seats {
            if !seat.take_back() {
                seat.wait(&self.shared.caller);
            }
        }
        if thread::panicking() {
            // The caller's own panic goes on; one is enough.
            lock(&self.shared.panic).take();
        }
    }
}

/// A worker's life.
fn work(shared: &Shared, index: usize) {
    let seat = &shared.seats[index - 1];
    while seat.next() {
        // SAFETY: the caller set the job before it made the offer that has been taken, and sets no
        // other before this part is done.
        let job = unsafe { *shared.job.get() };
        if let Some((work, of)) = job {
            // SAFETY: the caller keeps the closure alive until this part is done.
            let part = || unsafe { (*work)(Part { index, of }) };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(part)) {
                *lock(&shared.panic) = Some(panic);
            }
        }
        seat.finish(shared.born.elapsed(), &shared.caller);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for (seat, worker) in self.shared.seats.iter().zip(&self.workers) {
            seat.close(worker.thread());
        }
        for worker in self.workers.drain(..) {
            // A worker's panic has been handed to the caller of `run` already.
            let _ = worker.join();
        }
    }
}
