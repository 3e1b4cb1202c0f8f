//! What the fuzz targets do with their bytes. They live here, and not in `fuzz_targets/`, so that a target is one line
//! and everything it checks can be read in one place.
//!
//! `gguf.rs`: model files; `prompts.rs`: files of prompts; `chat.rs`: chat templates; `schedule/`: whole runs of the
//! scheduler. `limit.rs` bounds the memory that an input may make us take, `last.rs` keeps an input that ends the process.
#![warn(clippy::all, unused_qualifications)]

pub mod chat;
pub mod gguf;
mod last;
mod limit;
pub mod prompts;
pub mod schedule;

pub use last::keeping;

#[global_allocator]
static ALLOCATOR: limit::Limited = limit::Limited;
