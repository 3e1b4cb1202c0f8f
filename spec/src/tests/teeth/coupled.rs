//! Wrong variants of `coupled`: each says something that plain decoding does not.

use super::model;
use crate::tests::coupled::{Rows, draft};
use crate::{
    Choices, Coupled, DrawMode, Draws, Proposal, Round, Site, TargetRows, Verdict, Verifier,
    VerifyError, coupled_sample,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// Noise counted from the beginning of the round.
    PlaceInRound,
    /// One position's noise for the whole round.
    BaseForAll,
    /// Noise of the position after the token's.
    NextPosition,
    /// All samples of a request share their noise.
    NoSample,
    /// The first draft is taken as it is.
    FirstUnverified,
    /// A draft is accepted by min(1, p/q) with q = 1 and corrected with the noise.
    RatioTest,
    /// The law of the row before.
    ParentRow,
    /// A draft of the right depth counts, wherever it hangs.
    OtherPath,
    /// The law is sampled by its inverse distribution with a number of the position.
    Inverse,
}

struct Double(Bug);

impl Verifier for Double {
    fn name(&self) -> &'static str {
        "double"
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
        verdict.clear();
        let (proposal, mut node) = (round.proposal, None);
        loop {
            let depth = verdict.path.len() as u64;
            let position = match self.0 {
                Bug::PlaceInRound => depth,
                Bug::BaseForAll => round.base,
                Bug::NextPosition => round.base + depth + 1,
                _ => round.base + depth,
            };
            let sample = if self.0 == Bug::NoSample { 0 } else { round.draws.sample };
            let draws = Draws { sample, ..round.draws };
            let parent = node.and_then(|n| proposal.node(n)?.parent);
            let law = rows.law(if self.0 == Bug::ParentRow { parent } else { node })?.clone();
            let token = match self.0 {
                Bug::Inverse => draws.round(position).pick(Site::next(None), &law),
                _ => coupled_sample(&law, &draws, position),
            };
            let first = proposal.children(node).next();
            let taken = match (self.0, first) {
                (Bug::FirstUnverified, Some(child)) if node.is_none() => Some(child),
                (Bug::RatioTest, Some(child)) => {
                    let p = law.p(proposal.node(child).unwrap().token);
                    Some(child).filter(|&n| draws.round(position).accept(Site::accept(n), p, 1.0))
                }
                (Bug::OtherPath, _) => (0..proposal.len() as u32).find(|&n| {
                    let other = proposal.node(n).unwrap();
                    u64::from(other.depth) == depth + 1 && other.token == token
                }),
                _ => proposal.child(node, token),
            };
            let Some(child) = taken else {
                verdict.next = token;
                return Ok(());
            };
            verdict.path.push(child);
            node = Some(child);
        }
    }
}

/// How many of 400 seeds say something else than plain decoding within eight tokens.
fn differing(rule: &dyn Verifier) -> usize {
    let pair = model();
    let differs = |seed: &u64| {
        let draws = Draws { seed: *seed, sample: 1 };
        let mut plain = Vec::new();
        while plain.len() < 8 {
            plain.push(coupled_sample(&pair.p(&plain), &draws, plain.len() as u64));
        }
        let (mut tokens, mut run) = (Vec::new(), Vec::new());
        let (mut proposal, mut verdict) = (Proposal::new(), Verdict::default());
        while tokens.len() < 8 {
            draft(&pair, &tokens, (draws, DrawMode::Shared), &[2, 2], &mut proposal);
            let mut rows = Rows { pair: &pair, prefix: &tokens, proposal: &proposal, law: None };
            let round = Round { proposal: &proposal, base: tokens.len() as u64, draws };
            rule.verify(&round, &mut rows, &mut verdict).unwrap();
            verdict.tokens(&proposal, &mut run);
            tokens.extend_from_slice(&run);
        }
        tokens[..8] != plain[..]
    };
    (0..400).filter(differs).count()
}

#[test]
fn equality_with_the_plain_sampler_catches_wrong_coupling() {
    assert_eq!(differing(&Coupled), 0);
    assert_eq!(differing(&Double(Bug::None)), 0);
    for bug in [
        Bug::PlaceInRound,
        Bug::BaseForAll,
        Bug::NextPosition,
        Bug::NoSample,
        Bug::FirstUnverified,
        Bug::RatioTest,
        Bug::ParentRow,
        Bug::OtherPath,
        Bug::Inverse,
    ] {
        let seen = differing(&Double(bug));
        assert!(seen > 20, "{bug:?} was seen in {seen} of 400");
    }
}
