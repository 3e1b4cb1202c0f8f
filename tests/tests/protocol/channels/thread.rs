//! Threads. One that dies of [`Died`] dies alone, as it would outside a model.

use super::tool;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

pub(crate) use tool::thread::JoinHandle;

/// A death that belongs to the scene.
pub(crate) struct Died;

pub(crate) struct Builder(tool::thread::Builder);

impl Builder {
    pub(crate) fn new() -> Self {
        Self(tool::thread::Builder::new())
    }

    pub(crate) fn name(self, name: String) -> Self {
        Self(self.0.name(name))
    }

    pub(crate) fn spawn<F>(self, main: F) -> std::io::Result<JoinHandle<()>>
    where
        F: FnOnce() + Send + 'static,
    {
        self.0.spawn(move || match catch_unwind(AssertUnwindSafe(main)) {
            Err(death) if !death.is::<Died>() => resume_unwind(death),
            _ => {}
        })
    }
}
