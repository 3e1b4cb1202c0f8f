//! Several samples of one prompt: they share its blocks.
//!
//! Siblings are sequences like any other, each with a rank, a seat and blocks of its own; who comes
//! into the batch while another is there just starts from what the other has computed. There is no
//! parent whose end or preemption would concern the others.

use crate::roster::Slot;
use crate::{Scheduler, Sequence};

/// What a waiting sequence can have of its siblings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// No sibling runs.
    Nothing,
    /// One that goes before it is still about to compute the prompt: worth waiting for, and as the
    /// best rank always gets on, not for ever.
    Later,
    /// The first `len` positions of `from`.
    Now { from: Slot, len: usize },
}

impl Scheduler {
    /// The sibling with the most in common, if there is one to share with: of equals the best rank.
    pub(crate) fn share(&self, slot: Slot) -> Share {
        let seq = self.roster.get(slot);
        let mut share = Share::Nothing;
        if !seq.has_siblings() {
            return share;
        }
        for &from in self.roster.running() {
            let sibling = self.roster.get(from);
            if !seq.is_sibling_of(sibling) {
                continue;
            }
            if sibling.is_computing_prompt() {
                if share == Share::Nothing && sibling.rank < seq.rank {
                    share = Share::Later;
                }
                continue;
            }
            let best = match share {
                Share::Now { len, .. } => Some(len),
                Share::Nothing | Share::Later => None,
            };
            if best.is_none_or(|best| may_have(seq, sibling, best)) {
                let len = common(seq, sibling);
                if best.is_none_or(|best| len > best) {
                    share = Share::Now { from, len };
                }
            }
        }
        share
    }
}

/// Positions of `sibling` that hold what `seq` needs: all but its last token have to be computed.
fn common(seq: &Sequence, sibling: &Sequence) -> usize {
    let own = &seq.tokens()[seq.prompt_len()..];
    let same = own.iter().zip(sibling.generated()).take_while(|(a, b)| a == b).count();
    (seq.prompt_len() + same).min(sibling.computed()).min(seq.tokens().len() - 1)
}

/// Whether position `at` of `sibling` may be one of those, from a look at it alone. That rules most of
/// them out, so that many who have long said the same are not all compared from the start.
fn may_have(seq: &Sequence, sibling: &Sequence, at: usize) -> bool {
    at < sibling.computed()
        && at + 1 < seq.tokens().len()
        && seq.tokens()[at] == sibling.tokens()[at]
}
