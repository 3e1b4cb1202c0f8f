//! A vocabulary of letters and pairs, targets and drafts that are tables over it, and what a grammar leaves of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use redline::spec::{Drafter, Ngram, NgramConfig};
use redline::text::{Kind, Parts, Tokenizer};
use redline::{
    BLOCK_SIZE, DraftLength, DraftModel, Engine, EngineOptions, GenerateRequest, Grammar,
    ModelRunner, Prompt, Sampling, Target, TokenId, assemble, verifier,
};
use redline_tests::runners::Table;
use regex::Regex;

/// Entries that are text. The last two are the bytes of `é`.
pub(crate) const PIECES: [&str; 11] = ["a", "b", "c", "ab", "ba", "bc", "aab", "x", "cc", "Ã", "©"];
pub(crate) const X: TokenId = 7;
pub(crate) const BEGIN: TokenId = 11;
/// Two marks end a text.
pub(crate) const ENDS: [TokenId; 2] = [12, 13];
pub(crate) const VOCAB: usize = 14;

pub(crate) fn tokenizer() -> Arc<Tokenizer> {
    let mut tokens: Vec<String> = PIECES.map(str::to_owned).to_vec();
    let mut kinds = vec![Kind::Normal; tokens.len()];
    tokens.extend(["<|im_start|>", "<|im_end|>", "<|endoftext|>"].map(str::to_owned));
    kinds.extend([Kind::Control; 3]);
    let eos = Some(ENDS[0]);
    let parts = Parts { tokens, kinds, pre: "gpt-2".to_owned(), eos, ..Parts::default() };
    Arc::new(Tokenizer::new(&parts).unwrap())
}

/// A grammar of letters, what can still become one of its texts, and what is one.
pub(crate) struct Language {
    pub(crate) grammar: Grammar,
    open: Regex,
    whole: Regex,
}

impl Language {
    fn new(grammar: Grammar, open: &str, whole: &str) -> Self {
        let regex = |text: &str| Regex::new(&format!("^(?:{text})$")).unwrap();
        Self { grammar, open: regex(open), whole: regex(whole) }
    }

    /// Whether `tokens` may be followed by `token`.
    pub(crate) fn allows(&self, tokens: &[TokenId], token: TokenId) -> bool {
        let mut bytes = bytes(tokens);
        if ENDS.contains(&token) {
            return std::str::from_utf8(&bytes).is_ok_and(|text| self.whole.is_match(text));
        }
        let Some(&piece) = PIECES.get(token as usize) else { return false };
        bytes.extend(piece_bytes(piece));
        // None of these languages has another character that begins like `é`.
        if bytes.last() == Some(&0xc3) {
            bytes.push(0xa9);
        }
        std::str::from_utf8(&bytes).is_ok_and(|text| self.open.is_match(text))
    }

    pub(crate) fn is_whole(&self, text: &str) -> bool {
        self.whole.is_match(text)
    }
}

fn piece_bytes(piece: &str) -> &[u8] {
    match piece {
        "Ã" => &[0xc3],
        "©" => &[0xa9],
        piece => piece.as_bytes(),
    }
}

fn bytes(tokens: &[TokenId]) -> Vec<u8> {
    tokens.iter().flat_map(|&token| piece_bytes(PIECES[token as usize])).copied().collect()
}

pub(crate) fn languages() -> Vec<Language> {
    vec![
        Language::new(Grammar::regex("(a|b)*c"), "[ab]*c?", "[ab]*c"),
        Language::new(Grammar::regex("(ab)+|x"), "(?:ab)*a?|x", "(?:ab)+|x"),
        Language::new(Grammar::regex("a{2,3}b?"), "a{0,3}|a{2,3}b", "a{2,3}b?"),
        Language::new(Grammar::regex("a(b|é)*"), "(?:a[bé]*)?", "a[bé]*"),
        Language::new(
            Grammar::lark("start: A (B | \"c\" C)*\nA: /a+/\nB: \"b\"\nC: \"c\""),
            "|a+(?:b|cc)*c?",
            "a+(?:b|cc)*",
        ),
    ]
}

/// The one of [`languages`] that the law is tested on.
pub(crate) fn letters() -> Language {
    languages().swap_remove(0)
}

