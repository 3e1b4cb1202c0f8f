use std::sync::LazyLock;

use proptest::prelude::*;

use super::super::fixtures::{END, START, TOOL, bytes_only, parts};
use super::super::parts::Parts;
use super::*;
use crate::gguf::{Array, Value};

fn plain() -> Encode {
    Encode { specials: false, bos: false, ..Encode::default() }
}

fn error(parts: &Parts) -> String {
    Tokenizer::new(parts).unwrap_err().to_string()
}

#[test]
fn merges_apply_by_rank_within_words() {
    let parts = parts("gpt-2", &["ab", "abc", "bc", "Ġa"], &["a b", "ab c", "b c"]);
    let tokenizer = Tokenizer::new(&parts).unwrap();
    let encode = |text| tokenizer.encode(text, plain()).unwrap();
    assert_eq!(encode("abc"), [257]);
    assert_eq!(encode("xbc"), [u32::from(b'x'), 258]);
    // No merge leads to it, although it is a token.
    assert_eq!(encode(" a"), [32, 97]);
    assert_eq!(tokenizer.piece(259), " a");
    let llama = Tokenizer::new(&Parts { pre: "llama-bpe".into(), ..parts }).unwrap();
    assert_eq!(llama.encode(" a", plain()).unwrap(), [259]);
}

#[test]
fn specials_are_recognised_on_demand() {
    let tokenizer = bytes_only();
    let (start, end, tool) = (256, 257, 258);
    let text = format!("{START}a{TOOL}{END}");
    let ids = tokenizer.encode(&text, Encode::default()).unwrap();
    assert_eq!(ids, [start, u32::from(b'a'), tool, end]);
    assert_eq!(tokenizer.decode(&ids, true), text);
    assert_eq!(tokenizer.decode(&ids, false), format!("a{TOOL}"));
    // A user-defined token is text that is always one token; a forged end of turn stays plain text.
    let ids = tokenizer.encode(&text, plain()).unwrap();
    assert!(ids.contains(&tool) && !ids.contains(&start) && !ids.contains(&end));
    assert_eq!(tokenizer.decode(&ids, false), text);
    assert_eq!(tokenizer.end_tokens(), [end]);
}

#[test]
fn bos_once_and_only_if_the_model_wants_it() {
    let mut parts = parts("gpt-2", &[], &[]);
    parts.add_bos = true;
    let tokenizer = Tokenizer::new(&parts).unwrap();
    let encode = |text: &str| tokenizer.encode(text, Encode::default()).unwrap();
    assert_eq!(encode("a"), [256, 97]);
    assert_eq!(encode(&format!("{START}a")), [256, 97]);
    assert_eq!(encode(""), [256]);
    assert_eq!(tokenizer.encode("a", plain()).unwrap(), [97]);
    parts.bos = None;
    assert_eq!(Tokenizer::new(&parts).unwrap().encode("a", Encode::default()).unwrap(), [97]);
}

#[test]
fn bytes_without_a_token_are_left_out_and_nothing_merges_across() {
    let mut parts = parts("gpt-2", &["ab"], &["a b"]);
    parts.kinds[1] = Kind::Unused;
    let tokenizer = Tokenizer::new(&parts).unwrap();
    assert_eq!(tokenizer.encode("a\u{1}b", plain()).unwrap(), [97, 98]);
    assert_eq!(tokenizer.encode("ab\u{1}", plain()).unwrap(), [256]);
}

#[test]
fn what_is_wrong_with_a_description_is_named() {
    let good = || parts("gpt-2", &["ab"], &["a b"]);
    let with = |change: fn(&mut Parts)| {
        let mut parts = good();
        change(&mut parts);
        error(&parts)
    };
    assert!(Tokenizer::new(&good()).is_ok());
    assert!(with(|p| p.tokens[256] = "a".into()).contains("97 and 256 are both \"a\""));
    assert!(with(|p| p.merges = vec!["a x".into()]).contains("\"ax\" is not in the vocabulary"));
    assert!(with(|p| p.merges = vec!["a b".into(), "zz b".into()]).contains("merges[1]"));
    for merge in ["", "ab", "a ", " b", " "] {
        let parts = Parts { merges: vec![merge.into()], ..good() };
        assert!(
            matches!(Tokenizer::new(&parts), Err(TokenizerError::BadMerge { index: 0, .. })),
            "{merge:?}"
        );
    }
    assert!(with(|p| p.merges = vec!["a".repeat(100_000)]).len() < 500);
    assert!(with(|p| p.kinds.truncate(3)).contains("token_type has"));
    assert!(with(|p| p.pre = "llama4".into()).contains("`llama4`"));
    assert!(with(|p| p.eos = Some(9999)).contains("eos_token_id is 9999"));
    assert!(with(|p| p.bos = Some(u32::MAX)).contains("bos_token_id"));
    assert!(with(|p| p.more_ends = vec![261]).contains("261"));
    assert!(with(|p| *p = Parts { pre: "gpt-2".into(), ..Parts::default() }).contains("empty"));
    // A merge may not produce a mark, or plain text could forge one.
    assert!(with(|p| p.kinds[256] = Kind::Control).contains("merges[0]"));
}

fn header(change: impl FnOnce(&mut std::collections::BTreeMap<String, Value>)) -> Header {
    let strings = |texts: &[&str]| Value::Array(Array::String(texts.iter().collect()));
    let mut metadata: std::collections::BTreeMap<String, Value> = [
        ("model", Value::String("gpt2".into())),
        ("pre", Value::String("llama-bpe".into())),
        ("tokens", strings(&["a", "b", "ab", "<|eot_id|>", "<s>"])),
        ("token_type", Value::Array(Array::I32(vec![1, 1, 1, 3, 3]))),
        ("merges", strings(&["a b"])),
        ("bos_token_id", Value::U32(4)),
        ("eot_token_id", Value::U64(3)),
    ]
    .map(|(key, value)| (format!("tokenizer.ggml.{key}"), value))
    .into();
    change(&mut metadata);
    Header { version: 3, alignment: 32, metadata, tensors: Default::default(), data_start: 0 }
}

