//! Adds up the time spent inside the engine's tracing spans.
//!
//! The stages of a step are `debug` spans, by name. The parts of a pass are `trace` spans with a field `part`, by its
//! value; they are many and short, so that they are looked at only when asked for ([`SpanTimes::detailed`]).

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::subscriber::{Interest, SetGlobalDefaultError};
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// Time inside a span, and how often it was entered.
#[derive(Debug, Clone, Copy, Default)]
pub struct Busy {
    /// The time.
    pub time: Duration,
    /// How often.
    pub count: u64,
}

/// Busy time by name of span, or of part. Clones share their sums.
#[derive(Debug, Clone, Default)]
pub struct SpanTimes(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    detailed: AtomicBool,
    sums: Mutex<BTreeMap<String, Busy>>,
}

/// When a span was last entered.
struct Entered(Instant);

/// What a span is of a pass.
#[derive(Default)]
struct Part(String);

impl Visit for Part {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "part" {
            value.clone_into(&mut self.0);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

impl SpanTimes {
    /// Sums from now on, for this whole process.
    ///
    /// # Errors
    /// If something else collects spans already.
    pub fn install() -> Result<Self, SetGlobalDefaultError> {
        let times = Self::default();
        let subscriber = tracing_subscriber::registry().with(times.clone());
        tracing::subscriber::set_global_default(subscriber)?;
        Ok(times)
    }

    /// Whether the parts of a pass are summed, too.
    pub fn detailed(&self, on: bool) {
        self.0.detailed.store(on, Ordering::Relaxed);
    }

    /// Starts again from nothing.
    pub fn reset(&self) {
        self.lock().clear();
    }

    /// The sums so far.
    pub fn sums(&self) -> BTreeMap<String, Busy> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Busy>> {
        self.0.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanTimes {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        match *metadata.level() {
            _ if !metadata.is_span() => Interest::never(),
            Level::TRACE => Interest::sometimes(),
            _ => Interest::always(),
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _context: Context<'_, S>) -> bool {
        let detailed = || self.0.detailed.load(Ordering::Relaxed);
        metadata.is_span() && (*metadata.level() <= Level::DEBUG || detailed())
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut part = Part::default();
        attributes.record(&mut part);
        if let Some(span) = context.span(id).filter(|_| !part.0.is_empty()) {
            span.extensions_mut().insert(part);
        }
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
        let extensions = span.extensions();
        let name = extensions.get::<Part>().map_or(span.name(), |part| part.0.as_str());
        let mut sums = self.lock();
        if !sums.contains_key(name) {
            sums.insert(name.to_owned(), Busy::default());
        }
        if let Some(busy) = sums.get_mut(name) {
            busy.time += now - since;
            busy.count += 1;
        }
    }
}
