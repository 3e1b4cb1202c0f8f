//! Laws that break careless code, and models made of them.

use redline::TokenId;
use redline::spec::Law;

use crate::random::Random;

/// A target and a drafter: for each context, given by the tokens since the root, a pair of laws.
#[derive(Debug, Clone)]
pub struct Pair {
    vocab: usize,
    laws: Vec<(Law, Law)>,
}

impl Pair {
    /// Contexts share the given pairs (p, q) by a fixed scramble, so that different paths meet different laws.
    pub fn new(vocab: usize, laws: Vec<(Law, Law)>) -> Self {
        Self { vocab, laws }
    }

    /// Given as weights of three tokens.
    pub fn of_three<const N: usize>(laws: [([f64; 3], [f64; 3]); N]) -> Self {
        let law = |weights: [f64; 3]| Law::dense(weights.to_vec()).unwrap();
        Self::new(3, laws.map(|(p, q)| (law(p), law(q))).to_vec())
    }

    /// A hostile pair of models over `vocab` tokens.
    pub fn random(vocab: usize, random: &mut Random) -> Self {
        let contexts = 1 + random.below(5);
        Self::new(vocab, (0..contexts).map(|_| laws(vocab, random)).collect())
    }

    fn at(&self, path: &[TokenId]) -> &(Law, Law) {
        let index = path.iter().fold(0, |h, &t| h * (self.vocab + 1) + t as usize + 1);
        &self.laws[index % self.laws.len()]
    }

    /// The target's law after `path`.
    pub fn p(&self, path: &[TokenId]) -> Law {
        self.at(path).0.clone()
    }

    /// The drafter's.
    pub fn q(&self, path: &[TokenId]) -> Law {
        self.at(path).1.clone()
    }

    /// Tokens.
    pub fn vocab(&self) -> usize {
        self.vocab
    }
}

/// Zeros, denormal numbers, a point: what a softmax over 150,000 tokens comes to.
fn law(vocab: usize, random: &mut Random) -> Law {
    let point = |random: &mut Random| Law::point(random.below(vocab) as TokenId);
    if random.below(6) == 0 {
        return point(random);
    }
    let weight = |random: &mut Random| match random.below(12) {
        0 | 1 => 0.0,
        2 => 1e-300,
        3 => 1e-17,
        4 => 3e-310,
        5 => 5e-324,
        6 => (-40.0 * random.uniform()).exp(),
        _ => 0.001 + random.uniform(),
    };
    let weights = (0..vocab).map(|_| weight(random)).collect();
    Law::dense(weights).unwrap_or_else(|_| point(random))
}

fn laws(vocab: usize, random: &mut Random) -> (Law, Law) {
    let p = law(vocab, random);
    match random.below(9) {
        0 => (p.clone(), p),
        // An ulp or so apart.
        1 => {
            let nudged = |id: TokenId| p.p(id) * (1.0 + f64::from(id % 3) * 2e-16);
            let q = Law::dense((0..vocab as TokenId).map(nudged).collect());
            (p.clone(), q.unwrap_or(p))
        }
        // Nothing in common, where there is enough to share out.
        2 => {
            let half = |odd: usize| {
                let kept = p.iter().enumerate().filter(|&(i, _)| i % 2 == odd).map(|(_, x)| x);
                let (ids, weights) = kept.unzip();
                Law::sparse(ids, weights).unwrap_or_else(|_| p.clone())
            };
            (half(0), half(1))
        }
        _ => (p, law(vocab, random)),
    }
}
