//! Whole runs of the scheduler over a small cache, decided byte by byte: what is asked, cancelled, expired and
//! preempted, when it pauses, what is offered, granted and drafted, what the passes give, which steps fail.
//!
//! The simulator among the tests draws the same things from a seed and compares every output with a plain run. Here the
//! bytes decide the outcomes as well, and coverage guides them. What holds whatever they are: the audit of every
//! invariant after every call, the right contents of every slot that counts as filled, one end for each request,
//! every block free afterwards.

mod calls;
mod memory;
mod requests;
mod step;
mod tree;
mod world;

use arbitrary::Unstructured;

/// Runs what `data` says until it is used up, then until everything has ended.
pub fn run(data: &[u8]) {
    let mut world = world::World::new(Unstructured::new(data));
    world.live();
    world.finish();
}
