//! `redline audit`.

use std::process::Output;

use super::{Place, assert_error, assert_ok, run, stderr, stdout};

fn audit(place: &Place, args: &[&str]) -> Output {
    let mut command = place.redline(["audit", "--threads", "1", "-m"]);
    run(command.arg(place.model()).args(args))
}

/// Small enough for a test.
const SMALL: [&str; 10] =
    ["--samples", "6", "-n", "12", "--identity", "2", "--seed", "5", "-d", "none"];

#[test]
fn a_pass_is_told_in_words_as_json_and_as_a_page() {
    let place = Place::new();
    let output = audit(&place, &SMALL);
    assert_ok(&output);
    let words = stdout(&output);
    assert!(words.starts_with("PASS: without drafts, the output is what"), "{words}");
    assert!(words.contains("2 of 2 prompts") && words.contains("acceptance"), "{words}");
    assert!(stderr(&output).contains("reading every text again"), "{}", stderr(&output));

    let output =
        audit(&place, &[&SMALL[..], &["--json", "--report", "out", "--verify", "token"]].concat());
    assert_ok(&output);
    let json: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((&json["verdict"], &json["rule"]), (&"pass".into(), &"token".into()));
    assert_eq!(json["samples"], 6);
    let page = std::fs::read_to_string(place.path("out").join("index.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("PASS"));
    let numbers = std::fs::read(place.path("out").join("audit.json")).unwrap();
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&numbers).unwrap(), json);
}

#[test]
fn a_draft_model_and_prompts_of_ones_own() {
    let place = Place::new();
    let lines = br#"{"id":"one","prompt":"abcabcabcabc","category":"letters"}
{"id":2,"messages":[{"role":"user","content":"1 2 3"}]}"#;
    place.file("own.jsonl", lines);
    let model = place.model();
    let draft = model.to_str().unwrap();
    let args = ["-d", draft, "--verify", "block", "--prompts", "own.jsonl", "--json", "-k", "3"];
    let output = audit(&place, &[&SMALL[..8], &args].concat());
    assert_ok(&output);
    let json: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(
        (&json["categories"][0]["name"], &json["categories"][1]["name"]),
        (&"letters".into(), &"prompts".into())
    );
    // The model drafts for itself, so every draft is right.
    let first = &json["acceptance"]["by_position"][0];
    assert_eq!(first["tried"], first["accepted"]);
}

#[test]
fn what_can_not_be_used_is_one_line() {
    let place = Place::new();
    place.file("bad.jsonl", "{\"prompt\":\"x\"}\n{");
    place.file("long.jsonl", format!("{{\"id\":\"long\",\"prompt\":\"{}\"}}", "x".repeat(600)));
    place.file("file", "");
    for (args, words) in [
        (&["--temperature", "0"][..], &["--temperature 0"][..]),
        (&["--temperature", "-1"], &["temperature"]),
        (&["--samples", "0"], &["--samples"]),
        (&["--samples", "9999999"], &["--samples"]),
        (&["-n", "0"], &["--max-tokens"]),
        (&["--verify", "luck"], &["luck", "coupled, token"]),
        (&["-d", "nobody"], &["-d takes none, ngram"]),
        (&["--prompts", "missing.jsonl"], &["missing.jsonl"]),
        (&["--prompts", "bad.jsonl"], &["bad.jsonl, line 2"]),
        (&["--prompts", "long.jsonl"], &["prompt long", "tokens"]),
        (&["--report", "file/below"], &["--report file/below"]),
        (&["--max-model-len", "99999"], &["99999"]),
    ] {
        let output = audit(&place, args);
        let text = stderr(&output);
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with("audit: ")).collect();
        let told = Output { stderr: lines.join("\n").into_bytes(), ..output };
        assert_error(&told, 2, words);
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_tells_what_there_is() {
    use std::io::{BufRead, BufReader};
    let place = Place::new();
    let args = ["audit", "--threads", "1", "--samples", "1000000", "--identity", "0", "-m"];
    let mut command = place.redline(args);
    let piped = std::process::Stdio::piped;
    command.arg(place.model()).stdout(piped()).stderr(piped());
    let mut child = command.spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("sampling") {
        line.clear();
        assert!(errors.read_line(&mut line).unwrap() > 0, "it ended by itself");
    }
    super::signals::interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(stdout(&output).starts_with("INTERRUPTED: "), "{}", stdout(&output));
}
