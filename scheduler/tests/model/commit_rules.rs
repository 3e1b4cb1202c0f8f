//! What is kept of a step, and what of one that failed.

use crate::ledger::{BLOCK, Ledger};
use redline_kv_cache::BlockId;
use redline_scheduler::{
    Commit, Done, Finish, Finished, KvCache, Outcome, Scheduler, SeqId, SlotMove, Span, StepPlan,
    TokenId,
};

/// The token that ends a sequence.
pub(crate) const STOP: TokenId = 7;

/// What a commit found of one span's sequence.
pub(crate) struct Found {
    table: Vec<BlockId>,
    /// Whether others may fill its blocks, too.
    shared: bool,
    /// Per slot whether the lane of its fill was filled there: in its blocks, which others may have
    /// had before, there can be gaps.
    filled: Vec<bool>,
}

impl Found {
    pub(crate) fn of(plan: &StepPlan, scheduler: &Scheduler, kv: &KvCache) -> Vec<Self> {
        let found = plan.spans.iter().map(|span| {
            let seq = scheduler.get(span.seq);
            let table = seq.map_or(Vec::new(), |seq| seq.kv().table().to_vec());
            let fill = plan.fills.iter().find(|fill| fill.seq == span.seq);
            let slot = |i: usize| {
                let lane = fill.map(|fill| fill.lane);
                lane.is_some_and(|lane| i % BLOCK < kv.fill(table[i / BLOCK], lane))
            };
            let filled = (0..table.len() * BLOCK).map(slot).collect();
            Self { shared: table.iter().any(|&block| kv.refs(block) > 1), table, filled }
        });
        found.collect()
    }
}

impl Ledger {
    pub(crate) fn committed(
        &mut self,
        plan: &StepPlan,
        outcomes: &[Outcome],
        found: &[Found],
        done: &Done,
    ) {
        self.open = false;
        let (mut commits, mut moves) = (Vec::new(), Vec::new());
        for (i, (span, outcome)) in plan.spans.iter().zip(outcomes).enumerate() {
            let nothing = Commit { seq: span.seq, kept: 0, accepted: 0, finish: None };
            commits.push(match outcome {
                _ if !self.live[i] => nothing,
                Outcome::Failed => Commit { finish: Some(Finish::Failed), ..nothing },
                Outcome::Chunk => {
                    let entry = self.inside.get_mut(&span.seq).unwrap();
                    (entry.computed, entry.failures) = (span.start + span.len, 0);
                    nothing
                }
                Outcome::Round { path, tokens, .. } => {
                    let (commit, path) = self.round(span, path, tokens);
                    moves.extend(moved(span, path, &found[i].table));
                    commit
                }
            });
            if let Some(finish) = commits[i].finish {
                self.live[i] = false;
                self.end(span.seq, finish);
            }
        }
        assert_eq!((&done.commits, &done.moves), (&commits, &moves));
    }

    /// Token by token until one ends it. What is accepted of the path is what is kept of it.
    fn round<'a>(
        &mut self,
        span: &Span,
        path: &'a [u32],
        tokens: &[TokenId],
    ) -> (Commit, &'a [u32]) {
        let entry = self.inside.get_mut(&span.seq).unwrap();
        let context = entry.tokens.len();
        let (mut kept, mut finish) = (0, None);
        for &token in tokens {
            entry.tokens.push(token);
            kept += 1;
            let full = entry.tokens.len() == entry.limit;
            finish = match token {
                STOP => Some(Finish::Stop),
                _ => full.then_some(Finish::Length),
            };
            if finish.is_some() {
                break;
            }
        }
        let accepted = kept.min(path.len());
        (entry.computed, entry.failures) = (context + accepted, 0);
        self.tokens += kept as u64;
        (Commit { seq: span.seq, kept, accepted, finish }, &path[..accepted])
    }

    /// The lanes are filled as far as was fed and kept. Where blocks are shared others may have
    /// filled more in the same step.
    pub(crate) fn filled(
        &self,
        plan: &StepPlan,
        outcomes: &[Outcome],
        found: &[Found],
        (scheduler, kv): (&Scheduler, &KvCache),
    ) {
        for (i, span) in plan.spans.iter().enumerate() {
            let fill = plan.fills.iter().find(|fill| fill.seq == span.seq);
            let Outcome::Round { path, draft_fed, .. } = &outcomes[i] else { continue };
            let Some(fill) = fill.filter(|_| self.live[i]) else { continue };
            let Some(entry) = self.inside.get(&span.seq) else { continue };
            let context = span.start + span.len;
            let kept = &path[..entry.computed - context];
            let fed = kept.iter().take_while(|&&node| (node as usize) < *draft_fed).count();
            let end = fill.start + fill.len;
            let fed = if end == context { end + fed } else { end };
            let mut before = found[i].filled.iter().enumerate();
            let reached = before.position(|(slot, &filled)| slot >= fed && !filled);
            let reached = reached.unwrap_or(usize::MAX).min(entry.computed);
            let seq = scheduler.get(span.seq).unwrap();
            let filled = seq.kv().filled(kv, fill.lane);
            let shared = found[i].shared;
            assert!(filled == reached || shared && filled > reached, "{filled}, not {reached}");
        }
    }

    /// Tokens stay; what was computed in the step does not count, nor what a copy was to bring: who
    /// holds one has only so many slots as lie below.
    pub(crate) fn abandoned(
        &mut self,
        plan: &StepPlan,
        failed: &[Finished],
        copied: &[(SeqId, usize)],
    ) {
        let mut expected = Vec::new();
        self.abandoned += 1;
        self.open = false;
        for (id, below) in copied {
            let entry = self.inside.get_mut(id).unwrap();
            entry.computed = entry.computed.min(*below);
        }
        for (i, span) in plan.spans.iter().enumerate() {
            let Some(entry) = self.inside.get_mut(&span.seq).filter(|_| self.live[i]) else {
                continue;
            };
            entry.computed = entry.computed.min(span.start);
            entry.failures += 1;
            if entry.failures > self.config.retries {
                self.end(span.seq, Finish::Failed);
                expected.push(Finished { seq: span.seq, finish: Finish::Failed });
            }
        }
        assert_eq!(failed, expected);
    }

    /// The answer to a preemption from outside.
    pub(crate) fn preempted(&mut self, id: SeqId, answer: bool) {
        let running = self.inside.get(&id).is_some_and(|entry| entry.running);
        assert_eq!(answer, running, "only who runs can be preempted");
        if running {
            self.put_back(id);
        }
    }
}

/// Node `path[i]` sits behind the committed tokens where it was fed, and belongs at place `i` there.
fn moved(span: &Span, path: &[u32], table: &[BlockId]) -> Vec<SlotMove> {
    let context = span.start + span.len;
    let place = |slot: usize| (table[slot / BLOCK], (slot % BLOCK) as u32);
    let moves = path.iter().enumerate().filter(|(i, node)| **node as usize != *i);
    let moves = moves.map(|(i, &node)| {
        let (from_block, from_slot) = place(context + node as usize);
        let (to_block, to_slot) = place(context + i);
        SlotMove { from_block, from_slot, to_block, to_slot }
    });
    moves.collect()
}
