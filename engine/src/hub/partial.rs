//! The file of a pull under way, and the journal that makes it resumable.
//!
//! Parts are appended to `partial.gguf`. After each one the bytes are made durable and a line is added to
//! `journal`: the part's number, where it ends, and the SHA-256 of everything up to there. Resuming hashes the
//! file again, keeps what the journal vouches for and cuts off the rest, so a crash at any byte costs at most
//! the part it fell into.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::alias::Known;
use super::cache;
use super::error::HubError;
use super::journal::{self, Record};

/// An unfinished model file. Bytes written go to the file and into its running checksum.
pub(super) struct Partial {
    dir: PathBuf,
    path: PathBuf,
    file: File,
    journal: File,
    hasher: Sha256,
    len: u64,
    /// How far the whole parts reach.
    whole: u64,
    parts: u32,
}

impl Partial {
    /// Opens the partial file in `dir`, keeping the parts that are whole.
    pub(super) fn open(dir: &Path, known: &Known) -> Result<Self, HubError> {
        cache::create_dir(dir)?;
        remove_stale(dir)?;
        let path = dir.join("partial.gguf");
        let journal_path = dir.join("journal");
        let mut file = open_rw(&path)?;
        let mut records_file = open_rw(&journal_path)?;
        let records = journal::read(&mut records_file, known);
        let (hasher, kept) =
            replay(&mut file, &records).map_err(|e| HubError::io("read", &path, e))?;
        let len = kept.last().map_or(0, |record| record.end);
        let cut = |file: &mut File| -> io::Result<()> {
            file.set_len(len)?;
            file.seek(SeekFrom::Start(len)).map(drop)
        };
        cut(&mut file).map_err(|e| HubError::io("truncate", &path, e))?;
        journal::rewrite(&mut records_file, known, kept)
            .map_err(|e| HubError::io("write", &journal_path, e))?;
        let parts = kept.last().map_or(0, |record| record.part);
        Ok(Self {
            dir: dir.to_path_buf(),
            path,
            file,
            journal: records_file,
            hasher,
            len,
            whole: len,
            parts,
        })
    }

    /// Bytes so far.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of the whole parts so far.
    pub(super) fn whole(&self) -> u64 {
        self.whole
    }

    /// Whole parts so far.
    pub(super) fn parts(&self) -> u32 {
        self.parts
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Declares everything written so far to be whole parts.
    pub(super) fn finish_part(&mut self) -> Result<(), HubError> {
        let record = Record { part: self.parts + 1, end: self.len, sha256: hex(&self.hasher) };
        // The journal must not vouch for bytes that a power cut can still take away.
        self.file.sync_data().map_err(|e| HubError::io("write", &self.path, e))?;
        let journal = &mut self.journal;
        writeln!(journal, "{}", record.line())
            .and_then(|()| journal.sync_data())
            .map_err(|e| HubError::io("write", &self.dir.join("journal"), e))?;
        self.parts += 1;
        self.whole = self.len;
        Ok(())
    }

    /// Gives back the space of a part that will not become whole.
    pub(super) fn abandon(self) {
        // The next pull would cut it off as well.
        drop(self.file.set_len(self.whole));
    }

    /// Checks the whole file and moves it to `target`. A file that fails the check is removed.
    pub(super) fn seal(self, known: &Known, target: &Path) -> Result<(), HubError> {
        let found = hex(&self.hasher);
        if self.len != known.bytes || found != known.sha256 {
            drop((self.file, self.journal));
            fs::remove_dir_all(&self.dir).map_err(|e| HubError::io("remove", &self.dir, e))?;
            let name = known.name.to_owned();
            return Err(if self.len == known.bytes {
                HubError::Checksum { name, expected: known.sha256.to_owned(), found }
            } else {
                HubError::SizeMismatch { name, expected: known.bytes, found: self.len }
            });
        }
        self.file.sync_all().map_err(|e| HubError::io("write", &self.path, e))?;
        fs::rename(&self.path, target).map_err(|e| HubError::io("rename to", target, e))?;
        if let Some(parent) = target.parent() {
            sync_dir(parent).map_err(|e| HubError::io("write", parent, e))?;
        }
        // The model is in place; a leftover journal is no reason to fail, the next pull would clear it.
        drop(fs::remove_dir_all(&self.dir));
        Ok(())
    }
}

impl Write for Partial {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let n = self.file.write(buffer)?;
        self.hasher.update(&buffer[..n]);
        self.len += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Bytes an unfinished pull in `dir` has so far.
pub(super) fn bytes_on_disk(dir: &Path) -> u64 {
    fs::metadata(dir.join("partial.gguf")).map_or(0, |meta| meta.len())
}

/// Hashes the file as far as the records hold true.
fn replay<'r>(file: &mut File, records: &'r [Record]) -> io::Result<(Sha256, &'r [Record])> {
    let mut hasher = Sha256::new();
    let mut at = 0;
    for (kept, record) in records.iter().enumerate() {
        let mut trial = hasher.clone();
        let read = io::copy(&mut file.take(record.end - at), &mut HashSink(&mut trial))?;
        if at + read != record.end || hex(&trial) != record.sha256 {
            return Ok((hasher, &records[..kept]));
        }
        hasher = trial;
        at = record.end;
    }
    Ok((hasher, records))
}

struct HashSink<'a>(&'a mut Sha256);

