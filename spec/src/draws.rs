//! [`Draws`]: the random numbers of one sample, named by what they are for.

use crate::philox::philox;
use crate::{Choices, Law, Site, TokenId};

/// Counter-based random numbers of one sample. There is no generator state: a number is a function
/// of its name, so it does not depend on batch, schedule, preemption or how many were drawn before.
///
/// Two families, never mixed:
/// * [`Draws::exponential`] and [`Draws::gumbel`], named by (seed, sample, **absolute position**,
///   token id): the noise that draft and target share under `coupled`;
/// * [`Draws::uniform`], named by (seed, sample, **base position of the round**, node, purpose):
///   for every other rule. The base grows strictly from round to round, so no number is met twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Draws {
    /// Seed of the request.
    pub seed: u64,
    /// Which of the request's samples (`n > 1`).
    pub sample: u32,
}

/// What a number of the second family is for. Each has its own stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// A drafter draws a node.
    Draft,
    /// A verifier accepts or rejects a node on the way down: `token`.
    Accept,
    /// A verifier draws the token after the accepted path: residual or bonus.
    Next,
    /// The η of a chain's node under `block`.
    Block,
    /// The test of a node on the way up under `traversal`.
    Traverse,
}

/// Tokens of this many consecutive ids share one block of group noise.
pub(crate) const GROUP: u32 = 64;

/// Streams: the top byte of counter word 2. Positions and bases use the low 56 bits around it.
const STREAM_GROUP: u32 = 1;
const STREAM_TOKEN: u32 = 2;

impl Purpose {
    fn stream(self) -> u32 {
        match self {
            Self::Draft => 3,
            Self::Accept => 4,
            Self::Next => 5,
            Self::Block => 6,
            Self::Traverse => 7,
        }
    }
}

/// Noise of 64 consecutive token ids at one position: see [`Draws::exponential`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupNoise {
    /// The least noise in the group.
    pub(crate) least: f64,
    /// Which id of the group has it.
    pub(crate) winner: TokenId,
}

impl GroupNoise {
    pub(crate) fn new(group: u32, words: [u64; 2]) -> Self {
        Self {
            least: standard_exponential(words[0]) / f64::from(GROUP),
            winner: group * GROUP + (words[1] as u32 >> 26),
        }
    }

    /// At most `least`, but for rounding: −ln(1 − v) is above v.
    pub(crate) fn floor(words: [u64; 2]) -> f64 {
        half_step(words[0]) / f64::from(GROUP)
    }
}

impl Draws {
    /// A number in [0, 1) with 53 random bits. `base` below 2^56.
    #[must_use]
    pub fn uniform(&self, base: u64, node: u32, purpose: Purpose) -> f64 {
        let words = self.block(purpose.stream(), base, node);
        // 53 bits: every multiple of 2^-53 in [0, 1), so 0 is possible and 1 is not.
        (join(words[0], words[1]) >> 11) as f64 * TWO_POW_MINUS_53
    }

    /// Standard exponential noise E of `token` at absolute `position` (below 2^56): independent
    /// over positions and tokens.
    ///
    /// By the exponential race, `argmin E / p` draws from p; with `G = −ln E` it is the Gumbel-max
    /// rule `argmax ln p + G`. Noise is made top down, so that a sampler can skip 64 tokens by
    /// looking at one block: the least of 64 independent exponentials is an exponential over 64,
    /// any of the ids may have it with equal probability, and beyond it the others are exponentials
    /// again (memorylessness). Hence `E = X/64` for the group's winner and `X/64 + Y` for the
    /// others is exactly 64 independent exponentials.
    #[must_use]
    pub fn exponential(&self, position: u64, token: TokenId) -> f64 {
        let group = self.group_noise(position, token / GROUP);
        self.token_noise(position, token, group)
    }

    /// Standard Gumbel noise `G = −ln E` of `token` at absolute `position`.
    #[must_use]
    pub fn gumbel(&self, position: u64, token: TokenId) -> f64 {
        -self.exponential(position, token).ln()
    }

