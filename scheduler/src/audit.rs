//! Every invariant, checked against the facts, those of the cache included.

use crate::sequence::Phase;
use crate::{Scheduler, SeqId, Sequence};
use redline_kv_cache::{KvCache, SequenceKv};

/// An invariant that does not hold. Always a bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// One of the cache's.
    #[error(transparent)]
    Cache(#[from] redline_kv_cache::Violation),
    /// One of a sequence's.
    #[error("sequence {}: {rule}", .seq.0)]
    Sequence {
        /// Whose.
        seq: SeqId,
        /// What should have held.
        rule: &'static str,
    },
    /// One of the whole.
    #[error("{rule}")]
    Scheduler {
        /// What should have held.
        rule: &'static str,
    },
}

type Check = Result<(), Violation>;

fn check(holds: bool, rule: &'static str) -> Check {
    holds.then_some(()).ok_or(Violation::Scheduler { rule })
}

impl Scheduler {
    /// Checks every invariant of the scheduler and of the cache, which must have no other users.
    /// May be called at any time, between `plan` and `commit` too. O(blocks + tokens held).
    pub fn audit(&self, kv: &KvCache) -> Check {
        self.audit_beside(kv, &[])
    }

    /// The same of a cache that also holds the blocks of `others`.
    pub fn audit_beside(&self, kv: &KvCache, others: &[&SequenceKv]) -> Check {
        kv.audit(self.roster.iter().map(Sequence::kv).chain(others.iter().copied()))?;
        let (waiting, running) = (self.roster.waiting(), self.roster.running());
        check(running.len() <= self.config.max_seqs, "the batch is bounded")?;
        check(self.queued() <= self.config.queue_len, "the queue is bounded")?;
        let all = waiting.len() + running.len();
        check(all <= self.config.inside_max(), "no more are inside than may be")?;
        check(all == self.roster.occupied(), "every sequence waits or runs")?;
        check(all == self.roster.ids(), "every sequence has one id")?;
        let rank = |slot: &u32| self.roster.get(*slot).rank;
        let sorted = running.is_sorted_by(|a, b| rank(a) < rank(b))
            && waiting.is_sorted_by(|a, b| rank(a) > rank(b));
        check(sorted, "both lists are in order of rank")?;
        let phases = running.iter().all(|&slot| self.roster.get(slot).is_running())
            && waiting.iter().all(|&slot| self.roster.get(slot).phase == Phase::Waiting);
        check(phases, "a sequence is on the list it says")?;
        let gone = self.ended.iter().all(|(seq, _)| seq.kv.table().is_empty());
        check(gone, "who ended holds no blocks")?;
        self.roster.iter().try_for_each(|seq| self.audit_sequence(kv, seq))
    }

    fn audit_sequence(&self, kv: &KvCache, seq: &Sequence) -> Check {
        let check = |holds: bool, rule| {
            holds.then_some(()).ok_or(Violation::Sequence { seq: seq.id(), rule })
        };
        let tokens = seq.tokens().len();
        let found = self.roster.find(seq.id()).map(|slot| self.roster.get(slot).rank);
        check(found == Some(seq.rank), "found under its id")?;
        check(seq.prompt_len() > 0 && seq.prompt_len() <= tokens, "it has its prompt")?;
        check(tokens < seq.limit(), "who has all its tokens has ended")?;
        check(seq.limit() <= self.config.max_model_len, "no longer than the model allows")?;
        check(seq.computed() < tokens, "the last token is still to be computed")?;
        check(seq.failures <= self.config.retries, "who failed too often has ended")?;
        check(kv.blocks_for(seq.limit() - 1) <= kv.blocks(), "it fits the pool alone")?;
        let drafts = seq.kv.slots().saturating_sub(tokens);
        check(self.open || drafts == 0, "no draft outlives its step")?;
        let room = seq.draft_cap().min(seq.remaining() - 1);
        check(drafts <= room, "no more drafts than may be kept")?;
        if !seq.is_running() {
            check(seq.kv.table().is_empty(), "who waits holds no blocks")?;
        }
        let right = seq.kv.holds_prefix_of(kv, seq.tokens());
        check(right, "indexed blocks hold the tokens of their sequence")
    }
}
