//! Chat templates: messages in, prompt out, as Hugging Face transformers renders them.
//!
//! A template is a Jinja program that comes with the model file, so it is bounded like other people's code: its size,
//! its steps and memory (fuel), its depth (recursion limit and stack), and the length of what it writes. It sees the messages and nothing else.

mod error;
mod strftime;
mod tags;
mod tojson;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::io;
use std::thread::{self, ScopedJoinHandle};
use std::time::SystemTime;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment, Error, ErrorKind};
use regex::Regex;
use serde::{Deserialize, Serialize};

pub use self::error::ChatError;
use self::tags::compile_cost;
use super::parts::shorten;
use super::tokenizer::{MAX_TEXT_BYTES, Tokenizer};
use crate::gguf::Header;

/// The largest template that is looked at; published ones stay under 20 KB.
const MAX_TEMPLATE_BYTES: usize = 64 << 10;
/// What compiling may cost: as much as one expression of 3 KB or a hundred of 700 bytes, 1.5 s at worst. Published
/// templates stay under 20 KB, their expressions under 1 KB: that is less, however they are cut.
const MAX_COMPILE_COST: u64 = 1 << 35;
/// Steps a template may take whatever it is given; one step also pays for 64 bytes of data.
const FUEL: u64 = 200_000;
/// Further steps for each message, and for each so many bytes of the input: several times what published templates take.
const FUEL_PER_MESSAGE: u64 = 500;
const BYTES_PER_FUEL: u64 = 2;
/// At most 128 MiB. What one step takes is bounded by the size of what it works on, not by its fuel: slices are free.
const MAX_FUEL: u64 = 2_000_000;
/// A template can nest lists in lists, 1.5 steps a level, and dropping or printing a nested value recurses: some 400
/// bytes of stack a level, more without optimisation.
const STACK_PER_FUEL: u64 = 1024;
/// Parsing recurses, too: into every operator of a chain such as `a.a.a`, some 200 bytes of stack a byte of source, more
/// without optimisation.
const STACK_PER_SOURCE_BYTE: u64 = 2048;
const STACK_LEAST: u64 = 1 << 20;
const MAX_DEPTH: usize = 128;
const NAME: &str = "chat_template";

/// A message, in its plainest form. Templates may know more fields: pass JSON objects for those.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant`, or what else the template knows.
    pub role: String,
    /// What was said.
    pub content: String,
}

impl Message {
    /// A message of the user's.
    #[must_use]
    pub fn user(content: impl Into<String>) -> Self {
        Self { role: "user".into(), content: content.into() }
    }
}

/// What else a template gets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatOptions {
    /// End with the beginning of the assistant's answer.
    pub add_generation_prompt: bool,
    /// Descriptions of functions the model may call.
    pub tools: Option<serde_json::Value>,
    /// Further variables, such as `enable_thinking`. They cannot replace those above.
    pub extra: serde_json::Map<String, serde_json::Value>,
}

impl ChatOptions {
    /// For a prompt that the model is to answer.
    #[must_use]
    pub fn generation() -> Self {
        Self { add_generation_prompt: true, ..Self::default() }
    }
}

/// A model's chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: Option<String>,
    eos: Option<String>,
    max_bytes: usize,
}

impl ChatTemplate {
    /// The template in a GGUF file, if there is one.
    ///
    /// # Errors
    /// [`ChatError`] if it cannot be used.
    pub fn from_gguf(header: &Header, tokenizer: &Tokenizer) -> Result<Option<Self>, ChatError> {
        let Some(source) = header.get::<&str>("tokenizer.chat_template")? else {
            return Ok(None);
        };
        let text = |id: Option<u32>| id.and_then(|id| tokenizer.vocab().text(id));
        let eos: Option<u32> = header.get("tokenizer.ggml.eos_token_id")?;
        Self::new(source, text(tokenizer.bos()), text(eos)).map(Some)
    }

    /// A template from its source, with the texts of the tokens that begin and end a text.
    ///
    /// # Errors
    /// [`ChatError`] if it cannot be used.
    pub fn new(source: &str, bos: Option<&str>, eos: Option<&str>) -> Result<Self, ChatError> {
        if source.len() > MAX_TEMPLATE_BYTES {
            return Err(ChatError::TooLarge { bytes: source.len() });
        }
        if compile_cost(source) > MAX_COMPILE_COST {
            return Err(ChatError::TooComplex);
        }
        let source = without_generation_blocks(source)?;
        let stack = STACK_LEAST + source.len() as u64 * STACK_PER_SOURCE_BYTE;
        let environment = with_stack(stack, || {
            let mut environment = environment(SystemTime::now);
            environment
                .add_template_owned(NAME, source)
                .map(|()| environment)
                .map_err(|error| ChatError::Syntax { reason: one_line(&error) })
        })?;
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Ok(Self { environment, bos: owned(bos), eos: owned(eos), max_bytes: MAX_TEXT_BYTES })
    }

    /// The same template with another bound on the prompt's length.
    #[must_use]
    pub fn with_max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// The prompt for these messages: [`Message`]s, or JSON objects with whatever fields the template knows.
    ///
    /// # Errors
    /// [`ChatError`], with the template's own words where it refuses.
    pub fn render<M: Serialize>(
        &self,
        messages: &[M],
        options: &ChatOptions,
    ) -> Result<String, ChatError> {
        let bad = |error: serde_json::Error| ChatError::Failed { reason: error.to_string() };
        let messages_json = serde_json::to_vec(messages).map_err(bad)?;
        let tools_json = serde_json::to_vec(&options.tools).map_err(bad)?;
        let bytes = (messages_json.len() + tools_json.len()) as u64;
        let fuel = FUEL + messages.len() as u64 * FUEL_PER_MESSAGE + bytes / BYTES_PER_FUEL;
        let fuel = fuel.min(MAX_FUEL);
        let messages: serde_json::Value = serde_json::from_slice(&messages_json).map_err(bad)?;
        // Everything that a template may have nested is dropped on that stack as well.
        with_stack(fuel * STACK_PER_FUEL, || self.render_with(&messages, options, fuel))
    }

