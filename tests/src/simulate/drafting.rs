//! What the drafters of a world offer, and the trees they propose.

use redline_scheduler::{Offer, SeqId};
use redline_spec::{DraftJob, Drafter, Proposal};

use super::drafter::{Desk, Kind};
use super::rng::Stream;
use super::rule::{Check, rule};
use super::world::World;

impl World {
    /// Asks every drafter what it could propose: too much, too little, and for sequences that are not there.
    pub(crate) fn offer(&mut self) {
        let mut rng = self.rng(Stream::Offers);
        let offers = &mut self.buffers.offers;
        offers.clear();
        offers.push(Offer { seq: SeqId(u64::MAX), nodes: 3, lane: None, draft_context: 9 });
        for seq in self.scheduler.running() {
            let Some(job) = self.jobs.get(seq.id()) else { continue };
            let nodes = match job.kind {
                Kind::None => 0,
                _ if rng.one_in(8) => 0,
                Kind::Ngram => self.ngram.offer(seq.id().0, seq.tokens()),
                Kind::Greedy => usize::MAX,
                _ => rng.within(1, self.shape.offer),
            };
            if nodes > 0 {
                let near = seq.tokens().len() + rng.below(4);
                let draft_context = if rng.one_in(8) { near } else { usize::MAX };
                offers.push(Offer { seq: seq.id(), nodes, lane: job.kind.lane(), draft_context });
            }
        }
    }

    /// Has every drafter fill its lane and propose, and takes fills that could not be done out of the plan.
    pub(crate) fn propose(&mut self) -> Check {
        let spans = self.buffers.plan.spans.len();
        let buffers = &mut self.buffers;
        buffers.proposals.resize_with(spans.max(buffers.proposals.len()), Proposal::new);
        buffers.proposals.iter_mut().for_each(Proposal::clear);
        buffers.fed.clear();
        buffers.fed.resize(spans, 0);
        buffers.shapes.clear();
        for i in 0..spans {
            self.propose_for(i)?;
            let nodes = self.buffers.proposals[i].len();
            let granted = self.buffers.plan.spans[i].drafts;
            rule!(nodes <= granted, "a builder takes no more nodes than were granted");
            self.buffers.shapes.push(nodes);
        }
        Ok(())
    }

    fn propose_for(&mut self, i: usize) -> Check {
        let span = self.buffers.plan.spans[i];
        let fill = self.buffers.plan.fills.iter().position(|fill| fill.seq == span.seq);
        if span.drafts == 0 && fill.is_none() {
            return Ok(());
        }
        let Some(seq) = self.scheduler.get(span.seq) else { return Ok(()) };
        let Some(job) = self.jobs.get(span.seq) else { return Ok(()) };
        let stream = span.seq.0.wrapping_mul(0x51_7C_C1) ^ self.step << 32;
        let mut rng = super::rng::Rng::new(self.seed, Stream::Drafts, stream);
        let mishaps = if self.draining { 0 } else { self.shape.mishaps.drafts };
        if let Some(at) = fill.filter(|_| rng.one_in(mishaps)) {
            self.buffers.plan.fills.remove(at);
            return Ok(());
        }
        let fewer = if rng.one_in(4) { rng.below(3) } else { 0 };
        let nodes = span.drafts.saturating_sub(fewer);
        let buffers = &mut self.buffers;
        let proposal = &mut buffers.proposals[i];
        if job.kind == Kind::Ngram {
            let draft = DraftJob {
                seq: span.seq.0,
                tokens: seq.tokens(),
                budget: nodes,
                shape: &[],
                mode: self.verifier.draw_mode(),
                draws: job.draws,
                sampling: &self.jobs.sampling,
                history: &self.jobs.history,
                constraint: None,
                ends: &[],
                table: &[],
                fill: 0..0,
            };
            let out = &mut buffers.drafted;
            out.clear();
            out.push(Ok(std::mem::take(proposal)));
            self.ngram.propose(&[draft], out);
            if let Some(Ok(drafted)) = out.pop() {
                *proposal = drafted;
            }
            return Ok(());
        }
        let mut desk = Desk {
            job,
            laws: &self.jobs.laws,
            mode: self.verifier.draw_mode(),
            round: job.draws.round(seq.tokens().len() as u64),
            rng,
            path: &mut buffers.path,
        };
        match fill {
            None => desk.propose(nodes, proposal),
            Some(at) => {
                let fill = buffers.plan.fills[at];
                let memory = &mut self.memory;
                buffers.fed[i] = desk.propose_from_lane(memory, (seq, &fill), nodes, proposal);
            }
        }
        Ok(())
    }
}
