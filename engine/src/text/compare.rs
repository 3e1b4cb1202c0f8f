//! Whether a draft model and a target model mean the same by a token id.

use thiserror::Error;

use super::vocab::{Kind, Vocab};

/// What two vocabularies have in common.
///
/// Every id below `shared` is the same token in both. From there on only one of them has tokens, if any: the other
/// ends or has nothing but padding. Padding at the end is never counted, so two models whose embeddings are padded to
/// different sizes have no tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compatibility {
    /// How many leading ids are the same.
    pub shared: usize,
    /// How many ids after those only the draft has. It may propose them; the target can never accept them.
    pub draft_tail: usize,
    /// How many ids after those only the target has. The draft never proposes them.
    pub target_tail: usize,
}

/// The first id that the two models mean different things by.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "draft and target have different tokenizers: token {id} is {draft:?} in the draft and {target:?} in the target"
)]
pub struct Mismatch {
    /// The id.
    pub id: u32,
    /// The draft's token.
    pub draft: String,
    /// The target's token.
    pub target: String,
}

/// Compares two vocabularies entry by entry.
///
/// Entries are the same if they are written the same. Of what sort they are does not matter: files of one tokenizer
/// differ in whether an added token is called control or user-defined. Two paddings are the same however they are
/// written.
///
/// # Errors
/// [`Mismatch`] with the first entry that differs.
pub fn compare(draft: &Vocab, target: &Vocab) -> Result<Compatibility, Mismatch> {
    let (draft_used, target_used) = (draft.len_used(), target.len_used());
    let shared = draft_used.min(target_used);
    for id in (0..).take(shared) {
        let padding = |vocab: &Vocab| vocab.kind(id) == Some(Kind::Unused);
        if draft.text(id) != target.text(id) && !(padding(draft) && padding(target)) {
            let name = |vocab: &Vocab| vocab.piece(id).into_owned();
            return Err(Mismatch { id, draft: name(draft), target: name(target) });
        }
    }
    Ok(Compatibility { shared, draft_tail: draft_used - shared, target_tail: target_used - shared })
}

#[cfg(test)]
mod tests {
    use super::super::parts::Parts;
    use super::*;

    /// `_` is padding.
    fn vocab(tokens: &[&str]) -> Vocab {
        let kinds =
            tokens.iter().map(|t| if t.starts_with('_') { Kind::Unused } else { Kind::Normal });
        let tokens = tokens.iter().map(|&token| token.to_owned()).collect();
        Vocab::new(&Parts { tokens, kinds: kinds.collect(), ..Parts::default() }, &[])
    }

    fn same(draft: &[&str], target: &[&str]) -> (usize, usize, usize) {
        let found = compare(&vocab(draft), &vocab(target)).unwrap();
        (found.shared, found.draft_tail, found.target_tail)
    }

    #[test]
    fn padding_and_tails() {
        assert_eq!(same(&["a", "b"], &["a", "b"]), (2, 0, 0));
        assert_eq!(same(&["a", "b", "_2", "_3"], &["a", "b"]), (2, 0, 0));
        assert_eq!(same(&["a", "b"], &["a", "b", "_x", "_y", "_z"]), (2, 0, 0));
        assert_eq!(same(&["a", "b", "c"], &["a", "b", "_2"]), (2, 1, 0));
        assert_eq!(same(&["a", "b"], &["a", "b", "c", "d"]), (2, 0, 2));
        assert_eq!(same(&["a", "_1", "c"], &["a", "_x", "c"]), (3, 0, 0));
        assert_eq!(same(&[], &["a"]), (0, 0, 1));
    }

    #[test]
    fn the_first_difference_is_named() {
        let mismatch = compare(&vocab(&["a", "b", "c"]), &vocab(&["a", "c", "b"])).unwrap_err();
        assert_eq!((mismatch.id, mismatch.draft.as_str(), mismatch.target.as_str()), (1, "b", "c"));
        assert!(
            mismatch.to_string().contains(r#"token 1 is "b" in the draft and "c" in the target"#)
        );
        // A hole in one is not a tail.
        assert!(compare(&vocab(&["a", "_1", "c"]), &vocab(&["a", "b", "c"])).is_err());
    }
}
