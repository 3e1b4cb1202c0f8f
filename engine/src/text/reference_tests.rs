//! Against other people's tokenizers and templates: the reference files of `tests/data`, with the real
//! models where they are on this machine (`REDLINE_TEST_MODELS`, or the cache).

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Value, json};

use super::*;
use crate::gguf::Header;
use crate::hub::Hub;

fn model(alias: &str) -> Option<Header> {
    let in_cache =
        || Hub::from_env().ok()?.list().ok()?.into_iter().find(|e| e.name == alias)?.path;
    let in_folder = std::env::var_os("REDLINE_TEST_MODELS")
        .map(|folder| PathBuf::from(folder).join(format!("{alias}.gguf")))
        .filter(|path| path.exists());
    let Some(path) = in_folder.or_else(in_cache) else {
        eprintln!("skipped: {alias} is not on this machine (redline pull {alias})");
        return None;
    };
    Some(Header::open(&path).unwrap().0)
}

/// The lines of a reference file that are about this model.
fn rows(file: &str, alias: &str) -> Vec<Value> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/reference");
    let text = fs::read_to_string(folder.join(file)).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.filter(|row| row["model"] == alias).collect()
}

fn tokenizer_matches(alias: &str, row_alias: &str, expected: usize) {
    let Some(header) = model(alias) else { return };
    let begun = Instant::now();
    let tokenizer = Tokenizer::from_gguf(&header).unwrap();
    println!("{alias}: tokenizer built in {:?}", begun.elapsed());
    let rows = rows("tokenizer.jsonl", row_alias);
    let mut wrong = Vec::new();
    for row in &rows {
        let text = row["text"].as_str().unwrap();
        let ids = tokenizer.encode(text, Encode { bos: false, ..Encode::default() }).unwrap();
        if json!(ids) != row["ids"] || tokenizer.decode(&ids, true) != text {
            wrong.push(format!("{text:?}: {ids:?}, expected {}", row["ids"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(rows.len() == expected, "{} rows", rows.len());
    println!("{alias}: {} tokenizer rows match and decode back", rows.len());
}

fn chat_matches(alias: &str, expected: usize) {
    let Some(header) = model(alias) else { return };
    let tokenizer = Tokenizer::from_gguf(&header).unwrap();
    let template = ChatTemplate::from_gguf(&header, &tokenizer).unwrap().unwrap();
    let rows = rows("chat.jsonl", alias);
    for row in &rows {
        let options = ChatOptions {
            add_generation_prompt: row["add_generation_prompt"] == true,
            tools: row.get("tools").cloned(),
            ..ChatOptions::default()
        };
        let prompt = template.render(row["messages"].as_array().unwrap(), &options).unwrap();
        assert_eq!(prompt, row["prompt"].as_str().unwrap());
    }
    assert!(rows.len() == expected, "{} rows", rows.len());
    println!("{alias}: {} chat rows match", rows.len());
}

#[test]
fn smollm2_tokenizes_as_the_reference() {
    tokenizer_matches("smollm2-135m", "smollm2-135m", 76);
}

#[test]
fn qwen_tokenizes_as_the_reference() {
    tokenizer_matches("qwen2.5-coder-1.5b", "qwen2.5-coder-1.5b", 76);
    tokenizer_matches("qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b", 76);
}

#[test]
fn templates_render_as_the_reference() {
    chat_matches("smollm2-135m", 20);
    chat_matches("qwen2.5-coder-1.5b", 21);
}

#[test]
fn the_qwen_pair_shares_a_tokenizer_and_smollm2_does_not() {
    let load = |alias| model(alias).map(|header| Tokenizer::from_gguf(&header).unwrap());
    let (Some(small), Some(large)) = (load("qwen2.5-coder-0.5b"), load("qwen2.5-coder-1.5b"))
    else {
        return;
    };
    let same = Compatibility { shared: 151_665, draft_tail: 0, target_tail: 0 };
    assert_eq!(compare(small.vocab(), large.vocab()), Ok(same));
    assert_eq!(large.vocab_size(), 151_936);
    assert_eq!(large.end_tokens(), [151_643, 151_645, 151_662, 151_663, 151_664]);
    if let Some(other) = load("smollm2-135m") {
        assert_eq!(compare(other.vocab(), large.vocab()).unwrap_err().id, 0);
    }
}
