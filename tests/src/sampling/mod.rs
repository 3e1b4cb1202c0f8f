//! The sampling suite: what the engine says has the law that it should have, over whole sequences, for every rule,
//! drafter, sampling parameter, batch and shortage of memory.
//!
//! Enumeration (`spec::exact`) proves the rules on perfect random numbers. What it cannot see is what lies around them:
//! the generator and how its numbers are named, rounds that meet each other's numbers, rows and penalties of the wrong
//! position, a schedule that looks at drafts. So here the real engine runs with target and drafter as tables
//! ([`world`]), each request with a seed of its own, and what it says is counted:
//!
//! * the joint law of all tokens of a sequence, several rounds long, and of every three in a row;
//! * the joint law of tokens and accepted drafts of three drafted rounds, by `spec::exact` ([`rounds`]) or, where noise is
//!   shared, by a closed form ([`race`]);
//! * tokens that the drafter likes more than the target: whatever is wrong with a rule tends to show there;
//! * two samples of one request against each other.
//!
//! The law is computed by code that shares nothing with the engine's processors. [`grid`] has the cells, each pair of
//! settings in at least one of them; [`engine`] counts; [`judge`] tests a cell; [`suite`] runs all and judges the whole by
//! Holm's procedure; [`command`] is `redline-tests sampling`.

pub mod command;
pub mod drafts;
pub mod engine;
pub mod grid;
pub mod judge;
pub mod pairwise;
pub mod race;
pub mod rounds;
pub mod suite;
pub mod world;
