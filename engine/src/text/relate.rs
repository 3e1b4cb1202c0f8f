//! Which of a draft model's tokens are which of the target's, where the two vocabularies differ.
//!
//! Entries are paired by what they are and how they are written. That is enough for exactness whatever is
//! paired: verification uses the law that drafts were really drawn from. A draft that cuts texts otherwise than the
//! target costs acceptance only; one that was trained on words cut by another rule would seldom be right, and is
//! refused.

use redline_spec::{VocabMap, VocabMapError};
use rustc_hash::FxHashMap;
use thiserror::Error;

use super::compare::{Compatibility, compare};
use super::tokenizer::Tokenizer;
use super::vocab::{Kind, Vocab};

/// How two vocabularies go together.
#[derive(Debug)]
pub enum Relation {
    /// Ids mean the same.
    Same(Compatibility),
    /// Ids have to be translated.
    Mapped(Mapping),
}

/// A translation, and how much it covers.
#[derive(Debug)]
pub struct Mapping {
    /// The draft's ids in the target's.
    pub map: VocabMap,
    /// Tokens that both have.
    pub common: usize,
    /// Tokens of the draft, without padding.
    pub draft: usize,
    /// Tokens of the target, without padding.
    pub target: usize,
}

/// Why a model can't draft for another.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Unrelated {
    /// Different rules for where words end.
    #[error(
        "their tokenizers cut texts by different rules, `{draft}` and `{target}`: their tokens can't be compared"
    )]
    Pre {
        /// The draft's pre-tokenizer.
        draft: &'static str,
        /// The target's.
        target: &'static str,
    },
    /// Nothing to draft, or no map.
    #[error(transparent)]
    Map(#[from] VocabMapError),
}

/// Relates a draft's vocabulary to the target's.
///
/// # Errors
/// [`Unrelated`] if their pieces are not comparable or have nothing in common.
pub fn relate(draft: &Tokenizer, target: &Tokenizer) -> Result<Relation, Unrelated> {
    if let Ok(same) = compare(draft.vocab(), target.vocab()) {
        return Ok(Relation::Same(same));
    }
    if draft.pre() != target.pre() {
        return Err(Unrelated::Pre { draft: draft.pre(), target: target.pre() });
    }
    mapping(draft.vocab(), target.vocab()).map(Relation::Mapped)
}

fn mapping(draft: &Vocab, target: &Vocab) -> Result<Mapping, Unrelated> {
    let mut ids = FxHashMap::default();
    for (name, id) in names(target) {
        // Of entries written the same, the first is the one that texts come to.
        ids.entry(name).or_insert(id);
    }
    let mut to_target = vec![None; draft.len_used()];
    for (name, id) in names(draft) {
        // Each of the target's is given away once.
        to_target[id as usize] = ids.remove(&name);
    }
    let common = to_target.iter().flatten().count();
    let map = VocabMap::new(to_target, target.len_used())?;
    let (draft, target) = (names(draft).count(), names(target).count());
    Ok(Mapping { map, common, draft, target })
}

/// What an entry is. Files of one tokenizer differ in whether an added token is a control token or user-defined.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Class {
    Text,
    Byte,
    Mark,
}

