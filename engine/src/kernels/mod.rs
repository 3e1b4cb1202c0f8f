//! The numeric kernels of the CPU: everything a transformer's forward pass spends its time in.
//!
//! **Promise P1**: every output element has one reduction order, fixed by the logical shape alone.
//! It does not depend on how many rows are computed together, on the number of threads, on tiles,
//! or on where in the cache a position lies. **All levels agree bit for bit**: a kernel is written
//! once over [`isa::Isa`], whose implementations (portable, AVX2, AVX-512, NEON) perform the same 16-lane
//! operations in the same order; sums of 8-bit products are exact integers on each. `Level` only
//! decides how fast that happens.
//!
//! Map: [`level`] picks the instruction set at run time, [`isa`] holds the intrinsics, [`pool`] the
//! threads. [`weights`] holds matrices, in the memory of [`aligned`]; [`tiles`] is how quantised ones lie in memory,
//! [`columns`] quantises activations to match, [`input`] says where these come from, [`tile_dots`] multiplies the
//! two, as [`strips`] tells it to; [`unpack`], [`activations`] and [`dot`] do the same for rare formats and for floats,
//! row by row. [`linear`] drives them over whole matrices. [`attention`] reads K/V through block tables; [`vector`] has the
//! element-wise rest.
//! [`probe`] measures what a machine can do at most.
//! `rows` compiles the loops of sampling.

#![allow(clippy::needless_range_loop, reason = "several arrays are indexed in step")]
#![allow(
    unsafe_code,
    reason = "SIMD intrinsics and work shared between threads; each block argues its safety"
)]

pub mod activations;
mod aligned;
pub mod attention;
mod attention_fold;
mod attention_tile;
mod blocks;
mod claims;
mod columns;
mod disjoint;
mod dot;
pub mod input;
mod isa;
#[cfg(target_arch = "x86_64")]
mod isa_avx2;
#[cfg(target_arch = "x86_64")]
mod isa_avx512;
#[cfg(target_arch = "x86_64")]
mod isa_avx512_quantise;
#[cfg(target_arch = "aarch64")]
mod isa_neon;
mod level;
pub mod linear;
mod norms;
mod pages;
mod pool;
pub mod probe;
mod quantise;
mod rows;
mod source;
mod strips;
mod tile_dots;
mod tiles;
mod tiles_k;
mod unpack;
pub mod vector;
mod weights;

#[cfg(test)]
mod attention_tests;
#[cfg(test)]
mod tests;

pub use aligned::{AlignedBytes, Arena};
pub use level::{Level, LevelError};
pub use pool::{Part, Pool};
pub use weights::{Weights, WeightsError};
