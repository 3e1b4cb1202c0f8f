//! Ctrl-C: the first one asks for a clean end, the second one ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set once the user has asked to stop.
#[derive(Clone, Default)]
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Starts listening. Without a handler Ctrl-C simply ends the process, so a failure is only logged.
    pub(super) fn listen() -> Self {
        let interrupt = Self::default();
        let flag = Arc::clone(&interrupt.0);
        let installed = ctrlc::set_handler(move || {
            if flag.swap(true, Ordering::SeqCst) {
                end_now();
            }
        });
        if let Err(error) = installed {
            tracing::warn!(%error, "Ctrl-C will end the process at once");
        }
        interrupt
    }

    /// Whether the user has asked to stop.
    pub(super) fn requested(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

#[allow(clippy::exit, reason = "the second Ctrl-C means: now, whatever is under way")]
fn end_now() {
    std::process::exit(i32::from(super::INTERRUPTED));
}
