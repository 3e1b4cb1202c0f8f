//! The prompts and reference files of `tests/data`.

use std::path::Path;

use anyhow::{Context, bail};
use redline::text::{ChatOptions, Encode, Message};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::loaded::Loaded;

/// A prompt, tokenized for one model.
pub(crate) struct Prompt {
    pub(crate) id: String,
    pub(crate) category: String,
    pub(crate) tokens: Vec<u32>,
}

#[derive(Deserialize)]
struct Line {
    id: Value,
    category: String,
    turns: Vec<String>,
}

/// The objects of a file of `tests/data`, one a line.
pub(crate) fn read_lines<T: DeserializeOwned>(name: &str) -> anyhow::Result<Vec<T>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(name);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let parse = |(number, line)| {
        serde_json::from_str(line).with_context(|| format!("{}, line {number}", path.display()))
    };
    (1..).zip(text.lines()).map(parse).collect()
}

/// An id as text: the files have numbers and strings.
pub(crate) fn id_text(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}

const HUMANEVAL: &str = "humaneval.jsonl";
const SPEC_BENCH: &str = "spec_bench.jsonl";

/// The first `code` prompts of HumanEval, then the `chat` shortest of Spec-Bench.
pub(crate) fn code_and_chat(
    model: &Loaded,
    code: usize,
    chat: usize,
) -> anyhow::Result<Vec<Prompt>> {
    let mut chosen: Vec<Line> = read_lines(HUMANEVAL)?;
    chosen.truncate(code);
    chosen.extend(shortest_first(read_lines(SPEC_BENCH)?).into_iter().take(chat));
    chosen.into_iter().map(|line| tokenize(model, line)).collect()
}

/// `count` prompts that go round the categories, code first, the shortest of each category first.
pub(crate) fn by_category(model: &Loaded, count: usize) -> anyhow::Result<Vec<Prompt>> {
    let all = shortest_first(read_lines(HUMANEVAL)?)
        .into_iter()
        .chain(shortest_first(read_lines(SPEC_BENCH)?));
    let mut categories: Vec<(String, Vec<Line>)> = Vec::new();
    for line in all {
        match categories.iter_mut().find(|(name, _)| *name == line.category) {
            Some((_, lines)) => lines.push(line),
            None => categories.push((line.category.clone(), vec![line])),
        }
    }
    // Names in order, but code first: it is what the models were made for.
    categories.sort_by(|(a, _), (b, _)| (a != "code", a).cmp(&(b != "code", b)));
    let mut queues: Vec<_> = categories.into_iter().map(|(_, lines)| lines.into_iter()).collect();
    let mut chosen = Vec::new();
    while chosen.len() < count {
        let before = chosen.len();
        chosen.extend(queues.iter_mut().filter_map(Iterator::next));
        if chosen.len() == before {
            bail!("there are only {before} prompts");
        }
    }
    chosen.truncate(count);
    chosen.into_iter().map(|line| tokenize(model, line)).collect()
}

fn shortest_first(mut lines: Vec<Line>) -> Vec<Line> {
    lines.sort_by_key(|line| line.turns.first().map_or(0, String::len));
    lines
}

/// The first turn through the chat template; code is continued as it stands.
fn tokenize(model: &Loaded, line: Line) -> anyhow::Result<Prompt> {
    let id = id_text(&line.id);
    let turn =
        line.turns.into_iter().next().with_context(|| format!("prompt {id} has no turns"))?;
    let text = match &model.template {
        Some(template) if line.category != "code" => {
            template.render(&[Message::user(turn)], &ChatOptions::generation())?
        }
        _ => turn,
    };
    let tokens = model.tokenizer.encode(&text, Encode::default())?;
    Ok(Prompt { id, category: line.category, tokens })
}
