//! What can't be used is refused by name, before it meets the engine; what gets stuck fails alone.

use redline::{
    FailureKind, FinishReason, GRAMMAR_BYTES_MAX, GenerateRequest, Grammar, GrammarError, Prompt,
    SubmitRefused,
};
use redline_tests::rig::run;

use crate::world::{Draft, ENDS, X, engine, letters_engine, request, table};

#[track_caller]
fn refusal(grammar: Grammar) -> GrammarError {
    let mut engine = letters_engine(Draft::None, ("coupled", 0), (1, 8));
    match engine.submit(request(&grammar, &[X], 1, 8)) {
        Err(SubmitRefused::Grammar(error)) => {
            let line = error.to_string();
            assert!(!line.contains('\n') && line.len() < 500, "{line:?}");
            for inside in ["<", "backtrace", "panic", "non-verbose"] {
                assert!(!line.contains(inside), "{line:?}");
            }
            error
        }
        Err(other) => panic!("refused as {other}"),
        Ok(_) => panic!("not refused: {grammar:?}"),
    }
}

#[test]
fn each_mistake_has_its_name_and_place() {
    for (grammar, words) in [
        (Grammar::regex("a(b"), &["regular expression", "unclosed group", "byte 1"][..]),
        (Grammar::regex("a(?=b)"), &["regular expression", "look-around"]),
        (Grammar::regex("a\\bb"), &["regular expression", "lookarounds"]),
        (Grammar::regex(""), &["regular expression", "empty"]),
        (Grammar::regex("(".repeat(300) + &")".repeat(300)), &["nest"]),
        (Grammar::lark(" \n"), &["Lark grammar", "empty"]),
        (Grammar::lark("start: \"a\"\nfoo: \"b\" |) \n"), &["Lark grammar", "2(11)", "expecting"]),
        (Grammar::lark("start: foo"), &["Lark grammar", "1(8)", "unknown name", "foo"]),
        (Grammar::lark("begin: \"a\""), &["Lark grammar", "start"]),
        (Grammar::lark("start: ".to_owned() + &"(".repeat(20_000)), &["too deeply nested"]),
        (Grammar::json_schema("{\"type\": "), &["JSON schema", "line 1 column 9"]),
        (Grammar::json_schema("[1]"), &["JSON schema"]),
        (Grammar::json_schema("{\"type\": \"objet\"}"), &["JSON schema", "objet"]),
        (Grammar::json_schema("{\"not\": {}}"), &["JSON schema", "not"]),
        (Grammar::json_schema("{\"$ref\": \"#/$defs/x\"}"), &["JSON schema", "x"]),
        (Grammar::json_schema("{\"$ref\": \"http://a/b\"}"), &["JSON schema", "ref"]),
        (Grammar::json_schema("{\"x-guidance\": 1}"), &["JSON schema"]),
        (
            Grammar::json_schema("{\"items\":".repeat(9000) + "1" + &"}".repeat(9000)),
            &["90001 bytes", "65536"],
        ),
        (
            Grammar::json_schema("{\"items\":".repeat(1000) + "1" + &"}".repeat(1000)),
            &["recursion limit"],
        ),
    ] {
        let line = refusal(grammar.clone()).to_string();
        for word in words {
            assert!(line.contains(word), "{word:?} is not in {line:?}");
        }
    }
}

#[test]
fn a_grammar_of_nothing() {
    for grammar in [
        Grammar::regex("[a&&b]"),
        Grammar::lark("start: start"),
        Grammar::lark("start: A\nA: /a/ & /b/"),
        // There are letters for it, but none of them is in the vocabulary.
        Grammar::regex("z+"),
    ] {
        assert!(matches!(refusal(grammar), GrammarError::Nothing { .. }));
    }
    for schema in ["false", "{\"type\":\"integer\",\"minimum\":5,\"maximum\":3}"] {
        let line = refusal(Grammar::json_schema(schema)).to_string();
        assert!(line.contains("Unsatisfiable"), "{line}");
    }
}

