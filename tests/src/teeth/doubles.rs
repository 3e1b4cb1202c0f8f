//! Rules, drafters and targets that are right but for one thing that only sampling sees.

use redline::spec::{
    Block, Choices, Coupled, DraftJob, Drafter, DrawMode, Draws, Law, Proposal, Purpose, RatioRule,
    Round, RoundDraws, Site, TargetRows, Token, Traversal, Verdict, Verifier, VerifyError,
    coupled_sample,
};
use redline::{Batch, ModelInfo, ModelRunner, Rows, RunnerError, TokenId};
use redline_kv_cache::{BlockCopy, SlotMove};

use crate::drafters::Closure;
use crate::sampling::drafts::{drafter, drafter_by};
use crate::sampling::grid::Cell;
use crate::sampling::world::{World, state};
use crate::shadow::Shadow;

/// How numbers are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    Rightly,
    /// A node's test by the number that drew it.
    TestAsDraft,
    /// The token after the path by the number that drew a draft there.
    NextAsDraft,
    /// A node's test by its absolute position.
    TestByPosition,
    /// By place in the round alone, without its base.
    SameEveryRound,
    /// Siblings share a number.
    OneForSiblings,
    /// One stream for all requests: without the seed.
    NoSeed,
    /// The token after the path by the noise that drew the draft.
    NextByNoise,
}

/// A ratio rule whose numbers have other names.
pub(super) struct Renamed {
    pub(super) rule: &'static str,
    pub(super) named: Named,
}

struct OtherNames<'a>(Named, RoundDraws, &'a Proposal);

impl OtherNames<'_> {
    fn draws(&self, at: Site) -> (RoundDraws, Site) {
        let next = at.purpose == Purpose::Next;
        let node = self.2.node(at.node);
        let mut draws = self.1;
        match self.0 {
            Named::NextAsDraft if next => return (draws, Site::draft(at.node)),
            Named::TestAsDraft if !next => return (draws, Site::draft(at.node)),
            Named::TestByPosition if !next => {
                draws.base += u64::from(self.2.depth(Some(at.node))) - 1;
                return (draws, Site { node: 0, ..at });
            }
            Named::OneForSiblings if !next => {
                let parent = node.and_then(|node| node.parent);
                return (draws, Site { node: parent.map_or(0, |n| n + 1), ..at });
            }
            Named::SameEveryRound => draws.base = 0,
            Named::NoSeed => draws.draws.seed = 0,
            _ => {}
        }
        (draws, at)
    }
}

impl Choices for OtherNames<'_> {
    fn accept(&mut self, at: Site, p: f64, q: f64) -> bool {
        let (mut draws, at) = self.draws(at);
        draws.accept(at, p, q)
    }

    fn pick(&mut self, at: Site, law: &Law) -> TokenId {
        if self.0 == Named::NextByNoise {
            let depth = self.2.depth(at.node.checked_sub(1));
            return coupled_sample(law, &self.1.draws, self.1.base + u64::from(depth));
        }
        let (mut draws, at) = self.draws(at);
        draws.pick(at, law)
    }
}

impl Verifier for Renamed {
    fn name(&self) -> &'static str {
        "renamed"
    }

    fn draw_mode(&self) -> DrawMode {
        DrawMode::Sampled { replacement: false }
    }

    fn verify(
        &self,
        round: &Round<'_>,
        rows: &mut dyn TargetRows,
        verdict: &mut Verdict,
    ) -> Result<(), VerifyError> {
        let rule: &dyn RatioRule = match self.rule {
            "token" => &Token,
            "block" => &Block,
            _ => &Traversal,
        };
        let mut choices = OtherNames(self.named, round.draws.round(round.base), round.proposal);
        rule.decide(round.proposal, rows, &mut choices, verdict)
    }
}

/// `coupled` with other noise.
pub(super) struct Recoupled(pub(super) Noise);

/// Whose noise it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Noise {
    /// All samples of a request share it.
    OfTheRequest,
    /// It is counted from the beginning of the round.
    OfTheRound,
}

impl Verifier for Recoupled {
    fn name(&self) -> &'static str {
        "recoupled"
    }

    fn draw_mode(&self) -> DrawMode {
        DrawMode::Shared
    }

    fn verify(
        &self,
        round: &Round<'_>,
        rows: &mut dyn TargetRows,
        verdict: &mut Verdict,
    ) -> Result<(), VerifyError> {
        let round = match self.0 {
            Noise::OfTheRequest => Round { draws: Draws { sample: 0, ..round.draws }, ..*round },
            Noise::OfTheRound => Round { base: 3, ..*round },
        };
        Coupled.verify(&round, rows, verdict)
    }
}

