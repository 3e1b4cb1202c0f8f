//! JSON from a model that has never seen any: random weights over a vocabulary of bytes. What ends by itself parses and
//! is valid.

use std::sync::Arc;

use redline::model::tiny::Tiny;
use redline::spec::Drafter;
use redline::text::{Kind, Parts, Tokenizer};
use redline::{
    DraftModel, FinishReason, GenerateRequest, Grammar, ModelRunner, RequestOutput, RunOptions,
    Sampling, WHITESPACE_MAX,
};
use redline_tests::rig::{run, said};
use serde_json::Value;

use crate::world::{Draft, engine, request};

const VOCAB: usize = 256 + 8;

/// The 256 bytes, pieces that JSON is often made of, two marks.
fn tokenizer() -> Arc<Tokenizer> {
    let byte = |byte: u8| {
        // The byte-level alphabet: printable characters stand for themselves, the others follow from 256 on.
        let plain = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
        let code = match plain(byte) {
            true => u32::from(byte),
            false => 256 + (0..byte).filter(|&b| !plain(b)).count() as u32,
        };
        char::from_u32(code).unwrap().to_string()
    };
    let mut tokens: Vec<String> = (0..=255).map(byte).collect();
    tokens.extend(["{\"", "\":", "\",\"", "\"}", "true", "ĊĠĠ"].map(str::to_owned));
    let mut kinds = vec![Kind::Normal; tokens.len()];
    tokens.extend(["<|im_start|>", "<|im_end|>"].map(str::to_owned));
    kinds.extend([Kind::Control; 2]);
    let eos = Some(tokens.len() as u32 - 1);
    let parts = Parts { tokens, kinds, pre: "gpt-2".to_owned(), eos, ..Parts::default() };
    Arc::new(Tokenizer::new(&parts).unwrap())
}

fn model(noise: f32) -> Box<dyn ModelRunner> {
    let tiny = Tiny {
        width: 32,
        heads: 2,
        kv_heads: 1,
        ffn: 64,
        vocab: VOCAB,
        context: 1024,
        seed: 3,
        noise,
        ..Tiny::default()
    };
    Box::new(tiny.build(RunOptions { threads: 1, ..RunOptions::default() }).unwrap())
}

fn draft() -> Option<Box<dyn Drafter>> {
    Some(Box::new(DraftModel::new("tiny", model(0.2), VOCAB)))
}

const PERSON: &str = r#"{"type":"object","properties":{"name":{"type":"string","maxLength":6},
    "age":{"type":"integer","minimum":0,"maximum":150},"tags":{"type":"array","maxItems":3,
    "items":{"enum":["red","blue"]}}},"required":["name","age"],"additionalProperties":false}"#;
const LIST: &str = r##"{"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"value":{"type":"boolean"},
    "next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["value","next"],"additionalProperties":false}}}"##;
const CHOICE: &str = r#"{"anyOf":[{"const":{"ok":true}},{"type":"array","minItems":1,"maxItems":2,
    "items":{"type":"number","minimum":-1,"maximum":1}}]}"#;

fn person(value: &Value) -> bool {
    let Some(fields) = value.as_object() else { return false };
    let known = fields.keys().all(|key| ["name", "age", "tags"].contains(&key.as_str()));
    let name = value["name"].as_str().is_some_and(|name| name.chars().count() <= 6);
    let age = value["age"].as_i64().is_some_and(|age| (0..=150).contains(&age));
    let tags = fields.get("tags").is_none_or(|tags| {
        let tags = tags.as_array().filter(|tags| tags.len() <= 3);
        tags.is_some_and(|tags| tags.iter().all(|tag| tag == "red" || tag == "blue"))
    });
    known && name && age && tags
}

fn list(value: &Value) -> bool {
    let fields = value.as_object().is_some_and(|fields| fields.len() == 2);
    fields && value["value"].is_boolean() && (value["next"].is_null() || list(&value["next"]))
}