/// What would take minutes or gigabytes meets a limit that is counted, not timed: of text, of symbols, of regular
/// expression nodes. The same grammar is refused on any machine.
#[test]
fn hostile_grammars_meet_their_limits() {
    let too_long = Grammar::lark("start: \"a\"\n// ".to_owned() + &"x".repeat(GRAMMAR_BYTES_MAX));
    assert!(matches!(refusal(too_long), GrammarError::TooLong { .. }));
    // Every subset of twenty alternatives.
    let part = |i: usize| {
        format!(
            "{{\"anyOf\":[{{\"type\":\"object\",\"properties\":{{\"a{i}\":{{\"type\":\"string\"}}}}}},\
             {{\"type\":\"object\",\"properties\":{{\"b{i}\":{{\"type\":\"integer\"}}}}}}]}}"
        )
    };
    let parts: Vec<_> = (0..20).map(part).collect();
    let subsets = Grammar::json_schema(format!("{{\"allOf\":[{}]}}", parts.join(",")));
    let line = refusal(subsets).to_string();
    assert!(line.contains("too large"), "{line}");
    // Small to write and to read, and too large as an automaton: seen as the text goes on.
    let powers = Grammar::regex("(".repeat(8) + "a" + &"{0,50})".repeat(8) + "b");
    let mut engine = letters_engine(Draft::None, ("coupled", 0), (1, 8));
    let mut powers = request(&powers, &[X], 1, 100);
    powers.banned = vec![1, 3, 6];
    let output = run(&mut engine, &[powers]).remove(0);
    assert_eq!(output.failure, Some(FailureKind::Constraint));
    assert!(output.error.unwrap().contains("too many expressions"));
}

/// Rules and terminals that name each other by the thousand: the compiler recurses along them.
#[test]
fn long_chains_do_not_overflow_the_stack() {
    let chain = |name: &str| {
        let mut text = format!("start: {name}0\n");
        for i in 0..4500 {
            text += &format!("{name}{i}: {name}{}\n", i + 1);
        }
        Grammar::lark(text + &format!("{name}4500: \"a\"\n"))
    };
    let mut engine = letters_engine(Draft::None, ("coupled", 0), (1, 8));
    for grammar in [chain("r"), chain("R")] {
        let output = run(&mut engine, &[request(&grammar, &[X], 1, 8)]).remove(0);
        assert_eq!(output.text, "a");
    }
}

#[test]
fn the_end_has_to_be_there_and_to_count() {
    let grammar = Grammar::regex("a+");
    let mut engine = letters_engine(Draft::None, ("coupled", 0), (1, 8));
    let ignoring = GenerateRequest { ignore_eos: true, ..request(&grammar, &[X], 1, 8) };
    let refused = engine.submit(ignoring).unwrap_err();
    assert!(matches!(refused, SubmitRefused::Grammar(GrammarError::NoEnd)), "{refused}");
    let mut bare = crate::world::engine(table(0.0), None, ("coupled", 0), (1, 8), None);
    let refused = bare.submit(request(&grammar, &[X], 1, 8)).unwrap_err();
    assert!(refused.to_string().contains("no tokenizer"), "{refused}");
}

/// Bans that leave nothing of the grammar: this request fails by name, its neighbours do not notice.
#[test]
fn who_gets_stuck_fails_alone() {
    for draft in [Draft::None, Draft::Ngram, Draft::Model] {
        let mut engine = letters_engine(draft, ("coupled", 3), (4, 64));
        let mut stuck = request(&Grammar::regex("(a|b){4}"), &[X, 0, 1, 0, 1, 0], 7, 30);
        stuck.banned = ENDS.to_vec();
        let good = request(&Grammar::regex("(a|b){4}"), &[X, 0, 1, 0, 1, 0], 7, 30);
        let free =
            GenerateRequest { max_tokens: 9, ..GenerateRequest::new(Prompt::Tokens(vec![X])) };
        let outputs = run(&mut engine, &[stuck, good.clone(), free]);
        assert_eq!(outputs[0].finish_reason, FinishReason::Error);
        assert_eq!(outputs[0].failure, Some(FailureKind::Constraint));
        let error = outputs[0].error.as_deref().unwrap();
        assert!(error.contains("no token to go on with"), "{error}");
        // What was said in rounds before is kept.
        assert!(!outputs[0].text.is_empty() && outputs[1].text.starts_with(&outputs[0].text));
        assert_eq!((outputs[1].text.len(), outputs[1].finish_reason), (4, FinishReason::Stop));
        assert_eq!(outputs[2].error, None);
    }
    // The grammar itself: after `a` there are letters, but none of the vocabulary's.
    let mut engine =
        engine(table(0.0), None, ("coupled", 0), (1, 8), Some(crate::world::tokenizer()));
    let output = run(&mut engine, &[request(&Grammar::regex("az"), &[X], 1, 8)]).remove(0);
    assert_eq!((output.text.as_str(), output.failure), ("a", Some(FailureKind::Constraint)));
    assert!(output.error.unwrap().contains("allows no token here"));
}
