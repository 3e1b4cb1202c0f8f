//! Wrong variants that the sampling suite sees, on the real engine.
//!
//! Each is run with twice as many samples until every repetition is caught, by the suite's own threshold: a p-value that
//! Holm's procedure would reject among all tests of the grid. How probably that many samples miss it follows from the mean
//! statistic. Then all is repeated on fresh seeds, and that is what is reported.

use crate::parallel::each;
use crate::random::Random;
use crate::sampling::engine::{Parts, sample, target};
use crate::sampling::grid::{Cell, Kind, Size};
use crate::sampling::judge::{Check, judge};
use crate::sampling::world::World;
use crate::stats::power::{critical, noncentral_tail};

use super::doubles::{Drawn, Named, Noise, Recoupled, Renamed, Stale, drawing, looking};
use super::{By, Finding};

/// The hardest step of Holm's procedure over the grid, rounded down.
const THRESHOLD: f64 = 1e-3 / 3_000.0;
const FIRST: u64 = 1_000;
const MOST: u64 = 128_000;
/// Of a variant with so many samples, this is how rarely it may be missed.
const MISSED: f64 = 0.002;

/// Makes one of the real parts wrong.
type Change = Box<dyn Fn(&Cell, &World, &mut Parts) + Send + Sync>;

/// A wrong variant: in what cell, and what is changed of the real parts.
struct Variant {
    rule: &'static str,
    name: &'static str,
    seen_in: &'static str,
    cell: Cell,
    change: Change,
}

