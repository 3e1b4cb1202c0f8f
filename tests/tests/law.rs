//! The law of what the engine says, over several consecutive rounds, with its own generator: a target that is
//! a table, a drafter with another law, a G-test against the enumerated joint law. And doubles with known bugs,
//! each of which the same test must reject.
//!
//! Power: with 60,000 samples and 27 cells, a total variation of 0.02 on any three consecutive tokens gives a
//! non-centrality of at least 4 · 60,000 · 0.02² = 96; the test at 10⁻³ / 6 then fails to see it with
//! probability below 0.01. Seeds are fixed, so the outcome is too.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use redline::spec::{
    Choices, Coupled, DraftError, DraftJob, Drafter, DrawMode, Law, Proposal, RatioRule, Round,
    RoundDraws, RowError, Site, TargetRows, Token, Verdict, Verifier, VerifyError,
};
use redline::{DraftLength, Event, GenerateRequest, TokenId};
use redline_tests::drafters::Closure;
use redline_tests::requests::greedy;
use redline_tests::rig::Rig;
use redline_tests::runners::Table;
use redline_tests::stats::g_test;

const VOCAB: usize = 3;
/// One token of the prompt's own round, then at least three rounds of at most two tokens.
const LENGTH: usize = 7;
const CELLS: usize = VOCAB.pow(LENGTH as u32);
const PROMPT: [TokenId; 2] = [2, 0];

/// Target and drafter, by the last two tokens. The target never says 1 after (0, 1), nor the drafter 2 after
/// (1, 1).
const P: [[f64; 3]; 9] = [
    [0.5, 0.3, 0.2],
    [0.7, 0.0, 0.3],
    [0.1, 0.2, 0.7],
    [0.3, 0.3, 0.4],
    [0.2, 0.5, 0.3],
    [0.6, 0.2, 0.2],
    [0.25, 0.6, 0.15],
    [0.4, 0.35, 0.25],
    [0.1, 0.8, 0.1],
];
const Q: [[f64; 3]; 9] = [
    [0.2, 0.6, 0.2],
    [0.5, 0.2, 0.3],
    [0.3, 0.3, 0.4],
    [0.6, 0.1, 0.3],
    [0.6, 0.4, 0.0],
    [0.3, 0.4, 0.3],
    [0.4, 0.3, 0.3],
    [0.1, 0.6, 0.3],
    [0.2, 0.5, 0.3],
];

fn state(tokens: &[TokenId]) -> usize {
    tokens[tokens.len() - 2..].iter().fold(0, |state, &token| state * VOCAB + token as usize)
}

/// The joint law of the first [`LENGTH`] tokens, the first token as the highest digit.
fn joint() -> Vec<f64> {
    let tokens_of = |cell: usize| {
        (0..LENGTH).rev().map(move |i| (cell / VOCAB.pow(i as u32) % VOCAB) as TokenId)
    };
    let mass = |cell: usize| {
        let mut tokens = PROMPT.to_vec();
        let next = |token: TokenId| {
            let p = P[state(&tokens)][token as usize];
            tokens.push(token);
            p
        };
        tokens_of(cell).map(next).product()
    };
    (0..CELLS).map(mass).collect()
}

/// Drafts chains from Q the way the verifier wants, `width` children at each node of the path.
fn drafter(width: usize, cut: bool) -> Box<dyn Drafter> {
    Closure::boxed("other-law", move |job, proposal| {
        draw(job, proposal, width)?;
        // A sabotaged drafter takes back what it has looked at.
        if cut && proposal.node(0).is_some_and(|node| node.token == 1) {
            proposal.clear();
        }
        Ok(())
    })
}

fn draw(job: &DraftJob<'_>, proposal: &mut Proposal, width: usize) -> Result<(), DraftError> {
    let round = job.draws.round(job.tokens.len() as u64);
    let mut tokens = job.tokens.to_vec();
    let mut builder = proposal.build(job.budget);
    let mut parent = None;
    while builder.room() > 0 {
        let law = Law::dense(Q[state(&tokens)].to_vec())?;
        let children = builder.draw(parent, law, width, job.mode, &round)?;
        parent = Some(children.start);
        tokens.extend(builder.proposal().node(children.start).map(|node| node.token));
    }
    Ok(())
}

/// How often each sequence was said by `n` requests, each with a seed of its own.
fn sample(rule: Box<dyn Verifier>, drafter: Box<dyn Drafter>, k: usize, n: u64) -> Vec<u64> {
    let target = Table::new(VOCAB, 16, |seen, logits| {
        let row = P[state(seen)];
        logits.iter_mut().zip(row).for_each(|(logit, p)| *logit = p.ln() as f32);
    });
    let mut engine = Rig {
        target: Box::new(target),
        drafter: Some(drafter),
        rule,
        length: DraftLength::Fixed(k),
        seqs: 32,
        blocks: 32,
        prefix_cache: false,
        text: false,
        ..Rig::default()
    }
    .build();
    let mut counts = vec![0; CELLS];
    let mut accepted = 0;
    for seed in 0..n {
        let mut request: GenerateRequest = greedy(&PROMPT, LENGTH);
        request.sampling.temperature = 1.0;
        request.seed = Some(seed);
        engine.submit(request).unwrap();
        if seed % 128 == 127 || seed + 1 == n {
            engine.run(|event| {
                if let Event::Finished { output, .. } = event {
                    let digits = output.token_ids.iter();
                    counts[digits.fold(0, |cell, &token| cell * VOCAB + token as usize)] += 1;
                    assert!(output.speculation.rounds > LENGTH / (k + 1));
                    accepted += output.speculation.accepted;
                }
            });
        }
    }
    assert!(accepted as u64 > n / 4, "drafts are accepted: {accepted} of {n} requests");
    counts
}

