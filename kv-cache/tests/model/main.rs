//! Every part of the crate against a reference that is naive and obviously right: random
//! operations on both, compared after each. What fails is cut down to the few operations it takes.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod found;
mod memory;
mod pool;
mod prefix;
mod sequence;

use proptest::prelude::ProptestConfig;
use proptest::test_runner::FileFailurePersistence;

/// Runs `cases` cases and keeps the seeds of those that failed beside the test.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        // Operations that an operation before has made impossible are drawn again.
        max_local_rejects: 1 << 24,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}
