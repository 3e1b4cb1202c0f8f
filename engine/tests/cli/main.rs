//! The command as people meet it: what it prints, where, and with which exit code. Every error is one line on standard
//! error; nothing panics.

#![allow(clippy::expect_used, reason = "helpers of tests")]

mod audit;
mod drafts;
mod errors;
mod output;
#[cfg(unix)]
mod signals;
mod tiny;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder with a tiny model in it, and an empty cache.
pub(crate) struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self { dir: tempfile::tempdir().expect("a temporary folder") };
        tiny::File::default().write(&place.model());
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn model(&self) -> PathBuf {
        self.path("tiny.gguf")
    }

    /// A file of this folder.
    pub(crate) fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("the test's folder is writable");
        path
    }

    /// `redline` with an empty cache and nothing on standard input.
    pub(crate) fn redline<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_redline"));
        command
            .args(args)
            .env("REDLINE_HOME", self.path("home"))
            .env("RUST_BACKTRACE", "1")
            .env_remove("REDLINE_LOG")
            .env_remove("NO_COLOR")
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        command
    }

    /// `redline generate -m MODEL --threads 1 ARGS…` with the tiny model.
    pub(crate) fn generate(&self, args: &[&str]) -> Output {
        self.generate_with(&self.model(), args)
    }

    pub(crate) fn generate_with(&self, model: &Path, args: &[&str]) -> Output {
        let mut command = self.redline(["generate", "--threads", "1", "-m"]);
        run(command.arg(model).args(args))
    }
}

pub(crate) fn run(command: &mut Command) -> Output {
    command.output().expect("the binary runs")
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("standard output is UTF-8")
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("standard error is UTF-8")
}

/// That a run failed with `code` and one line that has all of `words`.
#[track_caller]
pub(crate) fn assert_error(output: &Output, code: i32, words: &[&str]) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert_eq!(text.lines().count(), 1, "one line: {text:?}");
    assert!(text.starts_with("redline: "), "{text:?}");
    for panicky in ["panicked", "backtrace", "stack"] {
        assert!(!text.contains(panicky), "{text:?}");
    }
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text:?}");
    }
}

#[track_caller]
pub(crate) fn assert_ok(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
}
