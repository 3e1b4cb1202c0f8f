//! Everything that can be wrong with a command, its files and its numbers.

use std::process::Stdio;

use super::tiny::File;
use super::{Place, assert_error, run, stderr, stdout};

#[test]
fn a_model_that_is_no_model() {
    let place = Place::new();
    let generate = |name: &str| place.generate_with(&place.path(name), &["--raw", "x"]);
    assert_error(&generate("none.gguf"), 2, &["no such model file", "none.gguf"]);
    assert_error(&generate(""), 2, &["a directory, not a model file"]);
    place.file("empty.gguf", b"");
    assert_error(&generate("empty.gguf"), 2, &["is empty"]);
    place.file("text.gguf", b"no model at all, just text");
    assert_error(&generate("text.gguf"), 2, &["text.gguf", "not a GGUF file"]);
    let zero = File { alignment: 0, ..File::default() };
    zero.write(&place.path("zero.gguf"));
    assert_error(&generate("zero.gguf"), 2, &["zero.gguf", "general.alignment"]);
}

#[test]
fn a_file_cut_short_anywhere() {
    let place = Place::new();
    let bytes = File::default().bytes();
    // In the magic number, the counts, the metadata, the tensors' entries and their data.
    for len in [3, 15, 40, 400, 8000, bytes.len() / 2, bytes.len() - 40] {
        let path = place.file("cut.gguf", &bytes[..len]);
        assert_error(&place.generate_with(&path, &["--raw", "x"]), 2, &["cut.gguf"]);
    }
}

#[test]
fn an_unknown_alias_names_the_known_ones() {
    let place = Place::new();
    let output = run(&mut place.redline(["generate", "-m", "smolm2-135m", "x"]));
    assert_error(&output, 2, &["unknown model `smolm2-135m`", "smollm2-135m"]);
    // Drafts are looked for before the target's weights are read.
    assert_error(
        &place.generate(&["-d", "ngramm", "x"]),
        2,
        &["none, ngram or a draft model", "`ngramm`"],
    );
    assert_error(&run(&mut place.redline(["pull", "nothing"])), 2, &["unknown model `nothing`"]);
}

#[test]
fn numbers_out_of_their_range() {
    let place = Place::new();
    for (args, words) in [
        (&["-n", "0"][..], &["--max-tokens"][..]),
        (&["-n", "some"], &["--max-tokens", "some"]),
        (&["--temperature", "-1"], &["temperature = -1"]),
        (&["--temperature", "NaN"], &["temperature = NaN"]),
        (&["--temperature", "inf"], &["temperature = inf"]),
        (&["--top-p", "0"], &["top_p = 0"]),
        (&["--top-p", "1.5"], &["top_p = 1.5"]),
        (&["--min-p", "-0.5"], &["min_p = -0.5"]),
        (&["--repetition-penalty", "0"], &["repetition_penalty = 0"]),
        (&["--presence-penalty", "-9"], &["presence_penalty = -9"]),
        (&["--frequency-penalty", "nan"], &["frequency_penalty = NaN"]),
        (&["-k", "65"], &["--draft-tokens", "0 to 64"]),
        (&["-k", "-1"], &["-1"]),
        (&["--threads", "0"], &["--threads"]),
        (&["--concurrency", "0"], &["--concurrency"]),
        (&["--seed", "x"], &["--seed"]),
        (&["--samples", "0"], &["--samples"]),
        (&["--timeout", "0"], &["--timeout", "`0` is no length of time"]),
        (&["--kv-memory", "lots"], &["--kv-memory", "512M"]),
        (&["--kv-memory", "0"], &["--kv-memory"]),
        (&["--verify", "magic"], &["`magic`", "coupled, token"]),
        (&["--json", "--top-logprobs", "21"], &["--top-logprobs", "0 to 20"]),
        (&["--json", "--top-logprobs", "-1"], &["-1"]),
        (&["--json", "--logprobs-mode", "log"], &["--logprobs-mode", "raw, processed"]),
        (&["--logprobs"], &["--json"]),
        (&["--top-logprobs", "3"], &["--json"]),
        (&["--no-such-flag"], &["--no-such-flag"]),
        (&["--stop", ""], &["stop"]),
    ] {
        assert_error(&place.generate(&[args, &["--raw", "x"]].concat()), 2, words);
    }
}

