//! Tests across modules: exact laws, chance at its boundaries, sampling on the real generator. Known wrong variants of the
//! rules are in `tests/src/teeth`.

mod chance;
mod coupled;
mod exact_law;
mod figures;
mod hostile;
mod plan;
mod rows;
mod sampled_law;
mod shortcuts;
mod statistics;
mod vocab;
