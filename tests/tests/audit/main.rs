//! `redline::audit` on tiny models: engines without fault pass, under every rule and with every drafter, and every
//! planted fault is found by the test that is for it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod wrong;

use redline::audit::{
    AuditError, AuditPrompt, Drafted, Parts, Plan, Report, Subject, Verdict, Watcher, run,
};
use redline::spec::{Drafter, Ngram, NgramConfig, Verifier};
use redline::{DraftLength, DraftParts, EngineOptions, Prompt, Sampling, Target, verifier};
use redline_tests::rig::model;
use redline_tests::words::{VOCAB, tokenizer};

use wrong::{Claim, Fault, Lawful, Wrong};

/// Prompts of two kinds: one repeats itself.
fn prompts() -> Vec<AuditPrompt> {
    let prompt = |i: u32| AuditPrompt {
        name: format!("prompt-{i}"),
        category: if i.is_multiple_of(2) { "counted" } else { "repeated" }.to_owned(),
        prompt: Prompt::Tokens(match i.is_multiple_of(2) {
            true => (i..i + 20).collect(),
            false => [i, i + 1, i + 2].repeat(6),
        }),
    };
    (0..6).map(prompt).collect()
}

fn plan(samples: usize) -> Plan {
    Plan {
        samples,
        max_tokens: 40,
        seed: 11,
        identity_prompts: 4,
        sampling: Sampling { temperature: 0.7, ..Sampling::default() },
        speed: false,
    }
}

fn subject(drafted: Drafted, rule: Box<dyn Verifier>) -> Subject {
    Subject::assemble(Parts {
        target: Target { runner: model(0.0, 1), tokenizer: Some(tokenizer()), template: None },
        drafted,
        rule,
        drafting: DraftLength::Fixed(3).into(),
        options: EngineOptions {
            kv_memory: Some(4 << 20),
            max_model_len: Some(128),
            ..EngineOptions::default()
        },
        exact_rows: true,
    })
    .unwrap()
}

fn draft_model(noise: f32) -> Drafted {
    let parts = DraftParts { runner: model(noise, 1), shared: VOCAB, map: None };
    Drafted::Model { name: "tiny-draft".to_owned(), parts }
}

fn ngram() -> Drafted {
    let make = || -> Box<dyn Drafter> {
        Box::new(Ngram::new(NgramConfig { min_n: 1, ..NgramConfig::default() }).unwrap())
    };
    Drafted::Drafter { drafter: make(), probe: Some(make()) }
}

/// A drafter with a law, and what its probe says of it.
fn lawful(drafts: Claim, probe: Claim) -> Drafted {
    Drafted::Drafter { drafter: Box::new(Lawful(drafts)), probe: Some(Box::new(Lawful(probe))) }
}

fn audit(subject: &mut Subject, samples: usize) -> Report {
    run(subject, &prompts(), &plan(samples), &mut ()).unwrap()
}

#[test]
fn an_engine_without_fault_passes_under_every_rule_with_every_drafter() {
    let drafted = |name| match name {
        "none" => Drafted::Nothing,
        "ngram" => ngram(),
        "draft model" => draft_model(0.3),
        "itself" => draft_model(0.0),
        _ => lawful(Claim::Truth, Claim::Truth),
    };
    for rule in ["coupled", "token", "block", "traversal"] {
        for name in ["none", "ngram", "draft model", "itself", "lawful"] {
            let mut subject = subject(drafted(name), verifier(rule).unwrap());
            let report = audit(&mut subject, 36);
            let text = format!("{rule}, {name}:\n{}", report.lines().join("\n"));
            assert_eq!(report.verdict, Verdict::Pass, "{text}");
            assert_eq!(report.identity.identical, 4, "{text}");
            assert_eq!(report.identity.seeded, rule == "coupled");
            assert_eq!(report.samples, 36);
            let named = |wanted: &str| report.tests.iter().any(|test| test.name == wanted);
            assert_eq!(named("acceptance"), has_theory(rule, name), "{text}");
            assert_eq!(report.by_draft.is_some(), name != "none", "{text}");
            if name == "itself" {
                let all = report.acceptance.by_position.iter().all(|p| p.accepted == p.tried);
                assert!(all && report.acceptance.mean_length > 3.5, "{text}");
            }
        }
    }
}

/// Where the acceptance of a chain has a closed form position by position. A drafter without a model may be asked for
/// a law, but under `coupled` it draws with the target's noise, which its probe can't have.
fn has_theory(rule: &str, drafter: &str) -> bool {
    match drafter {
        "none" => false,
        "ngram" => true,
        _ => matches!(rule, "coupled" | "token"),
    }
}

/// What a fault is found by: the name of a test, or `identity`.
fn found(report: &Report) -> Vec<&'static str> {
    let mut names: Vec<_> =
        report.tests.iter().filter(|test| !test.pass).map(|test| test.name).collect();
    if report.identity.identical < report.identity.prompts {
        names.push("identity");
    }
    names
}

#[test]
fn planted_faults_of_rules_are_found() {
    let overrated = "tokens the draft overrates";
    for (fault, by) in [
        (Fault::BonusFromTheRowBefore, "identity"),
        (Fault::ResidualIsTheTarget, overrated),
        (Fault::TestsAgainstOne, overrated),
        (Fault::FirstDraftUnverified, overrated),
        (Fault::RootRowForAll, "identity"),
        (Fault::NumbersOfTheFirstRound, "law, likely tokens first"),
        (Fault::RejectsHalf, overrated),
    ] {
        let mut subject = subject(draft_model(0.3), Box::new(Wrong(fault)));
        let report = audit(&mut subject, 400);
        let text = format!("{fault:?}:\n{}", report.lines().join("\n"));
        assert_eq!(report.verdict, Verdict::Fail, "{text}");
        assert!(found(&report).contains(&by), "{text}");
        assert!(report.headline().contains("NOT what"), "{text}");
    }
}

