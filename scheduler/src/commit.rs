//! The end of a step: `settle` before the pass, `commit` or `abandon` after it.

use crate::roster::Slot;
use crate::{
    Commit, Done, Finish, Finished, Outcome, Scan, Scheduler, Sequence, Span, StepPlan, StopRule,
};
use redline_kv_cache::{BlockCopy, KvCache, SequenceKv, SlotMove, TokenId};

impl Scheduler {
    /// Fixes the number of draft nodes of every span to what was really proposed (`shapes`, one per
    /// span) and gives spare slots back. Returns copies that the shapes need, to be done before the
    /// pass; there are none as long as trees are verified with ancestor lists.
    ///
    /// # Panics
    /// If a shape exceeds what was granted: its slots are not reserved. Cut proposals first.
    pub fn settle(
        &mut self,
        kv: &mut KvCache,
        plan: &mut StepPlan,
        shapes: &[usize],
    ) -> &[BlockCopy] {
        self.check_open(plan);
        assert_eq!(shapes.len(), plan.spans.len(), "one shape per span");
        for ((span, ticket), &nodes) in plan.spans.iter_mut().zip(&plan.tickets).zip(shapes) {
            assert!(nodes <= span.drafts, "{nodes} nodes of {} granted", span.drafts);
            if nodes == span.drafts {
                continue;
            }
            span.drafts = nodes;
            if self.roster.find_admitted(ticket.slot, ticket.admission).is_some() {
                let seq = self.roster.get_mut(ticket.slot);
                seq.kv.truncate(kv, span.start + span.len + nodes);
            }
        }
        self.scratch.copies.clear();
        &self.scratch.copies
    }

    /// Takes in what the pass gave: one outcome per span, in their order. New tokens go through
    /// `stops` one by one; tokens, keys and values, lane fills and counts are all cut at the same
    /// place. Spans of sequences that were cancelled or preempted since are skipped.
    ///
    /// # Panics
    /// If an outcome does not go with its span.
    pub fn commit(
        &mut self,
        kv: &mut KvCache,
        plan: &StepPlan,
        outcomes: &[Outcome],
        stops: &mut dyn StopRule,
    ) -> &Done {
        self.check_open(plan);
        assert_eq!(outcomes.len(), plan.spans.len(), "one outcome per span");
        self.open = false;
        self.done.commits.clear();
        self.done.moves.clear();
        self.index_fills(plan);
        for (i, outcome) in outcomes.iter().enumerate() {
            let (span, ticket) = (&plan.spans[i], plan.tickets[i]);
            let commit = match self.roster.find_admitted(ticket.slot, ticket.admission) {
                Some(_) => self.commit_span(kv, span, ticket.slot, outcome, stops),
                None => Commit { seq: span.seq, kept: 0, accepted: 0, finish: None },
            };
            self.done.commits.push(commit);
        }
        &self.done
    }

    /// Takes a whole step back: nothing of it counts. Sequences that were in it fall back to what
    /// was committed before; those that were in more failed steps in a row than are retried end as
    /// [`Finish::Failed`] and are returned.
    ///
    /// May also be called after `commit` if the moves it asked for could not be done: the tokens
    /// stay, but the keys and values of that step are computed again.
    pub fn abandon(&mut self, kv: &mut KvCache, plan: &StepPlan) -> &[Finished] {
        assert_eq!(plan.step, self.step, "only the last plan can be abandoned");
        if self.open {
            self.undo_copies(kv, plan);
        } else {
            // What moved, or should have: nobody may find it as a prefix.
            for moved in &self.done.moves {
                kv.discard(moved.to_block);
            }
        }
        self.open = false;
        self.stats.abandoned += 1;
        self.failed.clear();
        for (span, ticket) in plan.spans.iter().zip(&plan.tickets) {
            if self.roster.find_admitted(ticket.slot, ticket.admission).is_none() {
                continue;
            }
            let seq = self.roster.get_mut(ticket.slot);
            let valid = seq.kv.len().min(span.start);
            seq.kv.truncate(kv, valid);
            seq.failures += 1;
            if seq.failures > self.config.retries {
                self.end(kv, ticket.slot, Finish::Failed);
                self.failed.push(Finished { seq: span.seq, finish: Finish::Failed });
            }
        }
        &self.failed
    }

    /// A failed step may not have done its copies: whoever holds a copy drops it.
    fn undo_copies(&mut self, kv: &mut KvCache, plan: &StepPlan) {
        for copy in &plan.copies {
            for i in 0..self.roster.running().len() {
                let seq = self.roster.get_mut(self.roster.running()[i]);
                if let Some(at) = seq.kv.table().iter().position(|&block| block == copy.to) {
                    let valid = at * kv.block_size();
                    seq.kv.truncate(kv, valid);
                }
            }
        }
    }

