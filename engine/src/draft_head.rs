//! Which tokens a draft model's output head keeps.
//!
//! A head over 150,000 tokens is a third of what a small draft model reads for a token, and most of its rows are of
//! tokens that hardly ever come. Byte-pair tokenizers number tokens in the order in which training merged them, most
//! frequent pairs first, so low ids are a ranking that every model file brings along (`first`). A list of ids counted
//! in one's own texts is better (`listed`). Either way q is the law over the kept tokens, so the output's law stays
//! what it is (FR-Spec, arXiv 2502.14856).

use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use redline_spec::TokenId;
use thiserror::Error;

use crate::text::{Kind, Tokenizer};

/// Most bytes of a file of ids: more than any vocabulary needs.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The tokens that a draft model's head keeps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DraftHead {
    /// All of them.
    #[default]
    Whole,
    /// So many: those that end a text, then other control tokens, then the lowest ids.
    First(usize),
    /// These ids of the draft model's, in any order, and those that end a text.
    Listed(Vec<TokenId>),
}

/// A head that can't be.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DraftHeadError {
    /// No tokens.
    #[error("a draft head without tokens has nothing to draft")]
    Empty,
    /// More than there are.
    #[error("a draft head of {asked} tokens: the models share {tokens}")]
    TooMany {
        /// What was asked for.
        asked: usize,
        /// Tokens that draft and target share.
        tokens: usize,
    },
    /// An id that is no token.
    #[error("the draft head lists token {token}; the draft model's tokens are 0 to {last}")]
    NoToken {
        /// The id.
        token: TokenId,
        /// The draft's last token.
        last: usize,
    },
    /// An id twice.
    #[error("the draft head lists token {token} twice")]
    Twice {
        /// The id.
        token: TokenId,
    },
}

impl DraftHead {
    /// The ids in a file: numbers in any order, with white space, commas or brackets around them.
    ///
    /// # Errors
    /// One line, if it can't be read or has something else in it.
    pub fn read(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let fail = |error: std::io::Error| format!("can't read {name}: {error}");
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(fail)?;
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(fail)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(format!("{name} has more than {} MiB", FILE_BYTES_MAX >> 20));
        }
        let between = |c: char| c.is_whitespace() || matches!(c, ',' | '[' | ']');
        let words = text.split(between).filter(|word| !word.is_empty());
        let ids = words.map(|word| {
            word.parse().map_err(|_| {
                let word: String = word.chars().take(40).collect();
                format!("{name} has `{word}` where a token id should be")
            })
        });
        let ids: Vec<TokenId> = ids.collect::<Result<_, _>>()?;
        if ids.is_empty() { Err(format!("{name} has no token ids")) } else { Ok(Self::Listed(ids)) }
    }

    /// The ids that a model of this tokenizer keeps, ascending, if it is to draft for a target with all of its tokens; `None`
    /// if all are kept.
    ///
    /// # Errors
    /// [`DraftHeadError`] if it can't be.
    pub fn tokens(&self, draft: &Tokenizer) -> Result<Option<Vec<TokenId>>, DraftHeadError> {
        self.kept(draft, |_| true)
    }

    /// The kept ids of the draft's, ascending; `None` if all are. `shared` says which of them are the target's, too.
    pub(crate) fn kept(
        &self,
        draft: &Tokenizer,
        shared: impl Fn(TokenId) -> bool,
    ) -> Result<Option<Vec<TokenId>>, DraftHeadError> {
        let mut kept = match self {
            Self::Whole => return Ok(None),
            Self::First(0) => return Err(DraftHeadError::Empty),
            &Self::First(asked) => {
                let mut ranked = ranked(draft, shared);
                let tokens = ranked.len();
                if asked >= tokens {
                    let all = asked == tokens;
                    return if all {
                        Ok(None)
                    } else {
                        Err(DraftHeadError::TooMany { asked, tokens })
                    };
                }
                ranked.truncate(asked);
                ranked
            }
            Self::Listed(ids) => listed(draft, ids)?,
        };
        kept.sort_unstable();
        Ok(Some(kept))
    }
}

/// Tokens that both models have, the ones to keep first.
fn ranked(draft: &Tokenizer, shared: impl Fn(TokenId) -> bool) -> Vec<TokenId> {
    let rank = |id: TokenId| match draft.vocab().kind(id)? {
        Kind::Unused => None,
        _ if draft.is_end(id) => Some(0),
        Kind::Unknown | Kind::Control | Kind::UserDefined => Some(1),
        Kind::Normal | Kind::Byte => Some(2),
    };
    let ids = (0..draft.vocab().len_used() as TokenId).filter(|&id| shared(id));
    let mut ranked: Vec<(u8, TokenId)> = ids.filter_map(|id| Some((rank(id)?, id))).collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, id)| id).collect()
}

