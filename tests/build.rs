//! Plants bugs in copies of the protocol of the async handle, for `tests/protocol/planted.rs` to see each of them caught.
//!
//! A copy is the production source with a few lines changed, compiled with the same scenes and channels. A bug whose lines
//! are no longer there fails the build: it has to be planted anew, or is history.

#![allow(clippy::panic, reason = "a bug that can't be planted must fail the build")]

use std::path::Path;
use std::{env, fs};

const PROTOCOL: &str = "../engine/src/protocol.rs";
const FAKE: &str = "tests/protocol/fake.rs";
const SCENES: &str = "tests/protocol/scenes.rs";

/// What is changed into what.
type Change = (&'static str, &'static str);

/// Names, and what is wrong.
const BUGS: [(&str, &[Change]); 16] = [
    (
        "in_flight_after_its_end_was_told",
        &[
            ("            self.board.in_flight.remove(&id);\n", ""),
            ("place.send(event);", "place.send(event); self.board.in_flight.remove(&id);"),
        ],
    ),
    (
        "answered_before_it_is_in_flight",
        &[
            ("                    self.board.in_flight.insert(id, ());\n", ""),
            (
                "if reply.send(Ok(id)).is_err() {",
                "let told = reply.send(Ok(id)); self.board.in_flight.insert(id, ()); if told.is_err() {",
            ),
        ],
    ),
    (
        "a_refusal_is_not_told",
        &[("let _ = reply.send(answer);", "if answer.is_ok() { let _ = reply.send(answer); }")],
    ),
    (
        "a_shut_down_is_lost_where_commands_are_full",
        &[("let _ = self.shared.commands.send(command);", "let _ = self.send(command);")],
    ),
    (
        "a_reader_that_is_gone_is_not_noticed",
        &[("gone.map(|(&id, _)| id).collect();", "{ drop(gone); Vec::new() };")],
    ),
    (
        "no_place_is_kept_for_the_end",
        &[
            ("events.clone().try_reserve_owned().ok()", "Some(events.clone())"),
            ("Vec<mpsc::OwnedPermit<E>>", "Vec<mpsc::Sender<E>>"),
            ("place.send(event);", "let _ = place.try_send(event);"),
        ],
    ),
    (
        "only_the_first_to_shut_down_waits",
        &[(
            "let _ = thread.take().map(JoinHandle::join);",
            "let taken = thread.take(); drop(thread); let _ = taken.map(JoinHandle::join);",
        )],
    ),
    ("in_flight_for_ever_if_the_engine_dies", &[("self.board.in_flight.clear();", "")]),
    (
        "streams_are_cut_at_shut_down",
        &[(
            "        for &id in self.readers.keys() {\n            self.serve.cancel(id);\n        }\n        self.step();\n",
            "",
        )],
    ),
    ("commands_stay_behind_the_shut_down", &[("while self.inbox.try_recv().is_ok() {}", "")]),
    (
        "commands_arrive_behind_a_closed_door",
        &[("if self.shared.board.closed.load(Ordering::SeqCst)", "if false")],
    ),
    (
        "the_door_is_closed_too_late",
        &[
            ("        self.board.closed.store(true, Ordering::SeqCst);\n", ""),
            (
                "while self.inbox.try_recv().is_ok() {}",
                "while self.inbox.try_recv().is_ok() {} self.board.closed.store(true, Ordering::SeqCst);",
            ),
        ],
    ),
    ("a_drain_cuts_short", &[("self.draining && self.readers.is_empty()", "self.draining")]),
    (
        "a_pause_outlives_its_handles",
        &[("let _ = self.commands.try_send(Command::Pause(false));", "")],
    ),
    (
        "a_drain_waits_for_a_pause",
        &[("self.serve.pause(paused && !self.draining)", "self.serve.pause(paused)")],
    ),
    ("over_at_its_first_end", &[("if reader.ends.is_empty() {", "{")]),
];

fn read(path: &str) -> String {
    println!("cargo::rerun-if-changed={path}");
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    // What is included can't have inner comments.
    text.lines().filter(|line| !line.starts_with("//!")).fold(String::new(), |mut text, line| {
        text += line;
        text.push('\n');
        text
    })
}

fn main() {
    let (protocol, fake, scenes) = (read(PROTOCOL), read(FAKE), read(SCENES));
    let mut out = String::new();
    for (name, changes) in BUGS {
        let mut planted = protocol.clone();
        for (from, to) in changes {
            assert_eq!(
                planted.matches(from).count(),
                1,
                "{name}: where is `{from}` in {PROTOCOL}?"
            );
            planted = planted.replace(from, to);
        }
        out += &format!(
            "pub(crate) mod {name} {{\n\
             use crate::under_loom::{{sync, tool}};\n\
             pub(crate) mod protocol {{\n{planted}\n}}\n\
             pub(crate) mod fake {{\n{fake}\n}}\n\
             pub(crate) mod scenes {{\n{scenes}\n}}\n\
             }}\n"
        );
    }
    let folder = env::var_os("OUT_DIR").unwrap_or_default();
    let written = fs::write(Path::new(&folder).join("planted.rs"), out);
    written.unwrap_or_else(|error| panic!("the planted bugs can't be written: {error}"));
}
