//! Free space, asked before a pull begins: better refused at once than after a gigabyte.

use std::io;
use std::path::Path;

/// Bytes an ordinary user may still write under a path; `None` where the system does not say.
pub(super) type Probe = fn(&Path) -> io::Result<Option<u64>>;

#[cfg(unix)]
pub(super) fn free_bytes(path: &Path) -> io::Result<Option<u64>> {
    let stat = rustix::fs::statvfs(path)?;
    // Some network and overlay file systems report no blocks at all: that is no news, not a full disk.
    Ok((stat.f_blocks > 0).then(|| stat.f_bavail.saturating_mul(stat.f_frsize)))
}

#[cfg(not(unix))]
pub(super) fn free_bytes(_path: &Path) -> io::Result<Option<u64>> {
    Ok(None)
}