    /// The choices of the round whose first new token gets position `base`.
    #[must_use]
    pub fn round(self, base: u64) -> RoundDraws {
        RoundDraws { draws: self, base }
    }

    pub(crate) fn group_noise(&self, position: u64, group: u32) -> GroupNoise {
        GroupNoise::new(group, self.group_words(position, group))
    }

    /// The random bits of a group's noise, for [`GroupNoise::new`].
    #[inline(always)]
    pub(crate) fn group_words(&self, position: u64, group: u32) -> [u64; 2] {
        let words = self.block(STREAM_GROUP, position, group);
        [join(words[0], words[1]), u64::from(words[2])]
    }

    /// The noise of one token, its group's being known.
    pub(crate) fn token_noise(&self, position: u64, token: TokenId, group: GroupNoise) -> f64 {
        if token == group.winner {
            return group.least;
        }
        let words = self.block(STREAM_TOKEN, position, token / 2);
        let half = 2 * (token as usize % 2);
        group.least + standard_exponential(join(words[half], words[half + 1]))
    }

    /// Philox block: the seed is the key; counter = (index, low position, stream and high position,
    /// sample).
    #[inline(always)]
    fn block(&self, stream: u32, position: u64, index: u32) -> [u32; 4] {
        debug_assert!(position < 1 << 56, "position {position} out of range");
        let high = (position >> 32) as u32 & 0x00FF_FFFF | stream << 24;
        let key = [self.seed as u32, (self.seed >> 32) as u32];
        philox([index, position as u32, high, self.sample], key)
    }
}

const TWO_POW_MINUS_53: f64 = 1.0 / (1_u64 << 53) as f64;

#[inline(always)]
fn join(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// `−ln(1 − v)` for the half-step uniform v = (k + ½)/2^52 of the top 52 bits: all 53 significant
/// bits are exact, v is never 0 nor 1, and small results, which win races, are as fine as 2^-53
/// (a 24-bit uniform would cut the Gumbel tail near 17, inside what a large vocabulary reaches).
pub(crate) fn standard_exponential(bits: u64) -> f64 {
    -(-half_step(bits)).ln_1p()
}

fn half_step(bits: u64) -> f64 {
    ((bits >> 12) as f64 + 0.5) * (2.0 * TWO_POW_MINUS_53)
}

/// The ratio test for u uniform in [0, 1). Without a division, so q = 0 needs no special case;
/// strict, so that u = 0 does not accept a token of probability zero.
pub(crate) fn accepts(u: f64, p: f64, q: f64) -> bool {
    u * q < p
}

/// [`Choices`] from the numbers of one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundDraws {
    /// The numbers.
    pub draws: Draws,
    /// Position of the first token that the round will commit: the number of committed tokens.
    pub base: u64,
}

impl Choices for RoundDraws {
    fn accept(&mut self, at: Site, p: f64, q: f64) -> bool {
        accepts(self.draws.uniform(self.base, at.node, at.purpose), p, q)
    }

    fn pick(&mut self, at: Site, law: &Law) -> TokenId {
        pick(self.draws.uniform(self.base, at.node, at.purpose), law)
    }
}

