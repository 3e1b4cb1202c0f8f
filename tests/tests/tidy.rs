//! The house is in order: sizes, arrows between crates, where unsafe code may be, nothing left behind.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};

const CORE: [&str; 3] = ["kv-cache", "scheduler", "spec"];
/// Lines of a core crate's file.
const LINES_MAX: usize = 500;
/// What each core crate may depend on: arrows point down.
const ALLOWED: [(&str, &[&str]); 3] = [
    ("kv-cache", &["blake3", "hashbrown", "thiserror"]),
    ("scheduler", &["redline-kv-cache", "rustc-hash", "thiserror"]),
    ("spec", &["rustc-hash", "thiserror"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// The tracked files by their path from the root; without git, all that is not built.
fn files() -> Vec<String> {
    let git = std::process::Command::new("git").arg("ls-files").current_dir(root()).output();
    if let Some(output) = git.ok().filter(|output| output.status.success()) {
        let listed = String::from_utf8(output.stdout).unwrap();
        let files: Vec<_> = listed.lines().map(str::to_owned).collect();
        if files.iter().any(|file| file == "Cargo.toml") {
            return files.into_iter().filter(|file| root().join(file).is_file()).collect();
        }
    }
    let mut files = Vec::new();
    walk(&root(), &mut files);
    files
}

fn walk(folder: &Path, files: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && name != ".git" && name != ".venv" {
                walk(&path, files);
            }
        } else {
            let path = path.strip_prefix(root()).unwrap();
            files.push(path.to_string_lossy().replace('\\', "/"));
        }
    }
}

/// Path and text of every file of text, lock files aside.
fn texts() -> Vec<(String, String)> {
    let read = |path: String| {
        let text = fs::read_to_string(root().join(&path)).ok()?;
        (!path.ends_with("Cargo.lock")).then_some((path, text))
    };
    let texts: Vec<_> = files().into_iter().filter_map(read).collect();
    assert!(texts.len() > 100, "only {} files found", texts.len());
    texts
}

fn rust() -> impl Iterator<Item = (String, String)> {
    texts().into_iter().filter(|(path, _)| path.ends_with(".rs"))
}

/// Every line in which `wrong` sees something, as `path:line: what`.
fn offences(
    texts: impl Iterator<Item = (String, String)>,
    wrong: impl Fn(&str, &str) -> bool,
) -> String {
    let mut found = String::new();
    for (path, text) in texts {
        for (number, line) in text.lines().enumerate() {
            if wrong(&path, line) {
                found += &format!("\n{path}:{}: {}", number + 1, line.trim());
            }
        }
    }
    found
}

#[test]
fn core_files_are_short() {
    for (path, text) in rust().filter(|(path, _)| CORE.iter().any(|core| path.starts_with(core))) {
        let lines = text.lines().count();
        assert!(lines <= LINES_MAX, "{path} has {lines} lines, at most {LINES_MAX}");
    }
}

#[test]
fn nothing_is_left_to_do() {
    let marks = [concat!("to", "do!("), concat!("unimple", "mented!("), concat!("FIX", "ME")];
    let words = [concat!("TO", "DO"), concat!("XX", "X"), concat!("dbg", "!(")];
    let wrong = |_: &str, line: &str| marks.iter().chain(&words).any(|mark| line.contains(mark));
    assert_eq!(offences(rust(), wrong), "");
}

/// What counts or bounds allocations in a test can't do without.
const UNSAFE_TESTS: [&str; 2] = ["scheduler/tests/steady.rs", "fuzz/src/limit.rs"];

#[test]
fn unsafe_code_is_in_the_kernels_only() {
    let word = concat!("un", "safe");
    let wrong = |path: &str, line: &str| {
        let code = line.split("//").next().unwrap_or_default();
        let used = [" {", " fn ", " impl ", " extern ", " trait "];
        !path.starts_with("engine/src/kernels/")
            && !UNSAFE_TESTS.contains(&path)
            && used.iter().any(|after| code.contains(&format!("{word}{after}")))
    };
    assert_eq!(offences(rust(), wrong), "");
    for core in CORE {
        let text = fs::read_to_string(root().join(core).join("src/lib.rs")).unwrap();
        assert!(text.contains(&format!("#![forbid({word}_code)]")), "{core} does not forbid it");
    }
}

#[test]
fn dependencies_point_down() {
    for (core, allowed) in ALLOWED {
        let manifest = fs::read_to_string(root().join(core).join("Cargo.toml")).unwrap();
        let lines = manifest.lines().skip_while(|line| line.trim() != "[dependencies]").skip(1);
        let own = lines.take_while(|line| !line.trim_start().starts_with('['));
        for line in own.map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            assert!(allowed.contains(&name), "{core} depends on {name}");
        }
        assert!(!manifest.contains("[target."), "{core} has other dependencies");
        assert!(!manifest.contains("[build-dependencies]"), "{core} has a build script");
    }
}

/// Also nothing of the engine's world in the sources of the core crates.
#[test]
fn core_crates_know_no_clocks_threads_or_files() {
    let worldly = ["std::time", "std::thread", "std::fs", "std::net", "std::env", "std::process"];
    let core = rust().filter(|(path, _)| CORE.iter().any(|core| path.starts_with(core)));
    let production = core.filter(|(path, _)| !path.contains("test"));
    let wrong = |_: &str, line: &str| {
        !line.contains("panicking()") && worldly.iter().any(|word| line.contains(word))
    };
    assert_eq!(offences(production, wrong), "");
}

#[test]
fn no_machine_is_named() {
    let hosts = [
        concat!("crates", ".io"),
        concat!("pypi", ".org"),
        concat!("python", "hosted.org"),
        concat!("npm", "js.org"),
        concat!("proxy.golang", ".org"),
    ];
    let folders = [
        concat!("/ro", "ot/"),
        concat!("/wo", "rk/"),
        concat!("/ho", "me/"),
        concat!("/Us", "ers/"),
    ];
    let wrong = |_: &str, line: &str| hosts.iter().chain(&folders).any(|name| line.contains(name));
    assert_eq!(offences(texts().into_iter(), wrong), "");
}