impl Write for HashSink<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.0.update(buffer);
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The digest so far, in lower-case hexadecimal.
pub(super) fn hex(hasher: &Sha256) -> String {
    use std::fmt::Write as _;
    hasher.clone().finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Temporary folders of pulls that were killed.
fn remove_stale(dir: &Path) -> Result<(), HubError> {
    let listing = fs::read_dir(dir).map_err(|e| HubError::io("read", dir, e))?;
    for entry in listing {
        let entry = entry.map_err(|e| HubError::io("read", dir, e))?;
        if entry.file_name().to_string_lossy().starts_with("tmp-") {
            fs::remove_dir_all(entry.path())
                .map_err(|e| HubError::io("remove", &entry.path(), e))?;
        }
    }
    Ok(())
}

fn open_rw(path: &Path) -> Result<File, HubError> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)
        .map_err(|e| HubError::io("open", path, e))
}

/// Makes a rename durable. Only Unix lets a directory be opened for that.
fn sync_dir(path: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: Known = Known {
        name: "m",
        about: "",
        package: "m-{n}",
        version: "1",
        member: "m{n}",
        parts: 3,
        bytes: 9,
        // SHA-256 of "abcdefghi".
        sha256: "19cc02f26df43cc571bc9ed7b0c4d29224a3ec229529221725ef76d021c8326f",
    };

    fn write(partial: &mut Partial, part: &str) {
        partial.write_all(part.as_bytes()).unwrap();
        partial.finish_part().unwrap();
    }

    #[test]
    fn finished_parts_survive_and_half_ones_do_not() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("m");
        let mut partial = Partial::open(&dir, &KNOWN).unwrap();
        write(&mut partial, "abc");
        write(&mut partial, "def");
        partial.write_all(b"gh").unwrap();
        assert_eq!((partial.len(), partial.whole()), (8, 6));
        partial.abandon();
        assert_eq!(bytes_on_disk(&dir), 6);
        // Killed rather than given up, the half part is still there.
        let mut partial = Partial::open(&dir, &KNOWN).unwrap();
        partial.write_all(b"gh").unwrap();
        drop(partial);
        assert_eq!(bytes_on_disk(&dir), 8);
        fs::create_dir(dir.join("tmp-1")).unwrap();
        let mut partial = Partial::open(&dir, &KNOWN).unwrap();
        assert_eq!((partial.len(), partial.parts()), (6, 2));
        assert!(!dir.join("tmp-1").exists());
        write(&mut partial, "ghi");
        let target = home.path().join("m.gguf");
        partial.seal(&KNOWN, &target).unwrap();
        assert_eq!(fs::read(target).unwrap(), b"abcdefghi");
        assert!(!dir.exists());
    }

    #[test]
    fn damage_is_cut_off_at_the_last_good_part() {
        let home = tempfile::tempdir().unwrap();
        let mut partial = Partial::open(home.path(), &KNOWN).unwrap();
        write(&mut partial, "abc");
        write(&mut partial, "def");
        drop(partial);
        fs::write(home.path().join("partial.gguf"), b"abcdXf").unwrap();
        let partial = Partial::open(home.path(), &KNOWN).unwrap();
        assert_eq!((partial.len(), partial.parts()), (3, 1));
        drop(partial);
        // Another file under the same alias, or a journal of rubbish: start over.
        let other = Known { version: "2", ..KNOWN };
        assert_eq!(Partial::open(home.path(), &other).unwrap().len(), 0);
        fs::write(home.path().join("journal"), [0xff, 0xfe, b'\n']).unwrap();
        assert_eq!(Partial::open(home.path(), &KNOWN).unwrap().parts(), 0);
    }

    #[test]
    fn wrong_contents_are_removed() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("m");
        let target = home.path().join("m.gguf");
        for (text, short) in [("abcdefghX", false), ("abc", true)] {
            let mut partial = Partial::open(&dir, &KNOWN).unwrap();
            write(&mut partial, text);
            let error = partial.seal(&KNOWN, &target).unwrap_err();
            assert_eq!(matches!(error, HubError::SizeMismatch { found: 3, .. }), short, "{error}");
            assert_eq!(matches!(error, HubError::Checksum { .. }), !short, "{error}");
            assert!(!dir.exists() && !target.exists());
        }
    }
}
