//! Wrong generators, seen by tests of what they give.

use redline::spec::{Draws, Purpose};

use crate::stats::fit;

use super::{By, Finding};

/// Numbers that are drawn.
const NUMBERS: u64 = 100_000;

/// A generator in place of [`Draws`]: noise by position and token, uniform numbers by base, node and purpose.
struct Generator {
    noise: fn(&Draws, u64, u32) -> f64,
    uniform: fn(&Draws, u64, u32, Purpose) -> f64,
}

const RIGHT: Generator = Generator {
    noise: Draws::exponential,
    uniform: |draws, base, node, purpose| draws.uniform(base, node, purpose),
};

/// Exponential noise out of so many bits of the real one's.
fn coarse(noise: f64, bits: i32) -> f64 {
    let steps = 2.0_f64.powi(bits);
    let v = ((-(-noise).exp_m1()) * steps).floor() + 0.5;
    -(-v / steps).ln_1p()
}

/// Pairs of equal numbers among many with different names: of 52 bits, none in a million runs.
fn equal(mut numbers: Vec<u64>) -> usize {
    numbers.sort_unstable();
    numbers.windows(2).filter(|pair| pair[0] == pair[1]).count()
}

/// What is wrong with a generator, if anything: equal numbers, or a p-value.
fn faults(generator: &Generator) -> (usize, f64) {
    let draws = Draws { seed: 0x5EED, sample: 1 };
    let noise: Vec<f64> =
        (0..NUMBERS).map(|i| (generator.noise)(&draws, i / 5, (i % 5) as u32 * 40)).collect();
    let purposes =
        [Purpose::Draft, Purpose::Accept, Purpose::Next, Purpose::Block, Purpose::Traverse];
    let uniform: Vec<f64> = (0..NUMBERS)
        .map(|i| {
            let (rest, purpose) = (i / 5, purposes[(i % 5) as usize]);
            (generator.uniform)(&draws, rest / 4, (rest % 4) as u32, purpose)
        })
        .collect();
    let bits = |numbers: &[f64]| numbers.iter().map(|x| x.to_bits()).collect();
    let twice = equal(bits(&noise)) + equal(bits(&uniform));
    let folded: Vec<f64> = noise.iter().map(|e| -(-e).exp_m1()).collect();
    let p =
        [&folded, &uniform].into_iter().flat_map(|numbers| [even(numbers, 1), even(numbers, 5)]);
    (twice, p.fold(1.0, f64::min))
}

/// p-value of numbers in [0, 1), and of neighbours so far apart, being even over the square.
fn even(numbers: &[f64], apart: usize) -> f64 {
    let mut counts = [0_u64; 256];
    let cell = |x: f64| ((x * 16.0) as usize).min(15);
    for (a, b) in numbers.iter().zip(&numbers[apart..]) {
        counts[16 * cell(*a) + cell(*b)] += 1;
    }
    fit(counts.map(|count| (1.0 / 256.0, count))).p
}

pub(super) fn findings() -> Vec<Finding> {
    let variants: [(&str, &str, Generator); 6] = [
        (
            "coupled",
            "noise of 24 random bits: the tail ends at 17",
            Generator {
                noise: |d, position, token| coarse(d.exponential(position, token), 24),
                ..RIGHT
            },
        ),
        (
            "coupled",
            "Gumbel noise in f32",
            Generator {
                noise: |d, position, token| f64::from((-(d.gumbel(position, token) as f32)).exp()),
                ..RIGHT
            },
        ),
        (
            "coupled",
            "noise by position + token",
            Generator {
                noise: |d, position, token| d.exponential(position + u64::from(token), 0),
                ..RIGHT
            },
        ),
        (
            "coupled",
            "noise by the low 12 bits of the position",
            Generator {
                noise: |d, position, token| d.exponential(position & 0xFFF, token),
                ..RIGHT
            },
        ),
        (
            "ratio rules",
            "all purposes share a stream",
            Generator {
                uniform: |d, base, node, _| d.uniform(base, node, Purpose::Draft),
                ..RIGHT
            },
        ),
        (
            "ratio rules",
            "numbers by base + node",
            Generator {
                uniform: |d, base, node, purpose| d.uniform(base + u64::from(node), 0, purpose),
                ..RIGHT
            },
        ),
    ];
    let finding = |rule, variant: &str, generator: &Generator| {
        let (twice, p) = faults(generator);
        // One pair of equal numbers has a probability of less than 1e-5.
        let p = p.min(1e-5_f64.powi(twice as i32));
        Finding {
            rule,
            variant: variant.to_owned(),
            seen_in: if variant.starts_with("all purposes") { "vllm #47386" } else { "" },
            by: By::Generator,
            found: format!("{twice} equal among {}", 2 * NUMBERS),
            samples: Some((NUMBERS, p)),
            // The number of equal pairs is a Poisson number.
            error: 0.0,
            unseen: (-(twice as f64)).exp(),
            caught: p < 1e-6,
            control: false,
        }
    };
    let mut findings = vec![finding("all", "the generator", &RIGHT).sound()];
    findings.extend(variants.iter().map(|(rule, variant, g)| finding(rule, variant, g)));
    findings
}
