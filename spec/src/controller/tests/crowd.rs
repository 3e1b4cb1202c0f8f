//! Several sequences whose lanes are behind: drafting pays for all of them together, or for none.

use super::*;

/// As in the scheduler: the longest gap that is filled on the way, rows of a step, of a chunk.
const INLINE: usize = 8;
const STEP_ROWS: usize = 512;
const CHUNK: usize = 256;

#[derive(Clone, Copy)]
struct Member {
    seq: u64,
    rate: f64,
    context: usize,
    filled: usize,
    remaining: usize,
}

/// A batch that is kept full: who ends is replaced.
pub(super) struct Crowd {
    controller: Controller,
    verify_s: Time,
    draft_s: Time,
    members: Vec<Member>,
    /// Prompt and answer of those who come.
    lengths: (usize, usize),
    rates: Vec<f64>,
    /// Drafts of everybody, instead of the controller's.
    fixed: Option<usize>,
    next: u64,
    clock: u64,
    /// What everything takes, as a multiple of its time: a machine that others use, too.
    pub(super) slowness: f64,
    time_s: f64,
    tokens: usize,
}

impl Crowd {
    pub(super) fn new(
        size: usize,
        rates: &[f64],
        lengths: (usize, usize),
        times: (Time, Time),
    ) -> Self {
        let mut crowd = Self {
            controller: Controller::default(),
            verify_s: times.0,
            draft_s: times.1,
            members: Vec::new(),
            lengths,
            rates: rates.to_vec(),
            fixed: None,
            next: 0,
            clock: 0,
            slowness: 1.0,
            time_s: 0.0,
            tokens: 0,
        };
        for _ in 0..size {
            let member = crowd.arrive();
            crowd.members.push(member);
        }
        crowd
    }

    /// Takes one in, whose prompt is computed in steps of their own.
    fn arrive(&mut self) -> Member {
        self.next += 1;
        for at in (0..self.lengths.0).step_by(STEP_ROWS) {
            let rows = STEP_ROWS.min(self.lengths.0 - at);
            let verify_s = (self.verify_s)(rows as f64);
            let timing = StepTiming { rows, verify_s, ..StepTiming::default() };
            self.controller.observe_time(&timing);
            self.time_s += verify_s;
        }
        let rate = self.rates[self.next as usize % self.rates.len()];
        // Ends are spread.
        let remaining = self.lengths.1 / 2 + (self.next as usize * 37) % self.lengths.1;
        Member { seq: self.next, rate, context: self.lengths.0 + 1, filled: 0, remaining }
    }

    fn uniform(&mut self) -> f64 {
        self.clock += 1;
        Draws { seed: 11, sample: 0 }.uniform(self.clock, 0, Purpose::Accept)
    }

    fn far(member: &Member) -> Candidate {
        Candidate {
            seq: member.seq,
            passes: true,
            context: member.context,
            nodes: 16.min(member.remaining - 1),
            remaining: member.remaining,
            lane_gap: member.context - 1 - member.filled.min(member.context - 1),
            ..Candidate::default()
        }
    }

    /// Replaces everybody by newcomers whose prompts are computed, in the lane but for `gap` tokens, and
    /// runs them until the first one ends. Tokens per second. Only for prompts of no length.
    pub(super) fn block(
        &mut self,
        fixed: Option<usize>,
        (context, gap): (usize, usize),
        tokens: usize,
    ) -> f64 {
        self.fixed = fixed;
        for at in 0..self.members.len() {
            self.controller.forget(self.members[at].seq);
            self.next += 1;
            let rate = self.rates[at % self.rates.len()];
            let (seq, filled, context) = (self.next, context - gap, context + 1);
            self.members[at] = Member { seq, rate, context, filled, remaining: tokens - 1 };
        }
        let (since_s, since, arrivals) = (self.time_s, self.tokens, self.next);
        while self.next == arrivals {
            self.step();
        }
        (self.tokens - since) as f64 / (self.time_s - since_s)
    }

    fn step(&mut self) {
        let mut far: Vec<_> = self.members.iter().map(Self::far).collect();
        far.iter_mut().for_each(|c| c.pinned = self.fixed);
        let hide = |c: &Candidate| if c.lane_gap > INLINE { 0 } else { c.nodes };
        let near: Vec<_> = far.iter().map(|c| Candidate { nodes: hide(c), ..*c }).collect();
        let mut grants = Vec::new();
        let mut left = STEP_ROWS - far.len();
        self.controller.allot(far.len(), left, &near, &mut grants);
        let mut fills = vec![0; far.len()];
        for ((fill, candidate), &grant) in fills.iter_mut().zip(&far).zip(&grants) {
            if grant > 0 {
                *fill = candidate.lane_gap + 1;
                left -= (grant + *fill).min(left);
            }
        }
        for (fill, candidate) in fills.iter_mut().zip(&far) {
            let behind = candidate.lane_gap > INLINE && candidate.nodes > 0 && left > 0;
            if behind && self.controller.invest(candidate) {
                *fill = (candidate.lane_gap + 1).min(CHUNK).min(left);
                left -= *fill;
            }
        }
        self.run(&grants, &fills);
    }

