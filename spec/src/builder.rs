//! [`Builder`]: the only way to put drafts into a proposal.

use crate::process::{self, Position, Scratch, law};
use crate::race::{NOBODY, coupled_race, coupled_top};
use crate::{
    Choices, DraftError, Law, LawError, Origin, Proposal, ProposalError, RoundDraws, Site, TokenId,
};
use std::ops::Range;

/// How a verifier wants a drafter that has a law to draw from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrawMode {
    /// With the target's own noise, the best of the race first.
    Shared,
    /// At random, with the numbers of the round.
    Sampled {
        /// Whether siblings are drawn with replacement.
        replacement: bool,
    },
    /// The likeliest tokens.
    Point,
}

/// Fills a [`Proposal`]. Children get consecutive indices in draw order.
///
/// Sampled children are drawn *by the builder* from the law that it keeps for the verifier, so the
/// two cannot differ, and there is no way to remove one afterwards.
#[derive(Debug)]
pub struct Builder<'a> {
    proposal: &'a mut Proposal,
    limit: usize,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(proposal: &'a mut Proposal, limit: usize) -> Self {
        // Indices are u32 and one more is used as a name.
        Self { proposal, limit: limit.min(u32::MAX as usize - 1) }
    }

    /// Nodes that may still be added.
    #[must_use]
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.proposal.len())
    }

    /// The tree so far.
    #[must_use]
    pub fn proposal(&self) -> &Proposal {
        self.proposal
    }

    /// Adds a token chosen without chance below `parent`; returns its index.
    ///
    /// # Errors
    /// [`ProposalError`]: no room, no such parent, other origins or the same token below it.
    pub fn point(&mut self, parent: Option<u32>, token: TokenId) -> Result<u32, ProposalError> {
        self.free(parent, token, Origin::PointMass)
    }

    /// Adds a token drawn with the target's noise below `parent`; returns its index.
    ///
    /// # Errors
    /// As [`Builder::point`].
    pub fn shared(&mut self, parent: Option<u32>, token: TokenId) -> Result<u32, ProposalError> {
        self.free(parent, token, Origin::Shared)
    }

    /// Draws up to `width` children of `parent` from `law`, in order; returns their indices. Fewer
    /// come only where room ends or, without replacement, where the support does: neither looks at
    /// what was drawn.
    ///
    /// # Errors
    /// [`ProposalError`]: no room, no such parent, or it has children already.
    pub fn sample(
        &mut self,
        parent: Option<u32>,
        law: Law,
        width: usize,
        replacement: bool,
        choices: &mut dyn Choices,
    ) -> Result<Range<u32>, ProposalError> {
        self.check(parent)?;
        if self.proposal.origin(parent).is_some() {
            return Err(ProposalError::MixedOrigins);
        }
        let start = self.proposal.len() as u32;
        let origin = Origin::Sampled { replacement };
        let mut rest = None;
        let mut drawn = None;
        for _ in 0..width.min(self.room()) {
            if let Some(token) = drawn.filter(|_| !replacement) {
                match rest.as_ref().unwrap_or(&law).without(token) {
                    Some(law) => rest = Some(law),
                    None => break,
                }
            }
            let from = rest.as_ref().unwrap_or(&law);
            let token = choices.pick(Site::draft(self.proposal.len() as u32), from);
            self.proposal.attach(parent, token, origin);
            drawn = Some(token);
        }
        self.proposal.set_law(parent, law);
        Ok(start..self.proposal.len() as u32)
    }

    /// Draws up to `width` children of `parent` from `law` the way the verifier wants; returns
    /// their indices. What a drafter with a law calls at each node.
    ///
    /// # Errors
    /// As [`Builder::sample`].
    pub fn draw(
        &mut self,
        parent: Option<u32>,
        law: Law,
        width: usize,
        mode: DrawMode,
        round: &RoundDraws,
    ) -> Result<Range<u32>, ProposalError> {
        let start = self.proposal.len() as u32;
        let width = width.min(self.room());
        match mode {
            DrawMode::Sampled { replacement } => {
                return self.sample(parent, law, width, replacement, &mut { *round });
            }
            DrawMode::Shared => {
                // A child of a node at depth d is token number base + d of the sequence.
                let position = round.base + u64::from(self.proposal.depth(parent));
                for token in coupled_top(&law, &round.draws, position, width) {
                    self.shared(parent, token)?;
                }
            }
            DrawMode::Point => {
                for token in likeliest(&law, width) {
                    self.point(parent, token)?;
                }
            }
        }
        Ok(start..self.proposal.len() as u32)
    }

    /// [`Builder::draw`] from the [`law`](crate::law()) of a row of logits, of which no more is worked out
    /// than the mode needs.
    ///
    /// # Errors
    /// As [`Builder::draw`]; [`DraftError::Law`] if the row is no law.
    pub fn draw_row(
        &mut self,
        parent: Option<u32>,
        row: (&[f32], &Position<'_>),
        width: usize,
        (mode, round): (DrawMode, &RoundDraws),
        scratch: &mut Scratch,
    ) -> Result<Range<u32>, DraftError> {
        if mode != DrawMode::Shared {
            let law = law(row.0, row.1, scratch)?;
            return Ok(self.draw(parent, law, width, mode, round)?);
        }
        let start = self.proposal.len() as u32;
        let places = width.min(self.room());
        for (_, token) in self.race(parent, row, places, round, scratch)? {
            self.shared(parent, token)?;
        }
        Ok(start..self.proposal.len() as u32)
    }

    /// The tokens that [`Builder::draw`] would put below `parent` in a free mode, best first, each
    /// with how likely it is to be the accepted one, as far as the drafter can tell: they may be
    /// chosen among before they are added. Nothing is added. None in a sampling mode, whose
    /// drafts must not be chosen among.
    #[must_use]
    pub fn prospects(
        &self,
        parent: Option<u32>,
        law: &Law,
        width: usize,
        mode: DrawMode,
        round: &RoundDraws,
    ) -> Vec<(TokenId, f64)> {
        match mode {
            DrawMode::Sampled { .. } => Vec::new(),
            DrawMode::Point => {
                likeliest(law, width).into_iter().map(|id| (id, law.p(id))).collect()
            }
            DrawMode::Shared => {
                let position = round.base + u64::from(self.proposal.depth(parent));
                let race = coupled_race(law, &round.draws, position, width + RUNNERS_UP);
                by_margin(&race).take(width).collect()
            }
        }
    }

    /// [`Builder::prospects`] under the [`law`](crate::law()) of a row of logits, of which no more is worked
    /// out than the mode needs.
    ///
    /// # Errors
    /// [`LawError`] if the row is no law.
    pub fn prospects_row(
        &self,
        parent: Option<u32>,
        row: (&[f32], &Position<'_>),
        width: usize,
        (mode, round): (DrawMode, &RoundDraws),
        scratch: &mut Scratch,
    ) -> Result<Vec<(TokenId, f64)>, LawError> {
        if mode != DrawMode::Shared {
            let law = law(row.0, row.1, scratch)?;
            let found = self.prospects(parent, &law, width, mode, round);
            scratch.recycle(law);
            return Ok(found);
        }
        let race = self.race(parent, row, width + RUNNERS_UP, round, scratch)?;
        Ok(by_margin(&race).take(width).collect())
    }

    /// Who leads the race below `parent`, best first.
    fn race(
        &self,
        parent: Option<u32>,
        (logits, at): (&[f32], &Position<'_>),
        places: usize,
        round: &RoundDraws,
        scratch: &mut Scratch,
    ) -> Result<Vec<(f64, TokenId)>, LawError> {
        let position = round.base + u64::from(self.proposal.depth(parent));
        let mut best = vec![NOBODY; places.min(logits.len())];
        process::race(logits, at, scratch, (&round.draws, position), &mut best)?;
        best.retain(|&place| place != NOBODY);
        Ok(best)
    }

    fn free(
        &mut self,
        parent: Option<u32>,
        token: TokenId,
        origin: Origin,
    ) -> Result<u32, ProposalError> {
        self.check(parent)?;
        if self.proposal.origin(parent).is_some_and(|other| other != origin) {
            return Err(ProposalError::MixedOrigins);
        }
        if self.proposal.child(parent, token).is_some() {
            return Err(ProposalError::Duplicate { token });
        }
        Ok(self.proposal.attach(parent, token, origin))
    }

    fn check(&self, parent: Option<u32>) -> Result<(), ProposalError> {
        if self.room() == 0 {
            return Err(ProposalError::Full { limit: self.limit });
        }
        match parent {
            Some(parent) if parent as usize >= self.proposal.len() => {
                Err(ProposalError::NoParent { parent })
            }
            _ => Ok(()),
        }
    }
}

/// Runners beyond the children that stand for the rest of the field.
const RUNNERS_UP: usize = 2;

/// Runners of a race with the probability that each would win it under the target's law. That law
/// differs from the drafter's by factors which nobody knows yet; taken as exponential noise on the
/// scores, a runner wins in proportion to 1/score: a drafter that led by far leads under the target,
/// too, however unlikely its token was.
fn by_margin(race: &[(f64, TokenId)]) -> impl Iterator<Item = (TokenId, f64)> + '_ {
    let lead = race.first().map_or(1.0, |&(score, _)| score);
    let weight = move |score: f64| if score > 0.0 { lead / score } else { 1.0 };
    let total: f64 = race.iter().map(|&(score, _)| weight(score)).sum();
    race.iter().map(move |&(score, id)| (id, weight(score) / total))
}

/// The `width` likeliest tokens, best first, lower ids first among equals.
fn likeliest(law: &Law, width: usize) -> Vec<TokenId> {
    if width == 1 {
        return vec![law.argmax()];
    }
    let mut all: Vec<_> = law.weighted().collect();
    let better = |a: &(TokenId, f64), b: &(TokenId, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if width > 0 && width < all.len() {
        all.select_nth_unstable_by(width - 1, better);
    }
    all.truncate(width);
    all.sort_unstable_by(better);
    all.into_iter().map(|(id, _)| id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Draws;

    #[test]
    fn free_children_are_checked() {
        let mut proposal = Proposal::new();
        let mut builder = proposal.build(3);
        assert_eq!(builder.point(Some(0), 1), Err(ProposalError::NoParent { parent: 0 }));
        let a = builder.point(None, 1).unwrap();
        assert_eq!(builder.point(None, 1), Err(ProposalError::Duplicate { token: 1 }));
        assert_eq!(builder.shared(None, 2), Err(ProposalError::MixedOrigins));
        let mut choices = Draws { seed: 0, sample: 0 }.round(0);
        let refused = builder.sample(None, Law::point(4), 1, true, &mut choices);
        assert_eq!(refused, Err(ProposalError::MixedOrigins));
        builder.shared(Some(a), 1).unwrap();
        builder.point(None, 3).unwrap();
        assert_eq!(builder.point(None, 4), Err(ProposalError::Full { limit: 3 }));
        assert!(!proposal.is_chain());
        assert_eq!(proposal.children(None).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(proposal.check(4), Ok(()));
        assert_eq!(proposal.check(3), Err(ProposalError::OutOfVocabulary { token: 3, vocab: 3 }));
        let mut path = Vec::new();
        proposal.path_tokens(Some(1), &mut path);
        assert_eq!((path, proposal.depth(Some(1))), (vec![1, 1], 2));
        let mut nodes = Vec::new();
        proposal.path_nodes(2, &mut nodes);
        assert_eq!(nodes, [2]);
        proposal.path_nodes(1, &mut nodes);
        assert_eq!(nodes, [0, 1]);
    }

    #[test]
    fn sampling_stops_where_room_or_support_ends() {
        let law = || Law::dense(vec![0.2, 0.0, 0.5, 0.3]).unwrap();
        for seed in 0..200 {
            let round = Draws { seed, sample: 0 }.round(9);
            let mut proposal = Proposal::new();
            let without = DrawMode::Sampled { replacement: false };
            let drawn = proposal.build(8).draw(None, law(), 8, without, &round).unwrap();
            assert_eq!(drawn, 0..3);
            let mut tokens: Vec<_> = proposal.nodes().iter().map(|n| n.token).collect();
            tokens.sort_unstable();
            assert_eq!(tokens, [0, 2, 3]);
            let with = DrawMode::Sampled { replacement: true };
            let drawn = proposal.build(5).draw(None, law(), 8, with, &round).unwrap();
            assert_eq!(drawn, 0..5);
            assert_eq!(proposal.drawn_from(None), Some(&law()));
        }
    }

    #[test]
    fn modes_choose_as_they_say() {
        let law = || Law::dense(vec![0.2, 0.0, 0.4, 0.4]).unwrap();
        let draws = Draws { seed: 3, sample: 0 };
        let mut proposal = Proposal::new();
        let mut builder = proposal.build(9);
        builder.draw(None, law(), 2, DrawMode::Point, &draws.round(5)).unwrap();
        let below = builder.draw(Some(0), law(), 2, DrawMode::Shared, &draws.round(5)).unwrap();
        assert_eq!(below, 2..4);
        let tokens: Vec<_> = proposal.nodes().iter().map(|n| n.token).collect();
        // Ties to the lowest id; shared noise at the position the token will have: 5 + depth 1.
        assert_eq!(tokens[..2], [2, 3]);
        assert_eq!(tokens[2..], coupled_top(&law(), &draws, 6, 2));
    }

    #[test]
    fn prospects_are_what_would_be_drawn() {
        let law = Law::dense((0..90).map(|i| 1.0 / f64::from(i + 1)).collect()).unwrap();
        for seed in 0..50 {
            let round = Draws { seed, sample: 0 }.round(5);
            let mut proposal = Proposal::new();
            let mut builder = proposal.build(9);
            let above = builder.point(None, 7).unwrap();
            for mode in [DrawMode::Point, DrawMode::Shared] {
                let ahead = builder.prospects(Some(above), &law, 3, mode, &round);
                let sure: Vec<_> = ahead.iter().map(|&(_, sure)| sure).collect();
                assert!(sure.is_sorted_by(|a, b| a >= b) && sure.iter().sum::<f64>() < 1.0);
                let mut other = Proposal::new();
                let mut drawn = other.build(9);
                drawn.point(None, 7).unwrap();
                let children = drawn.draw(Some(above), law.clone(), 3, mode, &round).unwrap();
                let tokens = children.map(|node| other.nodes()[node as usize].token);
                assert!(tokens.eq(ahead.iter().map(|&(token, _)| token)));
            }
            let mode = DrawMode::Sampled { replacement: false };
            assert!(builder.prospects(None, &law, 3, mode, &round).is_empty());
            let sole = builder.prospects(None, &Law::point(4), 3, DrawMode::Shared, &round);
            assert_eq!(sole, [(4, 1.0)]);
        }
    }

    #[test]
    fn pruning_takes_free_nodes_with_what_is_below() {
        let mut proposal = Proposal::new();
        let mut round = Draws { seed: 3, sample: 0 }.round(5);
        let mut builder = proposal.build(9);
        let a = builder.point(None, 10).unwrap();
        let b = builder.point(None, 20).unwrap();
        builder.sample(Some(a), Law::point(7), 1, true, &mut round).unwrap();
        builder.sample(Some(b), Law::point(8), 1, true, &mut round).unwrap();
        builder.point(Some(3), 30).unwrap();
        let before = proposal.clone();
        proposal.prune(|_| true);
        assert_eq!(proposal, before);
        // Sampled nodes are never asked about: 8 stays though it is refused.
        proposal.prune(|path| path != [10] && path.last() != Some(&8));
        let tokens: Vec<_> = proposal.nodes().iter().map(|n| (n.token, n.parent)).collect();
        assert_eq!(tokens, [(20, None), (8, Some(0)), (30, Some(1))]);
        assert_eq!(proposal.drawn_from(Some(0)), Some(&Law::point(8)));
    }
}
