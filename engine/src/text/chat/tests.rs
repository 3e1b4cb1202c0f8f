use serde_json::json;

use super::*;

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::new(source, Some("<s>"), Some("</s>")).unwrap()
}

fn render(source: &str) -> Result<String, ChatError> {
    let messages = [
        json!({"role": "user", "content": "Hi", "extra": {"b": 1.0, "a": ["é\"<&>\n/", null, true]}}),
    ];
    template(source).render(&messages, &ChatOptions::generation())
}

fn text(source: &str) -> String {
    render(source).unwrap()
}

#[test]
fn blocks_swallow_their_lines() {
    let source = "{% for m in messages %}\n    {% if true %}\n{{ m.role }}: {{ m['content'] }}\n    {% endif %}\n{% endfor %}\n{% if add_generation_prompt %}A:{% endif %}";
    assert_eq!(text(source), "user: Hi\nA:");
    assert_eq!(
        text("{{ bos_token }}|{{ eos_token }}|{{ nothing }}|{{ tools }}|{{ true }}"),
        "<s>|</s>||None|True"
    );
}

#[test]
fn python_methods_and_loops() {
    assert_eq!(
        text("{{ ' a '.strip().upper() }}{{ 'abc'.startswith('a') }}{{ 'a-b'.split('-')[1] }}"),
        "ATrueb"
    );
    assert_eq!(
        text(
            "{% for k, v in messages[0].items() %}{{ k }} {% if loop.last %}.{% endif %}{% endfor %}"
        ),
        "role content extra ."
    );
    assert_eq!(
        text("{% for x in range(9) %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}"),
        "01"
    );
    assert_eq!(
        text(
            "{% set ns = namespace(n=0) %}{% for x in [1,2] %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}"
        ),
        "3"
    );
    assert_eq!(
        text(
            "{% for m in messages %}{%- generation -%} {{ m.content }} {% endgeneration %}{% endfor %}"
        ),
        "Hi "
    );
}