fn choice(value: &Value) -> bool {
    let number = |item: &Value| item.as_f64().is_some_and(|x| (-1.0..=1.0).contains(&x));
    let items = value.as_array().filter(|items| (1..=2).contains(&items.len()));
    *value == serde_json::json!({"ok": true}) || items.is_some_and(|items| items.iter().all(number))
}

/// A schema, and whether a value is valid under it.
type Schema = (&'static str, fn(&Value) -> bool);
const SCHEMAS: [Schema; 3] = [(PERSON, person), (LIST, list), (CHOICE, choice)];

fn requests() -> Vec<GenerateRequest> {
    let one = |(i, schema): (usize, &str)| {
        let grammar = Grammar::json_schema(schema);
        let mut request = request(&grammar, &[b'J'.into(), b':'.into()], i as u64, 160);
        // Random weights like nothing in particular: white space and ends are made likelier, long numbers less so.
        request.sampling = Sampling {
            temperature: if i % 4 == 3 { 0.0 } else { 1.0 },
            logit_bias: vec![(b'"'.into(), 3.0), (b'}'.into(), 3.0), (b'n'.into(), 1.0)],
            ..Sampling::default()
        };
        request
    };
    SCHEMAS.map(|(schema, _)| schema).into_iter().cycle().take(60).enumerate().map(one).collect()
}

fn check(outputs: &[RequestOutput]) -> usize {
    let mut whole = 0;
    for (i, output) in outputs.iter().enumerate() {
        assert_eq!(output.error, None);
        if output.finish_reason == FinishReason::Stop {
            let value: Value = serde_json::from_str(&output.text)
                .unwrap_or_else(|error| panic!("{error}: {:?}", output.text));
            let (schema, valid) = SCHEMAS[i % 3];
            assert!(valid(&value), "{value} is not valid under {schema}");
            whole += 1;
        }
    }
    whole
}

#[test]
fn what_ends_is_valid_json() {
    let requests = requests();
    let plain =
        run(&mut engine(model(0.0), None, ("coupled", 0), (8, 256), Some(tokenizer())), &requests);
    let whole = check(&plain);
    assert!(whole > 30, "{whole} of 60 ended by themselves");
    for name in ["model", "ngram"] {
        let drafter = if name == "model" { draft() } else { Draft::Ngram.drafter() };
        let mut engine = engine(model(0.0), drafter, ("coupled", 4), (8, 48), Some(tokenizer()));
        let outputs = run(&mut engine, &requests);
        assert_eq!(said(&outputs), said(&plain), "{name}");
        let accepted: usize = outputs.iter().map(|output| output.speculation.accepted).sum();
        assert!(accepted > 200, "{name}: {accepted} drafts accepted");
    }
    for rule in ["token", "block", "traversal"] {
        let mut engine = engine(model(0.0), draft(), (rule, 3), (8, 256), Some(tokenizer()));
        assert!(check(&run(&mut engine, &requests)) > 30, "{rule}");
    }
}

/// A model that likes nothing but blanks comes to an end all the same.
#[test]
fn white_space_does_not_go_on_for_ever() {
    let mut engine = engine(model(0.0), None, ("coupled", 0), (1, 64), Some(tokenizer()));
    let grammar =
        Grammar::json_schema(r#"{"type":"array","items":{"const":1},"minItems":2,"maxItems":2}"#);
    let mut request = request(&grammar, &[b'J'.into()], 1, 500);
    request.sampling.logit_bias = vec![(b' '.into(), 90.0)];
    let output = run(&mut engine, &[request]).remove(0);
    assert_eq!(output.finish_reason, FinishReason::Stop, "{:?}", output.text);
    let blanks = output.text.chars().filter(|&c| c == ' ').count();
    // Around each bracket and behind the comma and the numbers.
    assert!((WHITESPACE_MAX..=6 * WHITESPACE_MAX).contains(&blanks), "{blanks}");
    assert_eq!(serde_json::from_str::<Value>(&output.text).unwrap(), serde_json::json!([1, 1]));
}