/// How a drafter draws what it says is drawn from its law with the numbers of the round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Drawn {
    /// The likeliest.
    Greedily,
    /// From the square of the law.
    AtHalfTheTemperature,
    /// With the noise that is the target's.
    WithTheNoise,
    /// By the number of its absolute position.
    ByPosition,
}

struct Otherwise(Drawn, RoundDraws, u64);

impl Choices for Otherwise {
    fn accept(&mut self, at: Site, p: f64, q: f64) -> bool {
        self.1.accept(at, p, q)
    }

    fn pick(&mut self, at: Site, law: &Law) -> TokenId {
        match self.0 {
            Drawn::Greedily => law.argmax(),
            Drawn::AtHalfTheTemperature => {
                let (ids, squares) = law.iter().map(|(id, p)| (id, p * p)).unzip();
                self.1.pick(at, &Law::sparse(ids, squares).unwrap())
            }
            Drawn::WithTheNoise => coupled_sample(law, &self.1.draws, self.2),
            Drawn::ByPosition => self.1.draws.round(self.2).pick(Site::draft(0), law),
        }
    }
}

/// The cell's drafter, drawing otherwise than it says.
pub(super) fn drawing(cell: &Cell, world: &World, drawn: Drawn) -> Box<dyn Drafter> {
    drafter_by(cell, world, move |builder, parent, law, width, job| {
        let base = job.tokens.len() as u64;
        let position = base + u64::from(builder.proposal().depth(parent));
        let mut choices = Otherwise(drawn, job.draws.round(base), position);
        builder.sample(parent, law, width, false, &mut choices)
    })
}

/// The cell's drafter, taking drafts back after a look at them.
pub(super) fn looking(cell: &Cell, world: &World) -> Box<dyn Drafter> {
    let mut inner = drafter(cell, world);
    Closure::boxed("looking", move |job: &DraftJob<'_>, proposal: &mut Proposal| {
        let mut out = [Ok(std::mem::take(proposal))];
        inner.propose(std::slice::from_ref(job), &mut out);
        let [outcome] = out;
        *proposal = outcome?;
        if proposal.node(0).is_some_and(|node| node.token == 1) {
            proposal.clear();
        }
        Ok(())
    })
}

/// A target whose rows behind drafts are such that the frequency penalty, which the engine applies with the drafts before
/// them, comes out without: the penalties of before the round.
pub(super) struct Stale {
    inner: Box<dyn ModelRunner>,
    shadow: Shadow,
    table: Vec<Vec<f32>>,
    penalty: f32,
}

impl Stale {
    pub(super) fn new(inner: Box<dyn ModelRunner>, world: &World) -> Self {
        let penalty = world.sampling.frequency_penalty as f32;
        Self { inner, shadow: Shadow::default(), table: world.tables()[0].to_vec(), penalty }
    }
}

impl ModelRunner for Stale {
    fn info(&self) -> &ModelInfo {
        self.inner.info()
    }

    fn allocate(&mut self, blocks: u32, block_size: u32) -> Result<(), RunnerError> {
        self.shadow = Shadow::new(blocks, block_size);
        self.inner.allocate(blocks, block_size)
    }

    fn forward(&mut self, batch: &Batch, out: &mut Rows) -> Result<(), RunnerError> {
        self.inner.forward(batch, out)?;
        self.shadow.write(batch);
        let vocab = self.info().vocab_size;
        // The first row that is wanted of a sequence follows its committed tokens; the others follow drafts.
        let mut committed = (u32::MAX, 0);
        for (&want, logits) in batch.want.iter().zip(out.logits.chunks_mut(vocab)) {
            let row = &batch.rows[want as usize];
            let seen = self.shadow.context(batch, row).unwrap_or_default();
            if committed.0 != row.seq {
                committed = (row.seq, seen.len());
            }
            let drafts = &seen[committed.1.min(seen.len())..];
            if seen.len() >= 2 {
                logits.copy_from_slice(&self.table[state(vocab, &seen)]);
            }
            drafts.iter().for_each(|&token| logits[token as usize] += self.penalty);
        }
        Ok(())
    }

    fn relocate(&mut self, copies: &[BlockCopy], moves: &[SlotMove]) -> Result<(), RunnerError> {
        self.shadow.relocate(copies, moves);
        self.inner.relocate(copies, moves)
    }
}
