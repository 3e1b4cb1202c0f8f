//! All randomness of a run comes from its seed, and every decision has a stream of its own, named by what it is for
//! and when: leaving one request or one kind of fault out changes nothing else, so that a failing case can be shrunk.

/// The finaliser of SplitMix64: a bijection that spreads every bit over the word.
pub(crate) const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// What a stream of random numbers decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Shape,
    Model,
    Arrivals,
    Request,
    Meddling,
    Thefts,
    Offers,
    Budget,
    Drafts,
    Faults,
    Times,
    Rot,
    Pauses,
}

/// SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    /// The stream of `seed` for one purpose, at step (or of request) number `at`.
    pub(crate) fn new(seed: u64, stream: Stream, at: u64) -> Self {
        let purpose = (stream as u64 + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        Self(mix(mix(seed ^ purpose) ^ at.wrapping_mul(GOLDEN)))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// Below `n`, which is at least 1.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// In `low..=high`.
    pub(crate) fn within(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// In `low..=high`, every octave as likely as any other.
    pub(crate) fn octaves(&mut self, low: usize, high: usize) -> usize {
        let (from, to) = (low.ilog2(), high.ilog2());
        let octave = 1 << self.within(from as usize, to as usize);
        self.within(octave, 2 * octave - 1).clamp(low, high)
    }

    /// Once in `n` times; never for 0.
    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        n > 0 && self.below(n) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A number in [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
