//! Fetching a wheel with pip as a child process. It downloads and does nothing else: no dependencies, no
//! source packages (whose build scripts would run), no installation.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use super::error::HubError;

const POLL: Duration = Duration::from_millis(50);
/// How much of what pip says is kept: its last words are what counts.
const STDERR_KEPT: usize = 16 * 1024;

/// How to run pip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pip {
    program: OsString,
    args: Vec<OsString>,
}

impl Pip {
    /// `PYTHON -m pip`, with the Python of `REDLINE_PYTHON` or `python3`.
    #[must_use]
    pub fn from_env() -> Self {
        let python = env::var_os("REDLINE_PYTHON").filter(|value| !value.is_empty());
        Self::command(python.unwrap_or_else(|| "python3".into()), ["-m", "pip"])
    }

    /// Another command that takes pip's arguments.
    #[must_use]
    pub fn command<A: Into<OsString>>(
        program: impl Into<OsString>,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        Self { program: program.into(), args: args.into_iter().map(Into::into).collect() }
    }

    /// Fetches the wheel of `requirement` into `dir`, which must exist and be empty. `tick` gets the bytes on
    /// disk so far and may return `false` to stop.
    pub(super) fn download(
        &self,
        requirement: &str,
        dir: &Path,
        tick: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<PathBuf>, HubError> {
        let mut running = self.spawn(requirement, dir)?;
        let status = loop {
            if !tick(dir_bytes(dir, 3)) {
                return Ok(None);
            }
            match running.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) => thread::sleep(POLL),
                Err(source) => {
                    return Err(HubError::Io {
                        action: "wait for pip in",
                        path: dir.into(),
                        source,
                    });
                }
            }
        };
        if status.success() {
            return the_wheel(requirement, dir).map(Some);
        }
        let said = running.last_words();
        Err(self.failure(requirement, dir, status, &said))
    }

    fn spawn(&self, requirement: &str, dir: &Path) -> Result<Running, HubError> {
        let mut child = Command::new(&self.program)
            .args(&self.args)
            .args(["download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"])
            .args(["--disable-pip-version-check", "--no-input", "--progress-bar=off", "--quiet"])
            .arg("--dest")
            .arg(dir)
            .arg(requirement)
            // pip downloads into its temporary directory first: on the disk whose space was checked, and
            // where the next pull cleans up.
            .env("TMPDIR", dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| HubError::NoPython { program: self.program_name(), source })?;
        let stderr = child.stderr.take().map(collect);
        Ok(Running { child, stderr })
    }

    fn failure(&self, requirement: &str, dir: &Path, status: ExitStatus, said: &str) -> HubError {
        let requirement = requirement.to_owned();
        let line = last_line(said).unwrap_or_else(|| format!("it said nothing; {status}"));
        let says = |needles: &[&str]| needles.iter().any(|needle| said.contains(needle));
        if says(&["No module named pip"]) {
            return HubError::NoPip { program: self.program_name() };
        }
        if says(&["No space left on device", "Disk quota exceeded"]) {
            return HubError::DiskFull { path: dir.to_path_buf(), needed: 0, free: None };
        }
        // Without a network pip ends with "No matching distribution" too; its warnings tell the difference.
        if says(&[
            "NewConnectionError",
            "ConnectTimeout",
            "ReadTimeout",
            "name resolution",
            "ProxyError",
            "SSLError",
        ]) || says(&[
            "Network is unreachable",
            "Connection refused",
            "Connection reset",
            "Connection broken",
        ]) {
            return HubError::Network { requirement, line };
        }
        if says(&["No matching distribution", "Could not find a version"]) {
            return HubError::PackageNotFound { requirement, line };
        }
        HubError::PipFailed { requirement, line }
    }

    fn program_name(&self) -> String {
        self.program.to_string_lossy().into_owned()
    }
}

/// A pip under way; killed if it is given up.
struct Running {
    child: Child,
    stderr: Option<Receiver<String>>,
}

impl Running {
    /// What pip said last. A grandchild that keeps the pipe open must not keep us: hence the time limit.
    fn last_words(&mut self) -> String {
        let received = self.stderr.take().and_then(|r| r.recv_timeout(Duration::from_secs(2)).ok());
        received.unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if the child has ended, which is what is wanted.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Reads to the end on a thread of its own, so that pip can never block on a full pipe; keeps the tail.
fn collect(mut stderr: ChildStderr) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut kept = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            match stderr.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => kept.extend_from_slice(&buffer[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
            if kept.len() > 2 * STDERR_KEPT {
                kept.drain(..kept.len() - STDERR_KEPT);
            }
        }
        // Nobody listens any more if the pull was given up.
        drop(sender.send(String::from_utf8_lossy(&kept).into_owned()));
    });
    receiver
}

/// pip's last error line, else its last line, without control characters and not too long for one message.
fn last_line(said: &str) -> Option<String> {
    let lines = || said.lines().map(str::trim).filter(|line| !line.is_empty()).rev();
    let line = lines().find(|line| line.starts_with("ERROR")).or_else(|| lines().next())?;
    let line = line.trim_start_matches("ERROR:").trim();
    Some(line.chars().filter(|c| !c.is_control()).take(300).collect())
}

/// The one wheel pip left.
fn the_wheel(requirement: &str, dir: &Path) -> Result<PathBuf, HubError> {
    let listing = fs::read_dir(dir).map_err(|e| HubError::io("read", dir, e))?;
    let mut wheels: Vec<PathBuf> = listing
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "whl"))
        .collect();
    match (wheels.pop(), wheels.is_empty()) {
        (Some(wheel), true) => Ok(wheel),
        (wheel, _) => Err(HubError::BadWheel {
            requirement: requirement.to_owned(),
            reason: if wheel.is_some() { "more than one wheel came" } else { "no wheel came" }
                .to_owned(),
        }),
    }
}

/// Bytes of the files under `dir`; what cannot be read while pip moves things about counts as nothing.
fn dir_bytes(dir: &Path, depth: u32) -> u64 {
    let Ok(listing) = fs::read_dir(dir) else { return 0 };
    let mut bytes = 0;
    for entry in listing.flatten() {
        match entry.metadata() {
            Ok(meta) if meta.is_file() => bytes += meta.len(),
            Ok(meta) if meta.is_dir() && depth > 0 => bytes += dir_bytes(&entry.path(), depth - 1),
            _ => {}
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_line_is_quoted_without_control_characters() {
        let said = "WARNING: x\nERROR: No matching \u{1b}[31mdistribution\n[notice] new pip\n\n";
        assert_eq!(last_line(said).unwrap(), "No matching [31mdistribution");
        assert_eq!(last_line("a\nb\n \n").unwrap(), "b");
        assert_eq!(last_line(" \n"), None);
    }
}
