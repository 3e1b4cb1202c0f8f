//! Outputs that keep to a grammar: the masks, the law under them, what is refused, and JSON.
//!
//! Everything is held against definitions that know nothing of the grammar compiler: regular expressions of the crate
//! `regex` for what can go on and what is whole, and a law enumerated by hand.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod identity;
mod json;
mod law;
mod masks;
mod refused;
mod world;