/// All entries but padding, by class and writing.
fn names(vocab: &Vocab) -> impl Iterator<Item = ((Class, &str), u32)> {
    (0..vocab.len_used() as u32).filter_map(|id| {
        let class = match vocab.kind(id)? {
            Kind::Unused => return None,
            Kind::Normal => Class::Text,
            Kind::Byte => Class::Byte,
            Kind::Unknown | Kind::Control | Kind::UserDefined => Class::Mark,
        };
        Some(((class, vocab.text(id)?), id))
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::parts;
    use super::super::parts::Parts;
    use super::*;

    fn tokenizer(parts: &Parts) -> Tokenizer {
        Tokenizer::new(parts).unwrap()
    }

    fn mapped(draft: &Parts, target: &Parts) -> Mapping {
        match relate(&tokenizer(draft), &tokenizer(target)).unwrap() {
            Relation::Mapped(mapping) => mapping,
            Relation::Same(same) => panic!("{same:?}"),
        }
    }

    /// The same tokenizer with the order of its entries turned around, marks and padding included.
    fn reversed(parts: &Parts) -> Parts {
        let mut other = parts.clone();
        other.tokens.reverse();
        other.kinds.reverse();
        let turn = |id: u32| parts.tokens.len() as u32 - 1 - id;
        (other.bos, other.eos) = (parts.bos.map(turn), parts.eos.map(turn));
        other
    }

    #[test]
    fn the_same_tokens_in_another_order_all_map() {
        let target = parts("gpt-2", &["ab", "cd"], &["a b", "c d"]);
        let draft = reversed(&target);
        let Mapping { map, common, draft: own, target: theirs } = mapped(&draft, &target);
        assert_eq!((common, own, theirs), (261, 261, 261));
        for (id, text) in (0..).zip(&draft.tokens) {
            let there = map.to_target(id).map(|there| &target.tokens[there as usize]);
            let expected = (text != "[PAD]").then_some(text);
            assert_eq!(there, expected);
        }
    }

    #[test]
    fn what_only_one_has_does_not_map() {
        let small = parts("gpt-2", &["ab"], &["a b"]);
        let large = parts("gpt-2", &["xy", "ab", "cd"], &["x y", "a b", "c d"]);
        let counts = |m: &Mapping| (m.common, m.draft, m.target);
        assert_eq!(counts(&mapped(&small, &large)), (260, 260, 262));
        let mapping = mapped(&large, &small);
        assert_eq!(counts(&mapping), (260, 262, 260));
        assert_eq!([256, 257, 258].map(|id| mapping.map.to_target(id)), [None, Some(256), None]);
    }

    #[test]
    fn what_is_written_the_same_maps_once_and_only_among_its_like() {
        let target = parts("gpt-2", &["ab"], &[]);
        let mut draft = parts("gpt-2", &["ab", "<|im_start|>x"], &[]);
        let at = |text: &str| draft.tokens.iter().rposition(|token| token == text).unwrap();
        let (tool, start) = (at("<tool>"), at("<|im_start|>"));
        // User-defined in one file, control in the other; and a mark that is plain text in the other.
        draft.kinds[tool] = Kind::Control;
        draft.kinds[start] = Kind::Normal;
        let map = mapped(&draft, &target).map;
        let found = [256, 257, start, tool].map(|id| map.to_target(id as u32));
        assert_eq!(found, [Some(256), None, None, Some(259)]);
        let vocab = |tokens: &[&str]| {
            let tokens: Vec<_> = tokens.iter().map(|&token| token.to_owned()).collect();
            let kinds = vec![Kind::Normal; tokens.len()];
            Vocab::new(&Parts { tokens, kinds, ..Parts::default() }, &[])
        };
        let twice = mapping(&vocab(&["a", "a"]), &vocab(&["b", "a", "a"])).unwrap().map;
        assert_eq!([0, 1].map(|id| twice.to_target(id)), [Some(1), None]);
    }

    #[test]
    fn strangers_are_refused_by_name() {
        let (one, other) = (parts("gpt-2", &["ab"], &[]), parts("smollm", &["cd"], &[]));
        let error = relate(&tokenizer(&one), &tokenizer(&other)).unwrap_err();
        assert_eq!(error, Unrelated::Pre { draft: "gpt-2", target: "smollm" });
        // Names of one rule are one name.
        let other = Parts { pre: "starcoder".into(), ..parts("", &["ab"], &[]) };
        let third = parts("smollm", &["cd"], &[]);
        assert!(relate(&tokenizer(&other), &tokenizer(&third)).is_ok());
        let vocab = |tokens: &[&str]| {
            let tokens: Vec<_> = tokens.iter().map(|&token| token.to_owned()).collect();
            let kinds = vec![Kind::Normal; tokens.len()];
            Vocab::new(&Parts { tokens, kinds, ..Parts::default() }, &[])
        };
        let nothing = mapping(&vocab(&["a", "b"]), &vocab(&["c"])).unwrap_err();
        assert_eq!(nothing, Unrelated::Map(VocabMapError::Disjoint));
    }
}
