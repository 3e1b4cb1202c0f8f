//! Randomness from the system, for seeds that nobody gave and for keys nobody may guess.

use std::hash::{BuildHasher, RandomState};

/// 64 bits that differ from call to call and from process to process: the standard library's randomly keyed
/// hasher over nothing. Good for seeds and hash keys, not for cryptography.
pub(crate) fn random_u64() -> u64 {
    RandomState::new().hash_one(std::time::SystemTime::now())
}
