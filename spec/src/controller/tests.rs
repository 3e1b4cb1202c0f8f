//! The controller in synthetic worlds with known best answers.

mod blocks;
mod crowd;
mod lanes;
mod mixed;
mod trees;

use super::*;
use crate::{Draws, Purpose};

/// Seconds of a pass by rows.
type Time = fn(f64) -> f64;

/// A machine and a model pair, with the truth that the controller has to find.
struct World {
    controller: Controller,
    /// Seconds of a target pass by rows.
    verify_s: Time,
    /// Seconds of a draft pass by rows.
    draft_s: Time,
    /// Relative spread of measured times.
    noise: f64,
    clock: u64,
    /// Rows of other work in every step: as estimated, and as they are.
    other_rows: (usize, fn(u64) -> usize),
    /// Totals since the last [`World::reset`].
    time_s: f64,
    tokens: f64,
    drafted: u64,
    steps: u64,
}

/// One sequence of a world.
#[derive(Clone, Copy)]
struct Actor {
    rate: f64,
    nodes: usize,
    passes: bool,
    pinned: Option<usize>,
}

fn model(rate: f64) -> Actor {
    Actor { rate, nodes: 16, passes: true, pinned: None }
}

impl World {
    fn new(verify_s: Time, draft_s: Time) -> Self {
        Self {
            controller: Controller::default(),
            verify_s,
            draft_s,
            noise: 0.05,
            clock: 0,
            other_rows: (0, |_| 0),
            time_s: 0.0,
            tokens: 0.0,
            drafted: 0,
            steps: 0,
        }
    }

    fn reset(&mut self) {
        (self.time_s, self.tokens, self.drafted, self.steps) = (0.0, 0.0, 0, 0);
    }

    fn uniform(&mut self, node: u32) -> f64 {
        self.clock += 1;
        Draws { seed: 4, sample: 0 }.uniform(self.clock, node, Purpose::Accept)
    }

    fn candidates(actors: &[Actor]) -> Vec<Candidate> {
        let candidate = |(seq, actor): (usize, &Actor)| Candidate {
            seq: seq as u64,
            drafter: 0,
            passes: actor.passes,
            context: 300,
            nodes: actor.nodes,
            remaining: 10_000,
            lane_gap: 0,
            pinned: actor.pinned,
            tree: None,
        };
        actors.iter().enumerate().map(candidate).collect()
    }

    /// Seconds of a step with these grants, by the truth.
    fn step_s(&self, actors: &[Actor], grants: &[usize]) -> (f64, usize, usize) {
        let deepest = grants.iter().zip(actors).filter(|(_, a)| a.passes).map(|(&g, _)| g).max();
        let width = |depth: usize| {
            grants.iter().zip(actors).filter(|&(&g, a)| a.passes && g > depth).count()
        };
        let passes = deepest.unwrap_or(0);
        let draft_s: f64 = (0..passes).map(|d| (self.draft_s)(width(d) as f64)).sum();
        (draft_s, passes, (0..passes).map(width).sum())
    }

    fn step(&mut self, actors: &[Actor]) -> Vec<usize> {
        let candidates = Self::candidates(actors);
        let mut grants = Vec::new();
        let (estimate, others) = (self.other_rows.0, (self.other_rows.1)(self.steps));
        self.controller.allot(actors.len() + estimate, 10_000, &candidates, &mut grants);
        let rows = actors.len() + others + grants.iter().sum::<usize>();
        let (draft_s, draft_passes, draft_tokens) = self.step_s(actors, &grants);
        let verify_s = (self.verify_s)(rows as f64);
        for (seq, (actor, &grant)) in actors.iter().zip(&grants).enumerate() {
            let mut accepted = 0;
            while accepted < grant && self.uniform(seq as u32) < actor.rate {
                accepted += 1;
            }
            self.controller.observe_round(seq as u64, grant, accepted);
            self.tokens += accepted as f64 + 1.0;
            self.drafted += grant as u64;
        }
        let wobble = 1.0 + self.noise * (2.0 * self.uniform(99) - 1.0);
        self.controller.observe_time(&StepTiming {
            seqs: actors.len(),
            rows,
            context_tokens: 300 * actors.len(),
            draft_passes,
            draft_tokens,
            draft_s: draft_s * wobble,
            verify_s: verify_s * wobble,
        });
        self.time_s += draft_s + verify_s;
        self.steps += 1;
        grants
    }

