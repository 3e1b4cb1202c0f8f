//! What users of other engines with speculative decoding have run into, by class: a test for each class that touches
//! scheduling or the cache, named after it. `scheduler/tests` and `spec/src/ngram/tests.rs` hold those that need no
//! engine.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod abort;
mod batch;
mod context;
mod fairness;
mod ngram;
mod prefix;
mod rollback;
mod slots;
