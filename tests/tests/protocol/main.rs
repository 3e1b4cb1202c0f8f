//! The protocol of the async handle (`engine/src/protocol.rs`) under loom and shuttle, with models of its channels.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]
#![allow(clippy::duplicate_mod, reason = "once over loom's primitives, once over shuttle's")]
#![allow(dead_code, reason = "each checker and each planted bug uses the scenes it needs")]

mod planted;
mod under_loom;
mod under_shuttle;
