//! Runs the verifier over every round of a pass: the target's rows and the proposals in, outcomes out.

use redline_scheduler::{Outcome, Scheduler, StepPlan};
use redline_spec::{
    Draws, Law, LogitRows, Proposal, Round, RowError, Scratch, TargetRows, TokenId, Verdict,
    Verifier, VerifyError,
};

use crate::batch::RowMap;
use crate::drafting::Drafters;
use crate::error::RequestError;
use crate::kernels::Level;
use crate::live::{Live, LiveRequests};
use crate::logprobs::Decided;
use crate::runner::Rows;

/// Rows below an end of text are not looked at: what is drawn there is cut by the commit, so any law does, and a
/// bad row or a constraint that has ended must not fail a request that is over.
struct UntilEnd<'a> {
    rows: LogitRows<'a>,
    proposal: &'a Proposal,
    ends: &'a [TokenId],
    past_end: Law,
}

impl UntilEnd<'_> {
    fn is_past_end(&self, node: Option<u32>) -> bool {
        let at = |index: u32| self.proposal.node(index);
        let mut path = std::iter::successors(node.and_then(at), |n| n.parent.and_then(at));
        path.any(|node| self.ends.contains(&node.token))
    }
}

impl TargetRows for UntilEnd<'_> {
    fn law(&mut self, node: Option<u32>) -> Result<&Law, RowError> {
        if self.is_past_end(node) {
            return Ok(&self.past_end);
        }
        self.rows.law(node)
    }

    fn coupled(
        &mut self,
        node: Option<u32>,
        draws: &Draws,
        position: u64,
    ) -> Result<TokenId, RowError> {
        if self.is_past_end(node) {
            return Ok(self.past_end.argmax());
        }
        self.rows.coupled(node, draws, position)
    }
}

/// Whether `path` leads from the root downwards, each node a child of the one before: a rule may be an embedder's.
fn is_path(proposal: &Proposal, path: &[u32]) -> bool {
    let mut above = None;
    path.iter().all(|&index| {
        let connected = proposal.node(index).is_some_and(|node| node.parent == above);
        above = Some(index);
        connected
    })
}

/// The rule, and the buffers it needs per round.
pub(crate) struct Verification {
    rule: Box<dyn Verifier>,
    /// Entries of the vocabulary that have a token; logits behind them are padding.
    vocab: usize,
    scratch: Scratch,
    verdict: Verdict,
}

impl Verification {
    pub(crate) fn new(rule: Box<dyn Verifier>, vocab: usize) -> Self {
        let scratch = Scratch::with_math(Level::detect().row_math());
        Self { rule, vocab, scratch, verdict: Verdict::default() }
    }

    pub(crate) fn rule(&self) -> &dyn Verifier {
        self.rule.as_ref()
    }

    /// Decides every span of `plan`. A request that already failed, or whose target rows are no law, gets
    /// [`Outcome::Failed`] and its error stays with it; the others are not touched.
    pub(crate) fn run(
        &mut self,
        (plan, scheduler): (&StepPlan, &Scheduler),
        drafters: &Drafters,
        live: &mut LiveRequests,
        (rows, map, width): (&Rows, &RowMap, usize),
        outcomes: &mut Vec<Outcome>,
    ) {
        outcomes.clear();
        for (index, span) in plan.spans.iter().enumerate() {
            let (Some(state), Some(sequence)) = (live.get_mut(span.seq), scheduler.get(span.seq))
            else {
                outcomes.push(Outcome::Failed);
                continue;
            };
            let outcome = if state.error.is_some() {
                Outcome::Failed
            } else if let Some(root) = map.root(index) {
                let proposal = &drafters.proposals()[index];
                let base = sequence.tokens().len();
                let wanted = root * width..(root + 1 + proposal.len()) * width;
                let logits = rows.logits.get(wanted).unwrap_or_default();
                match self.decide(base, proposal, state, (logits, width)) {
                    Ok(()) if !is_path(proposal, &self.verdict.path) => {
                        let rule = self.rule.name().to_owned();
                        state.error = Some(RequestError::Verdict { rule });
                        Outcome::Failed
                    }
                    Ok(()) => {
                        let fed = drafters.fed(index, &self.verdict.path);
                        self.outcome(proposal, fed)
                    }
                    Err(source) => {
                        let constrained = state.constraint.is_some();
                        state.error = Some(RequestError::verdict(base, constrained, source));
                        Outcome::Failed
                    }
                }
            } else {
                Outcome::Chunk
            };
            outcomes.push(outcome);
        }
    }

    fn decide(
        &mut self,
        base: usize,
        proposal: &Proposal,
        state: &mut Live,
        logits: (&[f32], usize),
    ) -> Result<(), VerifyError> {
        let law_of = (&state.sampling, &state.history);
        let constraint = state.constraint.as_deref();
        let rows = LogitRows::new(logits, proposal, law_of, constraint, &mut self.scratch)
            .without_padding(self.vocab);
        let past_end = Law::point(0);
        let mut rows = UntilEnd { rows, proposal, ends: &state.eos, past_end };
        let round = Round { proposal, base: base as u64, draws: state.draws };
        self.rule.verify(&round, &mut rows, &mut self.verdict)?;
        let (Some(wanted), true) = (state.logprobs, is_path(proposal, &self.verdict.path)) else {
            return Ok(());
        };
        let (verdict, (logits, width), ends) = (&self.verdict, logits, &state.eos[..]);
        let used = self.vocab.min(width);
        let decided = Decided { verdict, proposal, logits, width, used, ends };
        decided.logprobs(wanted, &mut rows, &mut state.found)
    }

    fn outcome(&self, proposal: &Proposal, draft_fed: usize) -> Outcome {
        let mut tokens = Vec::with_capacity(self.verdict.path.len() + 1);
        self.verdict.tokens(proposal, &mut tokens);
        Outcome::Round { path: self.verdict.path.clone(), tokens, draft_fed }
    }
}