/// The least p-value of the joint law and of every three consecutive tokens, times their number.
fn p_value(counts: &[u64]) -> f64 {
    let law = joint();
    let cells = || law.iter().copied().zip(counts.iter().copied());
    let triples = (0..=LENGTH - 3).map(|at| {
        let (after, width) = (VOCAB.pow((LENGTH - 3 - at) as u32), VOCAB.pow(3));
        let mut sums = vec![(0.0, 0); width];
        for (cell, (p, count)) in cells().enumerate() {
            let sum = &mut sums[cell / after % width];
            *sum = (sum.0 + p, sum.1 + count);
        }
        g_test(sums)
    });
    let least = triples.chain([g_test(cells())]).fold(1.0, f64::min);
    (least * (LENGTH - 1) as f64).min(1.0)
}

#[test]
fn the_law_is_the_targets_under_every_rule() {
    assert!((joint().iter().sum::<f64>() - 1.0).abs() < 1e-12);
    for (rule, k) in
        [("token", 1), ("token", 3), ("block", 3), ("traversal", 3), ("coupled", 1), ("coupled", 3)]
    {
        let verifier = redline::verifier(rule).unwrap();
        let p = p_value(&sample(verifier, drafter(1, false), k, 60_000));
        assert!(p > 1e-3, "{rule}, K = {k}: p = {p:e}");
    }
    // Trees: the top of the race under `coupled`, siblings without replacement under the others.
    for rule in ["token", "traversal", "coupled"] {
        let p = p_value(&sample(redline::verifier(rule).unwrap(), drafter(2, false), 4, 60_000));
        assert!(p > 1e-3, "trees under {rule}: p = {p:e}");
    }
}

/// What is wrong with a rule.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Bug {
    /// Nothing: the double itself passes.
    None,
    /// A tenth more is accepted.
    Generous,
    /// The test uses the number that drew the draft.
    SharedNumber,
    /// Each round uses the numbers of the first.
    SameEveryRound,
    /// The last draft of a round is taken unseen.
    OneTooMany,
    /// Each row is taken for the one before.
    WrongRow,
    /// `coupled` with noise counted from the round's beginning.
    RelativeNoise,
}

struct Sabotaged(Bug);

impl Verifier for Sabotaged {
    fn name(&self) -> &'static str {
        "sabotaged"
    }

    fn draw_mode(&self) -> DrawMode {
        if self.0 == Bug::RelativeNoise { DrawMode::Shared } else { Token.draw_mode() }
    }

    fn verify(
        &self,
        round: &Round<'_>,
        rows: &mut dyn TargetRows,
        verdict: &mut Verdict,
    ) -> Result<(), VerifyError> {
        if self.0 == Bug::RelativeNoise {
            return Coupled.verify(&Round { base: 3, ..*round }, rows, verdict);
        }
        let base = if self.0 == Bug::SameEveryRound { 3 } else { round.base };
        let mut choices = Crooked(self.0, round.draws.round(base), round.proposal.len() as u32);
        let mut rows = Shifted(self.0, rows, round.proposal);
        Token.decide(round.proposal, &mut rows, &mut choices, verdict)
    }
}

struct Crooked(Bug, RoundDraws, u32);

impl Choices for Crooked {
    fn accept(&mut self, mut at: Site, p: f64, q: f64) -> bool {
        let (mut p, last) = (p, at.node + 1 == self.2);
        match self.0 {
            Bug::Generous => p *= 1.1,
            Bug::SharedNumber => at = Site::draft(at.node),
            Bug::OneTooMany if last => return true,
            _ => {}
        }
        self.1.accept(at, p, q)
    }

    fn pick(&mut self, at: Site, law: &Law) -> TokenId {
        self.1.pick(at, law)
    }
}

struct Shifted<'a>(Bug, &'a mut dyn TargetRows, &'a Proposal);

impl TargetRows for Shifted<'_> {
    fn law(&mut self, node: Option<u32>) -> Result<&Law, RowError> {
        let before = node.and_then(|node| self.2.node(node)).and_then(|node| node.parent);
        self.1.law(if self.0 == Bug::WrongRow { before } else { node })
    }
}

#[test]
fn known_bugs_are_rejected() {
    let with = |bug: Bug| {
        let cut = false;
        p_value(&sample(Box::new(Sabotaged(bug)), drafter(1, cut), 2, 30_000))
    };
    assert!(with(Bug::None) > 1e-3);
    for bug in [
        Bug::Generous,
        Bug::SharedNumber,
        Bug::SameEveryRound,
        Bug::OneTooMany,
        Bug::WrongRow,
        Bug::RelativeNoise,
    ] {
        let p = with(bug);
        assert!(p < 1e-6, "{bug:?} got through: p = {p:e}");
    }
    // A drafter that takes sampled drafts back after a look at them.
    let p = p_value(&sample(Box::new(Token), drafter(1, true), 2, 30_000));
    assert!(p < 1e-6, "cutting drafts got through: p = {p:e}");
}