/// The expected texts were made by Python's `json.dumps`.
#[test]
fn json_as_python_writes_it() {
    assert_eq!(
        text("{{ messages[0].extra | tojson }}"),
        r#"{"b": 1.0, "a": ["é\"<&>\n/", null, true]}"#
    );
    assert_eq!(
        text("{{ messages[0].extra | tojson(sort_keys=true) }}"),
        r#"{"a": ["é\"<&>\n/", null, true], "b": 1.0}"#
    );
    assert_eq!(
        text("{{ 'é😀\x7f' | tojson(ensure_ascii=true) }}"),
        r#""\u00e9\ud83d\ude00\u007f""#
    );
    assert_eq!(
        text("{{ {'a': [], 'b': {}, 'c': [1, {'d': 2}]} | tojson(indent=2) }}"),
        "{\n  \"a\": [],\n  \"b\": {},\n  \"c\": [\n    1,\n    {\n      \"d\": 2\n    }\n  ]\n}"
    );
    assert_eq!(text("{{ [1, {'a': 2}] | tojson(separators=(',', ':')) }}"), r#"[1,{"a":2}]"#);
    assert_eq!(text("{{ \"\\u0001\\t\\u2028\" | tojson }}"), "\"\\u0001\\t\u{2028}\"");
    assert!(matches!(render("{{ nothing | tojson }}"), Err(ChatError::Failed { .. })));
    assert!(matches!(render("{{ 1 | tojson(colour=2) }}"), Err(ChatError::Failed { .. })));
}

#[test]
fn refusals_come_in_the_templates_words() {
    let error = render("\n{{ raise_exception('roles must\nalternate') }}").unwrap_err();
    assert!(
        matches!(&error, ChatError::Refused { reason } if reason == "roles must alternate…" || reason == "roles mustalternate…"),
        "{error}"
    );
    let error = render("a\n{{ messages[7].content }}").unwrap_err().to_string();
    assert!(error.contains("line 2"), "{error}");
    assert!(matches!(render("{{ messages.nonsense() }}"), Err(ChatError::Failed { .. })));
    assert!(matches!(ChatTemplate::new("{% if %}", None, None), Err(ChatError::Syntax { .. })));
    assert!(matches!(
        ChatTemplate::new("{% include 'x' %}", None, None)
            .unwrap()
            .render(&[json!(1)], &ChatOptions::default()),
        Err(ChatError::Failed { .. })
    ));
    assert_eq!(
        ChatTemplate::new("[{{ bos_token }}]", None, None)
            .unwrap()
            .render::<Message>(&[], &ChatOptions::default())
            .unwrap(),
        "[]"
    );
    assert!(!text("{{ strftime_now('%Y') }}").is_empty());
}

#[test]
fn hostile_templates_end() {
    let bounded = |source: &str| render(source).unwrap_err();
    let loops = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}";
    assert!(matches!(bounded(loops), ChatError::OutOfFuel));
    let doubling = "{% set ns = namespace(x='xxxxxxxx') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}";
    assert!(matches!(bounded(doubling), ChatError::OutOfFuel));
    assert!(matches!(
        bounded("{{ 'x' * 99999999999 }}"),
        ChatError::OutOfFuel | ChatError::Failed { .. }
    ));
    assert!(matches!(
        bounded("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
        ChatError::Failed { .. }
    ));
    let long = "{% for i in range(99999) %}{{ 'x' * 999 }}{% endfor %}";
    assert!(matches!(bounded(long), ChatError::OutOfFuel | ChatError::TooLong { .. }));
    let small = template("{{ messages }}{{ 'y' * 100 }}").with_max_bytes(64);
    assert!(matches!(
        small.render(&["x"], &ChatOptions::default()),
        Err(ChatError::TooLong { limit: 64 })
    ));
    assert!(matches!(
        ChatTemplate::new(&"x".repeat(300 << 10), None, None),
        Err(ChatError::TooLarge { .. })
    ));
    assert!(ChatTemplate::new(&"{{ (".repeat(10_000), None, None).is_err());
    assert!(ChatTemplate::new(&format!("{{{{ {} }}}}", "[".repeat(50_000)), None, None).is_err());
}

#[test]
fn deep_values_end() {
    let nest = |n: usize, use_it: &str| {
        let (open, close) = ("[".repeat(50), "]".repeat(50));
        render(&format!(
            "{{% set ns = namespace(x=[]) %}}{{% for i in range({n}) %}}{{% set ns.x = {open}ns.x{close} %}}{{% endfor %}}{use_it}"
        ))
    };
    // Fifty thousand levels: without a stack to match, dropping them would end the process.
    for use_it in [
        "",
        "{{ ns.x == ns.x }}",
        "{{ ns.x }}",
        "{{ ns.x | string | length }}",
        "{{ [ns.x] | sort }}",
    ] {
        let done = nest(1000, use_it);
        assert!(done.is_ok(), "{use_it}: {done:?}");
    }
    assert!(matches!(
        nest(2000, "{{ ns.x | tojson }}"),
        Err(ChatError::Failed { .. } | ChatError::OutOfFuel)
    ));
    assert!(matches!(nest(90_000, "{{ ns.x }}"), Err(ChatError::OutOfFuel)));
}

/// The longest expressions that are looked at, each one chain of operators: the parser recurses into every one.
#[test]
fn long_chains_of_operators_do_not_exhaust_the_stack() {
    const LONGEST: usize = 3 << 10;
    let load = |source: &str| ChatTemplate::new(source, None, None).map(drop);
    for link in [".a", "+1", "|e", "~a", "()", "[1]", "[:]", " and a", " is e"] {
        let chain = link.repeat(LONGEST / link.len());
        let loaded = load(&format!("{{{{ a{chain} }}}}"));
        assert!(!matches!(loaded, Err(ChatError::TooComplex)), "{link}");
        let longer = load(&format!("{{{{ a{chain}{chain} }}}}"));
        assert!(matches!(longer, Err(ChatError::TooComplex)), "{link}");
    }
    for link in ["not ", "-"] {
        let chain = link.repeat(LONGEST / link.len());
        drop(load(&format!("{{{{ {chain}a }}}}")));
    }
    let chain = "{% elif a %}".repeat((MAX_TEMPLATE_BYTES - 32) / 12);
    drop(load(&format!("{{% if a %}}{chain}{{% endif %}}")));
}

/// Each of the first would be compiled for up to half a minute, longer without optimisation.
#[test]
fn traps_for_the_compiler_are_refused() {
    let whole = |tag: &str| tag.repeat(MAX_TEMPLATE_BYTES / tag.len());
    let refused = |source: &str| {
        let loaded = ChatTemplate::new(source, None, None);
        assert!(matches!(loaded, Err(ChatError::TooComplex)), "{}", shorten(source));
    };
    refused(&whole(&format!("{{{{ a{} }}}}", "+([0]*1024==[0]*1024)".repeat(48))));
    let (folded, levels) = ("+[]".repeat(128), "+1".repeat(256));
    refused(&whole(&format!("{{{{ a+(1 in[0]*1024{folded}){levels} }}}}")));
    // Not a string: what is in a raw block opens none.
    refused(&format!("{{% raw %}}{{{{ '{{% endraw %}}{{{{ '' + a{} }}}}", "+1".repeat(9000)));
    // Long texts are no trap.
    let text = "It's a long text. ".repeat(1000);
    let source = format!("{{# {text} #}}{{{{ \"{text}\" + 'a' }}}}{{{{ '-' * 3 }}}}");
    assert_eq!(render(&source).ok(), Some(format!("{text}a---")));
}

proptest::proptest! {
    #[test]
    fn no_template_panics(source in "(\\{\\{|\\}\\}|\\{%|%\\}|for|in|if|end|set|messages|loop|ns| |\\||tojson|[a-c0-9.,()\\[\\]'=~*+-]){0,24}") {
        if let Ok(template) = ChatTemplate::new(&source, None, None) {
            drop(template.render(&[Message::user("x")], &ChatOptions::generation()));
        }
    }
}
