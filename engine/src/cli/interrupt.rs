//! Ctrl-C, and the signal to terminate: the first one asks for a clean end, the second one ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Set once the user has asked to stop.
#[derive(Clone, Default)]
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Starts listening. Without a handler Ctrl-C simply ends the process, so a failure is only logged.
    pub(super) fn listen() -> Self {
        let interrupt = Self::default();
        let asked = &interrupt.0;
        for signal in [SIGINT, SIGTERM] {
            // In this order, so that the first one does not see itself.
            let code = i32::from(super::INTERRUPTED);
            let installed = flag::register_conditional_shutdown(signal, code, Arc::clone(asked))
                .and_then(|_| flag::register(signal, Arc::clone(asked)));
            if let Err(error) = installed {
                tracing::warn!(%error, "Ctrl-C will end the process at once");
            }
        }
        interrupt
    }

    /// Whether the user has asked to stop.
    pub(super) fn requested(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
