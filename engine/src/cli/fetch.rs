//! Fetching models so that Ctrl-C ends it at once, and resumably.

use std::path::PathBuf;

use super::Failure;
use super::interrupt::Interrupt;
use crate::hub::{self, Event, HubError, Progress, TerminalProgress};
use crate::load_options::LoadOptions;
use crate::registry::Registry;

/// A progress bar that ends the pull when the user asks to stop.
struct Interruptible<'a> {
    bar: TerminalProgress,
    interrupt: &'a Interrupt,
}

impl Progress for Interruptible<'_> {
    fn report(&mut self, event: &Event<'_>) {
        self.bar.report(event);
    }

    fn cancelled(&self) -> bool {
        self.interrupt.requested()
    }
}

/// The file of a model, fetched if need be. What loads it later finds it in the cache.
pub(super) fn fetch(model: &str, interrupt: &Interrupt) -> Result<PathBuf, Failure> {
    let mut progress = Interruptible { bar: TerminalProgress::new(), interrupt };
    hub::resolve(model, &mut progress).map_err(|error| failure(error, interrupt))
}

/// The files of target and draft. What contradicts itself is refused before anything is fetched.
pub(super) fn fetch_models(
    options: &LoadOptions,
    registry: &Registry,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let draft = options.draft_model(registry).map_err(Failure::load)?;
    fetch(&options.model, interrupt)?;
    if let Some(draft) = draft {
        fetch(draft, interrupt)
            .map_err(|failure| failure.context("-d takes none, ngram or a draft model"))?;
    }
    Ok(())
}

/// A terminal sends Ctrl-C to pip as well, which then fails in its own words: the user's wish counts for more.
pub(super) fn failure(error: HubError, interrupt: &Interrupt) -> Failure {
    if interrupt.requested() {
        Failure::Interrupted(anyhow::anyhow!(
            "interrupted; what was fetched is kept, run again to go on"
        ))
    } else if error.is_usage() {
        Failure::usage(error)
    } else {
        Failure::runtime(error)
    }
}