#[test]
fn grammars_that_are_none() {
    let place = Place::new();
    place.file("bad.json", "{\"type\": \"objet\"}");
    place.file("bad.lark", "start: foo\n");
    place.file("long.lark", "x".repeat(70_000));
    place.file("latin.lark", b"start: \"\xe9\"");
    for (args, words) in [
        (&["--regex", "a(b"][..], &["regular expression", "unclosed group", "byte 1"][..]),
        (&["--regex", "[a&&b]"], &["allows no output"]),
        (&["--json-schema", "bad.json"], &["JSON schema", "objet"]),
        (&["--json-schema", "none.json"], &["none.json"]),
        (&["--json-schema", "."], &["can't read ."]),
        (&["--lark", "bad.lark"], &["Lark grammar", "1(8)", "unknown name"]),
        (&["--lark", "long.lark"], &["long.lark", "65536 bytes"]),
        (&["--lark", "latin.lark"], &["latin.lark", "UTF-8"]),
        (&["--regex", "a", "--lark", "bad.lark"], &["--regex", "--lark"]),
        (&["--regex", "a", "--ignore-eos"], &["--regex", "--ignore-eos"]),
    ] {
        assert_error(&place.generate(&[args, &["--raw", "x"]].concat()), 2, words);
    }
}

#[test]
fn memory_and_lengths_that_do_not_fit() {
    let place = Place::new();
    let raw = |args: &[&str], prompt: &str| place.generate(&[args, &["--raw", prompt]].concat());
    // Two layers of two heads of sixteen halves, keys and values, times 32 tokens: 8,192 bytes.
    assert_error(&raw(&["--kv-memory", "100"], "x"), 2, &["100 bytes", "8192 bytes"]);
    let small = raw(&["--kv-memory", "8192", "-n", "100"], "x");
    assert_error(&small, 2, &["--kv-memory 32768", "there are 8192"]);
    assert_error(&raw(&["--max-model-len", "513"], "x"), 2, &["513", "context of 512"]);
    assert_error(&raw(&["--max-model-len", "0"], "x"), 2, &["max_model_len is 0"]);
    assert_error(&raw(&[], &"x".repeat(512)), 2, &["512 tokens, at most 511"]);
    assert_error(&raw(&["--max-model-len", "8"], "12345678"), 2, &["8 tokens, at most 7"]);
}

#[test]
fn prompts_that_are_none() {
    let place = Place::new();
    assert_error(&place.generate(&["--raw", ""]), 2, &["the prompt is empty"]);
    assert_error(&place.generate(&[""]), 2, &["the prompt is empty"]);
    // Nothing on standard input either.
    assert_error(&place.generate(&[]), 2, &["the prompt is empty"]);
    for (bytes, words) in [
        (&b""[..], &["holds no prompts"][..]),
        (b"{\"prompt\":\"x\"}\n{\"prompt\":\"\xff\"}", &["line 2", "not UTF-8"]),
        (b"{\"prompt\":\"x\"}\n{\"prompt\":", &["line 2"]),
        (b"[1]", &["line 1"]),
        (b"{\"id\":1}", &["line 1", "exactly one of"]),
        (b"{\"prompt\":\"\"}", &["line 1", "empty"]),
        (b"{\"prompt\":\"x\",\"turns\":[\"y\"]}", &["line 1", "exactly one of"]),
        (b"{\"turns\":[]}", &["line 1", "`turns` is empty"]),
        (b"{\"turns\":[\"\"]}", &["line 1", "empty"]),
        (b"{\"messages\":[]}", &["line 1", "`messages` is empty"]),
    ] {
        let file = place.file("prompts.jsonl", bytes);
        let output = place.generate(&["--prompts", &file.to_string_lossy()]);
        assert_error(&output, 2, &[words, &["prompts.jsonl"]].concat());
    }
    let none = place.generate(&["--prompts", "no-such.jsonl"]);
    assert_error(&none, 2, &["no-such.jsonl"]);
    assert_error(&place.generate(&["--prompts", "."]), 2, &["can't read ."]);
}