    /// Takes in the outcome of a span whose sequence is still the one that was planned.
    fn commit_span(
        &mut self,
        kv: &mut KvCache,
        span: &Span,
        slot: Slot,
        outcome: &Outcome,
        stops: &mut dyn StopRule,
    ) -> Commit {
        let mut commit = Commit { seq: span.seq, kept: 0, accepted: 0, finish: None };
        match outcome {
            Outcome::Failed => {
                // What failed may be its keys and values: nobody is to find them by their prefix.
                for &block in self.roster.get(slot).kv.table() {
                    kv.discard(block);
                }
                commit.finish = Some(Finish::Failed);
            }
            Outcome::Chunk => {
                assert!(!span.round, "a round has tokens to show");
                let seq = self.roster.get_mut(slot);
                seq.failures = 0;
                seq.kv.commit(kv, &seq.tokens, span.start + span.len);
            }
            Outcome::Round { path, tokens, draft_fed } => {
                assert!(span.round, "only a round yields tokens");
                check_path(path, tokens, span.drafts);
                let seq = self.roster.get_mut(slot);
                seq.failures = 0;
                let context = seq.tokens.len();
                (commit.kept, commit.finish) = take_tokens(seq, tokens, stops);
                commit.accepted = commit.kept.min(path.len());
                let path = &path[..commit.accepted];
                compact(&seq.kv, kv, context, path, &mut self.done.moves);
                seq.kv.commit(kv, &seq.tokens, context + commit.accepted);
                if let Some(fill) = self.scratch.fills[slot as usize] {
                    let fed = path.iter().take_while(|&&node| (node as usize) < *draft_fed);
                    let end = fill.start + fill.len;
                    let upto = if end == context { context + fed.count() } else { end };
                    seq.kv.set_filled(kv, fill.lane, upto);
                }
                let valid = seq.kv.len();
                seq.kv.truncate(kv, valid);
                self.stats.tokens += commit.kept as u64;
            }
        }
        if let Some(finish) = commit.finish {
            self.end(kv, slot, finish);
        }
        commit
    }

    fn check_open(&self, plan: &StepPlan) {
        let under_way = plan.step == self.step && (self.open || plan.is_empty());
        assert!(under_way, "step {} is not under way", plan.step);
        assert_eq!(plan.tickets.len(), plan.spans.len(), "spans are not added or removed");
    }

    /// The fills that were done, by slot.
    fn index_fills(&mut self, plan: &StepPlan) {
        let by_slot = &mut self.scratch.fills;
        by_slot.clear();
        by_slot.resize(self.roster.places(), None);
        for fill in &plan.fills {
            if let Some(slot) = self.roster.find(fill.seq) {
                by_slot[slot as usize] = Some(*fill);
            }
        }
    }
}

fn check_path(path: &[u32], tokens: &[TokenId], drafts: usize) {
    assert_eq!(tokens.len(), path.len() + 1, "a round yields its path and one token more");
    assert!(path.windows(2).all(|pair| pair[0] < pair[1]), "parents come before children");
    assert!(path.last().is_none_or(|&node| (node as usize) < drafts), "a node that was not fed");
}

/// Appends the tokens one by one until one ends the sequence. How many were kept.
fn take_tokens(
    seq: &mut Sequence,
    tokens: &[TokenId],
    stops: &mut dyn StopRule,
) -> (usize, Option<Finish>) {
    for (i, &token) in tokens.iter().enumerate() {
        seq.tokens.push(token);
        if stops.scan(seq.id(), token) == Scan::Stop {
            return (i + 1, Some(Finish::Stop));
        }
        if seq.remaining() == 0 {
            return (i + 1, Some(Finish::Length));
        }
    }
    (tokens.len(), None)
}

/// Accepted node `path[i]` sits in slot `context + path[i]` and belongs into `context + i`.
///
/// ```text
/// slots   context: [0] [1] [2] [3] [4]      path = 0, 2, 4
///                   |   ^---'       |
///                   |       ^-------'       moves: 2 -> 1, 4 -> 2
/// ```
///
/// As the path ascends, no move overwrites what a later one reads.
fn compact(
    seq: &SequenceKv,
    kv: &KvCache,
    context: usize,
    path: &[u32],
    moves: &mut Vec<SlotMove>,
) {
    let size = kv.block_size();
    let at = |slot: usize| (seq.table()[slot / size], (slot % size) as u32);
    for (i, &node) in path.iter().enumerate() {
        if node as usize != i {
            let (from_block, from_slot) = at(context + node as usize);
            let (to_block, to_slot) = at(context + i);
            moves.push(SlotMove { from_block, from_slot, to_block, to_slot });
        }
    }
}
