//! What is timed: from rows of logits to the tokens of a step, for each way of sampling.

use std::time::Instant;

use anyhow::{Context, Result};
use redline::kernels::Level;
use redline::spec::{
    Block, Coupled, Draws, History, LogitRows, Position, Proposal, Round, Sampling, Scratch, Token,
    Traversal, Verdict, Verifier,
};

/// Rows of the target in a step.
pub(crate) const ROWS: usize = 8;
/// Drafts of a round, where there are any: two rounds then make the step's rows.
const DRAFTS: usize = 3;

/// Rows of logits of a target and of a draft model, after the same texts.
pub(crate) struct Input {
    pub(crate) vocab: usize,
    /// [`ROWS`] rows.
    pub(crate) target: Vec<f32>,
    pub(crate) draft: Vec<f32>,
    pub(crate) history: History,
}

/// One way to sample.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    rule: Box<dyn Verifier>,
    sampling: Sampling,
    drafts: usize,
}

/// Milliseconds of a step, medians over the repeats.
pub(crate) struct Times {
    /// The laws and draws of the drafts.
    pub(crate) draft: f64,
    /// From the target's rows to the tokens.
    pub(crate) verify: f64,
}

/// Every case.
pub(crate) fn cases() -> Vec<Case> {
    let one = || Sampling { temperature: 1.0, ..Sampling::default() };
    let qwen = || Sampling { temperature: 0.7, top_k: 20, top_p: 0.8, ..one() };
    let case = |name, rule, sampling, drafts| Case { name, rule, sampling, drafts };
    let plain = |name, sampling| case(name, Box::new(Coupled) as Box<dyn Verifier>, sampling, 0);
    let penalties = Sampling { repetition_penalty: 1.1, presence_penalty: 0.5, ..one() };
    vec![
        plain("greedy", Sampling::default()),
        plain("T 1", one()),
        plain("T 0.7 top-k 20 top-p 0.8", qwen()),
        plain("T 1 top-p 0.95", Sampling { top_p: 0.95, ..one() }),
        plain("T 1 min-p 0.05", Sampling { min_p: 0.05, ..one() }),
        plain("T 1 penalties", penalties),
        case("T 1 token, no drafts", Box::new(Token), one(), 0),
        case("greedy coupled, 2 x 3 drafts", Box::new(Coupled), Sampling::default(), DRAFTS),
        case("T 1 coupled, 2 x 3 drafts", Box::new(Coupled), one(), DRAFTS),
        case("T 1 token, 2 x 3 drafts", Box::new(Token), one(), DRAFTS),
        case("T 1 block, 2 x 3 drafts", Box::new(Block), one(), DRAFTS),
        case("T 1 traversal, 2 x 3 drafts", Box::new(Traversal), one(), DRAFTS),
        case("T 0.7 k 20 p 0.8 coupled, 2 x 3", Box::new(Coupled), qwen(), DRAFTS),
        case("T 0.7 k 20 p 0.8 block, 2 x 3", Box::new(Block), qwen(), DRAFTS),
    ]
}

/// Times `case` over `repeats` steps, each with noise of its own.
pub(crate) fn time(case: &Case, input: &Input, repeats: u64) -> Result<Times> {
    let math = Level::detect().row_math();
    let mut scratch = (Scratch::with_math(math), Scratch::with_math(math));
    let mut verdict = Verdict::default();
    let mut proposals = vec![Proposal::new(); ROWS / (case.drafts + 1)];
    let (mut draft, mut verify) = (Vec::new(), Vec::new());
    for repeat in 0..repeats {
        let draws = Draws { seed: repeat, sample: 0 };
        let started = Instant::now();
        for (index, proposal) in proposals.iter_mut().enumerate() {
            let rows = rows(&input.draft, input.vocab, index, case.drafts);
            drafts(case, (rows, input), draws, proposal, &mut scratch.0)?;
        }
        draft.push(started.elapsed().as_secs_f64() * 1e3);
        let started = Instant::now();
        for (index, proposal) in proposals.iter().enumerate() {
            let rows = rows(&input.target, input.vocab, index, case.drafts);
            let law_of = (&case.sampling, &input.history);
            let mut rows =
                LogitRows::new((rows, input.vocab), proposal, law_of, None, &mut scratch.1);
            let base = 100 * index as u64;
            case.rule.verify(&Round { proposal, base, draws }, &mut rows, &mut verdict)?;
        }
        verify.push(started.elapsed().as_secs_f64() * 1e3);
    }
    Ok(Times { draft: median(draft)?, verify: median(verify)? })
}

/// The rows of round `index`.
fn rows(all: &[f32], vocab: usize, index: usize, drafts: usize) -> &[f32] {
    let size = (drafts + 1) * vocab;
    all.get(index * size..(index + 1) * size).unwrap_or_default()
}

/// A chain of drafts, each from a row of the draft's.
fn drafts(
    case: &Case,
    (rows, input): (&[f32], &Input),
    draws: Draws,
    proposal: &mut Proposal,
    scratch: &mut Scratch,
) -> Result<()> {
    proposal.recycle(scratch);
    let mut builder = proposal.build(case.drafts);
    let (mut node, mut path) = (None, Vec::new());
    for row in rows.chunks(input.vocab).take(case.drafts) {
        builder.proposal().path_tokens(node, &mut path);
        let (sampling, history) = (&case.sampling, &input.history);
        let at = Position { sampling, history, path: &path, constraint: None };
        let how = (case.rule.draw_mode(), &draws.round(100));
        node = builder.draw_row(node, (row, &at), 1, how, scratch)?.next();
    }
    Ok(())
}

pub(crate) fn median(mut times: Vec<f64>) -> Result<f64> {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().context("nothing was timed")
}
