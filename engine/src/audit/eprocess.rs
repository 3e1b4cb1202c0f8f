//! Betting against uniformity: evidence that may be looked at after every token.
//!
//! Each strategy starts with a stake of 1 and multiplies it by a factor whose mean is 1 as long as the output law is
//! right, whatever happened before. Its fortune is then a non-negative martingale, so with probability 1 − 1/E it
//! never reaches E (Ville 1939), and 1/(the most it ever was) is a p-value at every moment: an audit may stop when it
//! has seen enough. An average of strategies is one, too; the average here bets at many stakes at once, so that the
//! size and the shape of a deviation need not be known.

use super::fit::legendre;

/// Stakes of a bet, each on both sides.
const STAKES: [f64; 6] = [0.02, 0.05, 0.1, 0.2, 0.4, 0.8];

/// Bins of the strategy that learns a histogram.
pub(super) const BINS: usize = 16;

/// Bins of each of two successive values.
pub(super) const PAIR_BINS: usize = 8;

/// A mixture of strategies, and the most it ever was worth.
#[derive(Debug, Clone)]
pub(super) struct Fortune {
    /// ln of each strategy's fortune.
    ln: Vec<f64>,
    best: f64,
    now: f64,
}

impl Fortune {
    fn new(strategies: usize) -> Self {
        Self { ln: vec![0.0; strategies], best: 0.0, now: 0.0 }
    }

    /// Plays one round: the factor of each strategy, in order.
    fn play(&mut self, factors: impl Iterator<Item = f64>) {
        for (ln, factor) in self.ln.iter_mut().zip(factors) {
            *ln += factor.ln();
        }
        let top = self.ln.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = self.ln.iter().map(|ln| (ln - top).exp()).sum();
        self.now = top + (sum / self.ln.len() as f64).ln();
        self.best = self.best.max(self.now);
    }

    /// The p-value so far, valid whenever it is looked at.
    pub(super) fn p_value(&self) -> f64 {
        (-self.best).exp()
    }
}

/// Bets of `1 + stake · value` at all stakes, both ways. `value` has mean 0 and lies in [−1, 1].
fn bets(value: f64) -> impl Iterator<Item = f64> {
    STAKES.into_iter().flat_map(move |stake| [1.0 + stake * value, 1.0 - stake * value])
}

/// A histogram that learns: its bet is its own prediction over the uniform one (Krichevsky and Trofimov's estimator).
#[derive(Debug, Clone)]
struct Learned<const K: usize> {
    counts: [u64; K],
    total: u64,
}

impl<const K: usize> Learned<K> {
    fn new() -> Self {
        Self { counts: [0; K], total: 0 }
    }

    /// Its factor for a value that falls into `bin`, which it then counts.
    fn factor(&mut self, bin: usize) -> f64 {
        let (count, total) = (self.counts[bin] as f64, self.total as f64);
        self.counts[bin] += 1;
        self.total += 1;
        K as f64 * (count + 0.5) / (total + K as f64 / 2.0)
    }
}

/// The bin of `u` among `bins`.
pub(super) fn bin(u: f64, bins: usize) -> usize {
    ((u * bins as f64) as usize).min(bins - 1)
}

/// Bets that values are not uniform.
#[derive(Debug, Clone)]
pub(super) struct NotUniform {
    fortune: Fortune,
    histogram: Learned<BINS>,
}

/// Bets on moments and halves get as much weight as the histogram by being many; it learns slowly and is one.
const HISTOGRAMS: usize = 16;

impl NotUniform {
    pub(super) fn new() -> Self {
        // Four moments, and whether the value is in the lower half.
        Self { fortune: Fortune::new(5 * 2 * STAKES.len() + HISTOGRAMS), histogram: Learned::new() }
    }

    pub(super) fn see(&mut self, u: f64) {
        let half = if u < 0.5 { 1.0 } else { -1.0 };
        let learned = self.histogram.factor(bin(u, BINS));
        let factors = legendre(u).into_iter().chain([half]).flat_map(bets);
        self.fortune.play(factors.chain(std::iter::repeat_n(learned, HISTOGRAMS)));
    }

    pub(super) fn fortune(&self) -> &Fortune {
        &self.fortune
    }
}

/// Bets that successive values depend on each other.
#[derive(Debug, Clone)]
pub(super) struct NotIndependent {
    fortune: Fortune,
    after: Vec<Learned<PAIR_BINS>>,
}

