//! Cutting text into the words that BPE then merges within.
//!
//! The patterns are those of llama.cpp, which are those of the models' own tokenizers, with one change: their last
//! alternatives are `\s+(?!\S)|\s+`, "white space up to the last character before a word". Look-around needs a
//! backtracking engine, whose time is not bounded by the text's length. Here the pattern ends in `\s+`, and a match
//! that came from it is cut back by one character where the look-ahead would have done so. That gives the same
//! words in linear time.

use std::ops::Range;

use regex::Regex;

use super::error::TokenizerError;
use super::parts::shorten;

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+";
const QWEN2: &str = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const LLAMA3: &str = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";

/// What a pattern's trailing `\s+` may match, which tells its matches from those of the other alternatives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Space {
    /// The pattern has no such alternative.
    None,
    /// Any white space; no other alternative ends in white space.
    Any,
    /// White space that does not end in a line break: those that do belong to another alternative.
    NoBreak,
}

/// A pre-tokenizer this build knows.
struct Known {
    names: &'static [&'static str],
    /// Applied one after the other, each within the pieces that the one before has left.
    stages: &'static [(&'static str, Space)],
    /// A word that is a token needs no merges to be one.
    ignore_merges: bool,
    /// Whether a text begins with the BOS token if the file does not say.
    bos: bool,
}

const KNOWN: &[Known] = &[
    Known {
        names: &["smollm", "starcoder", "refact", "codeshell"],
        stages: &[(r"\p{N}", Space::None), (GPT2, Space::Any)],
        ignore_merges: false,
        bos: false,
    },
    Known {
        names: &["qwen2", "deepseek-r1-qwen", "stablelm2"],
        stages: &[(QWEN2, Space::NoBreak)],
        ignore_merges: false,
        bos: false,
    },
    Known {
        names: &["llama-bpe", "llama3", "llama-v3"],
        stages: &[(LLAMA3, Space::NoBreak)],
        ignore_merges: true,
        bos: true,
    },
    Known {
        names: &["gpt-2", "phi-2"],
        stages: &[(GPT2, Space::Any)],
        ignore_merges: false,
        bos: false,
    },
    Known {
        names: &["default"],
        stages: &[
            (r"[\p{P}\$\+<=>\^~\|]+", Space::None),
            (GPT2, Space::Any),
            (r"\p{N}+", Space::None),
            (r"[0-9][0-9][0-9]", Space::None),
        ],
        ignore_merges: false,
        bos: false,
    },
];

fn find(pre: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.names.contains(&pre))
}

/// Whether models of this pre-tokenizer want their texts to begin with the BOS token.
pub(super) fn begins_with_bos(pre: &str) -> bool {
    find(pre).is_some_and(|known| known.bos)
}

/// Cuts text into words.
#[derive(Debug)]
pub(super) struct PreTokenizer {
    stages: Vec<(Regex, Space)>,
    pub(super) ignore_merges: bool,
    /// The first of its names.
    pub(super) name: &'static str,
}

impl PreTokenizer {
    pub(super) fn new(pre: &str) -> Result<Self, TokenizerError> {
        let known = find(pre).ok_or_else(|| TokenizerError::UnknownPre {
            pre: shorten(pre),
            known: KNOWN
                .iter()
                .flat_map(|known| known.names)
                .copied()
                .collect::<Vec<_>>()
                .join(", "),
        })?;
        let mut stages = Vec::with_capacity(known.stages.len());
        for (pattern, space) in known.stages {
            let regex = Regex::new(pattern)
                .map_err(|error| TokenizerError::Build { reason: error.to_string() })?;
            stages.push((regex, *space));
        }
        let name = known.names.first().copied().unwrap_or_default();
        Ok(Self { stages, ignore_merges: known.ignore_merges, name })
    }

    /// The words of `text`, in order; together they are the whole text.
    pub(super) fn words(&self, text: &str) -> Vec<Range<usize>> {
        let mut words = Vec::new();
        if !text.is_empty() {
            words.push(0..text.len());
        }
        let mut next = Vec::new();
        for (regex, space) in &self.stages {
            next.clear();
            for piece in &words {
                split(regex, *space, &text[piece.clone()], piece.start, &mut next);
            }
            std::mem::swap(&mut words, &mut next);
        }
        words
    }
}

