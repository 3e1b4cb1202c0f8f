//! Every schedule of the scenes with at most [`PREEMPTIONS`] preemptions, walked by loom. Switches where a thread waits
//! or yields are free.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) use loom as tool;

#[path = "fake.rs"]
pub(crate) mod fake;
#[path = "../../../engine/src/protocol.rs"]
pub(crate) mod protocol;
#[path = "scenes.rs"]
mod scenes;
#[path = "channels/mod.rs"]
pub(crate) mod sync;

/// Two are enough for every planted bug. `LOOM_MAX_PREEMPTIONS` asks for more.
const PREEMPTIONS: usize = 2;

/// Walks through `scene`.
pub(crate) fn walk(scene: fn()) {
    let mut builder = tool::model::Builder::new();
    builder.preemption_bound.get_or_insert(PREEMPTIONS);
    let schedules = Arc::new(AtomicUsize::new(0));
    let count = schedules.clone();
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        scene();
    });
    let schedules = schedules.load(Ordering::Relaxed);
    assert!(schedules > 100, "{schedules} schedules tell little");
}

macro_rules! walked {
    ($($scene:ident)*) => {$(
        #[test]
        fn $scene() {
            walk(scenes::$scene);
        }
    )*};
}

walked! {
    submit_and_shut_down
    submit_and_drain
    pause_and_drain
    pause_and_cancel
    cancel_and_finish
    cancel_at_once
    drop_a_stream_while_commands_are_full
    read_late
    shut_down_twice
    die
    refuse
    give_up_submitting
    leave_a_stream
    leave_a_stream_in_a_pause
}