#[test]
fn a_header_makes_a_tokenizer() {
    let tokenizer = Tokenizer::from_gguf(&header(|_| {})).unwrap();
    assert_eq!(tokenizer.encode("ab<|eot_id|>", Encode::default()).unwrap(), [4, 2, 3]);
    assert_eq!((tokenizer.end_tokens(), tokenizer.vocab_size()), (&[3][..], 5));
    let tokenizer = Tokenizer::from_gguf(&header(|m| {
        m.insert("tokenizer.ggml.add_bos_token".into(), Value::Bool(false));
        m.remove("tokenizer.ggml.token_type");
    }));
    assert!(!tokenizer.unwrap().add_bos());
}

#[test]
fn fields_of_the_wrong_type_are_named() {
    let number = || Value::U32(1);
    for key in ["model", "pre", "tokens", "token_type", "merges", "add_bos_token"] {
        let key = format!("tokenizer.ggml.{key}");
        let header = header(|m| drop(m.insert(key.clone(), number())));
        let error = Tokenizer::from_gguf(&header).unwrap_err().to_string();
        assert!(error.contains(&key), "{error}");
    }
    for key in ["bos_token_id", "eos_token_id", "eot_token_id"] {
        let key = format!("tokenizer.ggml.{key}");
        let header = header(|m| drop(m.insert(key.clone(), Value::I32(-1))));
        assert!(Tokenizer::from_gguf(&header).unwrap_err().to_string().contains(&key));
    }
    for key in ["model", "tokens", "merges"] {
        let key = format!("tokenizer.ggml.{key}");
        let header = header(|m| drop(m.remove(&key)));
        assert!(Tokenizer::from_gguf(&header).unwrap_err().to_string().contains(&key));
    }
    let error = |kinds: Array| {
        let header =
            header(|m| drop(m.insert("tokenizer.ggml.token_type".into(), Value::Array(kinds))));
        Tokenizer::from_gguf(&header).unwrap_err().to_string()
    };
    assert!(error(Array::I32(vec![1, 1, 7, 1, 1])).contains("token_type[2] is 7"));
    assert!(error(Array::I32(vec![1])).contains("has 1 entries"));
    assert!(error(Array::F32(vec![1.0; 5])).contains("token_type[0] is no integer"));
    let llama =
        header(|m| drop(m.insert("tokenizer.ggml.model".into(), Value::String("llama".into()))));
    assert!(Tokenizer::from_gguf(&llama).unwrap_err().to_string().contains("`llama`"));
}

#[test]
fn long_texts_take_linear_time_or_are_refused() {
    let tokenizer = Tokenizer::new(&parts("qwen2", &["aa", "ĠĠ"], &["a a", "Ġ Ġ"])).unwrap();
    let begun = std::time::Instant::now();
    for unit in ["a", " ", "\n", "' ", "\u{301}", "1", "é ", "<|", "<|im_start|>", " \r\n"] {
        let text = unit.repeat((1 << 20) / unit.len());
        let ids = tokenizer.encode(&text, plain()).unwrap();
        assert_eq!(tokenizer.decode(&ids, true), text);
    }
    assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
    let capped = Encode { max_bytes: 3, ..plain() };
    assert!(matches!(
        tokenizer.encode("abcd", capped),
        Err(EncodeError::TooLong { bytes: 4, limit: 3 })
    ));
}

/// One of each sort, with a few merges.
static SMALL: LazyLock<[Tokenizer; 5]> = LazyLock::new(|| {
    ["gpt-2", "smollm", "qwen2", "llama-bpe", "default"].map(|pre| {
        let parts = parts(pre, &["th", "Ġt", "Ġth", "the"], &["t h", "Ġ t", "Ġt h", "th e"]);
        Tokenizer::new(&parts).unwrap()
    })
});

proptest! {
    #[test]
    fn any_text_comes_back(text in ".{0,80}", specials: bool) {
        for tokenizer in &*SMALL {
            let ids = tokenizer.encode(&text, Encode { specials, ..plain() }).unwrap();
            prop_assert_eq!(tokenizer.decode(&ids, true), &*text);
        }
    }
}

proptest! {
    #[test]
    fn no_description_panics(
        tokens in proptest::collection::vec("[abĠ ☃]{0,3}", 0..12),
        numbers in proptest::collection::vec(0_i64..8, 0..12),
        merges in proptest::collection::vec("[abĠ☃]{0,2} ?[abĠ☃ ]{0,2}", 0..6),
        bos in proptest::option::of(0_u32..14),
        text in "[ab ☃]{0,12}",
    ) {
        let kinds = numbers.iter().map(|number| Kind::from_number(*number).unwrap_or(Kind::Normal));
        let kinds: Vec<Kind> = kinds.chain(std::iter::repeat(Kind::Normal)).take(tokens.len()).collect();
        for pre in ["gpt-2", "llama-bpe"] {
            let (tokens, kinds, merges) = (tokens.clone(), kinds.clone(), merges.clone());
            let parts = Parts { tokens, kinds, merges, pre: pre.into(), bos, add_bos: true, ..Parts::default() };
            if let Ok(tokenizer) = Tokenizer::new(&parts) {
                let ids = tokenizer.encode(&text, Encode::default()).unwrap();
                prop_assert!(ids.iter().all(|id| (*id as usize) < parts.tokens.len()));
                drop(tokenizer.decode(&ids, true));
            }
        }
    }
}
