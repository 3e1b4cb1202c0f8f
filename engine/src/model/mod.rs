//! Models: what a GGUF file says about one ([`config`]), its weights ([`load`]), its forward pass
//! ([`transformer`], written once over [`ops`]), and a random one without a file ([`tiny`]).

mod candle_ops;
pub mod config;
mod cpu_ops;
pub mod load;
#[cfg(test)]
mod load_tests;
pub mod ops;
pub mod rope;
pub mod tiny;
pub mod transformer;

pub use candle_ops::CandleOps;
pub use config::{Architecture, Config};
pub use cpu_ops::CpuOps;
pub use load::LoadError;