    fn run(&mut self, actors: &[Actor], steps: usize) {
        for _ in 0..steps {
            self.step(actors);
        }
    }

    fn pace(&self) -> f64 {
        self.tokens / self.time_s
    }

    /// Tokens per second without speculation.
    fn plain(&self, n: usize) -> f64 {
        n as f64 / (self.verify_s)(n as f64)
    }

    /// Tokens per second and number of slots of the best budget, from the true rates and times.
    fn best(&self, actors: &[Actor]) -> (f64, usize) {
        let mut slots: Vec<(f64, usize)> = Vec::new();
        for (index, actor) in actors.iter().enumerate() {
            slots.extend((1..=actor.nodes).map(|k| (actor.rate.powi(k as i32), index)));
        }
        slots.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut grants = vec![0; actors.len()];
        let mut tokens = actors.len() as f64;
        let mut best = (self.plain(actors.len()), 0);
        for (count, &(worth, index)) in slots.iter().enumerate() {
            grants[index] += 1;
            tokens += worth;
            let rows = actors.len() + count + 1;
            let time_s = self.step_s(actors, &grants).0 + (self.verify_s)(rows as f64);
            if tokens / time_s > best.0 {
                best = (tokens / time_s, count + 1);
            }
        }
        best
    }
}

/// The worlds of the table in ALGORITHMS.md §1: one sequence, a draft pass c and a row v of a
/// target pass, c + v as given, split evenly.
#[test]
fn one_sequence_finds_nearly_the_best_depth() {
    let costs: [(f64, Time, Time); 6] = [
        (0.02, |r| 1.0 + 0.01 * (r - 1.0), |_| 0.01),
        (0.05, |r| 1.0 + 0.025 * (r - 1.0), |_| 0.025),
        (0.1, |r| 1.0 + 0.05 * (r - 1.0), |_| 0.05),
        (0.2, |r| 1.0 + 0.1 * (r - 1.0), |_| 0.1),
        (0.3, |r| 1.0 + 0.15 * (r - 1.0), |_| 0.15),
        (0.5, |r| 1.0 + 0.25 * (r - 1.0), |_| 0.25),
    ];
    for (cost, verify_s, draft_s) in costs {
        for rate in [0.3, 0.5, 0.7, 0.8, 0.9, 0.95] {
            let mut world = World::new(verify_s, draft_s);
            let actors = [model(rate)];
            world.run(&actors, 300);
            world.reset();
            world.run(&actors, 3_000);
            let (best, k) = world.best(&actors);
            let (share, mean) = (world.pace() / best, world.drafted as f64 / world.steps as f64);
            assert!(share > 0.95, "cost {cost} rate {rate}: {share:.3}, K {mean:.2} of {k}");
        }
    }
}

#[test]
fn speculation_that_cannot_pay_costs_next_to_nothing() {
    // A dear drafter; a compute-bound target; both at once; a drafter that is never right.
    let worlds: [(Time, Time, usize, f64); 4] = [
        (|r| 1.0 + 0.02 * r, |_| 0.9, 1, 0.4),
        (|r| r, |r| 0.05 * r, 32, 0.8),
        (|r| 1.0 + 0.4 * r, |r| 0.5 + 0.05 * r, 8, 0.3),
        (|r| 1.0 + 0.02 * r, |_| 0.3, 1, 0.02),
    ];
    for (index, (verify_s, draft_s, n, rate)) in worlds.into_iter().enumerate() {
        let mut world = World::new(verify_s, draft_s);
        let actors = vec![model(rate); n];
        // From the first step on, learning included.
        for (steps, least) in [(200, 0.96), (1_000, 0.98), (3_000, 0.985)] {
            world.reset();
            world.run(&actors, steps);
            let share = world.pace() / world.plain(n);
            assert!(share > least, "world {index}, {steps} steps: {share:.4} of plain");
        }
    }
}

