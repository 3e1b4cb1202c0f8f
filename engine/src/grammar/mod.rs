//! Grammars: outputs that match a JSON schema, a regular expression or a Lark grammar, to the last token.
//!
//! A [`Grammar`] is text. [`Grammars`] compiles it against the engine's tokenizer, on the thread of whoever prepares a
//! request, and keeps what it compiled; [`state`] is what runs beside a sequence, a [`Constraint`](redline_spec::Constraint)
//! like any other. The parsing is llguidance's: at each position, the mask holds exactly the tokens after which the text can
//! still become one of the grammar, however it is cut into tokens, and the ends of text where it is one.

mod compile;
mod error;
mod state;
mod vocabulary;

pub(crate) use compile::Grammars;
pub use error::GrammarError;

/// The longest text of a grammar, in bytes. Compiling is bounded by what the text can say in that many; further limits
/// are in `compile.rs`.
pub const GRAMMAR_BYTES_MAX: usize = 64 << 10;

/// What a request's output has to match. To be handed over as
/// [`GenerateRequest::constraint`](crate::GenerateRequest::constraint): `Some(Grammar::regex("yes|no").into())`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grammar {
    kind: Kind,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    JsonSchema,
    Regex,
    Lark,
}

impl Grammar {
    /// A JSON value that is valid under this schema. Keywords that can't be kept to are refused by name. Between the
    /// tokens of the JSON there may be white space, at most [`WHITESPACE_MAX`] characters of it at a time; the schema's own `x-guidance` sets it
    /// otherwise.
    pub fn json_schema(schema: impl Into<String>) -> Self {
        Self { kind: Kind::JsonSchema, text: schema.into() }
    }

    /// A text that matches this regular expression from its first character to its last; the syntax is that of the
    /// crate `regex`. There are no word boundaries and no look-around.
    pub fn regex(regex: impl Into<String>) -> Self {
        Self { kind: Kind::Regex, text: regex.into() }
    }

    /// A text of this context-free grammar, in llguidance's variant of Lark's syntax; it begins at the rule `start`.
    pub fn lark(grammar: impl Into<String>) -> Self {
        Self { kind: Kind::Lark, text: grammar.into() }
    }

    /// What it is called in errors.
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::JsonSchema => "JSON schema",
            Kind::Regex => "regular expression",
            Kind::Lark => "Lark grammar",
        }
    }
}

/// White space at a time in JSON that keeps to a schema: enough to indent, too little to go on for ever, which is what
/// small models like to do.
pub const WHITESPACE_MAX: usize = 40;