#[test]
fn a_request_of_a_file_fails_alone() {
    let place = Place::new();
    let long = "x".repeat(600);
    let lines = format!(
        "{{\"id\":\"long\",\"prompt\":\"{long}\"}}\n{{\"id\":\"good\",\"prompt\":\"x\"}}\n"
    );
    place.file("prompts.jsonl", lines);
    let output = place.generate(&["--raw", "--json", "-n", "3", "--prompts", "prompts.jsonl"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stdout(&output);
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.contains("at most 511"), "{text}");
    assert!(text.contains("\"finish_reason\":\"length\""), "{text}");
}

#[test]
fn a_draft_that_cuts_texts_by_another_rule_is_refused() {
    let place = Place::new();
    let other = File { last_token: "<|other|>", pre: "smollm", ..File::default() };
    other.write(&place.path("other.gguf"));
    let output = place.generate(&["-d", "other.gguf", "--raw", "x"]);
    assert_error(&output, 2, &["can't draft", "different rules", "`smollm`", "`gpt-2`"]);
}

#[test]
fn a_draft_with_other_tokens_drafts_those_that_both_have() {
    let place = Place::new();
    let other = File { last_token: "<|other|>", ..File::default() };
    other.write(&place.path("other.gguf"));
    let plain = place.generate(&["-d", "none", "--raw", "-n", "24", "x"]);
    let output =
        place.generate(&["-d", "other.gguf", "-k", "6", "--tree", "2x2", "--raw", "-n", "24", "x"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output), stdout(&plain));
    let note = stderr(&output);
    assert!(note.contains("259 of its 260 tokens") && note.contains("has 260"), "{note}");
}

#[test]
fn a_shape_that_cannot_be_is_refused() {
    let place = Place::new();
    for wrong in ["9x1", "2", "tree", "0x2"] {
        let output = place.generate(&["--tree", wrong, "--raw", "x"]);
        assert_error(&output, 2, &["--tree", wrong, "1 to 8", "1 to 32"]);
    }
    let ngram = place.generate(&["-d", "ngram", "--tree", "2x2", "--raw", "x"]);
    assert_error(&ngram, 2, &["`ngram`", "chains only", "`2x2`"]);
    let other = place.path("draft.gguf");
    File::default().write(&other);
    let block = place.generate(&["-d", "draft.gguf", "--verify", "block", "--tree", "auto", "x"]);
    assert_error(&block, 2, &["block", "draft.gguf", "trees"]);
}

#[test]
fn a_ban_names_one_token() {
    let place = Place::new();
    assert_error(&place.generate(&["--ban", "ab", "--raw", "x"]), 2, &["`ab` is 2 tokens"]);
    assert_error(&place.generate(&["--ban", "9999", "--raw", "x"]), 2, &["9999", "260 entries"]);
}

#[test]
fn score_and_tokenize_name_the_line() {
    let place = Place::new();
    let model = place.model();
    let command = |name: &str, file: &str, bytes: &[u8]| {
        place.file("lines.jsonl", bytes);
        run(place.redline([name, "-m"]).arg(&model).args([file, "lines.jsonl"]))
    };
    let score = |bytes: &[u8]| command("score", "--threads=1", bytes);
    assert_error(&score(b"\n"), 2, &["holds nothing to score"]);
    assert_error(&score(b"{\"id\":1}"), 2, &["line 1", "exactly one of"]);
    assert_error(&score(b"{\"token_ids\":[]}"), 2, &["no tokens"]);
    assert_error(&score(b"{\"token_ids\":[260]}"), 2, &["260"]);
    assert_error(&score(b"{\"token_ids\":[-1]}"), 2, &["line 1"]);
    assert_error(&command("tokenize", "--file", b"{\"texts\":\"x\"}"), 2, &["line 1", "text"]);
    assert_error(&run(&mut place.redline(["tokenize"])), 2, &["required", "TEXT"]);
}

#[test]
fn a_closed_pipe_is_a_run_time_error() {
    let place = Place::new();
    let lines: String =
        (0..2000).map(|i| format!("{{\"id\":{i},\"prompt\":\"x{i}\"}}\n")).collect();
    place.file("many.jsonl", lines);
    for format in [&["--json"][..], &[]] {
        let mut command = place.redline(["generate", "--threads", "1", "-m"]);
        command
            .arg(place.model())
            .args(["--raw", "-n", "8", "--prompts", "many.jsonl"])
            .args(format);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        assert_error(&child.wait_with_output().unwrap(), 1, &["standard output"]);
    }
    let mut help = place.redline(["--help"]);
    let mut child = help.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(stderr(&child.wait_with_output().unwrap()).is_empty());
}