/// Logits by the last two tokens: the target's for `noise` 0, a draft's near it otherwise.
pub(crate) fn logit(tokens: &[TokenId], token: TokenId, noise: f64) -> f64 {
    let of = |seed: u64| {
        let tail = &tokens[tokens.len().saturating_sub(2)..];
        let mut x = tail.iter().chain([&token]).fold(seed, |x, &t| {
            (x ^ (u64::from(t) + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        });
        x ^= x >> 31;
        x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (x >> 40) as f64 / f64::from(1 << 24) * 3.0 - 1.5
    };
    of(1) + noise * of(2)
}

pub(crate) fn table(noise: f64) -> Box<dyn ModelRunner> {
    Box::new(Table::new(VOCAB, 512, move |seen, logits| {
        for (token, value) in logits.iter_mut().enumerate() {
            *value = logit(seen, token as TokenId, noise) as f32;
        }
    }))
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Draft {
    None,
    Ngram,
    Model,
}

impl Draft {
    pub(crate) fn drafter(self) -> Option<Box<dyn Drafter>> {
        let config = NgramConfig { min_n: 1, ..NgramConfig::default() };
        match self {
            Self::None => None,
            Self::Ngram => Some(Box::new(Ngram::new(config).unwrap())),
            Self::Model => Some(Box::new(DraftModel::new("letters", table(0.7), VOCAB))),
        }
    }
}

pub(crate) fn engine(
    target: Box<dyn ModelRunner>,
    drafter: Option<Box<dyn Drafter>>,
    (rule, k): (&str, usize),
    (seqs, blocks): (usize, u64),
    tokenizer: Option<Arc<Tokenizer>>,
) -> Engine {
    let lanes = [Some(target.info().lane)];
    let own: u64 = lanes.iter().flatten().map(|lane| lane.bytes_per_token().unwrap()).sum();
    let lane = drafter.as_ref().and_then(|drafter| drafter.lane());
    let draft = lane.map_or(0, |need| {
        u64::from(2 * need.layers * need.kv_heads * need.head_dim * need.element_bytes)
    });
    let options = EngineOptions {
        max_seqs: seqs,
        kv_memory: Some((own + draft) * u64::from(BLOCK_SIZE) * blocks),
        queue_len: 4096,
        ..EngineOptions::default()
    };
    let target = Target { runner: target, tokenizer, template: None };
    let rule = verifier(rule).unwrap();
    assemble(target, drafter, rule, DraftLength::Fixed(k), &options).unwrap()
}

/// An engine over letters.
pub(crate) fn letters_engine(draft: Draft, rule: (&str, usize), size: (usize, u64)) -> Engine {
    engine(table(0.0), draft.drafter(), rule, size, Some(tokenizer()))
}

pub(crate) fn request(
    grammar: &Grammar,
    prompt: &[TokenId],
    seed: u64,
    n: usize,
) -> GenerateRequest {
    GenerateRequest {
        max_tokens: n,
        sampling: Sampling { temperature: 1.0, ..Sampling::default() },
        seed: Some(seed),
        constraint: Some(grammar.clone().into()),
        ..GenerateRequest::new(Prompt::Tokens(prompt.to_vec()))
    }
}

/// The law of what follows `prompt` under a language: every output of at most `n` tokens and its probability.
pub(crate) fn enumerate(
    language: &Language,
    prompt: &[TokenId],
    n: usize,
) -> BTreeMap<Vec<TokenId>, f64> {
    let mut law = BTreeMap::new();
    let mut open = vec![(Vec::new(), 1.0)];
    while let Some((said, mass)) = open.pop() {
        let seen = [prompt, &said].concat();
        let weight = |token: TokenId| f64::from(logit(&seen, token, 0.0) as f32).exp();
        let allowed: Vec<_> =
            (0..VOCAB as TokenId).filter(|&token| language.allows(&said, token)).collect();
        let total: f64 = allowed.iter().map(|&token| weight(token)).sum();
        for token in allowed {
            let mass = mass * weight(token) / total;
            let said = [&said[..], &[token]].concat();
            if ENDS.contains(&token) || said.len() == n {
                law.insert(said, mass);
            } else {
                open.push((said, mass));
            }
        }
    }
    law
}
