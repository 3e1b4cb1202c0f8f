//! Randomness from the system, for seeds that nobody gave and for keys nobody may guess.

use std::hash::{BuildHasher, RandomState};
use std::io;

/// 64 bits that differ from call to call and from process to process: the standard library's randomly keyed
/// hasher over nothing. Good for seeds.
pub(crate) fn random_u64() -> u64 {
    RandomState::new().hash_one(std::time::SystemTime::now())
}

/// A key that nobody can guess; fails where the system has no random numbers.
pub(crate) fn random_key() -> io::Result<[u8; 32]> {
    let mut key = [0; 32];
    getrandom::fill(&mut key)?;
    Ok(key)
}
