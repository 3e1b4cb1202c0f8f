//! The target's pass over the plan, and the verdict on every round.

use redline_scheduler::{Lane, Outcome, Span};
use redline_spec::Round;

use super::laws::Rows;
use super::memory::View;
use super::rng::Rng;
use super::rule::{Broken, Check, rule};
use super::step::ignored;
use super::world::World;

impl World {
    /// One outcome per span.
    pub(crate) fn forward(&mut self, faults: &mut Rng) -> Check {
        let rows = if self.draining { 0 } else { self.shape.mishaps.rows };
        for outcome in self.buffers.outcomes.drain(..) {
            if let Outcome::Round { path, tokens, .. } = outcome {
                self.buffers.spare.push((path, tokens));
            }
        }
        for i in 0..self.buffers.plan.spans.len() {
            let outcome = if faults.one_in(rows) { Outcome::Failed } else { self.compute(i)? };
            self.buffers.outcomes.push(outcome);
        }
        Ok(())
    }

    fn compute(&mut self, i: usize) -> Check<Outcome> {
        let buffers = &mut self.buffers;
        let span = buffers.plan.spans[i];
        let (end, slots) = (span.start + span.len, span.start + span.len + span.drafts);
        // Gone since the plan was made: whatever came of it must be ignored.
        let seq = self.scheduler.get(span.seq);
        let Some(seq) = seq.filter(|seq| seq.is_running() && seq.kv().slots() >= slots) else {
            return Ok(ignored(span.round));
        };
        let view = View { table: seq.kv().table(), lane: Lane::TARGET };
        let root = self.memory.feed(view, seq.tokens(), span.start, end);
        if !span.round {
            return Ok(Outcome::Chunk);
        }
        rule!(end == seq.tokens().len(), "a round feeds the last committed token");
        let proposal = &buffers.proposals[i];
        buffers.reads.clear();
        buffers.reads.push(root);
        for node in 0..span.drafts {
            let at = (end, root);
            let path = &mut buffers.path;
            let read = self.memory.feed_node(view, at, proposal, node as u32, path);
            buffers.reads.push(read);
        }
        self.verify(i, span)
    }

    fn verify(&mut self, i: usize, span: Span) -> Check<Outcome> {
        let buffers = &mut self.buffers;
        let Some(job) = self.jobs.get(span.seq) else {
            return Err(Broken("a request that is not inside has a span".to_owned()));
        };
        let proposal = &buffers.proposals[i];
        let base = job.position();
        let mut rows =
            Rows { laws: &self.jobs.laws, temperature: job.temperature, reads: &buffers.reads };
        let round = Round { proposal, base, draws: job.draws };
        let verdict = &mut buffers.verdict;
        if let Err(error) = self.verifier.verify(&round, &mut rows, verdict) {
            return Err(Broken(format!("a verifier refuses a good round: {error}")));
        }
        rule!(verdict.fallbacks == 0, "a residual without mass");
        let (mut path, mut tokens) = buffers.spare.pop().unwrap_or_default();
        path.clone_from(&verdict.path);
        verdict.tokens(proposal, &mut tokens);
        // What the rows on the emitted path have read is what plain decoding would have read there.
        let (mut plain, mut above) = (job.plain, None);
        rule!(buffers.reads[0] == plain, "the target reads the committed tokens");
        for (&node, &token) in path.iter().zip(&tokens) {
            let parent = proposal.node(node).map(|node| (node.parent, node.token));
            rule!(parent == Some((above, token)), "the accepted path is a path of the tree");
            plain = plain.token(token);
            let read = buffers.reads[node as usize + 1];
            rule!(read == plain, "a draft's row reads the committed tokens and its ancestors");
            above = Some(node);
        }
        Ok(Outcome::Round { path, tokens, draft_fed: buffers.fed[i] })
    }
}
