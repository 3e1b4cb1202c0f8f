//! The seats of the thread pool (`engine/src/kernels/pool/seat.rs`) under loom: every schedule of a
//! caller and its workers, with every order of memory that the language allows.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use loom::cell::Cell;
use loom::sync::Arc;
use loom::thread;

use seat::Seat;
use sync::{Mutex, Thread};

#[path = "../../engine/src/kernels/pool/seat.rs"]
mod seat;

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU64, Ordering};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
    pub(crate) use loom::thread::{Thread, current, park};

    /// Spins once: more shows nothing new.
    pub(crate) fn spin_until(done: impl Fn() -> bool) -> bool {
        done()
    }

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap()
    }
}

struct Shared {
    seats: Vec<Seat>,
    /// Written by the caller and read by whoever does a part; loom sees it if these are not in order.
    job: Cell<usize>,
    /// What each part has come to, written by who did it.
    results: Vec<Cell<usize>>,
    caller: Mutex<Option<Thread>>,
}

impl Shared {
    fn part(&self, index: usize) {
        let result = &self.results[index];
        result.set(result.get() + self.job.get());
    }
}

/// When a job is done: as many nanoseconds after the start as its number says.
fn time(job: usize) -> Duration {
    Duration::from_nanos(job as u64)
}

/// As `Pool` does it: some jobs, over as many seats as `widths` says, then the end.
fn jobs(workers: usize, widths: &'static [usize]) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(move || {
        let shared = Arc::new(Shared {
            seats: (0..workers).map(|_| Seat::default()).collect(),
            job: Cell::new(0),
            results: (0..workers).map(|_| Cell::new(0)).collect(),
            caller: Mutex::new(None),
        });
        let threads: Vec<_> = (0..workers)
            .map(|index| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let seat = &shared.seats[index];
                    while seat.next() {
                        shared.part(index);
                        seat.finish(time(shared.job.get()), &shared.caller);
                    }
                })
            })
            .collect();
        let mut expected = vec![0; workers];
        for (&width, job) in widths.iter().zip(1..) {
            shared.job.set(job);
            for (seat, thread) in shared.seats[..width].iter().zip(&threads) {
                seat.offer(thread.thread());
            }
            let mut taken = Vec::new();
            for (index, seat) in shared.seats[..width].iter().enumerate() {
                expected[index] += job;
                if seat.take_back() {
                    shared.part(index);
                } else {
                    taken.push(seat);
                }
            }
            for seat in taken {
                seat.wait(&shared.caller);
                assert_eq!(seat.finished(), time(job));
            }
            for (result, expected) in shared.results.iter().zip(&expected) {
                assert_eq!(result.get(), *expected);
            }
        }
        for (seat, thread) in shared.seats.iter().zip(&threads) {
            seat.close(thread.thread());
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_worker_and_its_caller_meet_in_every_schedule() {
    jobs(1, &[1, 1]);
}

#[test]
fn workers_that_are_left_out_come_back() {
    jobs(2, &[2, 1]);
}

#[test]
fn a_pool_without_jobs_ends() {
    jobs(2, &[]);
}
