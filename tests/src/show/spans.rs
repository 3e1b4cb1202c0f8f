//! Adds up the time spent inside the engine's tracing spans.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::span::Id;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// Time inside a span, and how often it was entered.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Busy {
    pub(crate) time: Duration,
    pub(crate) count: u64,
}

/// Busy time by name of span. Clones share their sums.
#[derive(Debug, Clone, Default)]
pub(crate) struct SpanTimes(Arc<Mutex<BTreeMap<&'static str, Busy>>>);

/// When a span was last entered.
struct Entered(Instant);

impl SpanTimes {
    /// Sums from now on, for this whole process.
    ///
    /// # Errors
    /// If something else collects spans already.
    pub(crate) fn install() -> anyhow::Result<Self> {
        let times = Self::default();
        let subscriber = tracing_subscriber::registry().with(times.clone());
        tracing::subscriber::set_global_default(subscriber)?;
        Ok(times)
    }

    /// Starts again from nothing.
    pub(crate) fn reset(&self) {
        self.lock().clear();
    }

    /// The sums so far.
    pub(crate) fn sums(&self) -> BTreeMap<&'static str, Busy> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Busy>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanTimes {
    fn enabled(&self, metadata: &Metadata<'_>, _context: Context<'_, S>) -> bool {
        // The spans inside a pass are finer than this, and would cost what they measure.
        metadata.is_span() && *metadata.level() <= Level::DEBUG
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            span.extensions_mut().replace(Entered(Instant::now()));
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let now = Instant::now();
        let Some(span) = context.span(id) else { return };
        let Some(Entered(since)) = span.extensions_mut().remove::<Entered>() else { return };
        let mut sums = self.lock();
        let busy = sums.entry(span.name()).or_default();
        busy.time += now - since;
        busy.count += 1;
    }
}
