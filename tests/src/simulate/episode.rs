//! One case from its first step to an empty pool, and what became of it. Anything that panics on the way is a
//! violation like any other.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use serde::{Deserialize, Serialize};

use super::rng::mix;
use super::rule::{Broken, Check};
use super::shape::Shape;
use super::tally::Counts;
use super::world::World;

/// All that a run depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) seed: u64,
    /// Requests that are left out, by number of arrival.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) omit: Vec<u64>,
    pub(crate) shape: Shape,
}

impl Case {
    /// Episode `number` of the run that `seed` stands for.
    pub(crate) fn of(seed: u64, number: u64) -> Self {
        let seed = mix(mix(seed) ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        Self { seed, omit: Vec::new(), shape: Shape::random(seed) }
    }
}

/// What became of a case.
#[derive(Debug, Clone)]
pub(crate) struct Episode {
    /// Up to its end, or to the violation.
    pub(crate) counts: Counts,
    pub(crate) broken: Option<Broken>,
}

/// Runs a case.
pub(crate) fn run(case: &Case) -> Episode {
    silence_panics();
    let mut world = match World::new(case.seed, &case.shape, &case.omit) {
        Ok(world) => world,
        Err(broken) => return Episode { counts: Counts::default(), broken: Some(broken) },
    };
    let result = QUIET.with_borrow_mut(|quiet| quiet.replace(String::new()));
    assert!(result.is_none(), "an episode within an episode");
    let result = catch_unwind(AssertUnwindSafe(|| live(&mut world)));
    let panicked = QUIET.with_borrow_mut(Option::take).unwrap_or_default();
    let broken = match result {
        Ok(lived) => lived.err(),
        Err(_) => Some(Broken(format!("panic: {panicked}"))),
    };
    let mut counts = world.counts;
    counts.laws = world.jobs.tally;
    if broken.is_some() {
        // What it holds may be anything: it must not panic again on its way out.
        std::mem::forget(world);
    }
    Episode { counts, broken }
}

fn live(world: &mut World) -> Check {
    for _ in 0..world.shape.steps {
        world.step()?;
    }
    world.drain()
}

thread_local! {
    /// Set while an episode runs on this thread: the last panic's message.
    static QUIET: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A panic inside an episode is told in its report, not on standard error.
fn silence_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let quiet = QUIET.with_borrow_mut(|quiet| {
                let message = quiet.as_mut()?;
                let text = info.payload_as_str().unwrap_or("not a text");
                let place = info.location().map(|at| format!("{}:{}", at.file(), at.line()));
                *message = format!("{text}, at {}", place.unwrap_or_default());
                Some(())
            });
            if quiet.is_none() {
                before(info);
            }
        }));
    });
}
