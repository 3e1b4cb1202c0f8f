//! Why a grammar can't be used, in one line that says where.

use thiserror::Error;

use super::GRAMMAR_BYTES_MAX;

/// Why a grammar was refused, before the request met the engine.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum GrammarError {
    /// Its text is not of the language it claims to be, or uses what is not supported.
    #[error("the {what} can't be used: {why}")]
    Invalid {
        /// What sort of grammar it is.
        what: &'static str,
        /// What is wrong with it, with the place where that is known.
        why: String,
    },
    /// Its text is longer than is read.
    #[error("the {what} has {bytes} bytes; at most {GRAMMAR_BYTES_MAX} are read")]
    TooLong {
        /// What sort of grammar it is.
        what: &'static str,
        /// How long it is.
        bytes: usize,
    },
    /// No output at all would match, or none that the vocabulary can write.
    #[error("the {what} allows no output at all")]
    Nothing {
        /// What sort of grammar it is.
        what: &'static str,
    },
    /// The engine has no tokenizer, or one that grammars can't work with.
    #[error("grammars can't be used with this model: {0}")]
    Vocabulary(String),
    /// A request that is to go on past the end of the text, which is where the grammar ends.
    #[error("a grammar decides where the text ends, so the end can't be ignored")]
    NoEnd,
}

/// The longest reason that is told.
const REASON_MAX: usize = 400;

/// A message of the grammar compiler in one line: without state dumps, backtraces, and the excerpt of the source that it
/// draws over several lines.
pub(super) fn one_line(message: &str) -> String {
    let end = ["\n<non-verbose/>", "\n<state>", "\n<backtrace>", "\n\nStack backtrace"];
    let end = end.iter().filter_map(|mark| message.find(mark)).min().unwrap_or(message.len());
    let message = &message[..end];
    // It asserts some of its limits; it catches that itself.
    let (mut line, message) = match message.strip_prefix("panic: ") {
        Some(why) => ("the compiler gave up:".to_owned(), why),
        None => (String::new(), message),
    };
    for part in message.lines().map(str::trim).filter(|part| !is_excerpt(part)) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(part);
    }
    if line.len() > REASON_MAX {
        line.truncate(line.floor_char_boundary(REASON_MAX));
        line.push('…');
    }
    line
}

/// `12 | some: "rule"`, and the caret below it.
fn is_excerpt(line: &str) -> bool {
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.chars().all(|c| c == '^') || (rest.len() < line.len() && rest.starts_with(" |"))
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn a_message_is_one_line_with_its_place() {
        let message =
            "at 1(8): unknown name: \"foo\"\n   1 | start: foo\n              ^\n\n<non-verbose/>";
        assert_eq!(one_line(message), "at 1(8): unknown name: \"foo\"");
        assert_eq!(
            one_line("panic: assertion failed\n<backtrace>\n 0: x"),
            "the compiler gave up: assertion failed"
        );
        assert_eq!(one_line(&"é".repeat(300)).chars().count(), 201);
    }
}
