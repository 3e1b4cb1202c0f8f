//! A file of prompts, as `redline generate --prompts` reads it.

use redline::Prompt;
use redline::cli::{PromptLine, parse_prompts};

use crate::limit::within;

/// serde_json keeps whole lines as values: some tens of bytes for a byte of `[[[[`.
const BYTES_PER_BYTE: usize = 256;
const SLACK_BYTES: usize = 1 << 20;

pub fn run(data: &[u8]) {
    for raw in [false, true] {
        let limit = data.len() * BYTES_PER_BYTE + SLACK_BYTES;
        let whole = within(limit, || parse_prompts("it", data, raw));
        check(data, raw, whole);
    }
}

/// A file is the sum of its lines: it is accepted if and only if each line alone is, and its error names the first that
/// is not. Text that is not UTF-8 is found before anything is parsed.
fn check(data: &[u8], raw: bool, whole: anyhow::Result<Vec<PromptLine>>) {
    let lines = || data.split(|&byte| byte == b'\n');
    let mut expected = Vec::new();
    let mut is_bad = |line: &[u8]| {
        let blank = std::str::from_utf8(line).is_ok_and(|line| line.trim().is_empty());
        !blank && parse_prompts("it", line, raw).map(|alone| expected.extend(alone)).is_err()
    };
    let bad = lines()
        .position(|line| std::str::from_utf8(line).is_err())
        .or_else(|| lines().position(&mut is_bad));
    if let Some(index) = bad {
        let error = whole.expect_err("a bad line is refused").to_string();
        let rest = error.strip_prefix(&format!("it, line {}", index + 1));
        let named = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(": "));
        return assert!(named, "{error:?} does not name line {}", index + 1);
    }
    if expected.is_empty() {
        assert!(whole.is_err(), "no prompts are nothing to run");
        return;
    }
    let whole = whole.expect("every line alone is accepted");
    assert_eq!(whole.len(), expected.len());
    for (line, alone) in whole.iter().zip(&expected) {
        assert_eq!(line.prompt, alone.prompt);
        match &line.prompt {
            Prompt::Text(text) => assert!(raw && !text.is_empty()),
            Prompt::Messages(messages) => assert!(!raw && !messages.is_empty()),
            Prompt::Tokens(_) => unreachable!("no line gives token ids"),
        }
    }
}
