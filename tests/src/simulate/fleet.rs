//! Many episodes on many threads. They are added up in the order of their numbers, whoever ran them, so that the
//! result is the same on any number of threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use super::episode::{Case, Episode, run};
use super::tally::Counts;

/// When to stop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Once so many steps were made.
    pub(crate) steps: Option<u64>,
    /// Once so much time has gone by.
    pub(crate) time: Option<Duration>,
    pub(crate) threads: usize,
}

/// The sum of episodes `0..episodes`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Total {
    pub(crate) counts: Counts,
    pub(crate) episodes: u64,
    /// The first case, in order, that broke a rule, and how.
    pub(crate) violation: Option<(Case, Episode)>,
}

impl Total {
    fn add(&mut self, seed: u64, episode: Episode) {
        self.counts.add(&episode.counts);
        if episode.broken.is_some() {
            self.violation = Some((Case::of(seed, self.episodes), episode));
        }
        self.episodes += 1;
    }

    fn is_enough(&self, limits: &Limits) -> bool {
        self.violation.is_some() || limits.steps.is_some_and(|steps| self.counts.steps >= steps)
    }
}

/// Runs episodes of `seed` until a limit is reached, a rule is broken, or `stop` is set. `watch` sees the sum grow.
pub(crate) fn run_all(
    seed: u64,
    limits: &Limits,
    stop: &AtomicBool,
    mut watch: impl FnMut(&Total),
) -> Total {
    let next = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..limits.threads.max(1) {
            let (sender, next, over) = (sender.clone(), &next, &over);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if sender.send((number, run(&Case::of(seed, number)))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let started = std::time::Instant::now();
        let mut total = Total::default();
        let mut waiting = BTreeMap::new();
        for (number, episode) in receiver {
            waiting.insert(number, episode);
            while let Some(episode) = waiting.remove(&total.episodes) {
                if total.is_enough(limits) {
                    break;
                }
                total.add(seed, episode);
                watch(&total);
            }
            let late = limits.time.is_some_and(|time| started.elapsed() >= time);
            if late || total.is_enough(limits) {
                over.store(true, Ordering::Relaxed);
            }
        }
        total
    })
}
