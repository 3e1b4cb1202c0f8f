//! Ctrl-C, and the signal to terminate: the first one asks for a clean end, the second one ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Exit code of a command that Ctrl-C ended.
pub const INTERRUPTED: u8 = 130;

/// Set once the user has asked to stop. Clones are set together.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Starts listening. The second signal ends the process with [`INTERRUPTED`]. Without a handler the first one does,
    /// so that a failure to install it is only logged.
    pub fn listen() -> Self {
        let interrupt = Self::default();
        let asked = &interrupt.0;
        for signal in [SIGINT, SIGTERM] {
            // In this order, so that the first one does not see itself.
            let code = i32::from(INTERRUPTED);
            let installed = flag::register_conditional_shutdown(signal, code, Arc::clone(asked))
                .and_then(|_| flag::register(signal, Arc::clone(asked)));
            if let Err(error) = installed {
                tracing::warn!(%error, "Ctrl-C will end the process at once");
            }
        }
        interrupt
    }

    /// Whether the user has asked to stop.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
