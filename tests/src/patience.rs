//! Waiting for an engine on a thread of its own. Nothing takes long; what hangs fails.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use redline::{AsyncEngine, TokenId};

use crate::rig::Rig;
use crate::runners::{Table, Watched};
use crate::words::VOCAB;

/// What `future` gives, if it does not hang.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("it hangs")
}

/// Waits until nothing is under way.
pub async fn idle(engine: &AsyncEngine) {
    soon(async {
        while engine.in_flight() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// A target that counts on from the last token, slowly; the number of its passes; what lives as long as it.
pub fn slow(delay_us: u64) -> (Rig, Arc<AtomicUsize>, Arc<()>) {
    let alive = Arc::new(());
    let held = Arc::clone(&alive);
    let table = Table::new(VOCAB, 4096, move |seen, logits| {
        let _ = &held;
        let next = seen.last().map_or(0, |token| (token + 1) % (VOCAB as TokenId - 2));
        logits[next as usize] = 1.0;
    });
    let mut target = Watched::new(Box::new(table));
    target.delay = Duration::from_micros(delay_us);
    let passes = Arc::clone(&target.passes);
    (Rig { target: Box::new(target), ..Rig::default() }, passes, alive)
}
