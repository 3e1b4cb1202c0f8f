//! [`Grammars`]: compiles grammars against the vocabulary of one tokenizer, and keeps the latest.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::{JsonCompileOptions, Matcher, ParserFactory};
use redline_spec::{Constraint, TokenId};

use super::error::one_line;
use super::state::GrammarState;
use super::vocabulary::vocabulary;
use super::{GRAMMAR_BYTES_MAX, Grammar, GrammarError, Kind, WHITESPACE_MAX};
use crate::text::Tokenizer;

/// Compiled grammars that are kept.
const KEPT: usize = 32;
/// The compiler recurses along rules that name each other; [`GRAMMAR_BYTES_MAX`] of them need a quarter of this. Only
/// what is used of it becomes memory.
const STACK_BYTES: usize = 256 << 20;

/// The compiler's own limits, where they are not the default ones: a request of a stranger may not fill the memory, and a
/// mask is computed between two passes of everybody's model.
fn limits() -> ParserLimits {
    ParserLimits {
        max_grammar_size: 100_000,
        max_lexer_states: 50_000,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// The compiler for one tokenizer. Made on first use: a vocabulary takes a moment to prepare.
#[derive(Default)]
pub(crate) struct Grammars {
    factory: OnceLock<Result<ParserFactory, GrammarError>>,
    /// The latest used last.
    kept: Mutex<Vec<(Grammar, GrammarState)>>,
    /// One grammar is compiled at a time, so that no crowd of them takes all memory and processors.
    compiling: Mutex<()>,
}

impl Grammars {
    /// The grammar, before its first token. Takes as long as compiling does if it is not known yet.
    pub(crate) fn start(
        &self,
        grammar: &Grammar,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<Box<dyn Constraint>, GrammarError> {
        let what = grammar.name();
        if grammar.text.len() > GRAMMAR_BYTES_MAX {
            return Err(GrammarError::TooLong { what, bytes: grammar.text.len() });
        }
        let Some(tokenizer) = tokenizer else {
            return Err(GrammarError::Vocabulary("it has no tokenizer".to_owned()));
        };
        if let Some(known) = self.known(grammar) {
            return Ok(known);
        }
        let _one_at_a_time = lock(&self.compiling);
        if let Some(known) = self.known(grammar) {
            return Ok(known);
        }
        let factory = self.factory.get_or_init(|| factory(tokenizer)).as_ref();
        let state = compile(factory.map_err(Clone::clone)?, grammar, tokenizer.end_tokens())?;
        let first = Box::new(state.apart());
        let mut kept = lock(&self.kept);
        if kept.len() == KEPT {
            kept.remove(0);
        }
        kept.push((grammar.clone(), state));
        Ok(first)
    }

    fn known(&self, grammar: &Grammar) -> Option<Box<dyn Constraint>> {
        let mut kept = lock(&self.kept);
        let at = kept.iter().position(|(known, _)| known == grammar)?;
        let entry = kept.remove(at);
        let state = entry.1.apart();
        kept.push(entry);
        Some(Box::new(state))
    }
}

/// What is behind these locks is whole at any moment, so a panic elsewhere is no reason not to take them.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn factory(tokenizer: &Tokenizer) -> Result<ParserFactory, GrammarError> {
    let refused = |error: anyhow::Error| GrammarError::Vocabulary(one_line(&error.to_string()));
    let mut factory = ParserFactory::new_simple(&vocabulary(tokenizer)?).map_err(refused)?;
    // Errors are told by who meets them; nothing else may write to standard error.
    factory.quiet();
    *factory.limits_mut() = limits();
    Ok(factory)
}

fn compile(
    factory: &ParserFactory,
    grammar: &Grammar,
    ends: &[TokenId],
) -> Result<GrammarState, GrammarError> {
    let what = grammar.name();
    let invalid = |why: String| GrammarError::Invalid { what, why };
    let source = source(grammar).map_err(invalid)?;
    let mut matcher = on_a_deep_stack(|| {
        let parser = factory.create_parser(source).map_err(|error| one_line(&error.to_string()))?;
        Ok(Matcher::new(Ok(parser)))
    })
    .map_err(invalid)?;
    // Whether there is any output at all shows at the first token, before anyone waits for a model.
    match matcher.compute_mask_or_eos() {
        Ok(_) => {}
        Err(error) if error.to_string().starts_with("NoExtensionBias") => {
            return Err(GrammarError::Nothing { what });
        }
        Err(error) => return Err(invalid(one_line(&error.to_string()))),
    }
    Ok(GrammarState::new(matcher, ends.into()))
}

fn on_a_deep_stack<T: Send>(job: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    thread::scope(|scope| {
        let builder = thread::Builder::new().name("redline-grammar".to_owned());
        let worker = builder.stack_size(STACK_BYTES).spawn_scoped(scope, job);
        let worker = worker.map_err(|error| format!("no thread to compile it on: {error}"))?;
        worker.join().unwrap_or_else(|_| Err("compiling it panicked".to_owned()))
    })
}

/// The grammar in the compiler's terms.
fn source(grammar: &Grammar) -> Result<TopLevelGrammar, String> {
    match grammar.kind {
        Kind::JsonSchema => {
            let mut schema = serde_json::from_str(&grammar.text).map_err(|e| e.to_string())?;
            if let serde_json::Value::Object(fields) = &schema
                && !fields.contains_key("x-guidance")
            {
                let pattern = format!("[\\x20\\x0A\\x0D\\x09]{{1,{WHITESPACE_MAX}}}");
                let whitespace_pattern = Some(pattern);
                JsonCompileOptions { whitespace_pattern, ..JsonCompileOptions::default() }
                    .apply_to(&mut schema);
            }
            Ok(TopLevelGrammar::from_json_schema(schema))
        }
        Kind::Regex => {
            check_regex(&grammar.text)?;
            Ok(TopLevelGrammar::from_regex(&grammar.text))
        }
        Kind::Lark if grammar.text.trim().is_empty() => Err("it is empty".to_owned()),
        Kind::Lark => Ok(TopLevelGrammar::from_lark(grammar.text.clone())),
    }
}

/// What is no regular expression is told with the place in it; the compiler would name one in a grammar around it.
fn check_regex(regex: &str) -> Result<(), String> {
    use regex_syntax::Error;
    if regex.is_empty() {
        return Err("it is empty".to_owned());
    }
    let (why, at) = match regex_syntax::parse(regex) {
        Ok(_) => return Ok(()),
        Err(Error::Parse(error)) => (error.kind().to_string(), error.span().start.offset),
        Err(Error::Translate(error)) => (error.kind().to_string(), error.span().start.offset),
        Err(error) => return Err(one_line(&error.to_string())),
    };
    Err(format!("{why} (byte {at})"))
}
