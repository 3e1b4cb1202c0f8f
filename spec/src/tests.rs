//! Tests across modules: exact laws, known wrong variants, sampling on the real generator.

mod coupled;
mod exact_law;
mod figures;
mod hostile;
mod plan;
mod rows;
mod sampled_law;
mod statistics;
mod teeth;
mod vocab;