#[test]
fn mixed_batches_get_the_best_slots_of_all() {
    let worlds: [(Time, Time, usize); 4] = [
        (|r| 1.0f64.max(r / 12.0), |r| 0.1f64.max(r / 80.0), 4),
        (|r| 1.0f64.max(r / 12.0), |r| 0.1f64.max(r / 80.0), 16),
        (|r| 1.0 + 0.03 * r, |r| 0.08 + 0.004 * r, 8),
        (|r| 1.0 + 0.03 * (r - 8.0).max(0.0), |r| 0.08 + 0.004 * r, 8),
    ];
    for (index, (verify_s, draft_s, n)) in worlds.into_iter().enumerate() {
        let mut world = World::new(verify_s, draft_s);
        let actors: Vec<_> = (0..n).map(|i| model([0.2, 0.5, 0.8, 0.95][i % 4])).collect();
        world.run(&actors, 300);
        world.reset();
        world.run(&actors, 3_000);
        let share = world.pace() / world.best(&actors).0;
        assert!(share > 0.97, "world {index}: {share:.4} of the best");
    }
}

#[test]
fn a_change_of_acceptance_is_followed_both_ways() {
    let mut world = World::new(|r| 1.0 + 0.05 * r, |_| 0.2);
    let (bad, good) = ([model(0.02)], [model(0.95)]);
    world.run(&bad, 2_000);
    // Noticed within the longest pause between probes and a few steps.
    world.run(&good, 400);
    world.reset();
    world.run(&good, 500);
    let share = world.pace() / world.best(&good).0;
    assert!(share > 0.95, "after the rise: {share:.3} of the best");
    world.run(&bad, 100);
    world.reset();
    world.run(&bad, 500);
    let share = world.pace() / world.plain(1);
    assert!(share > 0.97, "after the fall: {share:.3} of plain");
}

/// Alone, drafts ride along for free; at 32 sequences they do not pay; and back.
#[test]
fn a_change_of_load_is_followed() {
    let mut world = World::new(|r| 1.0f64.max(r / 16.0), |r| 0.1f64.max(r / 100.0));
    for n in [1, 32, 1, 32, 4] {
        let actors = vec![model(0.8); n];
        for (steps, least) in [(50, 0.9), (400, 0.96)] {
            world.reset();
            world.run(&actors, steps);
            let share = world.pace() / world.best(&actors).0;
            assert!(share > least, "{n} sequences, {steps} steps: {share:.3} of the best");
        }
    }
}

/// P5 for many short requests: what one sequence taught is there for the next.
#[test]
fn new_sequences_do_not_pay_for_the_same_lesson() {
    let mut world = World::new(|r| 1.0 + 0.05 * r, |_| 0.3);
    for _ in 0..100 {
        world.run(&[model(0.1)], 60);
        world.controller.forget(0);
    }
    let share = world.pace() / world.plain(1);
    assert!(share > 0.98, "{share:.4} of plain");
}

#[test]
fn accidents_of_the_clock_do_not_mislead() {
    let mut world = World::new(|r| 1.0 + 0.05 * r, |_| 0.1);
    let actors = [model(0.8)];
    for i in 0..2_000 {
        world.step(&actors);
        if i % 50 == 0 {
            // A step of any width that took twenty times as long.
            let rows = 1 + i / 50 % 12;
            let step = StepTiming { seqs: 1, rows, context_tokens: 300, ..StepTiming::default() };
            world.controller.observe_time(&StepTiming { verify_s: 20.0, ..step });
            world.controller.observe_time(&StepTiming { verify_s: f64::NAN, ..step });
        }
    }
    world.reset();
    world.run(&actors, 1_000);
    let share = world.pace() / world.best(&actors).0;
    assert!(share > 0.95, "{share:.3} of the best");
}

