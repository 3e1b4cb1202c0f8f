//! A drafter with a lane that falls behind by a token in every step without drafts.

use super::*;

/// As in the scheduler: the longest gap that is filled on the way.
const INLINE: usize = 8;
const CHUNK: usize = 256;

/// One sequence, a target pass of about 1 s, a draft pass of 0.2 s and `row_s` for each row.
struct LaneWorld {
    controller: Controller,
    row_s: f64,
    seq: u64,
    context: usize,
    filled: usize,
    remaining: usize,
    seed: u64,
    clock: u64,
    time_s: f64,
    tokens: usize,
    /// Steps without drafts in which the lane was filled.
    catch_ups: usize,
}

impl LaneWorld {
    fn new(row_s: f64) -> Self {
        Self {
            controller: Controller::default(),
            row_s,
            seq: 0,
            context: 0,
            filled: 0,
            remaining: 0,
            seed: 7,
            clock: 0,
            time_s: 0.0,
            tokens: 0,
            catch_ups: 0,
        }
    }

    /// Ends the sequence and begins another.
    fn begin(&mut self, prompt: usize, remaining: usize) {
        self.controller.forget(self.seq);
        self.seq += 1;
        (self.context, self.filled, self.remaining) = (prompt + 1, 0, remaining);
    }

    fn verify_s(rows: usize) -> f64 {
        1.0 + 0.05 * (rows as f64 - 1.0)
    }

    fn draft_s(&self, rows: usize) -> f64 {
        0.2 + self.row_s * (rows as f64 - 1.0)
    }

    fn step(&mut self, rate: f64) -> usize {
        let lane_gap = self.context - 1 - self.filled.min(self.context - 1);
        let nodes = 16.min(self.remaining - 1);
        let far = Candidate {
            seq: self.seq,
            passes: true,
            context: self.context,
            nodes,
            remaining: self.remaining,
            lane_gap,
            ..Candidate::default()
        };
        let near = Candidate { nodes: if lane_gap > INLINE { 0 } else { nodes }, ..far };
        let mut grants = Vec::new();
        self.controller.allot(1, 1_000, &[near], &mut grants);
        let grant = grants[0];
        let catch_up = lane_gap > INLINE && nodes > 0 && self.controller.invest(&far);
        let fill = match (grant, catch_up) {
            (0, false) => 0,
            (0, true) => (lane_gap + 1).min(CHUNK),
            _ => lane_gap + 1,
        };
        self.catch_ups += usize::from(grant == 0 && fill > 0);
        let passes = if fill > 0 { grant.max(1) } else { 0 };
        let rest = passes.saturating_sub(1);
        let first_s = if fill > 0 { self.draft_s(fill) } else { 0.0 };
        let draft_s = first_s + rest as f64 * self.draft_s(1);
        let mut accepted = 0;
        while accepted < grant && self.uniform() < rate {
            accepted += 1;
        }
        self.controller.observe_round(self.seq, grant, accepted);
        let wobble = 0.95 + 0.1 * self.uniform();
        self.controller.observe_time(&StepTiming {
            seqs: 1,
            rows: 1 + grant,
            context_tokens: self.context,
            draft_passes: passes,
            draft_tokens: fill + rest,
            draft_s: draft_s * wobble,
            verify_s: Self::verify_s(1 + grant) * wobble,
        });
        let fed = if grant > 0 { accepted.min(grant - 1) } else { 0 };
        self.filled = (self.filled + fill).min(self.context) + fed;
        self.context += accepted + 1;
        self.remaining -= accepted + 1;
        self.tokens += accepted + 1;
        self.time_s += draft_s + Self::verify_s(1 + grant);
        grant
    }

    fn run(&mut self, rate: f64, steps: usize) {
        for _ in 0..steps {
            self.step(rate);
        }
    }

    fn uniform(&mut self) -> f64 {
        self.clock += 1;
        Draws { seed: self.seed, sample: 0 }.uniform(self.clock, 0, Purpose::Accept)
    }

    /// Steps until eight in a row draft; none within `most`.
    fn on_after(&mut self, rate: f64, most: usize) -> Option<usize> {
        let mut streak = 0;
        (1..=most).find(|_| {
            streak = if self.step(rate) > 0 { streak + 1 } else { 0 };
            streak == 8
        })
    }
}

const ROWS_S: [f64; 7] = [0.001, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1];

/// The bound of [`Controller::invest`]: by step 1000 even the dearest of these has been affordable,
/// so that what is left is the longest patience, a catch-up and a few probes to be sure: 400 steps
/// (the median is 30 to 120).
#[test]
fn a_lane_that_fell_behind_comes_back() {
    for row_s in ROWS_S {
        for (prompt, seed) in [0, 500].into_iter().flat_map(|p| (0..8).map(move |s| (p, s))) {
            let mut world = LaneWorld { seed, ..LaneWorld::new(row_s) };
            // What is known of the drafter: nothing good.
            world.begin(20, 2_000);
            world.run(0.02, 400);
            world.begin(prompt, 40_000);
            world.run(0.02, 1_000);
            let steps = world.on_after(0.95, 400);
            assert!(steps.is_some(), "row {row_s}, prompt {prompt}, seed {seed}");
        }
    }
}

#[test]
fn a_lane_that_never_pays_costs_little() {
    for row_s in ROWS_S {
        for (prompt, length) in [(0, 20_000), (500, 20_000), (500, 5_000)] {
            let mut world = LaneWorld::new(row_s);
            world.begin(prompt, length);
            while world.remaining > 20 {
                world.step(0.02);
            }
            let share = world.tokens as f64 / world.time_s;
            assert!(share > 0.975, "row {row_s}, prompt {prompt}, {length}: {share:.4} of plain");
            assert!(world.catch_ups > 3, "it looks now and then");
        }
    }
}

/// What ends early has not run up more than the advance allows, and the debt is earned back before
/// anything else is tried.
#[test]
fn an_advance_is_earned_back() {
    for row_s in [0.01, 0.05] {
        let mut world = LaneWorld::new(row_s);
        world.begin(20, 2_000);
        world.run(0.02, 400);
        (world.tokens, world.time_s) = (0, 0.0);
        for _ in 0..100 {
            world.begin(500, 30_000);
            world.run(0.02, 200);
        }
        let share = world.tokens as f64 / world.time_s;
        assert!(share > 0.98, "row {row_s}: {share:.4} of plain");
    }
}

/// Whoever fixed a length gets it: the lane is caught up whatever it costs, or never.
#[test]
fn a_pinned_length_decides_about_its_lane() {
    let behind = Candidate {
        passes: true,
        context: 100,
        nodes: 4,
        remaining: 10,
        lane_gap: 99,
        ..Candidate::default()
    };
    let mut controller = Controller::default();
    for (n, answer) in [(3, true), (0, false)] {
        assert_eq!(controller.invest(&Candidate { pinned: Some(n), ..behind }), answer);
    }
}
