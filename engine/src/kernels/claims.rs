//! Who multiplies which weights.
//!
//! Each thread has a share of its own and goes through it from the front: one stream out of the memory. A thread that is done
//! takes from the end of what others have left, so that all end together, whatever kept one of them: the memory is not dealt
//! out evenly, and a core may be somebody else's for a while.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam::utils::CachePadded;

/// What is taken of a share: low half, units from the front; high half, units from the end.
#[derive(Debug, Default)]
struct Taken(AtomicU64);

/// A unit from the end, as [`Taken`] counts.
const FROM_END: u64 = 1 << 32;

impl Taken {
    /// The next of so many units, from the front (`1`) or the end ([`FROM_END`]).
    fn next(&self, units: usize, from: u64) -> Option<usize> {
        // Nothing but the count itself is handed over here: fork and join order all else.
        let mut now = self.0.load(Ordering::Relaxed);
        loop {
            let (front, end) = ((now % FROM_END) as usize, (now / FROM_END) as usize);
            if front + end >= units {
                return None;
            }
            match self.0.compare_exchange_weak(
                now,
                now + from,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) if from == 1 => return Some(front),
                Ok(_) => return Some(units - 1 - end),
                Err(other) => now = other,
            }
        }
    }
}

/// The shares of all threads in several layers.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// `[layers][threads]`
    taken: Vec<CachePadded<Taken>>,
    threads: usize,
}

impl Claims {
    /// Nothing is taken.
    pub(super) fn reset(&mut self, layers: usize, threads: usize) {
        self.threads = threads;
        self.taken.resize_with(self.taken.len().max(layers * threads), CachePadded::default);
        self.taken.iter_mut().for_each(|taken| *taken.0.get_mut() = 0);
    }

    /// The next of so many units of `owner`'s share in a layer: the first for itself, the last for others.
    pub(super) fn next(
        &self,
        (layer, owner): (usize, usize),
        units: usize,
        for_itself: bool,
    ) -> Option<usize> {
        let from = if for_itself { 1 } else { FROM_END };
        self.taken[layer * self.threads + owner].next(units, from)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_share_is_taken_from_both_ends() {
        let mut claims = Claims::default();
        claims.reset(2, 3);
        let place = (1, 2);
        let taken: Vec<_> =
            [true, false, false, true, true, false].map(|own| claims.next(place, 5, own)).into();
        assert_eq!(taken, [Some(0), Some(4), Some(3), Some(1), Some(2), None]);
        assert_eq!(claims.next((0, 2), 1, false), Some(0));
        assert_eq!(claims.next((0, 1), 0, true), None);
        claims.reset(1, 2);
        assert_eq!(claims.next((0, 1), 2, true), Some(0));
    }

    #[test]
    fn every_unit_is_taken_once() {
        const UNITS: usize = 1000;
        let mut claims = Claims::default();
        for _ in 0..20 {
            claims.reset(1, 2);
            let counts = Mutex::new([[0; UNITS]; 2]);
            std::thread::scope(|scope| {
                for mine in 0..2 {
                    let (claims, counts) = (&claims, &counts);
                    scope.spawn(move || {
                        for owner in [mine, 1 - mine] {
                            while let Some(unit) = claims.next((0, owner), UNITS, owner == mine) {
                                counts.lock().unwrap()[owner][unit] += 1;
                            }
                        }
                    });
                }
            });
            assert_eq!(counts.into_inner().unwrap(), [[1; UNITS]; 2]);
        }
    }
}
