//! Reads files of prompts: one JSON object a line.
//!
//! A line is `{"id", "prompt"}`, `{"id", "turns": […]}` (the first turn is used) or `{"id", "messages"}`. The
//! whole file is read and checked before anything runs, so that a bad line near the end costs nothing.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::Value;

use crate::request::Prompt;
use crate::text::Message;

/// Most bytes of a prompts file.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// One line of a prompts file.
#[derive(Debug, Clone)]
pub struct PromptLine {
    /// What the line calls itself, or its number.
    pub id: Value,
    /// Its kind, if it says so.
    pub category: Option<String>,
    /// What to continue.
    pub prompt: Prompt,
}

#[derive(Deserialize)]
struct Line {
    id: Option<Value>,
    category: Option<String>,
    prompt: Option<String>,
    turns: Option<Vec<String>>,
    messages: Option<Vec<Message>>,
}

/// Reads and checks a prompts file; `raw` takes texts as they are instead of as a user's message.
///
/// # Errors
/// Names the file, and the line where one is at fault.
pub(super) fn read_prompts(path: &Path, raw: bool) -> anyhow::Result<Vec<PromptLine>> {
    parse_prompts(&path.display().to_string(), &read_bytes(path)?, raw)
}

/// Checks the contents of a prompts file that errors call `name`; `raw` takes texts as they are instead of as a user's
/// message.
///
/// # Errors
/// Names the line at fault.
pub fn parse_prompts(name: &str, bytes: &[u8], raw: bool) -> anyhow::Result<Vec<PromptLine>> {
    let lines = split_lines(name, bytes)?;
    let mut prompts = Vec::with_capacity(lines.len());
    for (number, line) in lines {
        let at = || format!("{name}, line {number}");
        let parsed: Line = serde_json::from_str(line).with_context(at)?;
        let id = parsed.id.clone().unwrap_or_else(|| Value::from(number));
        let category = parsed.category.clone();
        let prompt = prompt_of(parsed, raw).with_context(at)?;
        prompts.push(PromptLine { id, category, prompt });
    }
    if prompts.is_empty() {
        bail!("{name} holds no prompts");
    }
    Ok(prompts)
}

fn prompt_of(line: Line, raw: bool) -> anyhow::Result<Prompt> {
    let text = match (line.prompt, line.turns, line.messages) {
        (Some(prompt), None, None) => prompt,
        (None, Some(turns), None) => match turns.into_iter().next() {
            Some(turn) => turn,
            None => bail!("`turns` is empty"),
        },
        (None, None, Some(messages)) if raw => {
            let _ = messages;
            bail!("`messages` needs the chat template, which --raw leaves out")
        }
        (None, None, Some(messages)) if messages.is_empty() => bail!("`messages` is empty"),
        (None, None, Some(messages)) => return Ok(Prompt::Messages(messages)),
        _ => bail!("exactly one of `prompt`, `turns` and `messages` is needed"),
    };
    if text.is_empty() {
        bail!("the prompt is empty");
    }
    Ok(text_prompt(text, raw))
}

/// A text as a prompt: bare, or as a user's message.
pub(super) fn text_prompt(text: String, raw: bool) -> Prompt {
    if raw { Prompt::Text(text) } else { Prompt::Messages(vec![Message::user(text)]) }
}

/// The non-empty lines of a UTF-8 file (`-` is standard input), numbered from 1.
///
/// # Errors
/// When it can't be read, is too large, or is not UTF-8 (the line is named).
pub(super) fn read_lines(path: &Path) -> anyhow::Result<Vec<(usize, String)>> {
    let bytes = read_bytes(path)?;
    let lines = split_lines(&path.display().to_string(), &bytes)?;
    Ok(lines.into_iter().map(|(number, line)| (number, line.to_owned())).collect())
}

fn read_bytes(path: &Path) -> anyhow::Result<Vec<u8>> {
    let shown = path.display();
    let mut bytes = Vec::new();
    let read = if path.as_os_str() == "-" {
        std::io::stdin().lock().take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
    };
    read.with_context(|| format!("can't read {shown}"))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        bail!("{shown} has more than {} MiB; split it", FILE_BYTES_MAX >> 20);
    }
    Ok(bytes)
}

fn split_lines<'a>(name: &str, bytes: &'a [u8]) -> anyhow::Result<Vec<(usize, &'a str)>> {
    let mut lines = Vec::new();
    for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let text = std::str::from_utf8(line).map_err(|error| {
            anyhow::anyhow!("{name}, line {}: not UTF-8 at byte {}", index + 1, error.valid_up_to())
        })?;
        if !text.trim().is_empty() {
            lines.push((index + 1, text));
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    #[test]
    fn all_three_shapes_are_read_and_ids_default_to_line_numbers() {
        let file = file(
            br#"{"id":"a","prompt":"x"}

{"turns":["first","second"]}
{"id":7,"messages":[{"role":"user","content":"hi"}]}"#,
        );
        let prompts = read_prompts(file.path(), false).unwrap();
        assert_eq!(prompts.len(), 3);
        assert_eq!(prompts[1].id, Value::from(3));
        assert_eq!(prompts[1].prompt, Prompt::Messages(vec![Message::user("first")]));
        assert_eq!(prompts[2].id, Value::from(7));
    }

    #[test]
    fn bad_lines_are_named() {
        for (bytes, expected) in [
            (&b"{\"prompt\":\"x\"}\n\xff\xfe"[..], "line 2: not UTF-8"),
            (b"{\"prompt\":\"x\"}\n{", "line 2"),
            (b"{\"id\":1}", "exactly one of"),
            (b"{\"turns\":[]}", "`turns` is empty"),
            (b"\n\n", "holds no prompts"),
        ] {
            let file = file(bytes);
            let error = format!("{:#}", read_prompts(file.path(), false).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
    }
}
