//! One pull of a model at a time, across processes.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::error::HubError;
use super::progress::{Event, Progress};

const POLL: Duration = Duration::from_millis(100);

/// Holds an advisory lock until dropped. The operating system lets go of it when the process dies, however it
/// dies, so a crash leaves nothing to clean up.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits for the lock; polls, so that waiting can be cancelled.
    pub(super) fn acquire(
        path: &Path,
        name: &str,
        progress: &mut dyn Progress,
    ) -> Result<Self, HubError> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .map_err(|error| HubError::io("open", path, error))?;
        let mut told = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _file: file }),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(HubError::io("lock", path, error)),
            }
            if progress.cancelled() {
                return Err(HubError::Cancelled { name: name.to_owned() });
            }
            if !told {
                told = true;
                progress.report(&Event::Waiting { name });
            }
            thread::sleep(POLL);
        }
    }
}
