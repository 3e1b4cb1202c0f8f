//! Shared by the integration tests.
//!
//! [`simulate`]: the simulator; [`stats`]: goodness of fit. And, with the feature `engine`: [`sampling`], the sampling suite; [`exact`],
//! enumeration; [`teeth`], wrong variants that these must catch; [`rig`], an engine over a
//! tiny model, and running requests on it with everything checked that can be; [`requests`]: requests of all sorts;
//! [`oracle`]: plain decoding without an engine; [`runners`] and [`drafters`]: parts that misbehave or tell what they
//! saw; [`proof`]: a target that proves every row; [`patience`]: waiting for an engine on a thread of its own; `parallel`:
//! independent work on all cores.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper that fails is a failed test"
)]

#[cfg(feature = "engine")]
pub mod drafters;
#[cfg(feature = "engine")]
pub mod exact;
#[cfg(feature = "engine")]
pub mod oracle;
#[cfg(feature = "engine")]
mod parallel;
#[cfg(feature = "engine")]
pub mod patience;
#[cfg(feature = "engine")]
pub mod proof;
pub mod random;
#[cfg(feature = "engine")]
pub mod requests;
#[cfg(feature = "engine")]
pub mod rig;
#[cfg(feature = "engine")]
pub mod runners;
#[cfg(feature = "engine")]
pub mod sampling;
#[cfg(feature = "engine")]
pub mod shadow;
pub mod simulate;
pub mod stats;
#[cfg(feature = "engine")]
pub mod teeth;
#[cfg(feature = "engine")]
pub mod words;
