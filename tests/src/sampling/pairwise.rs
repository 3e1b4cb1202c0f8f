//! Few combinations in which every two settings meet.

use crate::random::Random;

/// Rows of one level per factor, such that any two levels of two factors are together in some row. Greedy: each row
/// starts from a pair that has not been met and takes, factor by factor, the level that meets most.
pub fn pairwise(levels: &[usize], seed: u64) -> Vec<Vec<usize>> {
    let mut open = Open::new(levels);
    let mut random = Random(seed);
    let mut rows = Vec::new();
    while let Some(start) = open.any(&mut random) {
        let candidates = (0..12).map(|_| open.row(levels, start, &mut random));
        let best = candidates.max_by_key(|row| open.met_by(row)).unwrap_or_default();
        open.meet(&best);
        rows.push(best);
    }
    rows
}

/// Two levels of two factors.
type Pair = [(usize, usize); 2];

/// Pairs that have not been met.
struct Open {
    /// Where the levels of each factor begin among all of them.
    starts: Vec<usize>,
    total: usize,
    open: Vec<bool>,
    pairs: Vec<Pair>,
}

impl Open {
    fn new(levels: &[usize]) -> Self {
        let starts: Vec<_> =
            (0..levels.len()).map(|factor| levels[..factor].iter().sum()).collect();
        let total = levels.iter().sum();
        let mut this = Self { starts, total, open: vec![false; total * total], pairs: Vec::new() };
        for a in 0..levels.len() {
            for b in a + 1..levels.len() {
                for (i, j) in (0..levels[a]).flat_map(|i| (0..levels[b]).map(move |j| (i, j))) {
                    let pair = [(a, i), (b, j)];
                    let at = this.at(pair);
                    this.open[at] = true;
                    this.pairs.push(pair);
                }
            }
        }
        this
    }

    fn at(&self, [(a, i), (b, j)]: Pair) -> usize {
        let (one, two) = (self.starts[a] + i, self.starts[b] + j);
        one.min(two) * self.total + one.max(two)
    }

    fn any(&mut self, random: &mut Random) -> Option<Pair> {
        let pairs = std::mem::take(&mut self.pairs);
        self.pairs = pairs.into_iter().filter(|&pair| self.open[self.at(pair)]).collect();
        let count = self.pairs.len();
        (count > 0).then(|| self.pairs[random.below(count)])
    }

    fn row(&self, levels: &[usize], start: Pair, random: &mut Random) -> Vec<usize> {
        let mut row: Vec<Option<usize>> = vec![None; levels.len()];
        start.iter().for_each(|&(factor, level)| row[factor] = Some(level));
        let mut factors: Vec<_> = (0..levels.len()).filter(|&f| row[f].is_none()).collect();
        while !factors.is_empty() {
            let factor = factors.swap_remove(random.below(factors.len()));
            let first = random.below(levels[factor]);
            let gain = |level: usize| {
                let others = row.iter().enumerate().filter_map(|(f, l)| l.map(|l| (f, l)));
                others.filter(|&other| self.open[self.at([(factor, level), other])]).count()
            };
            let turned = (0..levels[factor]).map(|i| (i + first) % levels[factor]);
            row[factor] = turned.max_by_key(|&level| gain(level));
        }
        row.into_iter().map(Option::unwrap_or_default).collect()
    }

    fn pairs_of(row: &[usize]) -> impl Iterator<Item = Pair> + '_ {
        let pair = |a: usize, b: usize| [(a, row[a]), (b, row[b])];
        (0..row.len()).flat_map(move |a| (a + 1..row.len()).map(move |b| pair(a, b)))
    }

    fn met_by(&self, row: &[usize]) -> usize {
        Self::pairs_of(row).filter(|&pair| self.open[self.at(pair)]).count()
    }

    fn meet(&mut self, row: &[usize]) {
        for pair in Self::pairs_of(row) {
            let at = self.at(pair);
            self.open[at] = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_two_levels_meet_in_few_rows() {
        for (levels, most) in [
            (vec![3, 2, 4], 16),
            (vec![24, 11, 3, 4, 4, 3, 2, 2], 280),
            (vec![5], 0),
            (vec![2; 9], 12),
        ] {
            let rows = pairwise(&levels, 1);
            assert!(rows.len() <= most, "{} rows for {levels:?}", rows.len());
            for a in 0..levels.len() {
                for b in a + 1..levels.len() {
                    for (i, j) in (0..levels[a]).flat_map(|i| (0..levels[b]).map(move |j| (i, j))) {
                        let met = rows.iter().any(|row| (row[a], row[b]) == (i, j));
                        assert!(met, "{levels:?}: {i} of {a} never meets {j} of {b}");
                    }
                }
            }
            assert!(rows.iter().flat_map(|row| row.iter().zip(&levels)).all(|(l, n)| l < n));
        }
    }
}
