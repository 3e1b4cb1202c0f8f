//! What the drafter would say after any text: the q of the tests, from outside of any round.
//!
//! Of a draft model, its own teacher-forced pass. Of another drafter, what a second instance of it proposes when it
//! is asked after every token. Either is a function of the text alone. That matters: what was really drafted in a
//! round is related to what the round emitted, and an order made from it would not be fixed beforehand.

use redline_spec::{
    DraftJob, Drafter, DrawMode, Draws, History, LawError, Origin, Position, Proposal, Sampling,
    Scratch, TokenId, VocabMap, law,
};

use super::pit::DraftLaw;
use super::reader::Reader;
use crate::runner::RunnerError;

/// Where q comes from.
pub(super) enum DraftLaws {
    /// Nowhere: no drafter, or one that can't be asked.
    Unknown,
    /// A draft model.
    Model(Box<Model>),
    /// A drafter without a cache of its own, a second time.
    Probe(Box<dyn Drafter>),
}

/// A draft model, and what its tokens are to the target.
pub(super) struct Model {
    pub(super) reader: Reader,
    /// Entries that it shares with the target.
    shared: usize,
    map: Option<VocabMap>,
    /// The text in the draft's tokens, and a row in the target's.
    text: Vec<TokenId>,
    row: Vec<f32>,
}

/// A place in a text: whose parameters, and what was said so far.
pub(super) struct Place<'a> {
    pub(super) sampling: &'a Sampling,
    pub(super) history: &'a History,
    pub(super) text: &'a [TokenId],
    /// Index of the audit's text, which a probe takes for a sequence.
    pub(super) seq: u64,
}

impl DraftLaws {
    /// A drafter to be asked, if it can be: one with a lane needs blocks that only an engine has.
    pub(super) fn probe(drafter: Option<Box<dyn Drafter>>) -> Self {
        match drafter {
            Some(drafter) if drafter.lane().is_none() => Self::Probe(drafter),
            _ => Self::Unknown,
        }
    }

    /// The laws of a draft model that shares so many entries with the target, or by a map.
    pub(super) fn model(reader: Reader, shared: usize, map: Option<VocabMap>) -> Self {
        let (text, row) = (Vec::new(), Vec::new());
        Self::Model(Box::new(Model { reader, shared, map, text, row }))
    }

    /// Computes the rows of a model for the positions that will be asked about next.
    pub(super) fn read(
        &mut self,
        text: &[TokenId],
        after: std::ops::Range<usize>,
    ) -> Result<(), RunnerError> {
        match self {
            Self::Model(model) => {
                let Model { reader, map, text: own, .. } = model.as_mut();
                let Some(map) = map else { return reader.read(text, after) };
                own.clear();
                own.extend(text.iter().map(|&token| map.to_draft(token).unwrap_or(0)));
                reader.read(own, after)
            }
            Self::Unknown | Self::Probe(_) => Ok(()),
        }
    }

    /// The draft's law at a place: row number `row` of the last [`Self::read`].
    pub(super) fn at(
        &mut self,
        place: &Place<'_>,
        row: usize,
        scratch: &mut Scratch,
    ) -> Result<DraftLaw, LawError> {
        match self {
            Self::Unknown => Ok(DraftLaw::Unknown),
            Self::Model(model) => {
                let Model { reader, shared, map, row: own, .. } = model.as_mut();
                let logits = match map {
                    Some(map) => {
                        map.row(reader.logits(row), own);
                        own
                    }
                    None => reader.logits(row).get(..*shared).unwrap_or_default(),
                };
                let (sampling, history) = (place.sampling, place.history);
                let at = Position { sampling, history, path: &[], constraint: None };
                law(logits, &at, scratch).map(DraftLaw::Law)
            }
            Self::Probe(drafter) => Ok(ask(drafter.as_mut(), place)),
        }
    }

    /// A text has ended.
    pub(super) fn forget(&mut self, seq: u64) {
        if let Self::Probe(drafter) = self {
            drafter.forget(seq);
        }
    }
}

/// What a drafter proposes first. A drafter that fails here says nothing; that it fails in the engine is told there.
fn ask(drafter: &mut dyn Drafter, place: &Place<'_>) -> DraftLaw {
    if drafter.offer(place.seq, place.text) == 0 {
        return DraftLaw::Unknown;
    }
    let job = DraftJob {
        seq: place.seq,
        tokens: place.text,
        budget: 1,
        mode: DrawMode::Sampled { replacement: false },
        draws: Draws { seed: 0, sample: 0 },
        sampling: place.sampling,
        history: place.history,
        constraint: None,
        shape: &[],
        ends: &[],
        table: &[],
        fill: 0..0,
    };
    let mut out = [Ok(Proposal::new())];
    drafter.propose(&[job], &mut out);
    let [Ok(proposal)] = out else { return DraftLaw::Unknown };
    match (proposal.origin(None), proposal.drawn_from(None)) {
        (Some(Origin::Sampled { .. }), Some(law)) => DraftLaw::Law(law.clone()),
        (Some(Origin::PointMass), _) => {
            let token = |child| proposal.node(child).map(|node| node.token);
            DraftLaw::Points(proposal.children(None).filter_map(token).collect())
        }
        _ => DraftLaw::Unknown,
    }
}
