//! What comes out when nothing is wrong.

use serde_json::Value;

use super::{Place, assert_ok, run, stderr, stdout};

fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON object a line")).collect()
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn json_has_the_promised_fields() {
    let place = Place::new();
    let output = place.generate(&["--raw", "--json", "--ignore-eos", "-n", "20", "abcabcabc"]);
    assert_ok(&output);
    assert!(stderr(&output).is_empty());
    let [object] = &objects(&stdout(&output))[..] else { panic!("one object") };
    let fields = [
        "id",
        "sample",
        "text",
        "token_ids",
        "finish_reason",
        "seed",
        "usage",
        "speculation",
        "timing",
    ];
    assert_eq!(keys(object), fields);
    let usage = ["prompt_tokens", "completion_tokens", "cached_tokens"];
    assert_eq!(keys(&object["usage"]), usage);
    let speculation =
        ["rounds", "drafted", "accepted", "mean_acceptance_length", "acceptance_histogram"];
    assert_eq!(keys(&object["speculation"]), speculation);
    assert_eq!(keys(&object["timing"]), ["queue_s", "ttft_s", "decode_s", "tokens_per_s"]);
    assert_eq!(object["usage"]["prompt_tokens"], 9);
    assert_eq!(object["usage"]["completion_tokens"], 20);
    assert_eq!(object["token_ids"].as_array().unwrap().len(), 20);
    assert_eq!(object["finish_reason"], "length");
    let histogram = object["speculation"]["acceptance_histogram"].as_array().unwrap();
    let rounds: u64 = histogram.iter().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(object["speculation"]["rounds"], rounds);
}

