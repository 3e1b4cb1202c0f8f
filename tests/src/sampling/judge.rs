//! Tests what a cell has said against what it should.

use std::collections::BTreeMap;

use redline::TokenId;

use crate::stats::{Fit, fit};

use super::engine::{DRAFTED, NO_ROUND, Tally};
use super::grid::{Cell, Memory};
use super::rounds::{Kept, three_rounds};
use super::world::{Place, World};

/// Tokens of a window.
const WINDOW: usize = 3;

/// A test and its outcome.
#[derive(Debug, Clone)]
pub struct Check {
    /// What was compared.
    pub name: String,
    /// How it fits.
    pub fit: Fit,
}

/// What is added up over the cells of a rule.
#[derive(Debug, Clone, Copy)]
pub struct Sums {
    /// Sequences.
    pub sequences: u64,
    /// Tokens that a draft may have been behind: all but the first of each sequence.
    pub tokens: u64,
    /// Tokens that the drafter likes more than the target, less their expectation; and its variance.
    pub contrast: (f64, f64),
    /// How often the token was said that the drafter overrates most, and least, less expectation; and the covariance.
    pub ranks: ([f64; 2], [f64; 3]),
    /// Tokens two to four of each sequence.
    pub window: Fit,
    /// Whole sequences.
    pub joint: Fit,
    /// Three drafted rounds.
    pub rounds: Fit,
}

impl Default for Sums {
    fn default() -> Self {
        Self {
            sequences: 0,
            tokens: 0,
            contrast: (0.0, 0.0),
            ranks: ([0.0; 2], [0.0; 3]),
            window: Fit::NONE,
            joint: Fit::NONE,
            rounds: Fit::NONE,
        }
    }
}

impl Sums {
    /// Adds another cell's.
    pub fn add(&mut self, other: &Self) {
        self.sequences += other.sequences;
        self.tokens += other.tokens;
        self.contrast.0 += other.contrast.0;
        self.contrast.1 += other.contrast.1;
        (0..2).for_each(|i| self.ranks.0[i] += other.ranks.0[i]);
        (0..3).for_each(|i| self.ranks.1[i] += other.ranks.1[i]);
        self.window = self.window.and(other.window);
        self.joint = self.joint.and(other.joint);
        self.rounds = self.rounds.and(other.rounds);
    }

    /// The tests of the sums.
    pub fn checks(&self) -> Vec<Check> {
        let check = |name: &str, fit| Check { name: name.to_owned(), fit };
        let (d, [a, b, c]) = self.ranks;
        let determinant = a * c - b * b;
        let ranks = if determinant > 1e-9 * a * c {
            let form = (c * d[0] * d[0] - 2.0 * b * d[0] * d[1] + a * d[1] * d[1]) / determinant;
            Fit::of(form, 2)
        } else {
            Fit::NONE
        };
        vec![
            check("tokens with q > p", Fit::of_sum(self.contrast.0, self.contrast.1)),
            check("tokens ranked by q/p", ranks),
            check("three tokens", self.window),
            check("whole sequences", self.joint),
            check("three rounds", self.rounds),
        ]
    }
}

/// All tests of a cell, and what its rule's sums get of it.
pub fn judge(cell: &Cell, world: &World, tally: &Tally) -> (Vec<Check>, Sums) {
    let mut sums = Sums { sequences: tally.sequences, ..Sums::default() };
    let mut checks = Vec::new();
    let mut add = |name: String, fit: Fit| {
        if fit.freedom > 0 {
            checks.push(Check { name, fit });
        }
        fit
    };
    let law = world.joint();
    let cells = || law.iter().copied().zip(tally.joint.iter().copied());
    sums.joint = add("whole sequences".to_owned(), fit(cells()));
    for at in 0..=world.length - WINDOW {
        let (after, width) =
            (world.vocab.pow((world.length - WINDOW - at) as u32), world.vocab.pow(WINDOW as u32));
        let window = fit(lumped(cells().enumerate().map(|(i, (p, n))| (i / after % width, p, n))));
        let window = add(format!("tokens {} to {}", at + 1, at + WINDOW), window);
        if at == 1 {
            sums.window = window;
        }
    }
    contrasts(world, tally, &mut sums);
    add("tokens with q > p".to_owned(), Fit::of_sum(sums.contrast.0, sums.contrast.1));
    if !tally.siblings.is_empty() {
        add("two samples of a request".to_owned(), siblings(world, tally));
    }
    if cell.memory == Memory::Ample {
        for (name, fit) in rounds(cell, world, tally) {
            let fit = add(name, fit);
            sums.rounds = fit;
        }
    }
    (checks, sums)
}

/// Cells added up by label.
fn lumped<L: Ord>(cells: impl Iterator<Item = (L, f64, u64)>) -> Vec<(f64, u64)> {
    let mut sums: BTreeMap<L, (f64, u64)> = BTreeMap::new();
    for (label, p, count) in cells {
        let sum = sums.entry(label).or_default();
        *sum = (sum.0 + p, sum.1 + count);
    }
    sums.into_values().collect()
}