#[test]
fn a_wrong_position_of_shared_noise_is_found_by_the_independent_pass() {
    let mut subject = subject(ngram(), Box::new(wrong::ShiftedNoise));
    let report = audit(&mut subject, 12);
    assert_eq!(report.verdict, Verdict::Fail, "{}", report.lines().join("\n"));
    let difference = report.identity.difference.unwrap();
    assert_eq!(difference.from, "the independent pass", "with and without speculation agree");
    assert!(difference.seeded);
}

#[test]
fn a_drafter_that_lies_about_its_law_is_found() {
    let lie = || lawful(Claim::DrawsTheLikeliest, Claim::Truth);
    let mut subject = subject(lie(), verifier("token").unwrap());
    let report = audit(&mut subject, 400);
    let text = report.lines().join("\n");
    assert_eq!(report.verdict, Verdict::Fail, "{text}");
    assert!(found(&report).contains(&"tokens the draft overrates"), "{text}");
    assert!(report.stopped_early && report.samples < 400, "{text}");
}

#[test]
fn drafts_that_are_not_what_they_should_be_cost_acceptance_and_nothing_else() {
    // It draws from another law than it would say, but keeps the one it drew from.
    let mut subject = subject(lawful(Claim::AnotherLaw, Claim::Truth), verifier("token").unwrap());
    let report = audit(&mut subject, 200);
    let text = report.lines().join("\n");
    assert_eq!(report.verdict, Verdict::Fail, "{text}");
    assert_eq!(found(&report), ["acceptance"], "{text}");
    assert!(report.headline().contains("nothing was found in the output"), "{text}");
}

/// Ends an audit after some samples.
struct Impatient(usize);

impl Watcher for Impatient {
    fn progress(&mut self, done: usize, _all: usize, p_value: Option<f64>) {
        if p_value.is_some() && done >= self.0 {
            self.0 = 0;
        }
    }

    fn stop(&mut self) -> bool {
        self.0 == 0
    }
}

#[test]
fn an_interrupted_audit_tells_what_there_is_and_the_subject_can_be_used_again() {
    let mut subject = subject(draft_model(0.3), verifier("block").unwrap());
    let report = run(&mut subject, &prompts(), &plan(500), &mut Impatient(9)).unwrap();
    assert_eq!(report.verdict, Verdict::Interrupted);
    assert!((9..500).contains(&report.samples), "{}", report.samples);
    assert!(report.tests.iter().all(|test| test.p_planned.is_none() && test.pass));
    assert!(report.headline().starts_with("INTERRUPTED"), "{}", report.headline());
    let again = audit(&mut subject, 12);
    assert_eq!(again.verdict, Verdict::Pass, "{}", again.lines().join("\n"));
}

#[test]
fn a_drafter_that_never_drafts_is_no_pass() {
    let silent = || -> Box<dyn Drafter> { Box::new(Lawful(Claim::Nothing)) };
    let drafted = Drafted::Drafter { drafter: silent(), probe: None };
    let mut subject = subject(drafted, verifier("token").unwrap());
    let report = audit(&mut subject, 6);
    assert_eq!(report.verdict, Verdict::Inconclusive);
    assert!(report.headline().contains("not a single draft"), "{}", report.headline());
}

#[test]
fn what_can_not_be_audited_is_refused_by_name() {
    let mut subject = subject(Drafted::Nothing, verifier("token").unwrap());
    let error = run(&mut subject, &[], &plan(1), &mut ()).unwrap_err();
    assert!(matches!(error, AuditError::NoPrompts));
    let mut cold = plan(1);
    cold.sampling.temperature = 0.0;
    let error = run(&mut subject, &prompts(), &cold, &mut ()).unwrap_err();
    assert!(matches!(error, AuditError::Greedy));
    let long = AuditPrompt {
        name: "long".to_owned(),
        category: "x".to_owned(),
        prompt: Prompt::Tokens(vec![1; 500]),
    };
    let error = run(&mut subject, &[long], &plan(1), &mut ()).unwrap_err();
    assert!(error.is_usage() && error.to_string().contains("long"), "{error}");
}

#[test]
fn the_report_is_one_json_object_and_one_page() {
    let mut subject = subject(draft_model(0.3), verifier("token").unwrap());
    let thorough = Plan { speed: true, ..plan(24) };
    let report = run(&mut subject, &prompts(), &thorough, &mut ()).unwrap();
    let json = report.json();
    assert_eq!(json["verdict"], "pass");
    for field in ["name", "n", "p_value", "detectable", "pass"] {
        assert!(!json["tests"][0][field].is_null(), "{field}");
    }
    assert_eq!(
        (&json["identity"]["prompts"], &json["identity"]["identical"]),
        (&4.into(), &4.into())
    );
    assert!(json["acceptance"]["by_position"][0]["rate"].as_f64().unwrap() > 0.0);
    assert!(json["acceptance"]["mean_length"].as_f64().unwrap() > 1.0);
    let names: Vec<_> = report.categories.iter().map(|category| &category.name[..]).collect();
    assert_eq!(names, ["counted", "repeated"]);
    let speed = report.speed.as_ref().unwrap();
    assert_eq!(speed.iter().filter(|point| point.measured.is_some()).count(), 5);

    let page = report.html();
    assert_eq!(page.matches("<svg").count(), 3 + 3 + 3 + 2);
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    for outside in ["http", "src=", "<script", "NaN", "inf\""] {
        assert!(!page.contains(outside), "{outside}");
    }
}
