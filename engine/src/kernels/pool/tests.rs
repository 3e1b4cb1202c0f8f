//! The pool under panics, changing width, too many threads and pauses; its policy, by tables.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use super::*;

/// Runs something that may hang if a wake-up is lost.
fn within_a_minute(f: impl FnOnce() + Send + 'static) {
    let (done, finished) = mpsc::channel();
    let thread = thread::spawn(move || {
        f();
        let _ = done.send(());
    });
    match finished.recv_timeout(Duration::from_secs(60)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("a thread waits for ever"),
        _ => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
    }
}

/// Runs a job and checks that each part ran once.
fn check(pool: &mut Pool, expected: usize) {
    let counts: Vec<_> = (0..pool.threads()).map(|_| AtomicUsize::new(0)).collect();
    pool.run(&|part| {
        assert_eq!(part.of, expected);
        counts[part.index].fetch_add(1, Ordering::Relaxed);
    });
    let counts: Vec<_> = counts.into_iter().map(AtomicUsize::into_inner).collect();
    let expected: Vec<_> = (0..pool.threads()).map(|i| usize::from(i < expected)).collect();
    assert_eq!(counts, expected);
}

#[test]
fn shares_are_all_there_is_and_the_first_is_the_largest() {
    for (len, step, of) in [(0, 1, 3), (1, 1, 2), (7, 2, 3), (64, 16, 4), (65, 16, 4), (3, 8, 5)] {
        let shares: Vec<_> = (0..of).map(|index| Part { index, of }.share(len, step)).collect();
        assert_eq!(
            shares.iter().cloned().flatten().collect::<Vec<_>>(),
            (0..len).collect::<Vec<_>>()
        );
        assert!(shares.iter().all(|s| s.len() <= shares[0].len()), "{shares:?}");
        assert!(shares.iter().all(|s| s.is_empty() || s.start.is_multiple_of(step)), "{shares:?}");
    }
}

#[test]
fn each_part_runs_once_at_every_width_and_when_it_changes() {
    within_a_minute(|| {
        for threads in 1..=5 {
            let mut pool = Pool::new(threads).unwrap();
            for round in 0..200 {
                let width = 1 + (round * 7 + round / 3) % threads;
                pool.width = Width::new(width);
                check(&mut pool, width);
                let mut items = vec![0; 1 + round % threads];
                pool.run_each(&mut items, |part, item| *item += part.index + 1);
                let most = items.len().min(width);
                let expected: Vec<_> =
                    (0..items.len()).map(|i| if i < most { i + 1 } else { 0 }).collect();
                assert_eq!(items, expected);
            }
        }
    });
}

#[test]
fn panics_reach_the_caller_and_leave_a_pool_that_works() {
    within_a_minute(|| {
        for threads in 1..=4 {
            let mut pool = Pool::new(threads).unwrap();
            for (bad, round) in (0..threads).flat_map(|bad| (0..20).map(move |round| (bad, round)))
            {
                let result = catch_unwind(AssertUnwindSafe(|| {
                    pool.width = Width::new(threads);
                    pool.run(&|part| {
                        let all = round % 2 == 1;
                        assert!(!all && part.index != bad, "on purpose");
                    });
                }));
                assert!(result.is_err(), "part {bad} of {threads}");
                pool.width = Width::new(threads);
                check(&mut pool, threads);
            }
        }
    });
}

#[test]
fn pools_end_before_while_and_after_their_threads_sleep() {
    within_a_minute(|| {
        for round in 0..60 {
            let mut pool = Pool::new(4).unwrap();
            if round % 3 > 0 {
                check(&mut pool, 4);
            }
            thread::sleep(Duration::from_micros(40 * (round % 12)));
            drop(pool);
        }
    });
}

/// The caller would do the part of one that stays asleep; so it waits in its own for the others to
/// begin theirs.
#[test]
fn threads_that_sleep_are_woken() {
    within_a_minute(|| {
        let mut pool = Pool::new(3).unwrap();
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(3));
            let begun = AtomicUsize::new(0);
            pool.width = Width::new(3);
            pool.run(&|_| {
                begun.fetch_add(1, Ordering::AcqRel);
                while begun.load(Ordering::Acquire) < 3 {
                    thread::yield_now();
                }
            });
        }
    });
}

#[test]
fn a_caller_that_sleeps_is_woken() {
    within_a_minute(|| {
        let mut pool = Pool::new(2).unwrap();
        for _ in 0..20 {
            let begun = AtomicUsize::new(0);
            pool.width = Width::new(2);
            pool.run(&|part| {
                begun.fetch_add(1, Ordering::AcqRel);
                while begun.load(Ordering::Acquire) < 2 {
                    thread::yield_now();
                }
                if part.index == 1 {
                    thread::sleep(Duration::from_millis(3));
                }
            });
        }
    });
}

/// Waits of all lengths around that of spinning, on either side, with more threads than any machine
/// that runs this has cores to spare. (Every schedule: `tests/tests/seats.rs`.)
#[test]
fn jobs_and_pauses_of_all_lengths_at_changing_width() {
    within_a_minute(|| {
        let mut pool = Pool::new(8).unwrap();
        let mut seed = 1_u32;
        let mut random = move || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed >> 16
        };
        let pause = |length: u32| match length % 8 {
            0 => thread::sleep(Duration::from_micros(u64::from(length % 300))),
            1 => thread::yield_now(),
            _ => (0..length % 2000).for_each(|_| std::hint::spin_loop()),
        };
        for _ in 0..3_000 {
            let width = 1 + random() as usize % 8;
            pool.width = Width::new(width);
            let lengths: [u32; 8] = std::array::from_fn(|_| random());
            let mut sums = [0; 8];
            pool.run_each(&mut sums, |part, sum| {
                pause(lengths[part.index]);
                *sum = part.of;
            });
            assert!(
                sums[..width].iter().all(|&of| of == width) && sums[width..] == [0; 8][width..]
            );
            pause(random());
        }
    });
}

#[test]
fn lost_time_is_told_from_unequal_parts() {
    let us = Duration::from_micros;
    // (own, waited, others) and what is lost.
    let cases = [
        ((1000, 0, 900), 0),
        ((1000, 200, 1200), 0),     // a slower core
        ((1000, 4000, 5000), 3750), // a worker was away
        ((10, 15, 25), 0),          // too short to tell
        ((10, 100, 110), 97),       // short parts
        ((2000, 0, 1000), 0),       // three pieces for two threads
        ((5000, 0, 1000), 3000),    // the caller was away
    ];
    for ((own, waited, others), lost) in cases {
        let found = stalled(us(own), us(waited), us(others));
        assert_eq!(found.as_micros() as u64, lost, "{own} {waited} {others}");
    }
}
