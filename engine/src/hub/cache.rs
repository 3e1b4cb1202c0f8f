//! The cache directory: where it is, how it is laid out, what it holds.
//!
//! ```text
//! HOME/models/ALIAS.gguf         complete, verified
//! HOME/pulls/ALIAS/              a pull under way: partial file, its journal, pip's temporary folders
//! HOME/locks/ALIAS.lock          held while pulling; never deleted, or two processes could lock two files
//! ```

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::alias::Known;
use super::error::HubError;
use super::{Hub, partial};

/// `REDLINE_HOME`, else `redline` in `XDG_CACHE_HOME`, else in `~/.cache`.
///
/// # Errors
/// [`HubError::NoHome`].
pub fn cache_dir() -> Result<PathBuf, HubError> {
    let var = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    var("REDLINE_HOME")
        // The XDG specification says that a relative path is invalid and to be ignored.
        .or_else(|| var("XDG_CACHE_HOME").filter(|p| p.is_absolute()).map(|p| p.join("redline")))
        .or_else(|| var("HOME").map(|home| home.join(".cache").join("redline")))
        .ok_or(HubError::NoHome)
}

/// One line of [`Hub::list`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The alias, or the name of another file in the cache.
    pub name: String,
    /// What it is; empty for other files.
    pub about: String,
    /// Bytes of the whole file.
    pub bytes: u64,
    /// Bytes already fetched by a pull that has not ended.
    pub partial_bytes: u64,
    /// Where the file is, if it is complete.
    pub path: Option<PathBuf>,
}

impl Hub {
    /// The known aliases in order, then the other model files of the cache by name.
    ///
    /// # Errors
    /// [`HubError::Io`] if the cache exists and cannot be read.
    pub fn list(&self) -> Result<Vec<Entry>, HubError> {
        let mut entries: Vec<Entry> = self
            .known
            .iter()
            .map(|known| Entry {
                name: known.name.to_owned(),
                about: known.about.to_owned(),
                bytes: known.bytes,
                partial_bytes: partial::bytes_on_disk(&self.pull_dir(known)),
                path: Some(self.model_path(known)).filter(|path| is_complete(path, known)),
            })
            .collect();
        let mut others = self.other_files()?;
        others.sort_by(|a, b| a.name.cmp(&b.name));
        entries.append(&mut others);
        Ok(entries)
    }

    fn other_files(&self) -> Result<Vec<Entry>, HubError> {
        let dir = self.home.join("models");
        let listing = match fs::read_dir(&dir) {
            Ok(listing) => listing,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(HubError::io("read", &dir, error)),
        };
        let mut others = Vec::new();
        for file in listing {
            let path = file.map_err(|error| HubError::io("read", &dir, error))?.path();
            let known = self.known.iter().any(|known| self.model_path(known) == path);
            let model = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf"));
            let Ok(meta) = fs::metadata(&path) else { continue };
            if known || !model || !meta.is_file() {
                continue;
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            others.push(Entry {
                name,
                about: String::new(),
                bytes: meta.len(),
                partial_bytes: 0,
                path: Some(path),
            });
        }
        Ok(others)
    }

    /// Where the complete file of an alias is or will be.
    #[must_use]
    pub fn model_path(&self, known: &Known) -> PathBuf {
        self.home.join("models").join(format!("{}.gguf", known.name))
    }

    pub(super) fn pull_dir(&self, known: &Known) -> PathBuf {
        self.home.join("pulls").join(known.name)
    }

    pub(super) fn lock_path(&self, known: &Known) -> PathBuf {
        self.home.join("locks").join(format!("{}.lock", known.name))
    }
}

/// A file in `models/` was verified before it got there; only its size is looked at again, since hashing a
/// gigabyte at every start would cost seconds.
pub(super) fn is_complete(path: &Path, known: &Known) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() == known.bytes)
}

/// That a path names a file with something in it.
pub(super) fn check_model_file(path: &Path) -> Result<(), HubError> {
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(HubError::NoSuchFile { path: path.to_path_buf() });
        }
        Err(source) => {
            return Err(HubError::Io { action: "read", path: path.to_path_buf(), source });
        }
    };
    if meta.is_dir() {
        return Err(HubError::NotAFile { path: path.to_path_buf(), what: "a directory" });
    }
    if !meta.is_file() {
        return Err(HubError::NotAFile { path: path.to_path_buf(), what: "a device or pipe" });
    }
    if meta.len() == 0 {
        return Err(HubError::EmptyFile { path: path.to_path_buf() });
    }
    Ok(())
}

pub(super) fn create_dir(path: &Path) -> Result<(), HubError> {
    fs::create_dir_all(path).map_err(|error| HubError::io("create", path, error))
}
