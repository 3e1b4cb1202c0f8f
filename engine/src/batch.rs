//! Turns a settled plan and its proposals into the rows of one target pass.
//!
//! A span feeds its committed tokens first, then, if it is a round, the nodes of its proposal. The
//! logits wanted are those of the last committed token and of every node: `1 + nodes` rows a round.

use redline_scheduler::{Scheduler, StepPlan};
use redline_spec::Proposal;

use crate::runner::Batch;

/// Where the logits of each span begin among the wanted rows; `None` for a span that is no round.
#[derive(Debug, Default)]
pub(crate) struct RowMap {
    first: Vec<Option<usize>>,
    ancestors: Vec<u32>,
}

impl RowMap {
    /// Index of the root row of span `index` among the wanted rows.
    pub(crate) fn root(&self, index: usize) -> Option<usize> {
        self.first.get(index).copied().flatten()
    }
}

/// Assembles `batch` for `plan`, whose spans `proposals` line up with.
pub(crate) fn assemble(
    plan: &StepPlan,
    proposals: &[Proposal],
    scheduler: &Scheduler,
    batch: &mut Batch,
    map: &mut RowMap,
) {
    batch.clear();
    map.first.clear();
    for (index, span) in plan.spans.iter().enumerate() {
        let Some(sequence) = scheduler.get(span.seq) else {
            map.first.push(None);
            continue;
        };
        let tokens = sequence.tokens();
        batch.push_seq(sequence.kv().table());
        for (offset, &token) in tokens[span.start..span.start + span.len].iter().enumerate() {
            batch.push_row(token, (span.start + offset) as u32);
        }
        map.first.push(span.round.then_some(batch.want.len()));
        if span.round {
            batch.want.push(batch.rows.len() as u32 - 1);
            push_nodes(batch, &proposals[index], tokens.len() as u32, &mut map.ancestors);
        }
    }
}

/// Draft node `i` sits in slot `committed + i`. In a chain that is its logical position too, so its row sees a plain
/// prefix; in a tree it names its ancestors' slots.
fn push_nodes(batch: &mut Batch, proposal: &Proposal, committed: u32, ancestors: &mut Vec<u32>) {
    let chain = proposal.is_chain();
    for (index, node) in proposal.nodes().iter().enumerate() {
        let slot = committed + index as u32;
        let row = if chain {
            batch.push_row(node.token, slot)
        } else {
            proposal.path_nodes(index as u32, ancestors);
            ancestors.iter_mut().for_each(|node| *node += committed);
            batch.push_node(node.token, committed, ancestors)
        };
        batch.want.push(row);
    }
}