#[test]
fn logprobs_have_the_shape_of_the_openai_api() {
    let place = Place::new();
    let run = |args: &[&str]| {
        let common = ["--raw", "--json", "--ignore-eos", "-n", "6", "--seed", "3"];
        let output = place.generate(&[&common, args, &["abcabcabc"]].concat());
        assert_ok(&output);
        objects(&stdout(&output)).remove(0)
    };
    let object = run(&["--top-logprobs", "2", "--temperature", "1"]);
    assert_eq!(keys(&object["logprobs"]), ["content"]);
    let content = object["logprobs"]["content"].as_array().unwrap();
    let ids: Vec<_> = content.iter().map(|told| told["id"].clone()).collect();
    assert_eq!(&ids, object["token_ids"].as_array().unwrap());
    for told in content {
        assert_eq!(keys(told), ["token", "id", "logprob", "bytes", "top_logprobs"]);
        assert!(told["logprob"].as_f64().unwrap() < 0.0);
        // The vocabulary is the 256 bytes, then marks.
        let id = told["id"].as_u64().unwrap();
        assert!(id > 255 || told["bytes"] == serde_json::json!([id]));
        let top = told["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 2);
        assert_eq!(keys(&top[0]), ["token", "id", "logprob", "bytes"]);
    }
    assert_eq!(
        run(&["--logprobs"])["logprobs"]["content"][5]["top_logprobs"],
        serde_json::json!([])
    );
    let greedy = run(&["--logprobs", "--logprobs-mode", "processed"]);
    assert_eq!(greedy["logprobs"]["content"][0]["logprob"], 0.0);
}

#[test]
fn an_output_keeps_to_the_grammar() {
    let place = Place::new();
    place.file(
        "schema.json",
        r#"{"type":"array","items":{"enum":[1,2]},"minItems":3,"maxItems":3}"#,
    );
    place.file("pair.lark", "start: \"<\" WORD \">\"\nWORD: /[a-z]{2}/\n");
    let run = |args: &[&str]| {
        let output =
            place.generate(&[args, &["--raw", "--temperature", "1", "--seed", "3", "x"]].concat());
        assert_ok(&output);
        stdout(&output)
    };
    let array: Vec<u8> =
        serde_json::from_str(&run(&["--json-schema", "schema.json"])).expect("JSON");
    assert!(array.len() == 3 && array.iter().all(|item| [1, 2].contains(item)), "{array:?}");
    assert!(["yes\n", "no\n"].contains(&run(&["--regex", "yes|no"]).as_str()));
    let pair = run(&["--lark", "pair.lark"]);
    let word = pair.trim_end().strip_prefix('<').and_then(|rest| rest.strip_suffix('>'));
    assert!(word.is_some_and(|word| word.len() == 2), "{pair:?}");
}

#[test]
fn a_refused_request_has_the_same_fields_and_says_why() {
    let place = Place::new();
    place.file("prompts.jsonl", format!("{{\"prompt\":\"{}\"}}", "x".repeat(600)));
    let output = place.generate(&["--raw", "--json", "--prompts", "prompts.jsonl"]);
    let [object] = &objects(&stdout(&output))[..] else { panic!("one object") };
    for field in [
        "id",
        "sample",
        "text",
        "token_ids",
        "finish_reason",
        "error",
        "seed",
        "usage",
        "speculation",
        "timing",
    ] {
        assert!(keys(object).contains(&field), "{field}");
    }
    assert_eq!(object["finish_reason"], "error");
    assert_eq!(object["id"], 1);
}

#[test]
fn the_reported_seed_gives_the_same_tokens_whatever_the_drafts() {
    let place = Place::new();
    let args = ["--raw", "--json", "--temperature", "1", "-n", "30", "abcabcabc"];
    let first = objects(&stdout(&place.generate(&args))).remove(0);
    let seed = first["seed"].to_string();
    for draft in ["none", "ngram", "tiny.gguf"] {
        let more = ["--seed", &seed, "-d", draft, "-k", "4"];
        let again = objects(&stdout(&place.generate(&[&args[..], &more].concat()))).remove(0);
        assert_eq!(again["token_ids"], first["token_ids"], "-d {draft}");
        assert_eq!(again["seed"], first["seed"]);
    }
    let other = objects(&stdout(&place.generate(&args))).remove(0);
    assert_ne!(other["seed"], first["seed"]);
}

#[test]
fn samples_are_drawn_apart_and_the_first_is_what_a_single_one_would_be() {
    let place = Place::new();
    let args = ["--raw", "--json", "--temperature", "1", "--seed", "5", "-n", "30", "abcabcabc"];
    let single = objects(&stdout(&place.generate(&args))).remove(0);
    let output = place.generate(&[&args[..], &["--samples", "3"]].concat());
    assert_ok(&output);
    let mut samples = objects(&stdout(&output));
    samples.sort_by_key(|sample| sample["sample"].as_u64());
    assert_eq!(
        samples.iter().map(|s| s["sample"].to_string()).collect::<Vec<_>>(),
        ["0", "1", "2"]
    );
    assert_eq!(samples[0]["token_ids"], single["token_ids"]);
    assert_ne!(samples[1]["token_ids"], samples[0]["token_ids"]);
    assert_ne!(samples[1]["token_ids"], samples[2]["token_ids"]);
    assert_eq!(samples[1]["usage"]["cached_tokens"], 8, "all of the prompt but its last token");
    let args = ["--raw", "-n", "4", "--ignore-eos", "--samples", "2", "abc"];
    let blocks = stdout(&place.generate(&args));
    assert!(
        blocks.contains("── 0, sample 0 ──") && blocks.contains("── 0, sample 1 ──"),
        "{blocks}"
    );
}

/// More samples than the engine's queue holds: they are handed over a few at a time.
#[test]
fn many_samples_of_many_prompts_wait_for_their_turn() {
    let place = Place::new();
    let lines: String =
        (0..40).map(|id| format!("{{\"id\": {id}, \"prompt\": \"abc\"}}\n")).collect();
    let file = place.file("many.jsonl", lines);
    let args = [
        "--raw",
        "--json",
        "--ignore-eos",
        "-n",
        "1",
        "--samples",
        "128",
        "--concurrency",
        "20",
        "--prompts",
    ];
    let output = place.generate(&[&args[..], &[file.to_str().expect("UTF-8")]].concat());
    assert_ok(&output);
    assert_eq!(stdout(&output).lines().count(), 40 * 128);
}

#[test]
fn who_runs_out_of_time_says_so_and_fails() {
    let place = Place::new();
    let args = ["--raw", "--json", "--ignore-eos", "--timeout", "0.000000001", "-n", "400", "x"];
    let output = place.generate(&args);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(objects(&stdout(&output))[0]["finish_reason"], "timeout");
}

#[test]
fn prompts_of_all_shapes_come_back_under_their_ids() {
    let place = Place::new();
    let lines = "{\"id\":\"a\",\"prompt\":\"x\"}\n\n{\"id\":7,\"turns\":[\"y\",\"z\"],\"category\":\"c\"}\n\
                 {\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}\n";
    place.file("prompts.jsonl", lines);
    let args = ["--prompts", "prompts.jsonl", "-n", "4", "--ignore-eos", "--json"];
    let output = place.generate(&args);
    assert_ok(&output);
    let mut ids: Vec<String> =
        objects(&stdout(&output)).iter().map(|o| o["id"].to_string()).collect();
    ids.sort();
    assert_eq!(ids, ["\"a\"", "4", "7"]);
    let blocks = place.generate(&args[..5]);
    assert_ok(&blocks);
    assert!(stdout(&blocks).contains("── a ──"));
    let closing = stderr(&blocks);
    assert_eq!(closing.lines().count(), 1, "{closing}");
    assert!(closing.contains("12 tokens") && closing.contains("tokens/s"), "{closing}");
}

#[test]
fn drafts_are_coloured_on_request_and_text_is_the_same() {
    let place = Place::new();
    let args = ["--raw", "-d", "tiny.gguf", "-k", "4", "-n", "24", "--ignore-eos", "abc"];
    let plain = place.generate(&args);
    assert_ok(&plain);
    let coloured = place.generate(&[&args[..], &["--color", "always"]].concat());
    let text = stdout(&coloured);
    assert!(text.contains("\u{1b}[32m"), "a model that drafts for itself is always right");
    assert_eq!(text.replace("\u{1b}[32m", "").replace("\u{1b}[0m", ""), stdout(&plain));
    assert!(stderr(&plain).contains("acceptance rate 100 %"), "{}", stderr(&plain));
    assert!(stderr(&coloured).contains("green"), "{}", stderr(&coloured));
}

#[test]
fn score_lines_up_with_its_tokens() {
    let place = Place::new();
    place.file("score.jsonl", "{\"id\":\"a\",\"token_ids\":[1,2,3]}\n{\"prompt\":\"xy<|end|>\"}\n");
    let model = place.model();
    let output = run(place.redline(["score", "--json", "-m"]).arg(&model).arg("score.jsonl"));
    assert_ok(&output);
    let lines = objects(&stdout(&output));
    assert_eq!(keys(&lines[0]), ["id", "token_ids", "logprob", "argmax", "margin", "perplexity"]);
    assert_eq!(lines[0]["token_ids"], serde_json::json!([1, 2, 3]));
    // Entry i predicts token i + 1; after the last token nothing is known to follow.
    let len = |line: &Value, key: &str| line[key].as_array().unwrap().len();
    for line in &lines {
        assert_eq!([len(line, "argmax"), len(line, "margin"), len(line, "logprob")], [3, 3, 2]);
    }
    assert_eq!(lines[1]["token_ids"][2], 256, "special tokens are recognised");
    let table = run(place.redline(["score", "-m"]).arg(&model).arg("score.jsonl"));
    assert!(stdout(&table).lines().last().unwrap().contains("all\t4 predictions\tperplexity"));
}

#[test]
fn tokenize_gives_text_ids_and_pieces() {
    let place = Place::new();
    let model = place.model();
    let output = run(place.redline(["tokenize", "--json", "-m"]).arg(&model).arg("é<|user|>"));
    assert_ok(&output);
    let object = objects(&stdout(&output)).remove(0);
    assert_eq!(keys(&object), ["text", "ids", "pieces"]);
    assert_eq!(object["text"], "é<|user|>");
    assert_eq!(object["ids"], serde_json::json!([0xc3, 0xa9, 257]));
    assert_eq!(object["pieces"].as_array().unwrap().len(), 3);
}

#[test]
fn models_lists_what_is_known() {
    let place = Place::new();
    let output = run(&mut place.redline(["models", "--json"]));
    assert_ok(&output);
    let names: Vec<String> =
        objects(&stdout(&output)).iter().map(|o| o["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, ["smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"]);
}