impl NotIndependent {
    pub(super) fn new() -> Self {
        let after = vec![Learned::new(); PAIR_BINS];
        Self { fortune: Fortune::new(4 * STAKES.len() + HISTOGRAMS), after }
    }

    pub(super) fn see(&mut self, before: f64, u: f64) {
        let learned = self.after[bin(before, PAIR_BINS)].factor(bin(u, PAIR_BINS));
        let (a, b) = (legendre(before), legendre(u));
        let factors = bets(a[0] * b[0]).chain(bets(a[1] * b[1]));
        self.fortune.play(factors.chain(std::iter::repeat_n(learned, HISTOGRAMS)));
    }

    pub(super) fn fortune(&self) -> &Fortune {
        &self.fortune
    }
}

/// Bets that an event does not have the probability it should have, which may be another one each time.
#[derive(Debug, Clone)]
pub(super) struct NotAsLikely(Fortune);

impl NotAsLikely {
    pub(super) fn new() -> Self {
        Self(Fortune::new(2 * STAKES.len()))
    }

    pub(super) fn see(&mut self, probability: f64, happened: bool) {
        // Odds are multiplied by e^tilt: the bet that is best if they really are.
        let factor = |tilt: f64| {
            let mean = 1.0 + probability * tilt.exp_m1();
            if happened { tilt.exp() / mean } else { 1.0 / mean }
        };
        let tilts = STAKES.into_iter().flat_map(|stake| [2.0 * stake, -2.0 * stake]);
        self.0.play(tilts.map(factor));
    }

    pub(super) fn fortune(&self) -> &Fortune {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::uniforms::Uniforms;

    /// The share of `runs` in which a bettor's p-value ever fell to `alpha`.
    fn share(runs: u64, alpha: f64, mut run: impl FnMut(Uniforms) -> f64) -> f64 {
        let found = (0..runs).filter(|&seed| run(Uniforms::new(seed)) <= alpha).count();
        found as f64 / runs as f64
    }

    /// A value of which `shift` of the upper half's mass has gone to the lower half.
    fn shifted(random: &mut Uniforms, shift: f64) -> f64 {
        let u = random.next() / 2.0;
        if random.next() < 0.5 + shift { u } else { u + 0.5 }
    }

    #[test]
    fn fair_values_are_seldom_accused_however_often_one_looks() {
        let uniform = share(400, 0.05, |mut random| {
            let mut bettor = NotUniform::new();
            (0..2000).for_each(|_| bettor.see(random.next()));
            bettor.fortune().p_value()
        });
        let pairs = share(400, 0.05, |mut random| {
            let mut bettor = NotIndependent::new();
            let mut before = random.next();
            for _ in 0..2000 {
                let u = random.next();
                bettor.see(before, u);
                before = u;
            }
            bettor.fortune().p_value()
        });
        let events = share(400, 0.05, |mut random| {
            let mut bettor = NotAsLikely::new();
            for _ in 0..2000 {
                let p = random.next();
                bettor.see(p, random.next() < p);
            }
            bettor.fortune().p_value()
        });
        // Ville: at most 0.05 each, plus four standard deviations of 400 runs.
        for share in [uniform, pairs, events] {
            assert!(share <= 0.05 + 0.044, "{share}");
        }
    }

    #[test]
    fn deviations_are_found_by_the_bettor_that_is_for_them() {
        let uniform = share(50, 1e-4, |mut random| {
            let mut bettor = NotUniform::new();
            (0..6000).for_each(|_| bettor.see(shifted(&mut random, 0.06)));
            bettor.fortune().p_value()
        });
        let pairs = share(50, 1e-4, |mut random| {
            let mut bettor = NotIndependent::new();
            let mut before = random.next();
            for _ in 0..4000 {
                let u = if random.next() < 0.15 { before } else { random.next() };
                bettor.see(before, u);
                before = u;
            }
            bettor.fortune().p_value()
        });
        let events = share(50, 1e-4, |mut random| {
            let mut bettor = NotAsLikely::new();
            (0..6000).for_each(|_| bettor.see(0.3, random.next() < 0.35));
            bettor.fortune().p_value()
        });
        for share in [uniform, pairs, events] {
            assert!(share > 0.95, "{share}");
        }
    }
}