    fn render_with(
        &self,
        messages: &serde_json::Value,
        options: &ChatOptions,
        fuel: u64,
    ) -> Result<String, ChatError> {
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(fuel));
        let template = environment.get_template(NAME).map_err(|error| self.explain(&error))?;
        let extra =
            options.extra.iter().map(|(name, value)| (name.clone(), Value::from(Serde(value))));
        let tools =
            options.tools.as_ref().map_or(Value::from(()), |tools| Value::from(Serde(tools)));
        // An absent token is undefined rather than none, so that `{{ bos_token }}` writes nothing.
        let token = |text: &Option<String>| text.as_ref().map_or(Value::UNDEFINED, Value::from);
        let variables = [
            ("messages", Value::from(Serde(messages))),
            ("tools", tools),
            ("documents", Value::from(())),
            ("add_generation_prompt", Value::from(options.add_generation_prompt)),
            ("bos_token", token(&self.bos)),
            ("eos_token", token(&self.eos)),
        ];
        let context = Value::from_pairs(
            extra.chain(variables.into_iter().map(|(name, value)| (name.to_owned(), value))),
        );
        let mut out = Bounded { bytes: Vec::new(), limit: self.max_bytes };
        template.render_captured_to(context, &mut out).map_err(|error| self.explain(&error))?;
        // Only strings were written.
        String::from_utf8(out.bytes)
            .map_err(|error| ChatError::Failed { reason: error.to_string() })
    }

    fn explain(&self, error: &Error) -> ChatError {
        if let Some(Raised(reason)) = find_source(error) {
            return ChatError::Refused { reason: shorten(reason) };
        }
        if find_source::<io::Error>(error).is_some_and(|e| e.kind() == io::ErrorKind::FileTooLarge)
        {
            return ChatError::TooLong { limit: self.max_bytes };
        }
        match error.kind() {
            ErrorKind::OutOfFuel => ChatError::OutOfFuel,
            _ => ChatError::Failed { reason: one_line(error) },
        }
    }
}

/// Runs `work` on a thread of its own, for the stack: the memory is only taken if a template makes use of it.
fn with_stack<R: Send>(
    bytes: u64,
    work: impl FnOnce() -> Result<R, ChatError> + Send,
) -> Result<R, ChatError> {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let done = thread::scope(|scope| {
        thread::Builder::new()
            .stack_size(bytes)
            .spawn_scoped(scope, work)
            .map(ScopedJoinHandle::join)
    });
    match done {
        Ok(Ok(done)) => done,
        Ok(Err(_)) => Err(ChatError::Failed { reason: "the template engine panicked".to_owned() }),
        Err(error) => Err(ChatError::Failed { reason: format!("no thread for it: {error}") }),
    }
}

/// Jinja as transformers sets it up.
fn environment(clock: fn() -> SystemTime) -> Environment<'static> {
    let mut environment = Environment::new();
    // Both are constants, so the builder cannot object; its default is the next best thing.
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.unwrap_or_default());
    environment.set_recursion_limit(MAX_DEPTH);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_formatter(|out, state, value| {
        // As Python writes them.
        if value.is_none() {
            return out.write_str("None").map_err(Error::from);
        }
        match bool::try_from(value.clone()) {
            Ok(truth) if value.kind() == minijinja::value::ValueKind::Bool => {
                out.write_str(if truth { "True" } else { "False" }).map_err(Error::from)
            }
            _ => minijinja::escape_formatter(out, state, value),
        }
    });
    environment.add_filter("tojson", tojson::tojson);
    environment.add_function("raise_exception", |reason: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, "raised").with_source(Raised(reason)))
    });
    environment.add_function("strftime_now", move |format: &str| strftime::format(format, clock()));
    environment
}

/// What `raise_exception` raises.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

/// The first error of a type in the chain below `error`.
fn find_source<E: std::error::Error + 'static>(error: &Error) -> Option<&E> {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        source = error.source();
    }
    None
}

fn one_line(error: &Error) -> String {
    let mut reason = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    if let Some(line) = error.line() {
        reason = format!("line {line}: {reason}");
    }
    shorten(&reason.replace(['\n', '\r'], " "))
}

/// `{% generation %}` marks the assistant's words for training and does nothing else; Jinja does not know it.
fn without_generation_blocks(source: &str) -> Result<String, ChatError> {
    // Hardly any template has them, and the expressions take longer to build than most templates to parse.
    if !source.contains("generation") {
        return Ok(source.to_owned());
    }
    let replace = |text: &str, tag: &str, by: &str| -> Result<String, regex::Error> {
        let tag = Regex::new(&format!(r"(\{{%[-+]?\s*){tag}(\s*[-+]?%\}})"))?;
        Ok(match tag.replace_all(text, format!("${{1}}{by}${{2}}")) {
            Cow::Borrowed(_) => text.to_owned(),
            Cow::Owned(text) => text,
        })
    };
    replace(source, "generation", "if true")
        .and_then(|text| replace(&text, "endgeneration", "endif"))
        .map_err(|error| ChatError::Syntax { reason: error.to_string() })
}

/// Takes so many bytes and no more.
struct Bounded {
    bytes: Vec<u8>,
    limit: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        if buffer.len() > self.limit - self.bytes.len() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(buffer);
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
