//! Rules and drafters with a fault each: chains only.

use redline::TokenId;
use redline::spec::{
    Choices, Coupled, DraftError, DraftJob, Drafter, DrawMode, Law, Proposal, Round, Site,
    TargetRows, Verdict, Verifier, VerifyError,
};
use redline_tests::words::VOCAB;

/// What a token-by-token rule may do wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fault {
    /// After the last draft, one more token from the law before it.
    BonusFromTheRowBefore,
    /// A rejected draft is replaced by a token of p, not of (p − q)+.
    ResidualIsTheTarget,
    /// `u < p(x)` for `u·q(x) < p(x)`.
    TestsAgainstOne,
    /// The first draft of a round is kept whatever it is.
    FirstDraftUnverified,
    /// Every draft is tested against the law after the committed tokens.
    RootRowForAll,
    /// The numbers of position 0 in every round: each right by itself.
    NumbersOfTheFirstRound,
    /// Accepts with half the probability it should.
    RejectsHalf,
}

/// The `token` rule with a fault.
pub(crate) struct Wrong(pub(crate) Fault);

impl Verifier for Wrong {
    fn name(&self) -> &'static str {
        "token"
    }

    fn draw_mode(&self) -> DrawMode {
        DrawMode::Sampled { replacement: false }
    }

    fn takes_trees(&self) -> bool {
        false
    }

    fn verify(
        &self,
        round: &Round<'_>,
        rows: &mut dyn TargetRows,
        verdict: &mut Verdict,
    ) -> Result<(), VerifyError> {
        verdict.clear();
        let base = if self.0 == Fault::NumbersOfTheFirstRound { 0 } else { round.base };
        let mut choices = round.draws.round(base);
        let proposal = round.proposal;
        let (mut node, mut above) = (None, None);
        loop {
            let row = if self.0 == Fault::RootRowForAll { None } else { node };
            let p = rows.law(row)?.clone();
            let Some(child) = proposal.children(node).next() else {
                let wrong = self.0 == Fault::BonusFromTheRowBefore && node.is_some();
                let law = if wrong { rows.law(above)?.clone() } else { p };
                verdict.next = choices.pick(Site::next(node), &law);
                return Ok(());
            };
            let x = proposal.node(child).map_or(0, |node| node.token);
            let point = Law::point(x);
            let q = proposal.drawn_from(node).unwrap_or(&point);
            if self.accepts(&mut choices, child, (p.p(x), q.p(x))) {
                verdict.path.push(child);
                (above, node) = (node, Some(child));
            } else {
                let residual = p.residual(q).unwrap_or_else(|| p.clone());
                let law = if self.0 == Fault::ResidualIsTheTarget { &p } else { &residual };
                verdict.next = choices.pick(Site::next(node), law);
                return Ok(());
            }
        }
    }
}

impl Wrong {
    fn accepts(&self, choices: &mut dyn Choices, child: u32, (p, q): (f64, f64)) -> bool {
        let at = Site::accept(child);
        match self.0 {
            Fault::TestsAgainstOne => choices.accept(at, p, 1.0),
            Fault::FirstDraftUnverified if child == 0 => true,
            Fault::RejectsHalf => choices.accept(at, p / 2.0, q.max(p)),
            _ => choices.accept(at, p, q),
        }
    }
}

/// `coupled` with the noise of the position after.
pub(crate) struct ShiftedNoise;

impl Verifier for ShiftedNoise {
    fn name(&self) -> &'static str {
        "coupled"
    }

    fn draw_mode(&self) -> DrawMode {
        Coupled.draw_mode()
    }

    fn verify(
        &self,
        round: &Round<'_>,
        rows: &mut dyn TargetRows,
        verdict: &mut Verdict,
    ) -> Result<(), VerifyError> {
        Coupled.verify(&Round { base: round.base + 1, ..*round }, rows, verdict)
    }
}

/// What a drafter does with the law it says it has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Claim {
    /// Draws from it.
    Truth,
    /// Takes its likeliest token, and calls that a draw.
    DrawsTheLikeliest,
    /// Draws, honestly, from another one.
    AnotherLaw,
    /// Does not draft.
    Nothing,
}

/// A drafter without a model: one token, which depends on the one before, is half of its law.
pub(crate) struct Lawful(pub(crate) Claim);

impl Lawful {
    fn law(&self, last: TokenId) -> Result<Law, DraftError> {
        let vocab = VOCAB as TokenId;
        let favourite = (last * 5 + 1) % vocab;
        let weight = |id| match id == favourite && self.0 != Claim::AnotherLaw {
            true => f64::from(vocab),
            false => 1.0,
        };
        Ok(Law::dense((0..vocab).map(weight).collect())?)
    }

    fn draft(&self, job: &DraftJob<'_>, proposal: &mut Proposal) -> Result<(), DraftError> {
        let mut builder = proposal.build(job.budget);
        let round = job.draws.round(job.tokens.len() as u64);
        let (mut node, mut last) = (None, job.tokens.last().copied().unwrap_or(0));
        while builder.room() > 0 {
            let law = self.law(last)?;
            let drawn = match self.0 {
                Claim::DrawsTheLikeliest => builder.sample(node, law, 1, true, &mut Likeliest)?,
                _ => builder.draw(node, law, 1, job.mode, &round)?,
            };
            node = drawn.last();
            last = node.and_then(|n| builder.proposal().node(n)).map_or(0, |node| node.token);
        }
        Ok(())
    }
}

impl Drafter for Lawful {
    fn name(&self) -> &str {
        "lawful"
    }

    fn offer(&mut self, _seq: u64, _tokens: &[TokenId]) -> usize {
        if self.0 == Claim::Nothing { 0 } else { usize::MAX }
    }

    fn propose(&mut self, jobs: &[DraftJob<'_>], out: &mut [Result<Proposal, DraftError>]) {
        for (job, slot) in jobs.iter().zip(out) {
            let mut proposal = Proposal::new();
            *slot = self.draft(job, &mut proposal).map(|()| proposal);
        }
    }

    fn forget(&mut self, _seq: u64) {}
}

/// Chance that is none.
struct Likeliest;

impl Choices for Likeliest {
    fn accept(&mut self, _at: Site, p: f64, q: f64) -> bool {
        p >= q
    }

    fn pick(&mut self, _at: Site, law: &Law) -> TokenId {
        law.argmax()
    }
}