/// The token at which the summed law passes u, uniform in [0, 1). Never one outside the support.
///
/// Sums go by stretches of weights first, then through the one stretch that passes.
pub(crate) fn pick(u: f64, law: &Law) -> TokenId {
    let (ids, weights) = law.parts();
    let goal = u * law.total();
    let mut before = 0.0;
    let mut last = None;
    for (start, stretch) in (0..).step_by(GROUP as usize).zip(weights.chunks(GROUP as usize)) {
        let mass = crate::law::sum(stretch);
        let passes = goal < before + mass;
        if passes || mass > 0.0 {
            last = Some((start, stretch, before));
        }
        if passes {
            break;
        }
        before += mass;
    }
    let Some((start, stretch, mut sum)) = last else { return law.argmax() };
    let mut found = 0;
    for (index, &weight) in stretch.iter().enumerate().filter(|&(_, &weight)| weight > 0.0) {
        sum += weight;
        found = start + index;
        if goal < sum {
            break;
        }
    }
    ids.map_or(found as TokenId, |ids| ids[found])
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: Draws = Draws { seed: 0x0123_4567_89AB_CDEF, sample: 3 };

    #[test]
    fn extreme_bits_stay_inside_the_open_interval() {
        for bits in [0, 1 << 12, u64::MAX] {
            let e = standard_exponential(bits);
            assert!(e > 0.0 && e.is_finite(), "{e}");
        }
        assert_eq!(standard_exponential(0), 0.5 / (1_u64 << 52) as f64);
        assert!(standard_exponential(u64::MAX) > 36.0);
    }

    #[test]
    fn names_are_distinct_streams() {
        let mut seen = std::collections::BTreeSet::new();
        let purposes =
            [Purpose::Draft, Purpose::Accept, Purpose::Next, Purpose::Block, Purpose::Traverse];
        for purpose in purposes {
            for base in [0, 1, 1 << 32, 1 << 55] {
                for node in [0, 1, 2] {
                    for sample in [0, 1] {
                        let draws = Draws { sample, ..DRAWS };
                        let u = draws.uniform(base, node, purpose);
                        assert!((0.0..1.0).contains(&u));
                        assert!(seen.insert(u.to_bits()));
                    }
                }
            }
        }
    }

    #[test]
    fn exponential_noise_has_the_right_moments_within_and_across_groups() {
        let n = 200_000_u32;
        let (mut sum, mut square, mut product) = (0.0, 0.0, 0.0);
        let mut previous = 0.0;
        for i in 0..n {
            // 200 ids in a row at each position: neighbours, group borders, and position changes.
            let e = DRAWS.exponential(u64::from(i / 200), i % 200);
            sum += e;
            square += e * e;
            product += e * previous;
            previous = e;
        }
        let n = f64::from(n);
        // Standard errors: mean 1/sqrt(n) = .0022, second moment sqrt(20/n) = .01, product
        // sqrt(3/n).
        assert!((sum / n - 1.0).abs() < 0.01, "{}", sum / n);
        assert!((square / n - 2.0).abs() < 0.05, "{}", square / n);
        assert!((product / n - 1.0).abs() < 0.02, "{}", product / n);
    }

    /// By stretches or token by token: with weights whose sums are exact it is the same token.
    #[test]
    fn pick_is_the_first_token_whose_sum_passes() {
        for len in [1, 2, 63, 64, 65, 200, 1_000] {
            // Quarters of powers of two, some of them zero; the largest is 1.
            let weight = |i: usize| match i * 7 % 11 {
                0..=3 => 0.0,
                k => f64::powi(2.0, -(k as i32 % 5)) * ((i % 3 + 2) as f64 / 4.0),
            };
            let weights: Vec<f64> =
                (0..len).map(|i| if i == len / 2 { 1.0 } else { weight(i) }).collect();
            let ids: Vec<TokenId> = (0..len as TokenId).map(|i| 3 * i + 1).collect();
            let laws = [Law::dense(weights.clone()), Law::sparse(ids, weights.clone())];
            let [dense, sparse] = laws.map(Result::unwrap);
            for step in 0..4_096 {
                let u = f64::from(step) / 4_096.0;
                let (mut sum, mut expected) = (0.0, None);
                for (i, w) in weights.iter().enumerate() {
                    sum += w;
                    if expected.is_none() && u * dense.total() < sum {
                        expected = Some(i as TokenId);
                    }
                }
                assert_eq!(Some(pick(u, &dense)), expected);
                assert_eq!(Some(pick(u, &sparse)), expected.map(|i| 3 * i + 1));
            }
        }
    }

    #[test]
    fn pick_never_leaves_the_support() {
        let law = Law::sparse(vec![2, 5, 9], vec![1e-300, 1.0, 1e-300]).unwrap();
        for base in 0..1000 {
            let token = DRAWS.round(base).pick(Site { node: 0, purpose: Purpose::Next }, &law);
            assert_eq!(token, 5);
        }
    }
}
