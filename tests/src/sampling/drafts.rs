//! The drafter of the suite: trees of a fixed shape out of a table.
//!
//! How many children a node gets is a function of its ranks among its siblings, of the tokens above it, and of the round's
//! budget. So it never depends on a token that might go unverified, and a sequence of ranks is enough to know a shape.

use redline::TokenId;
use redline::spec::{
    Builder, Choices, DraftError, DraftJob, Drafter, DrawMode, Law, Position, Proposal,
    ProposalError, Scratch, Site, law,
};
use std::ops::Range;

use crate::drafters::Closure;

use super::grid::{Cell, Kind};
use super::world::{World, state};

/// Children of the node with these ranks (its ancestors' first, its own last) and these tokens, of `nodes` in all.
pub fn width(cell: &Cell, nodes: usize, ranks: &[usize], tokens: &[TokenId]) -> usize {
    // Stopping after a token is allowed: the token itself is verified.
    if cell.stops && tokens.last() == Some(&0) {
        return 0;
    }
    match (cell.tree, ranks) {
        (false, _) => usize::from(ranks.len() < nodes),
        (true, []) => nodes.min(2),
        (true, [rank]) => nodes.saturating_sub(2 + 2 * rank).min(2),
        (true, _) => 0,
    }
}

/// Builds a tree of the cell's shape. `children` adds as many as it is told below a node, and says which they are.
///
/// # Errors
/// Those of `children`.
pub fn grow<E>(
    cell: &Cell,
    builder: &mut Builder<'_>,
    mut children: impl FnMut(&mut Builder<'_>, Option<u32>, &[TokenId], usize) -> Result<Vec<u32>, E>,
) -> Result<(), E> {
    let nodes = builder.room();
    let mut open = std::collections::VecDeque::from([(None, Vec::new())]);
    let mut tokens = Vec::new();
    while let Some((parent, ranks)) = open.pop_front() {
        builder.proposal().path_tokens(parent, &mut tokens);
        let width = width(cell, nodes, &ranks, &tokens);
        if width == 0 {
            continue;
        }
        for (rank, child) in children(builder, parent, &tokens, width)?.into_iter().enumerate() {
            open.push_back((Some(child), [&ranks[..], &[rank]].concat()));
        }
    }
    Ok(())
}

/// The likeliest tokens, lowest ids first among equals.
pub fn likeliest(q: &Law, width: usize) -> Vec<TokenId> {
    let mut all: Vec<_> = q.iter().collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all.into_iter().take(width).map(|(id, _)| id).collect()
}

/// The cell's drafter, as one would be written for the engine: its own logits, the engine's processors, the job's numbers.
pub fn drafter(cell: &Cell, world: &World) -> Box<dyn Drafter> {
    let mode = mode(cell.kind);
    drafter_by(cell, world, move |builder, parent, law, width, job| {
        builder.draw(parent, law, width, mode, &job.draws.round(job.tokens.len() as u64))
    })
}

/// The cell's drafter with `draw` in place of [`Builder::draw`].
pub fn drafter_by(
    cell: &Cell,
    world: &World,
    mut draw: impl FnMut(
        &mut Builder<'_>,
        Option<u32>,
        Law,
        usize,
        &DraftJob<'_>,
    ) -> Result<Range<u32>, ProposalError>
    + Send
    + 'static,
) -> Box<dyn Drafter> {
    let (cell, vocab) = (*cell, world.vocab);
    let table = world.tables()[1].to_vec();
    let mut scratch = Scratch::default();
    let propose = move |job: &DraftJob<'_>, proposal: &mut Proposal| {
        grow(&cell, &mut proposal.build(job.budget), |builder, parent, path, width| {
            let tokens = [&job.tokens[job.tokens.len() - 2..], path].concat();
            let at = Position {
                sampling: job.sampling,
                history: job.history,
                path,
                constraint: job.constraint,
            };
            let q = law(&table[state(vocab, &tokens)], &at, &mut scratch)?;
            Ok::<_, DraftError>(draw(builder, parent, q, width, job)?.collect())
        })
    };
    if cell.tree { Closure::of_trees("table", propose) } else { Closure::boxed("table", propose) }
}

fn mode(kind: Kind) -> DrawMode {
    match kind {
        Kind::With => DrawMode::Sampled { replacement: true },
        Kind::Without => DrawMode::Sampled { replacement: false },
        Kind::Point => DrawMode::Point,
        Kind::Shared => DrawMode::Shared,
    }
}

/// The same tree drawn by choices that can be enumerated. Children drawn with the target's noise are, for a rule that has
/// other noise, the first of a race: draws one after the other without replacement.
///
/// # Errors
/// The builder's.
pub fn enumerable(
    cell: &Cell,
    world: &World,
    from: usize,
    builder: &mut Builder<'_>,
    choices: &mut dyn Choices,
) -> Result<(), ProposalError> {
    grow(cell, builder, |builder, parent, path, width| {
        let q = world.q(world.walk(from, path));
        match cell.kind {
            Kind::With | Kind::Without => {
                let replacement = cell.kind == Kind::With;
                Ok(builder.sample(parent, q.clone(), width, replacement, choices)?.collect())
            }
            Kind::Point => {
                likeliest(q, width).into_iter().map(|token| builder.point(parent, token)).collect()
            }
            Kind::Shared => {
                let mut rest = Some(q.clone());
                let mut drawn = Vec::new();
                while let Some(law) = rest.take().filter(|_| drawn.len() < width) {
                    let site = Site::draft(builder.proposal().len() as u32);
                    let token = choices.pick(site, &law);
                    drawn.push(builder.shared(parent, token)?);
                    rest = law.without(token);
                }
                Ok(drawn)
            }
        }
    })
}
