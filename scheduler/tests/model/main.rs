//! The scheduler against the rules it promises, stated naively: random calls, each checked by a
//! ledger that knows no blocks and no order of work, only what must and must not be. What fails is
//! cut down to the few calls it takes.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod choices;
mod commit_rules;
mod door;
mod ledger;
mod machine;
mod plan_rules;
mod system;

use proptest::prelude::ProptestConfig;
use proptest::test_runner::FileFailurePersistence;
use proptest_state_machine::prop_state_machine;
use system::Rules;

prop_state_machine! {
    #![proptest_config(ProptestConfig {
        cases: 1500,
        // Calls that a call before has made impossible are drawn again.
        max_local_rejects: 1 << 24,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_scheduler_keeps_its_rules(sequential 1..120 => Rules);
}
