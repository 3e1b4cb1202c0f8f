//! Planted bugs, each of which loom must catch: the scenes bite. What is planted is in `tests/build.rs`.
//!
//! Each is walked in a process of its own: what fails in the middle of a walk leaves handles behind whose drop may abort.

use std::process::Command;

use crate::under_loom::walk;

#[allow(clippy::all, unused_imports, reason = "copies, changed line by line")]
mod bugs {
    include!(concat!(env!("OUT_DIR"), "/planted.rs"));
}

/// Set in the process that is to fail.
const INSIDE: &str = "REDLINE_PLANTED_BUG";

/// The walk of `scene` by the test `name` fails, and says `how`.
fn assert_caught(name: &str, scene: fn(), how: &str) {
    if std::env::var_os(INSIDE).is_some() {
        return walk(scene);
    }
    let inside = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", &format!("planted::{name}")])
        .envs([(INSIDE, "1"), ("RUST_BACKTRACE", "0")])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&inside.stderr);
    assert!(!inside.status.success(), "{name} was not caught");
    assert!(said.contains(how), "{name} was caught otherwise: {said}");
}

macro_rules! caught {
    ($($bug:ident in $scene:ident: $how:literal;)*) => {$(
        #[test]
        fn $bug() {
            assert_caught(stringify!($bug), bugs::$bug::scenes::$scene, $how);
        }
    )*};
}

caught! {
    in_flight_after_its_end_was_told in cancel_and_finish: "in flight after its end was read";
    answered_before_it_is_in_flight in cancel_at_once: "Ok(true)";
    a_refusal_is_not_told in refuse: "NoAnswer::Refused";
    a_shut_down_is_lost_where_commands_are_full in shut_down_twice: "exceeded maximum number";
    a_reader_that_is_gone_is_not_noticed in drop_a_stream_while_commands_are_full: "exceeded maximum number";
    no_place_is_kept_for_the_end in read_late: "cut short";
    over_at_its_first_end in read_late: "cut short";
    only_the_first_to_shut_down_waits in shut_down_twice: "it has not waited";
    in_flight_for_ever_if_the_engine_dies in die: "in flight in a dead engine";
    streams_are_cut_at_shut_down in shut_down_twice: "Cancelled";
    a_drain_cuts_short in submit_and_drain: "Cancelled";
    a_pause_outlives_its_handles in leave_a_stream_in_a_pause: "deadlock";
    a_drain_waits_for_a_pause in pause_and_drain: "deadlock";
    commands_stay_behind_the_shut_down in submit_and_shut_down: "deadlock";
    commands_arrive_behind_a_closed_door in submit_and_shut_down: "deadlock";
    the_door_is_closed_too_late in submit_and_shut_down: "deadlock";
}
