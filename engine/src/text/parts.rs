//! What a tokenizer is made of, apart from where it is written down.

use super::error::TokenizerError;
use super::pre;
use super::vocab::Kind;
use crate::gguf::{Array, GgufError, Header, StringArray};

/// More than any published vocabulary; keeps every id far from the limits of `u32`.
const MAX_TOKENS: usize = 1 << 22;

/// The description of a byte-level BPE tokenizer. Checked by [`super::Tokenizer::new`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// The entries by id, in the byte-level alphabet where they are [`Kind::Normal`].
    pub tokens: Vec<String>,
    /// What each entry is.
    pub kinds: Vec<Kind>,
    /// Pairs of entries to merge, `left right`, most important first.
    pub merges: Vec<String>,
    /// The name of the pre-tokenizer.
    pub pre: String,
    /// The token that begins a text.
    pub bos: Option<u32>,
    /// Whether encoding begins with it.
    pub add_bos: bool,
    /// The token that ends a text.
    pub eos: Option<u32>,
    /// Other tokens that end a generation, besides those known by name.
    pub more_ends: Vec<u32>,
}

impl Parts {
    /// Reads the description from a GGUF header.
    ///
    /// # Errors
    /// [`TokenizerError`] naming the field.
    pub fn from_gguf(header: &Header) -> Result<Self, TokenizerError> {
        let model: &str = header.require("tokenizer.ggml.model")?;
        if model != "gpt2" {
            return Err(TokenizerError::UnknownModel { model: shorten(model) });
        }
        let tokens: &StringArray = header.require("tokenizer.ggml.tokens")?;
        let merges: &StringArray = header.require("tokenizer.ggml.merges")?;
        // Old files name none; the field's absence is what "default" was made for.
        let pre: &str = header.get("tokenizer.ggml.pre")?.unwrap_or("default");
        let add_bos = match header.get("tokenizer.ggml.add_bos_token")? {
            Some(add_bos) => add_bos,
            None => pre::begins_with_bos(pre),
        };
        check_count(tokens.len())?;
        Ok(Self {
            kinds: kinds(header, tokens.len())?,
            tokens: tokens.iter().map(str::to_owned).collect(),
            merges: merges.iter().map(str::to_owned).collect(),
            pre: pre.to_owned(),
            bos: header.get("tokenizer.ggml.bos_token_id")?,
            add_bos,
            eos: header.get("tokenizer.ggml.eos_token_id")?,
            more_ends: more_ends(header)?,
        })
    }

    /// What can be said before anything is built.
    pub(super) fn check(&self) -> Result<(), TokenizerError> {
        let size = self.tokens.len();
        check_count(size)?;
        if self.kinds.len() != size {
            return Err(TokenizerError::KindCount { kinds: self.kinds.len(), tokens: size });
        }
        let ids =
            [("tokenizer.ggml.bos_token_id", self.bos), ("tokenizer.ggml.eos_token_id", self.eos)];
        let more = self
            .more_ends
            .iter()
            .map(|id| ("tokenizer.ggml.eot_token_id or another end token", Some(*id)));
        for (key, id) in ids.into_iter().chain(more) {
            if let Some(id) = id.filter(|id| *id as usize >= size) {
                return Err(TokenizerError::IdOutOfRange { key, id, size });
            }
        }
        Ok(())
    }
}

fn check_count(count: usize) -> Result<(), TokenizerError> {
    match count {
        0 => Err(TokenizerError::Empty),
        1..=MAX_TOKENS => Ok(()),
        _ => Err(TokenizerError::TooManyTokens { count, limit: MAX_TOKENS }),
    }
}

/// The types; a file without them has none but normal tokens.
fn kinds(header: &Header, size: usize) -> Result<Vec<Kind>, TokenizerError> {
    let Some(numbers) = header.get::<&Array>("tokenizer.ggml.token_type")? else {
        return Ok(vec![Kind::Normal; size]);
    };
    if numbers.len() != size {
        return Err(TokenizerError::KindCount { kinds: numbers.len(), tokens: size });
    }
    (0..size)
        .map(|id| {
            let number = numbers.int(id);
            number.and_then(Kind::from_number).ok_or_else(|| TokenizerError::UnknownKind {
                id,
                value: number.map_or("no integer".to_owned(), |number| number.to_string()),
            })
        })
        .collect()
}

/// The ids that llama.cpp, too, takes for ends: of a turn, of a message, and of a file in code models, which run
/// on into the next file of the repository if nobody stops them.
fn more_ends(header: &Header) -> Result<Vec<u32>, GgufError> {
    let mut ends = Vec::new();
    for name in ["eot", "eom", "fim_pad", "fim_rep", "fim_sep"] {
        ends.extend(header.get::<u32>(&format!("tokenizer.ggml.{name}_token_id"))?);
    }
    Ok(ends)
}

/// Quotes of a file's own words stay short.
pub(super) fn shorten(text: &str) -> String {
    let mut short: String = text.chars().filter(|c| !c.is_control()).take(80).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