/// Counts along the axis from p to q, after every place: given what was said before, each is a trial of its own.
fn contrasts(world: &World, tally: &Tally, sums: &mut Sums) {
    let leaves = world.first(world.length);
    let mut counts = vec![0_u64; leaves];
    counts.extend(&tally.joint);
    (1..counts.len()).rev().for_each(|place| counts[(place - 1) / world.vocab] += counts[place]);
    // Not after nothing: the first token is plain decoding.
    for place in 1..leaves {
        let n = counts[place];
        if n == 0 {
            continue;
        }
        let (p, q) = (world.p(place), world.q(place));
        let count = |token: TokenId| counts[world.step(place, token)];
        sums.tokens += n;
        let more = |&token: &TokenId| q.p(token) > p.p(token) * (1.0 + 1e-9);
        let overrated = (0..world.vocab as TokenId).filter(more);
        let (said, expected) =
            overrated.fold((0, 0.0), |sum, token| (sum.0 + count(token), sum.1 + p.p(token)));
        sums.contrast.0 += said as f64 - n as f64 * expected;
        sums.contrast.1 += n as f64 * expected * (1.0 - expected).max(0.0);
        let mut ranked: Vec<TokenId> = p.iter().map(|(token, _)| token).collect();
        ranked.sort_by(|&a, &b| (q.p(b) / p.p(b)).total_cmp(&(q.p(a) / p.p(a))));
        if let (Some(&most), Some(&least)) = (ranked.first(), ranked.last()) {
            let (a, b, n_) = (p.p(most), p.p(least), n as f64);
            if most != least {
                sums.ranks.0[0] += count(most) as f64 - n_ * a;
                sums.ranks.0[1] += count(least) as f64 - n_ * b;
                sums.ranks.1[0] += n_ * a * (1.0 - a);
                sums.ranks.1[1] -= n_ * a * b;
                sums.ranks.1[2] += n_ * b * (1.0 - b);
            }
        }
    }
}

/// Two samples of a request are independent.
fn siblings(world: &World, tally: &Tally) -> Fit {
    let first = world.first(2);
    let mass = |two: usize| {
        let mut said = Vec::new();
        world.said(first + two, &mut said);
        world.p(0).p(said[0]) * world.p(world.step(0, said[0])).p(said[1])
    };
    let square = world.vocab.pow(2);
    let law = (0..square * square).map(|cell| mass(cell / square) * mass(cell % square));
    fit(law.zip(tally.siblings.iter().copied()))
}

/// Drafts kept and tokens of each of three rounds, of all together, and their numbers alone.
fn rounds(cell: &Cell, world: &World, tally: &Tally) -> Vec<(String, Fit)> {
    let rare = 5.0 / tally.sequences as f64;
    let laws = three_rounds(cell, world, rare);
    let mut tests = Vec::new();
    let label = |place: Place, kept: Kept, all: bool| {
        let last = kept % 8;
        let mut said = Vec::new();
        world.said(place, &mut said);
        let from = if last == NO_ROUND { said.len() } else { said.len() - last as usize - 1 };
        if all { (kept, said) } else { (last, said.split_off(from)) }
    };
    for done in 1..=DRAFTED {
        let rounds = after(world, tally, &laws, rare, done);
        let by = |all: bool| {
            fit(lumped(rounds.iter().map(|&(state, p, count)| {
                (state.map(|(place, kept)| label(place, kept, all)), p, count)
            })))
        };
        tests.push((format!("drafted round {done}: drafts kept and tokens"), by(false)));
        if done == DRAFTED {
            let numbers = rounds.iter().map(|&(state, p, count)| (state.map(|s| s.1), p, count));
            tests.push(("drafts kept in three rounds".to_owned(), fit(lumped(numbers))));
            tests.push(("three rounds: drafts kept and tokens".to_owned(), by(true)));
        }
    }
    tests
}

/// A state after some rounds, or `None` for all those that come of something too rare.
type State = Option<(Place, Kept)>;

/// Law and counts of the states after `done` drafted rounds.
fn after(
    world: &World,
    tally: &Tally,
    laws: &[BTreeMap<(Place, Kept), f64>],
    rare: f64,
    done: usize,
) -> Vec<(State, f64, u64)> {
    let mut cells: Vec<(State, f64, u64)> =
        laws[done].iter().map(|(&state, &p)| (Some(state), p, 0)).collect();
    let told: f64 = cells.iter().map(|cell| cell.1).sum();
    cells.push((None, (1.0 - told).max(0.0), 0));
    let mut said = Vec::new();
    for (&(leaf, kept), &count) in &tally.rounds {
        world.said(leaf, &mut said);
        let (mut length, mut so_far) = (1, 0);
        let mut state = Some((world.walk(0, &said[..1]), 0));
        for (round, law) in laws[..done].iter().enumerate() {
            state = state.filter(|state| law.get(state).is_some_and(|&p| p >= rare));
            let digit = kept >> (3 * (DRAFTED - 1 - round)) & 7;
            so_far = so_far * 8 + digit;
            length += if digit == NO_ROUND { 0 } else { digit as usize + 1 };
            state = state.map(|_| (world.walk(0, &said[..length]), so_far));
        }
        cells.push((state, 0.0, count));
    }
    cells
}