/// The matches in `piece`, and what lies between them.
fn split(regex: &Regex, space: Space, piece: &str, offset: usize, out: &mut Vec<Range<usize>>) {
    let mut done = 0;
    while let Some(found) = regex.find_at(piece, done) {
        if found.is_empty() {
            break;
        }
        if found.start() > done {
            out.push(offset + done..offset + found.start());
        }
        done = found.end() - given_back(space, found.as_str(), found.end() == piece.len());
        out.push(offset + found.start()..offset + done);
    }
    if done < piece.len() {
        out.push(offset + done..offset + piece.len());
    }
}

/// How many bytes of a match the look-ahead `(?!\S)` would leave to the next word: the last character of a run
/// of white space, if there is another before it and a word after it.
fn given_back(space: Space, found: &str, at_end: bool) -> usize {
    if at_end || space == Space::None {
        return 0;
    }
    match found.chars().next_back() {
        Some('\r' | '\n') if space == Space::NoBreak => 0,
        Some(last) if last.is_whitespace() && found.len() > last.len_utf8() => last.len_utf8(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;

    /// Compiling the patterns takes longer than using them.
    static BUILT: LazyLock<Vec<(&str, PreTokenizer)>> = LazyLock::new(|| {
        KNOWN
            .iter()
            .map(|known| (known.names[0], PreTokenizer::new(known.names[0]).unwrap()))
            .collect()
    });

    fn words<'t>(pre: &str, text: &'t str) -> Vec<&'t str> {
        let (_, built) = BUILT.iter().find(|(name, _)| *name == pre).unwrap();
        built.words(text).into_iter().map(|word| &text[word]).collect()
    }

    #[test]
    fn words_of_each_pre_tokenizer() {
        assert_eq!(words("smollm", "a 12  b"), ["a", " ", "1", "2", " ", " b"]);
        assert_eq!(words("smollm", "a  1"), ["a", "  ", "1"]);
        assert_eq!(words("gpt-2", "I'll x 12\n\n b"), ["I", "'ll", " x", " 12", "\n\n", " b"]);
        assert_eq!(words("gpt-2", "\t\tx\n"), ["\t", "\t", "x", "\n"]);
        assert_eq!(
            words("qwen2", "I'LL  x12\n\n b"),
            ["I", "'LL", " ", " x", "1", "2", "\n\n", " b"]
        );
        assert_eq!(words("qwen2", "\t\tx"), ["\t", "\tx"]);
        assert_eq!(words("llama-bpe", "12345 !?\n\nx"), ["123", "45", " !?\n\n", "x"]);
        assert_eq!(words("default", "ab, 12345"), ["ab", ",", " ", "123", "45"]);
        assert!(words("qwen2", "").is_empty());
    }

    #[test]
    fn an_unknown_name_is_refused() {
        let error = PreTokenizer::new("tekken\n").unwrap_err().to_string();
        assert!(error.contains("`tekken") && error.contains("smollm"), "{error}");
    }

    /// The same alternatives as published, in a backtracking engine.
    static PUBLISHED: LazyLock<Vec<(&str, fancy_regex::Regex)>> = LazyLock::new(|| {
        let patterns = [("gpt-2", GPT2), ("qwen2", QWEN2), ("llama-bpe", LLAMA3)];
        let published =
            |pattern: &str| format!(r"{}|\s+(?!\S)|\s+", pattern.strip_suffix(r"|\s+").unwrap());
        patterns.map(|(pre, ours)| (pre, fancy_regex::Regex::new(&published(ours)).unwrap())).into()
    });

    proptest! {
        #[test]
        fn the_look_ahead_is_not_missed(text in r"([ \t\r\n\u{a0}\u{3000}]|[a'sD1٣ß漢!]|\PC){0,40}") {
            for (pre, regex) in &*PUBLISHED {
                let published: Vec<&str> = regex.find_iter(&text).map(|found| found.unwrap().as_str()).collect();
                prop_assert_eq!(words(pre, &text), published);
            }
        }

        #[test]
        fn words_are_the_whole_text(text in ".{0,60}") {
            for (pre, _) in &*BUILT {
                prop_assert_eq!(words(pre, &text).concat(), &*text);
            }
        }
    }
}
