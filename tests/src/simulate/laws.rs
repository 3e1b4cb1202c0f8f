//! What the mock target says comes next: one of a few laws over two tokens, picked by all that the row has read.

use redline_spec::{Draws, Law, RowError, TargetRows, TokenId, coupled_sample};
use serde::{Deserialize, Serialize};

use super::memory::Read;

/// Tokens of the vocabulary. Two: whatever can be mistaken for something else soon is.
pub(crate) const VOCAB: usize = 2;
const SAMPLED: usize = 16;

/// Which laws a request's rows may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Temperature {
    /// Point masses: greedy decoding.
    Zero,
    /// Laws of all sorts, from nearly certain to even.
    High,
}

/// The laws, made once: rows only point at them.
#[derive(Debug)]
pub(crate) struct Laws {
    points: [Law; VOCAB],
    sampled: Vec<Law>,
}

impl Laws {
    pub(crate) fn new() -> Self {
        let weight = |i: usize| match i {
            0 => 1e-9,
            1 => 0.0,
            _ => i as f64,
        };
        let law = |i| Law::dense(vec![weight(i), weight(SAMPLED - 1 - i)]);
        let sampled: Vec<_> = (0..SAMPLED).filter_map(|i| law(i).ok()).collect();
        assert_eq!(sampled.len(), SAMPLED, "each has some mass");
        Self { points: [Law::point(0), Law::point(1)], sampled }
    }

    /// The law of a row that has read `read`.
    pub(crate) fn of(&self, read: Read, temperature: Temperature) -> &Law {
        match temperature {
            Temperature::Zero => &self.points[(read.law_bits() & 1) as usize],
            Temperature::High => &self.sampled[Self::number(read)],
        }
    }

    /// Which of the sampled laws a row has.
    pub(crate) fn number(read: Read) -> usize {
        read.law_bits() as usize % SAMPLED
    }

    /// What plain decoding emits at `position`.
    pub(crate) fn plain(
        &self,
        read: Read,
        temperature: Temperature,
        (draws, position): (&Draws, u64),
    ) -> TokenId {
        match temperature {
            Temperature::Zero => (read.law_bits() & 1) as TokenId,
            Temperature::High => coupled_sample(self.of(read, temperature), draws, position),
        }
    }
}

/// The rows of one round, as a verifier asks for them.
pub(crate) struct Rows<'a> {
    pub(crate) laws: &'a Laws,
    pub(crate) temperature: Temperature,
    /// What the root's row has read, then each node's.
    pub(crate) reads: &'a [Read],
}

impl TargetRows for Rows<'_> {
    fn law(&mut self, node: Option<u32>) -> Result<&Law, RowError> {
        let row = node.map_or(0, |node| node as usize + 1);
        let read = self.reads.get(row).ok_or(RowError::Missing { node })?;
        Ok(self.laws.of(*read, self.temperature))
    }
}

/// How often each law was met and how often it gave token 0: under a rule whose output is not the plain sampler's, the
/// counts must fit the laws. Rounds with drafts from laws that are off are counted apart, or they would drown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    met: [[u64; SAMPLED]; 2],
    zeros: [[u64; SAMPLED]; 2],
}

impl Tally {
    pub(crate) fn count(&mut self, read: Read, token: TokenId, sloppy: bool) {
        let (law, class) = (Laws::number(read), usize::from(sloppy));
        self.met[class][law] += 1;
        self.zeros[class][law] += u64::from(token == 0);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let sums = self.met.iter_mut().chain(&mut self.zeros).flatten();
        let counts = other.met.iter().chain(&other.zeros).flatten();
        sums.zip(counts).for_each(|(sum, n)| *sum += n);
    }

    /// The most standard deviations by which a law's count is off, or that of all together: a wrong rule mostly errs to
    /// one side.
    pub(crate) fn worst(&self, laws: &Laws) -> f64 {
        let mut worst = 0.0_f64;
        for (met, zeros) in self.met.iter().zip(&self.zeros) {
            let (mut sum_off, mut sum_square) = (0.0, 0.0);
            for (i, law) in laws.sampled.iter().enumerate() {
                let (n, p) = (met[i] as f64, law.p(0));
                let (off, square) = (zeros[i] as f64 - n * p, n * p * (1.0 - p));
                worst = worst.max(deviations(off, square));
                sum_off += off;
                sum_square += square;
            }
            worst = worst.max(deviations(sum_off, sum_square));
        }
        worst
    }
}

/// One event more or less is no evidence where hardly any are expected.
fn deviations(off: f64, square: f64) -> f64 {
    if square > 0.0 { (off.abs() - 1.0).max(0.0) / square.sqrt().max(1.0) } else { off.abs() }
}
