//! A chat template from a stranger's model file, and messages from a stranger.
//!
//! An input is text: the template, a zero byte, the messages as JSON, a zero byte, the tools as JSON. What is not a
//! JSON array is the text of one message.

use redline::text::{ChatError, ChatOptions, ChatTemplate, Message};
use serde_json::{Value, json};

use crate::limit::within;

/// The longest prompt: less than the engine allows, so that inputs reach the limit.
const PROMPT_BYTES_MAX: usize = 1 << 14;
/// Fuel pays for memory; this is what a small input can buy, and what the template engine takes besides.
const MEMORY_BYTES_MAX: usize = 128 << 20;

pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut parts = text.splitn(3, '\0');
    let (source, messages, tools) = (parts.next(), parts.next(), parts.next());
    let source = source.unwrap_or_default();
    let messages = messages.unwrap_or_default();
    let messages: Vec<Value> =
        serde_json::from_str(messages).unwrap_or_else(|_| vec![json!(Message::user(messages))]);
    let tools = tools.and_then(|tools| serde_json::from_str(tools).ok());
    let options = ChatOptions { tools, ..ChatOptions::generation() };
    within(MEMORY_BYTES_MAX, || render(source, &messages, &options));
}

fn render(source: &str, messages: &[Value], options: &ChatOptions) {
    let Ok(template) = ChatTemplate::new(source, Some("<s>"), Some("</s>")) else { return };
    let template = template.with_max_bytes(PROMPT_BYTES_MAX);
    let prompt = match template.render(messages, options) {
        Ok(prompt) => prompt,
        Err(error) => {
            let error = error.to_string();
            assert!(!error.contains("panicked"), "{error}");
            assert!(!error.contains('\n') && error.len() < 1024, "{error:?} is not a line");
            return;
        }
    };
    assert!(prompt.len() <= PROMPT_BYTES_MAX, "{} bytes", prompt.len());
    // The limit is exact; the clock alone may make two renderings differ.
    if !source.contains("strftime_now") && !prompt.is_empty() {
        let exact = template.with_max_bytes(prompt.len());
        assert_eq!(exact.render(messages, options).ok().as_ref(), Some(&prompt));
        let short = exact.with_max_bytes(prompt.len() - 1);
        let refused = short.render(messages, options);
        assert!(matches!(refused, Err(ChatError::TooLong { .. })), "{refused:?}");
    }
}