    fn run(&mut self, grants: &[usize], fills: &[usize]) {
        let (mut draft_s, mut passes, mut fed) = (0.0, 0, 0);
        let deepest = grants.iter().copied().max().unwrap_or(0);
        for depth in 0..deepest.max(usize::from(fills.iter().any(|&fill| fill > 0))) {
            let rows = match depth {
                0 => fills.iter().sum::<usize>(),
                _ => grants.iter().filter(|&&grant| grant > depth).count(),
            };
            draft_s += (self.draft_s)(rows as f64);
            (passes, fed) = (passes + 1, fed + rows);
        }
        let rows = grants.len() + grants.iter().sum::<usize>();
        let (draft_s, verify_s) =
            (draft_s * self.slowness, (self.verify_s)(rows as f64) * self.slowness);
        let contexts = self.members.iter().map(|m| m.context).sum();
        for at in 0..self.members.len() {
            let Member { seq, rate, .. } = self.members[at];
            let (grant, fill, mut accepted) = (grants[at], fills[at], 0);
            while accepted < grant && self.uniform() < rate {
                accepted += 1;
            }
            self.controller.observe_round(seq, grant, accepted);
            let member = &mut self.members[at];
            let kept = if grant > 0 { accepted.min(grant - 1) } else { 0 };
            member.filled = (member.filled + fill).min(member.context) + kept;
            member.context += accepted + 1;
            member.remaining -= accepted + 1;
            self.tokens += accepted + 1;
            if member.remaining <= 1 {
                self.controller.forget(seq);
                self.members[at] = self.arrive();
            }
        }
        let wobble = 0.95 + 0.1 * self.uniform();
        self.controller.observe_time(&StepTiming {
            seqs: grants.len(),
            rows,
            context_tokens: contexts,
            draft_passes: passes,
            draft_tokens: fed,
            draft_s: draft_s * wobble,
            verify_s: verify_s * wobble,
        });
        self.time_s += draft_s + verify_s;
    }

    /// Tokens per second over some steps, the first ones apart.
    fn pace(mut self, fixed: Option<usize>) -> f64 {
        self.fixed = fixed;
        for step in 0..3_000 {
            if step == 500 {
                (self.time_s, self.tokens) = (0.0, 0);
            }
            self.step();
        }
        self.tokens as f64 / self.time_s
    }
}

/// A step is flat up to some rows; a draft pass costs a third of one, whatever its width.
const CHEAP_ROWS: (Time, Time) = (|r| 1.0 + 0.02 * r, |r| 0.35 + 0.002 * r);
/// Every row costs, of the target and of the draft.
const DEAR_ROWS: (Time, Time) = (|r| 0.5 + 0.5 * r, |r| 0.2 + 0.1 * r);

/// A batch: sequences, rates in turn, prompt and answer, times.
type Batch = (usize, &'static [f64], (usize, usize), (Time, Time));

/// Its tokens per second as a multiple of what they are without speculation.
fn gain((size, rates, lengths, times): Batch, fixed: Option<usize>) -> f64 {
    let pace = |fixed| Crowd::new(size, rates, lengths, times).pace(fixed);
    pace(fixed) / pace(Some(0))
}

/// The first would have to pay the whole pass, but all of them together gain.
#[test]
fn lanes_are_caught_up_together() {
    let batches: [(Batch, usize); 6] = [
        ((1, &[0.9], (500, 1000), CHEAP_ROWS), 4),
        ((4, &[0.9], (500, 1000), CHEAP_ROWS), 3),
        ((4, &[0.7], (50, 100), CHEAP_ROWS), 1),
        ((8, &[0.9], (50, 100), CHEAP_ROWS), 3),
        ((16, &[0.9], (500, 1000), CHEAP_ROWS), 3),
        ((2, &[0.9], (4000, 300), CHEAP_ROWS), 3),
    ];
    for (index, (batch, best)) in batches.into_iter().enumerate() {
        let (auto, fixed) = (gain(batch, None), gain(batch, Some(best)));
        assert!(fixed > 1.05, "{index}: {fixed:.3}");
        assert!(auto > 0.95 * fixed, "{index}: {auto:.3}, with {best} for all {fixed:.3}");
    }
}

/// P5 for many together.
#[test]
fn a_crowd_that_does_not_gain_pays_little() {
    let batches: [Batch; 6] = [
        (16, &[0.05], (50, 100), CHEAP_ROWS),
        (32, &[0.5], (500, 200), CHEAP_ROWS),
        (8, &[0.9, 0.1], (500, 200), CHEAP_ROWS),
        (32, &[0.7], (4000, 300), CHEAP_ROWS),
        (4, &[0.7], (500, 200), DEAR_ROWS),
        (16, &[0.9], (50, 100), DEAR_ROWS),
    ];
    for (index, batch) in batches.into_iter().enumerate() {
        let auto = gain(batch, None);
        assert!(auto > 0.975, "{index}: {auto:.3} of plain");
    }
}