fn listed(draft: &Tokenizer, ids: &[TokenId]) -> Result<Vec<TokenId>, DraftHeadError> {
    let used = draft.vocab().len_used();
    let mut seen = vec![false; used];
    for &token in ids {
        match seen.get_mut(token as usize) {
            None => return Err(DraftHeadError::NoToken { token, last: used.saturating_sub(1) }),
            Some(seen) if *seen => return Err(DraftHeadError::Twice { token }),
            Some(seen) => *seen = true,
        }
    }
    if ids.is_empty() {
        return Err(DraftHeadError::Empty);
    }
    let ends = draft.end_tokens().iter().copied();
    let missing = ends.filter(|&end| seen.get(end as usize) == Some(&false));
    Ok(ids.iter().copied().chain(missing).collect())
}

/// `all`, a number of tokens, or a file of ids.
impl FromStr for DraftHead {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == "all" => Ok(Self::Whole),
            Ok(0) => Err(DraftHeadError::Empty.to_string()),
            Ok(tokens) => Ok(Self::First(tokens)),
            Err(_) => Self::read(Path::new(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::fixtures::parts;

    /// 256 bytes, two merges, then what the fixture has of marks.
    fn draft() -> Tokenizer {
        Tokenizer::new(&parts("gpt-2", &["ab", "cd"], &["a b", "c d"])).unwrap()
    }

    #[test]
    fn ends_and_marks_come_first_then_low_ids() {
        let draft = draft();
        let (ends, used) = (draft.end_tokens().to_vec(), draft.vocab().len_used());
        assert!(!ends.is_empty() && ends.iter().all(|&end| end >= 256), "{ends:?}");
        let kept = |n| DraftHead::First(n).kept(&draft, |_| true).map(Option::unwrap_or_default);
        assert_eq!(kept(ends.len()), Ok(ends.clone()));
        let marks = ranked(&draft, |_| true).iter().take_while(|&&id| id >= 258).count();
        let some = kept(marks + 5).unwrap();
        assert_eq!((&some[..5], some.len()), (&[0, 1, 2, 3, 4][..], marks + 5));
        let tokens =
            (0..used as u32).filter(|&id| draft.vocab().kind(id) != Some(Kind::Unused)).count();
        assert_eq!(DraftHead::First(tokens).kept(&draft, |_| true), Ok(None));
        let asked = tokens + 1;
        assert_eq!(kept(asked), Err(DraftHeadError::TooMany { asked, tokens }));
        assert_eq!(kept(0), Err(DraftHeadError::Empty));
        let even = DraftHead::First(marks + 3).kept(&draft, |id| id >= 256 || id % 2 == 0);
        assert_eq!(even.unwrap().unwrap()[..3], [0, 2, 4]);
    }

    #[test]
    fn lists_are_taken_by_the_letter_and_end_texts() {
        let draft = draft();
        let kept = |ids: &[u32]| DraftHead::Listed(ids.to_vec()).kept(&draft, |_| true);
        let mut expected = vec![3, 7];
        expected.extend(draft.end_tokens());
        assert_eq!(kept(&[7, 3]), Ok(Some(expected.clone())));
        assert_eq!(kept(&expected), Ok(Some(expected)));
        let last = draft.vocab().len_used() - 1;
        let token = last as u32 + 1;
        assert_eq!(kept(&[1, token]), Err(DraftHeadError::NoToken { token, last }));
        assert_eq!(kept(&[1, 2, 1]), Err(DraftHeadError::Twice { token: 1 }));
        assert_eq!(kept(&[]), Err(DraftHeadError::Empty));
    }

    #[test]
    fn written_as_all_a_number_or_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(path("ids"), "[5, 3,\n 9]\n7").unwrap();
        std::fs::write(path("none"), " []\n").unwrap();
        std::fs::write(path("words"), "1 two 3").unwrap();
        std::fs::write(path("minus"), "-1").unwrap();
        let read = |text: &str| text.parse::<DraftHead>();
        assert_eq!(read("all"), Ok(DraftHead::Whole));
        assert_eq!(read("32768"), Ok(DraftHead::First(32768)));
        assert_eq!(read(&path("ids")), Ok(DraftHead::Listed(vec![5, 3, 9, 7])));
        for (wrong, said) in [
            ("0".to_owned(), "nothing to draft"),
            (path("none"), "no token ids"),
            (path("words"), "`two`"),
            (path("minus"), "`-1`"),
            (path("nowhere"), "can't read"),
            ("-5".to_owned(), "can't read -5"),
        ] {
            let error = read(&wrong).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
