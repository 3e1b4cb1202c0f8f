//! Shared by the integration tests.
//!
//! [`rig`]: an engine over a tiny model, and running requests on it with everything checked that can be;
//! [`requests`]: requests of all sorts; [`oracle`]: plain decoding without an engine; [`runners`] and
//! [`drafters`]: parts that misbehave or tell what they saw; [`stats`]: goodness of fit.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper that fails is a failed test"
)]

pub mod drafters;
pub mod oracle;
pub mod requests;
pub mod rig;
pub mod runners;
pub mod shadow;
pub mod stats;
pub mod words;
