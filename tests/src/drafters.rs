//! Drafters made of a closure, and some that know too much.

use redline::TokenId;
use redline_spec::{DraftError, DraftJob, Drafter, Proposal};

use crate::requests::Random;

/// What one job comes to. The proposal arrives empty.
type Propose = Box<dyn FnMut(&DraftJob<'_>, &mut Proposal) -> Result<(), DraftError> + Send>;

/// A drafter that always offers, and proposes what its closure says.
pub struct Closure {
    name: &'static str,
    trees: bool,
    propose: Propose,
}

impl Closure {
    /// A drafter called `name`.
    pub fn boxed(
        name: &'static str,
        propose: impl FnMut(&DraftJob<'_>, &mut Proposal) -> Result<(), DraftError> + Send + 'static,
    ) -> Box<dyn Drafter> {
        Box::new(Self { name, trees: false, propose: Box::new(propose) })
    }

    /// One that says at start that what it proposes may branch.
    pub fn of_trees(
        name: &'static str,
        propose: impl FnMut(&DraftJob<'_>, &mut Proposal) -> Result<(), DraftError> + Send + 'static,
    ) -> Box<dyn Drafter> {
        Box::new(Self { name, trees: true, propose: Box::new(propose) })
    }
}

impl Drafter for Closure {
    fn name(&self) -> &str {
        self.name
    }

    fn draws_trees(&self) -> bool {
        self.trees
    }

    fn offer(&mut self, _seq: u64, _tokens: &[TokenId]) -> usize {
        usize::MAX
    }

    fn propose(&mut self, jobs: &[DraftJob<'_>], out: &mut [Result<Proposal, DraftError>]) {
        for (job, slot) in jobs.iter().zip(out) {
            let mut proposal = Proposal::new();
            *slot = (self.propose)(job, &mut proposal).map(|()| proposal);
        }
    }

    fn forget(&mut self, _seq: u64) {}
}

/// A chain of tokens chosen without chance, cut to the job's budget.
///
/// # Errors
/// What the builder says.
pub fn chain(
    job: &DraftJob<'_>,
    proposal: &mut Proposal,
    tokens: impl IntoIterator<Item = TokenId>,
) -> Result<(), DraftError> {
    let mut builder = proposal.build(job.budget);
    let mut parent = None;
    for token in tokens.into_iter().take(job.budget) {
        parent = Some(builder.point(parent, token)?);
    }
    Ok(())
}

/// What is going to follow `tokens`, from whole sequences (prompt and output) that are known beforehand.
pub fn future<'a>(known: &'a [Vec<TokenId>], tokens: &[TokenId]) -> &'a [TokenId] {
    known.iter().find_map(|whole| whole.strip_prefix(tokens)).unwrap_or_default()
}

/// A drafter that knows the future and hides it in a tree: below each right token, two wrong ones of which
/// the first comes *before* it, so that what is accepted has to be moved.
pub fn forest(vocab: TokenId, known: Vec<Vec<TokenId>>) -> Box<dyn Drafter> {
    Closure::boxed("forest", move |job, proposal| {
        let mut builder = proposal.build(job.budget);
        let mut parent = None;
        for &token in future(&known, job.tokens) {
            if builder.room() < 2 {
                break;
            }
            builder.point(parent, (token + 1) % vocab)?;
            let right = builder.point(parent, token)?;
            if builder.room() > 0 {
                builder.point(parent, (token + 2) % vocab)?;
            }
            parent = Some(right);
        }
        Ok(())
    })
}

/// A drafter that knows the future up to where, by chance, it stops telling: so many right tokens, then wrong ones.
pub fn wavering(vocab: TokenId, known: Vec<Vec<TokenId>>, seed: u64) -> Box<dyn Drafter> {
    let mut random = Random(seed);
    Closure::boxed("wavering", move |job, proposal| {
        let right = random.below(job.budget + 1);
        let told = future(&known, job.tokens).iter().enumerate();
        chain(job, proposal, told.map(|(i, &t)| if i < right { t } else { (t + 1) % vocab }))
    })
}
