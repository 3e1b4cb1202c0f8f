//! The simulator: the real scheduler, cache, verifiers and controller around a mock target whose every output depends
//! on all that it could read, in worlds of random shape in which everything goes wrong that can.
//!
//! ```text
//! command.rs  the command: what it takes, what it prints
//! fleet.rs    many episodes on many threads, added up in one order
//! episode.rs  one case from its first step to an empty pool
//! shape.rs    what a world is made of, drawn from a seed
//! world.rs    the parts of a world
//! arrivals.rs who comes; meddling.rs who is cancelled, expires, loses blocks; pauses and thefts
//! step.rs     one step, with what may go wrong in between; START READING HERE
//! drafting.rs offers and proposals; drafter.rs the mock drafters; grants.rs who grants
//! forward.rs  the target's pass and the verdicts; laws.rs what the target says
//! memory.rs   memory that is really written and read
//! jobs.rs     the requests inside, and what plain decoding would give
//! rules.rs    the scheduler's promises, held against every plan and commit
//! shrink.rs   makes a failing case small; summary.rs what is printed
//! rng.rs, rule.rs, tally.rs
//! ```
//!
//! A run is a seed. It falls into episodes, each a world of its own that is drained at its end; their results are added
//! up in order, so that the hash does not depend on threads. There is no clock in a world.

mod arrivals;
mod command;
mod drafter;
mod drafting;
mod episode;
mod fleet;
mod forward;
mod grants;
mod jobs;
mod laws;
mod meddling;
mod memory;
mod rng;
mod rule;
mod rules;
mod shape;
mod shrink;
mod step;
mod summary;
mod tally;
mod world;

use std::sync::atomic::AtomicBool;

pub use command::{Args, run_command};
pub use summary::{Report, Summary};

/// Runs the default mix for so many steps.
pub fn mix(seed: u64, steps: u64, threads: usize) -> Summary {
    let limits = fleet::Limits { steps: Some(steps), time: None, threads };
    let mut total = fleet::run_all(seed, &limits, &AtomicBool::new(false), |_| ());
    let report = total.violation.take().map(|found| command::report(found, total.counts.steps));
    summary::summarise(&total, seed, 0.0, report)
}

#[cfg(test)]
mod tests;
