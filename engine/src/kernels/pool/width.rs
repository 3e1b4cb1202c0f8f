//! How many threads take part in a job.
//!
//! A join waits for the last thread. One that shares its core with another process is away for
//! milliseconds at a time, many jobs long, and then the others do nothing: better to do without it.
//! Whether it is still disturbed can only be seen by taking it back, which is tried after longer and
//! longer pauses while it fails.
//!
//! Times are handed in; this is a function of them.

use std::time::Duration;

/// Lost time that is put down to chance. One slice of the scheduler is less.
const CHANCE: Duration = Duration::from_millis(6);
/// The same while more threads are tried.
const CHANCE_ON_TRIAL: Duration = Duration::from_millis(1);
/// How long a trial lasts: many slices of the scheduler.
const TRIAL: Duration = Duration::from_millis(100);
/// The pauses before trials.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LAST_PAUSE: Duration = Duration::from_secs(2);

/// Number of threads that take part, adapted to the time that is lost.
#[derive(Debug, Clone)]
pub(super) struct Width {
    most: usize,
    now: usize,
    /// Width without stalls, as far as is known; where a failed trial goes back to.
    trusted: usize,
    /// What the next trial adds.
    step: usize,
    /// When the current width was set.
    since: Duration,
    /// Lost time that is not yet made up for.
    debt: Duration,
    pause: Duration,
}

impl Width {
    pub(super) fn new(most: usize) -> Self {
        let most = most.max(1);
        let (since, debt) = (Duration::ZERO, Duration::ZERO);
        Self { most, now: most, trusted: most, step: 1, since, debt, pause: FIRST_PAUSE }
    }

    /// Threads for the next job.
    pub(super) fn get(&self) -> usize {
        self.now
    }

    /// A job ended at `at`, took `took`, and in it `lost` was spent waiting for a thread that did not
    /// run. Says whether the width has changed.
    pub(super) fn observe(&mut self, at: Duration, took: Duration, lost: Duration) -> bool {
        let before = self.now;
        // To do without one of `n` threads costs up to an n-th of the speed, less where memory is
        // what all wait for; a quarter of that may be lost before it is worth it.
        let allowed = took / (4 * self.now as u32);
        self.debt = (self.debt + lost).saturating_sub(allowed);
        let on_trial = self.now > self.trusted;
        let held = at.saturating_sub(self.since);
        if on_trial && self.debt > CHANCE_ON_TRIAL {
            self.step = 1;
            self.pause = (2 * self.pause).min(LAST_PAUSE);
            self.set(self.trusted, at);
        } else if on_trial && held >= TRIAL {
            self.step *= 2;
            self.pause = FIRST_PAUSE;
            self.trusted = self.now;
        } else if !on_trial && self.debt > CHANCE && self.now > 1 {
            self.trusted = self.now - (self.now / 8).max(1);
            self.set(self.trusted, at);
        } else if !on_trial && self.now < self.most && held >= self.pause {
            self.set((self.now + self.step).min(self.most), at);
        }
        self.now != before
    }

    fn set(&mut self, width: usize, at: Duration) {
        (self.now, self.since, self.debt) = (width, at, Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: Duration = Duration::from_micros(200);
    const STALL: Duration = Duration::from_millis(4);

    /// A pool whose threads from `disturbed` on are put aside for one of two slices of time.
    struct World {
        width: Width,
        at: Duration,
        /// Jobs that took a stall, and how often the width has changed.
        stalls: usize,
        changes: usize,
    }

    impl World {
        fn new(most: usize) -> Self {
            Self { width: Width::new(most), at: Duration::ZERO, stalls: 0, changes: 0 }
        }

        fn job(&mut self, lost: Duration) {
            self.at += JOB + lost;
            self.stalls += usize::from(lost > Duration::ZERO);
            self.changes += usize::from(self.width.observe(self.at, JOB + lost, lost));
        }

        fn run(&mut self, time: Duration, disturbed: usize) {
            let end = self.at + time;
            let mut until_stall = STALL;
            while self.at < end {
                let stalled = self.width.get() > disturbed && until_stall.is_zero();
                if self.width.get() > disturbed {
                    until_stall = until_stall.saturating_sub(JOB);
                }
                self.job(if stalled { STALL } else { Duration::ZERO });
                if stalled {
                    until_stall = STALL;
                }
            }
        }
    }

    #[test]
    fn width_stays_where_nothing_is_lost_or_little() {
        for (every, lost) in [(usize::MAX, Duration::ZERO), (400, STALL), (20, JOB / 2)] {
            let mut world = World::new(4);
            for i in 1..20_000 {
                world.job(if i % every == 0 { lost } else { Duration::ZERO });
            }
            assert_eq!((world.width.get(), world.changes), (4, 0), "{lost:?} every {every} jobs");
        }
    }

    #[test]
    fn a_disturbed_thread_is_left_out_and_rarely_tried() {
        for (most, disturbed) in [(2, 1), (4, 3), (8, 7), (16, 15), (4, 1), (8, 2)] {
            let mut world = World::new(most);
            world.run(Duration::from_secs(4), disturbed);
            let before = world.stalls;
            world.run(Duration::from_secs(20), disturbed);
            let lost = STALL * (world.stalls - before) as u32;
            assert!(
                lost < Duration::from_secs(20) / 50,
                "{lost:?} of 20 s lost with {most} threads"
            );
            assert!(world.width.get() <= disturbed + 1 && world.width.get() + 1 >= disturbed);
        }
    }

    #[test]
    fn all_threads_come_back_soon_after_the_disturbance() {
        for (most, disturbed) in [(2, 1), (8, 7), (16, 1)] {
            let mut world = World::new(most);
            world.run(Duration::from_secs(20), disturbed);
            world.run(LAST_PAUSE + Duration::from_secs(1), most);
            assert_eq!(world.width.get(), most);
            let changes = world.changes;
            world.run(Duration::from_secs(20), most);
            assert_eq!(world.changes, changes);
        }
    }

    #[test]
    fn one_thread_is_left_whatever_happens() {
        let mut world = World::new(3);
        for _ in 0..1000 {
            world.job(Duration::from_secs(3));
            assert!((1..=3).contains(&world.width.get()));
        }
        assert_eq!(Width::new(0).get(), 1);
    }

    #[test]
    fn a_trial_that_fails_makes_the_next_one_wait_longer() {
        let mut world = World::new(2);
        let mut pauses = Vec::new();
        let mut narrow_since = None;
        while pauses.len() < 12 {
            let before = world.width.get();
            world.job(if before == 2 { STALL } else { Duration::ZERO });
            match (before, world.width.get()) {
                (2, 1) => narrow_since = Some(world.at),
                (1, 2) => pauses.extend(narrow_since.map(|since| world.at - since)),
                _ => {}
            }
        }
        assert!(pauses.windows(2).all(|p| p[1] > p[0] || p[1] >= LAST_PAUSE), "{pauses:?}");
        assert!(pauses[0] < 2 * FIRST_PAUSE && pauses[11] < LAST_PAUSE + STALL, "{pauses:?}");
    }
}
