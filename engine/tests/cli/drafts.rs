//! Drafts with fewer bits and fewer tokens: what comes out does not change, and what can't be is refused by name.

use redline::gguf::TensorType;
use redline::model::tiny::Tiny;

use super::tiny::File;
use super::{Place, assert_error, assert_ok, run, stderr, stdout};

/// A place whose model has bits to lose: 16 a weight, and rows that are whole blocks of 256.
fn place() -> Place {
    let place = Place::new();
    let file = File::default();
    let model = Tiny { dtype: TensorType::F16, width: 256, ffn: 256, heads: 16, ..file.model };
    File { model, ..file }.write(&place.model());
    place
}

/// Ways to make a draft smaller, for a model of 260 tokens.
const WAYS: [&[&str]; 8] = [
    &["-d", "self:q4_0"],
    &["-d", "self:q3_k"],
    &["-d", "self:q2_k", "--tree", "2x2"],
    &["-d", "self:q4_0", "--draft-head", "100"],
    &["-d", "tiny.gguf", "--draft-quant", "q3_k"],
    &["-d", "tiny.gguf", "--draft-head", "90", "--tree", "2x3"],
    &["-d", "tiny.gguf", "--draft-head", "ids.txt", "--draft-quant", "q4_0"],
    &["-d", "tiny.gguf", "--draft-head", "260"],
];

#[test]
fn smaller_drafts_do_not_change_what_comes_out() {
    let place = place();
    place.file("ids.txt", (0..200).rev().map(|id| format!("{id}\n")).collect::<String>());
    for law in [&[][..], &["--temperature", "1", "--seed", "7"]] {
        let text = ["--raw", "-n", "24", "--ignore-eos", "--json", "x"];
        let say = |args: &[&str]| {
            let output = place.generate(&[args, law, &text].concat());
            assert_ok(&output);
            let line: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
            (line["token_ids"].clone(), line["speculation"]["accepted"].as_u64().unwrap())
        };
        let (plain, _) = say(&["-d", "none"]);
        for way in WAYS {
            let (ids, accepted) = say(&[way, &["-k", "4"]].concat());
            assert_eq!(ids, plain, "{way:?} {law:?}");
            assert!(accepted > 0, "{way:?} {law:?}");
        }
    }
}

#[test]
fn candle_drafts_smaller_too() {
    let place = place();
    let say = |args: &[&str]| {
        let output =
            place.generate(&[args, &["--backend", "candle", "--raw", "-n", "8", "x"]].concat());
        assert_ok(&output);
        stdout(&output)
    };
    let plain = say(&["-d", "none"]);
    assert_eq!(say(&["-d", "self:q4_0", "--draft-head", "64"]), plain);
}

#[test]
fn the_audit_takes_them() {
    let place = place();
    let model = place.model();
    let audit = |args: &[&str]| {
        let mut command = place.redline(["audit", "--threads", "1", "-m"]);
        let few = ["--raw", "--samples", "24", "-n", "12", "--identity", "3", "--seed", "3"];
        run(command.arg(&model).args(args).args(few))
    };
    assert_ok(&audit(&["-d", "self:q3_k", "--draft-head", "80", "--verify", "token"]));
    let error = audit(&["-d", "ngram", "--draft-head", "80"]);
    assert_error(&error, 2, &["`ngram` is none", "--draft-head"]);
}

#[test]
fn what_cannot_be_smaller_is_refused() {
    let place = place();
    place.file("twice.txt", "1 2 3 2");
    place.file("large.txt", "[1, 2, 260]");
    place.file("empty.txt", "\n");
    place.file("words.txt", "the and of");
    for (args, words) in [
        (&["-d", "self:q9"][..], &["`self:q9`", "self:q4_0, self:q3_k or self:q2_k"][..]),
        (&["-d", "self:"], &["`self:`", "self:q4_0"]),
        (&["-d", "self:Q4_0"], &["`self:Q4_0`", "self:q4_0"]),
        (&["-d", "self:q4_0", "--draft-quant", "q3_k"], &["`self:q4_0`", "--draft-quant"]),
        (&["-d", "ngram", "--draft-quant", "q4_0"], &["`ngram` is none", "--draft-quant"]),
        (&["-d", "none", "--draft-head", "10"], &["`none` is none", "--draft-head"]),
        (&["--draft-quant", "q5_0"], &["--draft-quant", "`q5_0`", "q4_0, q3_k, q2_k"]),
        (&["-d", "tiny.gguf", "--draft-head", "0"], &["--draft-head", "nothing to draft"]),
        (&["-d", "tiny.gguf", "--draft-head", "261"], &["`tiny.gguf`", "261", "share 260"]),
        (&["-d", "tiny.gguf", "--draft-head", "none.txt"], &["--draft-head", "none.txt"]),
        (&["-d", "tiny.gguf", "--draft-head", "twice.txt"], &["token 2 twice"]),
        (&["-d", "tiny.gguf", "--draft-head", "large.txt"], &["token 260", "0 to 259"]),
        (&["-d", "tiny.gguf", "--draft-head", "empty.txt"], &["empty.txt", "no token ids"]),
        (&["-d", "tiny.gguf", "--draft-head", "words.txt"], &["words.txt", "`the`"]),
    ] {
        assert_error(&place.generate(&[args, &["--raw", "x"]].concat()), 2, words);
    }
    // Before anything is fetched or read.
    let output = place.generate_with(&place.path("nowhere.gguf"), &["-d", "self:q1", "x"]);
    assert_error(&output, 2, &["`self:q1`"]);
}

#[test]
fn a_list_may_name_what_only_the_draft_has() {
    let place = place();
    let other = File { last_token: "<|other|>", ..File::default() };
    other.write(&place.path("other.gguf"));
    place.file("ids.txt", "259 101 102 120");
    place.file("own.txt", "259");
    let say = |args: &[&str]| {
        let output = place.generate(&[args, &["--raw", "-n", "24", "x"]].concat());
        assert_ok(&output);
        (stdout(&output), stderr(&output))
    };
    let (plain, _) = say(&["-d", "none"]);
    let (text, note) = say(&["-d", "other.gguf", "--draft-head", "ids.txt", "-k", "4"]);
    assert_eq!(text, plain);
    assert!(note.contains("259 of its 260 tokens"), "{note}");
    // The end of a text is always kept, so something is left to draft.
    assert_eq!(say(&["-d", "other.gguf", "--draft-head", "own.txt", "-k", "4"]).0, plain);
}

#[test]
fn score_says_what_a_draft_loses() {
    let place = place();
    place.file("lines.jsonl", "{\"token_ids\":[1,2,3,4,5,6,7,8]}");
    let score = |quant: &[&str]| {
        let mut command = place.redline(["score", "lines.jsonl", "--json", "--threads", "1", "-m"]);
        let output = run(command.arg(place.model()).args(quant));
        assert_ok(&output);
        let line: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        let logprobs = line["logprob"].as_array().unwrap().clone();
        logprobs.iter().map(|logprob| logprob.as_f64().unwrap()).collect::<Vec<_>>()
    };
    let whole = score(&[]);
    let off = |quant: &str| {
        let slim = score(&["--draft-quant", quant]);
        let off = whole.iter().zip(&slim).map(|(a, b)| (a - b).abs());
        off.sum::<f64>() / whole.len() as f64
    };
    let [four, three, two] = ["q4_0", "q3_k", "q2_k"].map(off);
    assert!(0.0 < four && four < three && three < two, "{four} {three} {two}");
}
