//! The cells of the suite.

use std::fmt;

use redline::Sampling;

use super::pairwise::pairwise;

/// The rules.
pub const RULES: [&str; 4] = ["coupled", "token", "block", "traversal"];

/// How drafts are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// At random, siblings with replacement.
    With,
    /// At random, siblings without replacement.
    Without,
    /// The likeliest tokens.
    Point,
    /// The first in the race with the target's noise.
    Shared,
}

/// How many nodes a round may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// One draft; two children in a tree.
    Small,
    /// Two drafts; three or four nodes.
    Medium,
    /// Three drafts; four to six nodes.
    Large,
    /// As many nodes as the round before committed tokens: a policy that looks at what is past.
    Staircase,
}

/// What is short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Nothing.
    Ample,
    /// Blocks: sequences are preempted.
    Blocks,
    /// Rows: drafts are cut wherever a prompt is computed.
    Rows,
}

/// One combination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// Its number.
    pub number: usize,
    /// The rule.
    pub rule: &'static str,
    /// How drafts are made.
    pub kind: Kind,
    /// Whether they are trees.
    pub tree: bool,
    /// Which sampling parameters: an index into [`samplings`].
    pub sampling: usize,
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// Nodes of a round.
    pub size: Size,
    /// Sequences at a time.
    pub batch: usize,
    /// What is short.
    pub memory: Memory,
    /// Samples of a request.
    pub samples: usize,
    /// Whether drafting stops after some tokens: an early stop that the rules allow.
    pub stops: bool,
}

impl Cell {
    /// A plain one: three tokens, temperature 1, one at a time... what differs is given by the caller.
    pub fn plain(rule: &'static str, kind: Kind, tree: bool) -> Self {
        Self {
            number: 0,
            rule,
            kind,
            tree,
            sampling: 0,
            vocab: 3,
            size: Size::Medium,
            batch: 8,
            memory: Memory::Ample,
            samples: 1,
            stops: false,
        }
    }

    /// Most nodes of a round. Those of trees over many tokens are kept enumerable.
    pub fn nodes(&self) -> usize {
        match (self.tree, self.size) {
            (false, Size::Small) => 1,
            (false, Size::Medium) => 2,
            (false, Size::Large | Size::Staircase) => 3,
            (true, Size::Small) => 2,
            (true, Size::Medium) => {
                if self.vocab == 5 {
                    3
                } else {
                    4
                }
            }
            (true, Size::Large | Size::Staircase) => 9 - self.vocab,
        }
    }

    /// The draft nodes granted to a round with so many tokens still to come, after one that committed `last` tokens.
    pub fn granted(&self, remaining: usize, last: usize) -> usize {
        let wanted = if self.size == Size::Staircase { last } else { self.nodes() };
        wanted.min(self.nodes()).min(remaining - 1)
    }

    /// How many more sequences than others it gets: `block` takes no trees, so it is in fewer cells.
    pub fn weight(&self) -> (u64, u64) {
        if self.rule == "block" { (7, 4) } else { (1, 1) }
    }

    /// Tokens of a sequence.
    pub fn length(&self) -> usize {
        11 - self.vocab
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = if self.tree { "tree" } else { "chain" };
        let Self { number, rule, kind, vocab, size, batch, memory, samples, .. } = self;
        let name = samplings()[self.sampling].0;
        write!(
            f,
            "cell {number}: {rule}, {shape} {kind:?}, {name}, {vocab} tokens, {size:?}, batch {batch}, "
        )?;
        write!(f, "{memory:?}, {samples} samples{}", if self.stops { ", early stops" } else { "" })
    }
}

/// The ways to sample, by name.
pub fn samplings() -> Vec<(&'static str, Sampling)> {
    let plain = || Sampling { temperature: 1.0, ..Sampling::default() };
    vec![
        ("temperature 1", plain()),
        ("temperature 0.6", Sampling { temperature: 0.6, ..plain() }),
        ("temperature 1.7", Sampling { temperature: 1.7, ..plain() }),
        ("top-k", Sampling { top_k: 2, ..plain() }),
        ("top-p", Sampling { top_p: 0.8, ..plain() }),
        ("min-p", Sampling { min_p: 0.25, ..plain() }),
        ("repetition penalty", Sampling { repetition_penalty: 1.6, ..plain() }),
        ("presence penalty", Sampling { presence_penalty: 0.7, ..plain() }),
        ("frequency penalty", Sampling { frequency_penalty: 0.4, ..plain() }),
        ("bias", Sampling { logit_bias: vec![(1, 0.8), (2, -0.5)], ..plain() }),
        (
            "all together",
            Sampling {
                temperature: 0.9,
                top_k: 3,
                top_p: 0.95,
                min_p: 0.05,
                repetition_penalty: 1.2,
                presence_penalty: -0.4,
                frequency_penalty: 0.3,
                logit_bias: vec![(0, 0.5)],
            },
        ),
    ]
}

/// Rule, shape and kind, where the rule takes the shape. Siblings are what tells the kinds with and without
/// replacement apart, so a chain is drawn in one of the two ways.
pub fn plans() -> Vec<(&'static str, bool, Kind)> {
    let kinds = [Kind::With, Kind::Without, Kind::Point, Kind::Shared];
    let all = RULES.iter().flat_map(|&rule| {
        let shapes = [false, true].into_iter().filter(move |&tree| !(tree && rule == "block"));
        shapes.flat_map(move |tree| kinds.map(|kind| (rule, tree, kind)))
    });
    all.filter(|&(_, tree, kind)| tree || kind != Kind::With).collect()
}

/// The grid: any two settings meet in some cell.
pub fn cells() -> Vec<Cell> {
    let plans = plans();
    let sizes = [Size::Small, Size::Medium, Size::Large, Size::Staircase];
    let memories = [Memory::Ample, Memory::Blocks, Memory::Rows];
    let batches = [1, 3, 8, 16];
    let levels =
        [plans.len(), samplings().len(), 3, sizes.len(), batches.len(), memories.len(), 2, 2];
    let cell = |(number, row): (usize, Vec<usize>)| {
        let (rule, tree, kind) = plans[row[0]];
        Cell {
            number,
            rule,
            kind,
            tree,
            sampling: row[1],
            vocab: 3 + row[2],
            size: sizes[row[3]],
            batch: batches[row[4]],
            memory: memories[row[5]],
            samples: 1 + row[6],
            stops: row[7] == 1,
        }
    };
    pairwise(&levels, 1).into_iter().enumerate().map(cell).collect()
}