/// Every variant, each run so often, and the doubles without one: the real parts in every cell that was used.
pub(super) fn findings(seed: u64, runs: usize) -> Vec<Finding> {
    let mut all: Vec<_> = variants().into_iter().map(|variant| (variant, false)).collect();
    for (rule, tree) in [("token", false), ("token", true), ("block", false), ("traversal", true)] {
        all.push((renamed(rule, tree, "renamed rightly", "", Named::Rightly), true));
    }
    let one = |(variant, sound): &(Variant, bool)| {
        let world = World::new(&variant.cell);
        let of = if *sound { control } else { search };
        of(variant, &world, seed, runs)
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    each(&all, cores, one, |_| ())
}

fn chain(rule: &'static str) -> Cell {
    Cell { size: Size::Large, ..Cell::plain(rule, Kind::Without, false) }
}

fn renamed(
    rule: &'static str,
    tree: bool,
    name: &'static str,
    seen_in: &'static str,
    named: Named,
) -> Variant {
    let cell = Cell { tree, ..chain(rule) };
    let change = Box::new(move |_: &Cell, _: &World, parts: &mut Parts| {
        parts.verifier = Box::new(Renamed { rule, named });
    });
    Variant { rule, name, seen_in, cell, change }
}

fn drafting(
    rule: &'static str,
    name: &'static str,
    seen_in: &'static str,
    drawn: Drawn,
) -> Variant {
    let change = Box::new(move |cell: &Cell, world: &World, parts: &mut Parts| {
        parts.drafter = drawing(cell, world, drawn);
    });
    Variant { rule, name, seen_in, cell: chain(rule), change }
}

fn variants() -> Vec<Variant> {
    let mut variants = vec![
        renamed("block", false, "tests by absolute position", "", Named::TestByPosition),
        renamed("traversal", true, "tests by absolute position", "", Named::TestByPosition),
        renamed("token", true, "siblings share a number", "", Named::OneForSiblings),
        renamed("traversal", true, "siblings share a number", "", Named::OneForSiblings),
        drafting("block", "drafts drawn by absolute position", "", Drawn::ByPosition),
        drafting(
            "token",
            "drafts drawn greedily, said to be sampled",
            "dflash #74",
            Drawn::Greedily,
        ),
        drafting(
            "block",
            "drafts drawn at half the temperature of q",
            "",
            Drawn::AtHalfTheTemperature,
        ),
    ];
    for (rule, tree) in [("token", false), ("block", false), ("traversal", true)] {
        variants.extend([
            renamed(rule, tree, "a test by the number that drew the draft", "", Named::TestAsDraft),
            renamed(
                rule,
                tree,
                "correction by the number that drew the draft",
                "vllm #47386",
                Named::NextAsDraft,
            ),
            renamed(rule, tree, "numbers without the round's base", "", Named::SameEveryRound),
        ]);
    }
    variants.push(renamed("token", false, "numbers without the request's seed", "", Named::NoSeed));
    variants.extend(of_other_parts());
    variants
}

/// Where it is not numbers that have another name.
fn of_other_parts() -> Vec<Variant> {
    let mut variants = Vec::new();
    variants.push(Variant {
        rule: "token",
        name: "shared noise under a ratio test",
        seen_in: "vllm #47386",
        cell: chain("token"),
        change: Box::new(|cell, world, parts| {
            parts.drafter = drawing(cell, world, Drawn::WithTheNoise);
            parts.verifier = Box::new(Renamed { rule: "token", named: Named::NextByNoise });
        }),
    });
    variants.push(Variant {
        rule: "token",
        name: "sampled drafts taken back after a look",
        seen_in: "D-cut, DSpark",
        cell: chain("token"),
        change: Box::new(|cell, world, parts| parts.drafter = looking(cell, world)),
    });
    // The eighth way to sample has a frequency penalty.
    for rule in ["coupled", "token", "block"] {
        variants.push(Variant {
            rule,
            name: "stale penalties: without the drafts before a row",
            seen_in: "",
            cell: Cell { sampling: 8, ..chain(rule) },
            change: Box::new(|_, world, parts| {
                parts.target = Box::new(Stale::new(target(world), world));
            }),
        });
    }
    variants.push(Variant {
        rule: "coupled",
        name: "every two requests share a seed",
        seen_in: "",
        cell: chain("coupled"),
        change: Box::new(|_, _, parts| parts.seed = |number, _| Random(number / 2).next_u64()),
    });
    for (name, noise) in [
        ("samples of a request share their noise", Noise::OfTheRequest),
        ("noise counted from the round's beginning", Noise::OfTheRound),
    ] {
        variants.push(Variant {
            rule: "coupled",
            name,
            seen_in: "",
            cell: Cell { samples: 2, kind: Kind::Shared, ..chain("coupled") },
            change: Box::new(move |_, _, parts| parts.verifier = Box::new(Recoupled(noise))),
        });
    }
    variants
}

/// The tests of one run.
fn run(variant: &Variant, world: &World, samples: u64, seed: u64) -> Vec<Check> {
    let mut parts = Parts::of(&variant.cell, world);
    (variant.change)(&variant.cell, world, &mut parts);
    let tally = sample(&variant.cell, world, parts, samples, seed);
    judge(&variant.cell, world, &tally).0
}

fn least(checks: &[Check]) -> f64 {
    checks.iter().map(|check| check.fit.p).fold(1.0, f64::min)
}

fn search(variant: &Variant, world: &World, seed: u64, repetitions: usize) -> Finding {
    let mut seeds = Random(seed);
    let mut runs = |samples: u64| -> Vec<Vec<Check>> {
        (0..repetitions).map(|_| run(variant, world, samples, seeds.next_u64())).collect()
    };
    let caught = |runs: &[Vec<Check>]| runs.iter().filter(|c| least(c) < THRESHOLD).count();
    let mut samples = FIRST;
    while samples < MOST {
        let found = runs(samples);
        if caught(&found) == repetitions && sharpest(&found).1 < MISSED {
            break;
        }
        samples *= 2;
    }
    let again = runs(samples);
    let (test, unseen) = sharpest(&again);
    Finding {
        rule: variant.rule,
        variant: variant.name.to_owned(),
        seen_in: variant.seen_in,
        by: By::Sampling,
        found: format!("{} of {repetitions} runs, by: {test}", caught(&again)),
        samples: Some((samples, again.iter().map(|checks| least(checks)).fold(0.0, f64::max))),
        error: 0.0,
        unseen,
        caught: caught(&again) == repetitions,
        control: false,
    }
}

/// The test that sees most on average over the runs, and how probably it would see nothing.
fn sharpest(runs: &[Vec<Check>]) -> (String, f64) {
    let mut best = (String::new(), 1.0);
    for check in runs.first().map(Vec::as_slice).unwrap_or_default() {
        let same =
            |checks: &Vec<Check>| checks.iter().find(|c| c.name == check.name).map(|c| c.fit);
        let fits: Vec<_> = runs.iter().filter_map(same).collect();
        let mean = |of: fn(&crate::stats::Fit) -> f64| {
            fits.iter().map(of).sum::<f64>() / fits.len() as f64
        };
        let freedom = mean(|fit| fit.freedom as f64).round().max(1.0) as usize;
        let statistic = mean(|fit| fit.statistic);
        let missed = if statistic.is_infinite() {
            0.0
        } else {
            let lambda = (statistic - freedom as f64).max(1e-9);
            1.0 - noncentral_tail(critical(THRESHOLD, freedom), freedom, lambda)
        };
        if missed < best.1 {
            best = (check.name.clone(), missed.max(0.0));
        }
    }
    best
}

/// The double without a bug must pass, with as many samples as the hungriest variant gets if there is time.
fn control(variant: &Variant, world: &World, seed: u64, runs: usize) -> Finding {
    let samples = (MOST / 10 * runs as u64).min(MOST);
    let p = least(&run(variant, world, samples, seed));
    Finding {
        rule: variant.rule,
        variant: variant.name.to_owned(),
        seen_in: "",
        by: By::Sampling,
        found: "no bug".to_owned(),
        samples: Some((samples, p)),
        error: 0.0,
        unseen: 0.0,
        caught: p < THRESHOLD,
        control: true,
    }
}
