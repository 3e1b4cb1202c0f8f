//! Models: what a GGUF file says about one ([`config`]), its weights ([`load`]), its forward pass
//! ([`transformer`], written once over [`ops`]), and a random one without a file ([`tiny`]). [`slim`] makes a
//! draft's weights smaller on their way from the file.

mod candle_ops;
pub mod config;
mod cpu_ops;
pub mod load;
#[cfg(test)]
mod load_tests;
pub mod ops;
mod requantise;
pub mod rope;
pub mod slim;
pub mod tiny;
pub mod transformer;

pub use candle_ops::CandleOps;
pub use config::{Architecture, Config};
pub use cpu_ops::CpuOps;
pub use load::LoadError;
pub use requantise::DraftQuant;