#[test]
fn grants_keep_to_their_bounds() {
    let mut world = World::new(|r| 1.0 + 0.01 * r, |_| 0.01);
    let free = Actor { rate: 0.9, nodes: 5, passes: false, pinned: None };
    let actors = [
        model(0.9),
        Actor { nodes: 0, ..model(0.9) },
        Actor { pinned: Some(3), ..model(0.01) },
        Actor { pinned: Some(9), nodes: 2, ..model(0.9) },
        Actor { pinned: Some(0), ..model(0.9) },
        free,
    ];
    for _ in 0..200 {
        let grants = world.step(&actors);
        assert!(grants[0] <= 16 && grants[1] == 0 && grants[4] == 0 && grants[5] <= 5);
        assert_eq!(grants[2..4], [3, 2], "pinned, whatever it is worth");
    }
    assert!(world.step(&actors)[0] > 4);
    let candidates = World::candidates(&actors);
    for slots in [0, 1, 4, 7] {
        let mut grants = vec![9; 3];
        world.controller.allot(6, slots, &candidates, &mut grants);
        assert_eq!(grants.len(), actors.len());
        assert!(grants.iter().sum::<usize>() <= slots);
    }
    let mut grants = vec![1];
    world.controller.allot(0, 5, &[], &mut grants);
    assert!(grants.is_empty());
}

#[test]
fn the_same_history_gives_the_same_grants() {
    let run = || {
        let mut world = World::new(|r| 1.0f64.max(r / 12.0), |r| 0.1f64.max(r / 80.0));
        let actors: Vec<_> = (0..7).map(|i| model(0.1 + 0.12 * f64::from(i))).collect();
        (0..500).map(|_| world.step(&actors)).collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
}

#[test]
fn a_lane_is_caught_up_where_it_repays() {
    let verify_s: Time = |r| 1.0 + 0.02 * r;
    let draft_s: Time = |r| 0.1 + 0.01 * r;
    let learn = |rate| {
        let mut world = World::new(verify_s, draft_s);
        world.run(&[model(rate)], 500);
        // What a long catch-up takes is known from an earlier one.
        world.controller.observe_time(&StepTiming {
            seqs: 1,
            rows: 1,
            context_tokens: 300,
            draft_passes: 1,
            draft_tokens: 1_000,
            draft_s: draft_s(1_000.0),
            verify_s: verify_s(1.0),
        });
        world
    };
    let behind = |seq, remaining| Candidate {
        seq,
        passes: true,
        context: 1_000,
        nodes: 8,
        remaining,
        lane_gap: 1_000,
        ..Candidate::default()
    };
    let mut good = learn(0.9);
    assert!(good.controller.invest(&behind(0, 500)), "10 s for a gain of hundreds");
    assert!(good.controller.invest(&behind(7, 500)), "so says the drafter's record, too");
    assert!(!good.controller.invest(&behind(0, 5)), "five tokens cannot repay it");
    let level = Candidate { lane_gap: 0, ..behind(0, 5) };
    assert!(good.controller.invest(&level));
    let mut bad = learn(0.05);
    assert!(!bad.controller.invest(&behind(0, 500)));
    // Over a long time, the account pays for a look now and then: at most its share.
    let (mut looks, mut time_s) = (0, 0.0);
    for _ in 0..20_000 {
        if bad.controller.invest(&behind(0, 500)) {
            looks += 1;
            // Until it is level, and then for one draft, without another charge.
            assert!(bad.controller.invest(&Candidate { lane_gap: 500, ..behind(0, 500) }));
            let level = Candidate { lane_gap: 0, ..behind(0, 500) };
            let mut grants = Vec::new();
            bad.controller.allot(1, 100, &[level], &mut grants);
            assert_eq!(grants, [1]);
            bad.controller.observe_round(0, 1, 0);
        }
        let step = StepTiming { seqs: 1, rows: 1, context_tokens: 1_000, ..StepTiming::default() };
        bad.controller.observe_time(&StepTiming { verify_s: 1.02, ..step });
        time_s += 1.02;
    }
    let spent = looks as f64 * draft_s(1_000.0);
    assert!(looks > 3 && spent <= 0.01 * time_s + 25.0, "{looks} looks, {spent} of {time_s} s");
}
