//! The tokens of a model: what each is, how it is written, and which bytes it stands for.

use std::borrow::Cow;

use super::byte_level;
use super::parts::Parts;

/// What sort of token an entry is (`tokenizer.ggml.token_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A piece of text, written in the byte-level alphabet.
    Normal,
    /// What stands for text that has no token.
    Unknown,
    /// A mark of the model's own, such as the end of a turn; no part of the text.
    Control,
    /// Text that is always one token.
    UserDefined,
    /// Nothing; fills the vocabulary up to a round size.
    Unused,
    /// One byte, written `<0xAB>`.
    Byte,
}

impl Kind {
    /// The kind with this number in a GGUF file.
    #[must_use]
    pub fn from_number(number: i64) -> Option<Self> {
        Some(match number {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }
}

/// All tokens, by id.
#[derive(Clone, Debug)]
pub struct Vocab {
    texts: Arena,
    bytes: Arena,
    kinds: Vec<Kind>,
    /// Marks that are no part of the text, besides those whose kind says so.
    ends: Vec<u32>,
}

impl Vocab {
    pub(super) fn new(parts: &Parts, ends: &[u32]) -> Self {
        let mut texts = Arena::default();
        let mut bytes = Arena::default();
        let mut buffer = Vec::new();
        for (text, &kind) in parts.tokens.iter().zip(&parts.kinds) {
            texts.push(text.as_bytes());
            buffer.clear();
            write_bytes(text, kind, &mut buffer);
            bytes.push(&buffer);
        }
        Self { texts, bytes, kinds: parts.kinds.clone(), ends: ends.to_vec() }
    }

    /// How many entries there are, padding included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// How many entries there are without the padding at the end.
    #[must_use]
    pub fn len_used(&self) -> usize {
        self.kinds.iter().rposition(|kind| *kind != Kind::Unused).map_or(0, |last| last + 1)
    }

    /// The bytes a token adds to the text: none for padding. `None` for an id outside the vocabulary.
    #[must_use]
    pub fn bytes(&self, id: u32) -> Option<&[u8]> {
        self.bytes.get(id as usize)
    }

    /// What sort of token it is.
    #[must_use]
    pub fn kind(&self, id: u32) -> Option<Kind> {
        self.kinds.get(id as usize).copied()
    }

    /// The entry as the vocabulary writes it.
    #[must_use]
    pub fn text(&self, id: u32) -> Option<&str> {
        // Every text went in as a string.
        self.texts.get(id as usize).and_then(|bytes| std::str::from_utf8(bytes).ok())
    }

    /// Whether a token is a mark rather than text: control and unknown tokens, and those that end a generation.
    #[must_use]
    pub fn is_special(&self, id: u32) -> bool {
        matches!(self.kind(id), Some(Kind::Control | Kind::Unknown))
            || self.ends.binary_search(&id).is_ok()
    }

    /// A token for people: its text, with U+FFFD for broken characters; marks and padding as they are written;
    /// `<id 7>` for an id outside the vocabulary.
    #[must_use]
    pub fn piece(&self, id: u32) -> Cow<'_, str> {
        match (self.kind(id), self.bytes(id), self.text(id)) {
            (Some(Kind::Unused), _, Some(text)) => text.into(),
            (Some(_), Some(bytes), _) => String::from_utf8_lossy(bytes),
            _ => format!("<id {id}>").into(),
        }
    }
}

/// The bytes that a token stands for.
fn write_bytes(text: &str, kind: Kind, out: &mut Vec<u8>) {
    match kind {
        Kind::Unused => {}
        Kind::Unknown | Kind::Control | Kind::UserDefined => out.extend_from_slice(text.as_bytes()),
        Kind::Byte => match byte_number(text) {
            Some(byte) => out.push(byte),
            None => out.extend_from_slice(text.as_bytes()),
        },
        Kind::Normal => {
            for c in text.chars() {
                match byte_level::byte_of(c) {
                    Some(byte) => out.push(byte),
                    // Not of the alphabet: then the whole entry is plain text, as the published decoders have it.
                    None => {
                        out.clear();
                        out.extend_from_slice(text.as_bytes());
                        return;
                    }
                }
            }
        }
    }
}

/// `<0xAB>`.
fn byte_number(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

/// Byte strings end to end: a vocabulary of 150,000 small allocations would cost more than its contents.
#[derive(Clone, Debug, Default)]
struct Arena {
    data: Vec<u8>,
    ends: Vec<usize>,
}

impl Arena {
    fn push(&mut self, bytes: &[u8]) {
        self.data.extend_from_slice(bytes);
        self.ends.push(self.data.len());
    }

    fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.data.get(start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_bytes() {
        let parts = Parts {
            tokens: ["Ġa", "<|x|>", "<0x0A>", "[PAD]", "a b", "ðŁ"].map(String::from).to_vec(),
            kinds: vec![
                Kind::Normal,
                Kind::Control,
                Kind::Byte,
                Kind::Unused,
                Kind::Normal,
                Kind::Normal,
            ],
            ..Parts::default()
        };
        let vocab = Vocab::new(&parts, &[4]);
        let expected: [&[u8]; 6] = [b" a", b"<|x|>", b"\n", b"", b"a b", &[0xf0, 0x9f]];
        for (id, bytes) in expected.into_iter().enumerate() {
            assert_eq!(vocab.bytes(id as u32), Some(bytes));
        }
        assert_eq!((vocab.bytes(6), vocab.text(6), vocab.kind(6)), (None, None, None));
        assert_eq!((vocab.piece(3), vocab.piece(6)), ("[PAD]".into(), "<id 6>".into()));
        assert_eq!(vocab.piece(5), "\u{fffd}");
        assert_eq!([1, 3, 4, 6].map(|id| vocab.is_special(id)), [true, false, true, false]);
    }

    #[test]
    fn padding_at_the_end_is_not_used() {
        let kinds = |kinds: &[Kind]| {
            let parts = Parts {
                tokens: vec!["x".into(); kinds.len()],
                kinds: kinds.to_vec(),
                ..Parts::default()
            };
            Vocab::new(&parts, &[]).len_used()
        };
        assert_eq!(kinds(&[Kind::Unused, Kind::Normal, Kind::Unused, Kind::Unused]), 2);
        assert_eq!(kinds(&[Kind::Unused]), 0);
    }
}
