//! [`Buffers`]: memory of a verdict that is used again from round to round.

use super::climb::Frame;
use crate::{Law, TokenId};

/// What the rules write on while they decide. Holds nothing between rounds but capacity, so it is
/// no part of a verdict's value: all are equal.
#[derive(Clone, Debug, Default)]
pub(super) struct Buffers {
    /// Nodes between the root and where a walk is.
    pub(super) frames: Vec<Frame>,
    /// Tokens of some siblings.
    pub(super) tokens: Vec<TokenId>,
    ids: Vec<TokenId>,
    weights: Vec<f64>,
}

impl Buffers {
    /// Memory for one law at a time.
    pub(super) fn law(&mut self) -> (Vec<TokenId>, Vec<f64>) {
        let (mut ids, mut weights) =
            (std::mem::take(&mut self.ids), std::mem::take(&mut self.weights));
        ids.clear();
        weights.clear();
        (ids, weights)
    }

    /// Takes it back.
    pub(super) fn recycle(&mut self, law: Law) {
        let (ids, weights) = law.into_parts();
        self.ids = ids.unwrap_or_default();
        self.weights = weights;
    }
}

impl PartialEq for Buffers {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Buffers {}

#[cfg(test)]
mod tests {
    use crate::{
        Block, Draws, Law, Proposal, Round, RowError, TargetRows, Token, Traversal, Verdict,
        Verifier,
    };

    struct Everywhere(Law);

    impl TargetRows for Everywhere {
        fn law(&mut self, _: Option<u32>) -> Result<&Law, RowError> {
            Ok(&self.0)
        }
    }

    /// After some rounds the memory stays where it is: nothing is allocated any more.
    #[test]
    fn memory_is_reused_from_round_to_round() {
        let mut rows = Everywhere(Law::dense(vec![0.3, 0.3, 0.3, 0.1]).unwrap());
        let q = Law::dense(vec![0.1, 0.1, 0.2, 0.6]).unwrap();
        for (rule, width) in [(&Token as &dyn Verifier, 2), (&Block, 1), (&Traversal, 2)] {
            let (mut proposal, mut verdict) = (Proposal::new(), Verdict::default());
            let mut places = None;
            for seed in 0..400 {
                let draws = Draws { seed, sample: 0 };
                let mut builder = proposal.build(8);
                let mut parent = None;
                for _ in 0..3 {
                    let (mode, round) = (rule.draw_mode(), draws.round(0));
                    let below = builder.draw(parent, q.clone(), width, mode, &round).unwrap();
                    parent = Some(below.start);
                }
                let round = Round { proposal: &proposal, base: 0, draws };
                rule.verify(&round, &mut rows, &mut verdict).unwrap();
                let buffers = &verdict.buffers;
                let now = (
                    buffers.frames.as_ptr(),
                    (buffers.tokens.as_ptr(), buffers.ids.as_ptr()),
                    (buffers.weights.as_ptr(), verdict.path.as_ptr()),
                );
                if seed >= 100 {
                    assert_eq!(*places.get_or_insert(now), now, "{}, round {seed}", rule.name());
                }
            }
        }
    }
}
