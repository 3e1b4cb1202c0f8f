//! At each position exactly those tokens are allowed after which the text can still become one of the grammar; the ends
//! of text where it is one.

use redline::spec::{Constraint, ConstraintError, TokenMask};
use redline::{Grammar, TokenId};

use crate::world::{BEGIN, Draft, ENDS, Language, VOCAB, languages, letters_engine};

fn start(grammar: &Grammar) -> Box<dyn Constraint> {
    letters_engine(Draft::None, ("coupled", 0), (1, 8)).frontend().grammar(grammar).unwrap()
}

fn allowed(constraint: &dyn Constraint) -> Vec<TokenId> {
    let mut mask = TokenMask::default();
    // Room for padding behind the vocabulary, which is never allowed.
    mask.reset(VOCAB + 50);
    constraint.mask(&mut mask).unwrap();
    (0..(VOCAB + 50) as TokenId).filter(|&token| mask.allows(token)).collect()
}

/// Walks every sequence of up to `depth` tokens.
fn walk(language: &Language, at: &dyn Constraint, said: &mut Vec<TokenId>, depth: usize) -> usize {
    let expected: Vec<_> =
        (0..VOCAB as TokenId).filter(|&token| language.allows(said, token)).collect();
    assert_eq!(allowed(at), expected, "after {said:?} of {:?}", language.grammar);
    let mut seen = 1;
    for token in 0..VOCAB as TokenId {
        let mut fork = at.fork();
        let taken = fork.advance(token);
        if !expected.contains(&token) {
            assert_eq!(taken, Err(ConstraintError::Forbidden { token }), "after {said:?}");
            continue;
        }
        taken.unwrap();
        if ENDS.contains(&token) {
            assert!(fork.is_finished());
            assert!(fork.advance(token).is_err(), "nothing follows an end");
        } else if depth > 0 {
            said.push(token);
            seen += walk(language, fork.as_ref(), said, depth - 1);
            said.pop();
        }
    }
    // What was done on forks has left no trace.
    assert_eq!(allowed(at), expected);
    let only_ends = expected.iter().all(|token| ENDS.contains(token));
    assert_eq!(at.is_finished(), only_ends, "after {said:?} of {:?}", language.grammar);
    seen
}

#[test]
fn a_mask_has_exactly_what_can_go_on() {
    let mut seen = 0;
    for language in languages() {
        let constraint = start(&language.grammar);
        seen += walk(&language, constraint.as_ref(), &mut Vec::new(), 5);
    }
    assert!(seen > 1000, "only {seen} positions");
}

/// Pairs of brackets can't be told by a regular expression.
#[test]
fn a_grammar_counts() {
    let grammar = Grammar::lark("start: pair\npair: \"a\" pair \"b\" | \"c\"");
    let mut at = start(&grammar);
    let [a, b, c] = [0, 1, 2];
    for token in [a, a, c] {
        at.advance(token).unwrap();
    }
    // `b`, or `ba` and `bc`, which would go on with what may not follow.
    assert_eq!(allowed(at.as_ref()), [b]);
    at.advance(b).unwrap();
    assert!(!at.is_finished());
    at.advance(b).unwrap();
    assert_eq!(allowed(at.as_ref()), ENDS);
    assert!(at.is_finished());
}

#[test]
fn marks_are_no_text() {
    // Any text at all, but no mark: not even the one that is spelt like it.
    let mut at = start(&Grammar::regex("(?s:.)*"));
    assert!(!allowed(at.as_ref()).contains(&BEGIN));
    assert_eq!(at.advance(BEGIN), Err(ConstraintError::Forbidden { token: BEGIN }));
    let mut at = start(&Grammar::lark("start: <|im_start|> \"a\""));
    assert_eq!(allowed(at.as_ref()), [BEGIN], "unless the grammar names it");
    at.advance(BEGIN).unwrap();
    assert_eq!(allowed(at.as_ref()), [0]);
}

/// In llguidance's Lark, an end of text may end a terminal, and the grammar go on behind it; here it ends the output.
#[test]
fn no_end_in_the_midst() {
    let mut at = start(&Grammar::lark("start: text \"c\"\ntext[stop=\"\"]: /[ab]*/"));
    for token in [0, 1, 3] {
        assert!(!allowed(at.as_ref()).iter().any(|token| ENDS.contains(token)));
        assert!(at.fork().advance(ENDS[0]).is_err());
        at.advance(token).unwrap();
    }
    let mut at = start(&Grammar::lark("start: \"a\" text\ntext[stop=\"\"]: /b*/"));
    at.advance(0).unwrap();
    assert_eq!(allowed(at.as_ref()), [1, 12, 13], "every end, where one completes the text");
    at.advance(ENDS[1]).unwrap();
    assert!(at.is_finished());
}

/// Requests share a compiled grammar, and nothing that one of them does to it.
#[test]
fn a_known_grammar_starts_anew() {
    let engine = letters_engine(Draft::None, ("coupled", 0), (1, 8));
    let frontend = engine.frontend();
    let grammar = Grammar::regex("(a|b)*c");
    let mut first = frontend.grammar(&grammar).unwrap();
    let before = allowed(first.as_ref());
    first.advance(2).unwrap();
    assert_eq!(allowed(first.as_ref()), ENDS);
    assert_eq!(allowed(frontend.grammar(&grammar).unwrap().as_ref()), before);
    // More of them than are kept.
    for i in 0..40 {
        frontend.grammar(&Grammar::regex(format!("a{{{}}}", i + 1))).unwrap();
    }
    assert_eq!(allowed(frontend.grammar(&grammar).unwrap().as_ref()), before);
}
