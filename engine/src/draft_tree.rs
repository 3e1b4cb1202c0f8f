//! One sequence's draft tree while a draft model grows it, level by level.
//!
//! Two ways to grow. *Planned*: every node goes where the job's shape has a place for it. Sampled drafts know no
//! other: what is drawn, anywhere in the tree, must not decide what else is drafted. *Chosen*: free nodes (the
//! likeliest tokens, or those that lead the race with the target's noise) keep only the shape's number of nodes per
//! level, and take the likeliest candidates of the whole level.

use std::borrow::Cow;

use redline_spec::{
    Builder, Constraint, DraftError, DraftJob, DrawMode, History, LawError, Place, Position,
    Proposal, Sampling, Scratch, TokenId, VocabMap,
};

use crate::runner::{Batch, Rows};

/// The rows of a draft pass, one after the other, in the target's tokens.
pub(crate) struct RowReader<'a> {
    pub(crate) rows: &'a Rows,
    /// Logits of a row.
    pub(crate) stride: usize,
    /// Entries of the vocabulary that both models have, if they have the same order.
    pub(crate) shared: usize,
    /// The target's order, if it is another.
    pub(crate) map: Option<&'a VocabMap>,
    pub(crate) mapped: &'a mut Vec<f32>,
    pub(crate) next: usize,
}

impl RowReader<'_> {
    fn read(&mut self) -> &[f32] {
        let row = self.rows.row(self.next, self.stride);
        self.next += 1;
        match self.map {
            None => row.get(..self.shared).unwrap_or_default(),
            Some(map) => {
                map.row(row, self.mapped);
                self.mapped
            }
        }
    }
}

/// A node whose row comes next.
struct Tip {
    /// `None` for the root.
    node: Option<u32>,
    /// Its place in the shape, if the tree is planned.
    place: Option<u32>,
    /// The tokens from the root to it.
    path: Vec<TokenId>,
    /// The slots of those tokens, its own last.
    slots: Vec<u32>,
    constraint: Option<Box<dyn Constraint>>,
    /// How likely the path is to be accepted, if the tree is chosen.
    worth: f64,
}

impl Tip {
    /// Where its row stands.
    fn position<'a>(&'a self, sampling: &'a Sampling, history: &'a History) -> Position<'a> {
        Position { sampling, history, path: &self.path, constraint: self.constraint.as_deref() }
    }

    /// What came of its row. `None` where the constraint leaves the draft nothing, or can't tell: that judges no
    /// draft, and the target may well not come this way.
    fn unless_dead<T>(&self, drawn: Result<T, DraftError>) -> Result<Option<T>, DraftError> {
        match drawn {
            Err(DraftError::Law(LawError::NoMass | LawError::Constraint(_)))
                if self.constraint.is_some() =>
            {
                Ok(None)
            }
            drawn => drawn.map(Some),
        }
    }
}

/// The tree of one job.
pub(crate) struct Growth<'j, 'p> {
    pub(crate) job: usize,
    source: &'j DraftJob<'j>,
    builder: Builder<'p>,
    mode: DrawMode,
    sampling: Cow<'j, Sampling>,
    plan: Plan<'j>,
    /// In the order of their slots.
    tips: Vec<Tip>,
}

/// How a tree grows.
enum Plan<'j> {
    /// A node for each place.
    Planned(Cow<'j, [Place]>),
    /// So many nodes, and so many of them with children, at each depth; and children of one node at most.
    Chosen { quotas: Vec<(usize, usize)>, width: usize },
}

/// A node that could be added.
struct Prospect {
    worth: f64,
    tip: usize,
    rank: usize,
    token: TokenId,
}

impl<'j, 'p> Growth<'j, 'p> {
    /// The tree of `source`, which is job number `job`, with nothing but its root.
    pub(crate) fn new(job: usize, source: &'j DraftJob<'j>, proposal: &'p mut Proposal) -> Self {
        let branches = source.shape.iter().any(|place| place.rank > 0);
        let mut mode = source.mode;
        let mut sampling = Cow::Borrowed(source.sampling);
        if branches && sampling.is_greedy() {
            // Only the likeliest token has any probability; its siblings are the next in line.
            mode = DrawMode::Point;
            sampling.to_mut().temperature = 1.0;
        }
        let sampled = matches!(mode, DrawMode::Sampled { .. });
        let root = Tip {
            node: None,
            place: None,
            path: Vec::new(),
            slots: Vec::new(),
            constraint: source.constraint.map(|constraint| constraint.fork()),
            worth: 1.0,
        };
        let plan = if branches && !sampled { choose(source.shape) } else { planned(source) };
        let builder = proposal.build(source.budget);
        Self { job, source, builder, mode, sampling, plan, tips: vec![root] }
    }

    /// Rows that the next level needs.
    pub(crate) fn rows(&self) -> usize {
        self.tips.len()
    }

    /// Adds the rows of the tips to a pass, wanted, and notes which nodes they are.
    pub(crate) fn feed(
        &self,
        batch: &mut Batch,
        fed: &mut Vec<u32>,
        token_of: impl Fn(TokenId) -> u32,
    ) {
        let committed = self.source.tokens.len() as u32;
        for tip in &self.tips {
            let (Some(&token), Some(&slot)) = (tip.path.last(), tip.slots.last()) else { continue };
            let position = committed + tip.path.len() as u32 - 1;
            // Slots ascend along a path: the last of a chain is where its position says.
            let row = if slot == position {
                batch.push_row(token_of(token), position)
            } else {
                batch.push_node(token_of(token), committed, &tip.slots)
            };
            batch.want.push(row);
            fed.extend(tip.node);
        }
    }

    /// Grows the next level out of the tips' rows. `Ok(true)` if there are tips again.
    pub(crate) fn extend(
        &mut self,
        rows: &mut RowReader<'_>,
        scratch: &mut Scratch,
    ) -> Result<bool, DraftError> {
        let tips = std::mem::take(&mut self.tips);
        match &self.plan {
            Plan::Planned(_) => self.extend_planned(tips, rows, scratch)?,
            Plan::Chosen { .. } => self.extend_chosen(tips, rows, scratch)?,
        }
        Ok(!self.tips.is_empty())
    }

    fn extend_planned(
        &mut self,
        tips: Vec<Tip>,
        rows: &mut RowReader<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), DraftError> {
        let round = self.source.draws.round(self.source.tokens.len() as u64);
        for tip in tips {
            let logits = rows.read();
            let width = self.plan.children(tip.place).count();
            let at = tip.position(&self.sampling, self.source.history);
            let how = (self.mode, &round);
            let drawn = self.builder.draw_row(tip.node, (logits, &at), width, how, scratch);
            let Some(drawn) = tip.unless_dead(drawn)? else { continue };
            for (rank, node) in drawn.enumerate() {
                let place = self.plan.children(tip.place).nth(rank);
                let token = self.builder.proposal().node(node).map(|node| node.token);
                let (Some(place), Some(token)) = (place, token) else { continue };
                // Stopping behind a drawn token is always allowed; it will be verified.
                if self.plan.children(Some(place)).next().is_some()
                    && let Some(constraint) = self.after(&tip, token)
                {
                    let worth = tip.worth;
                    self.push_tip(&tip, (node, token), Some(place), constraint, worth);
                }
            }
        }
        Ok(())
    }

    fn extend_chosen(
        &mut self,
        tips: Vec<Tip>,
        rows: &mut RowReader<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), DraftError> {
        let Plan::Chosen { quotas, width } = &mut self.plan else { return Ok(()) };
        let Some(((nodes, parents), width)) = quotas.pop().zip(Some(*width)) else { return Ok(()) };
        let round = self.source.draws.round(self.source.tokens.len() as u64);
        let mut found = Vec::new();
        for (index, tip) in tips.iter().enumerate() {
            let logits = rows.read();
            let (row, how) =
                ((logits, &tip.position(&self.sampling, self.source.history)), (self.mode, &round));
            let ahead = self.builder.prospects_row(tip.node, row, width, how, scratch);
            let Some(ahead) = tip.unless_dead(ahead.map_err(DraftError::from))? else { continue };
            let fits = |&(token, _): &(TokenId, f64)| self.fits(tip, token);
            let prospects = ahead.into_iter().filter(fits).enumerate();
            found.extend(prospects.map(|(rank, (token, sure))| Prospect {
                worth: tip.worth * sure,
                tip: index,
                rank,
                token,
            }));
        }
        let by_place = |p: &Prospect| (p.tip, p.rank);
        let best_first = |a: &Prospect, b: &Prospect| {
            b.worth.total_cmp(&a.worth).then(by_place(a).cmp(&by_place(b)))
        };
        found.sort_unstable_by(best_first);
        found.truncate(nodes);
        found.sort_unstable_by_key(by_place);
        for Prospect { worth, tip, token, .. } in found {
            let tip = &tips[tip];
            let node = match self.mode {
                DrawMode::Shared => self.builder.shared(tip.node, token)?,
                _ => self.builder.point(tip.node, token)?,
            };
            if parents > 0
                && let Some(constraint) = self.after(tip, token)
            {
                self.push_tip(tip, (node, token), None, constraint, worth);
            }
        }
        self.keep_best(parents);
        Ok(())
    }

    /// Leaves the `most` likeliest tips, in the order of their slots.
    fn keep_best(&mut self, most: usize) {
        if self.tips.len() > most {
            self.tips.sort_by(|a, b| b.worth.total_cmp(&a.worth).then(a.node.cmp(&b.node)));
            self.tips.truncate(most);
            self.tips.sort_unstable_by_key(|tip| tip.node);
        }
    }

    /// Whether a token may follow a tip at all, as far as the constraint knows: one that ends the text need not.
    fn fits(&self, tip: &Tip, token: TokenId) -> bool {
        self.source.ends.contains(&token)
            || tip
                .constraint
                .as_ref()
                .is_none_or(|constraint| constraint.fork().advance(token).is_ok())
    }

    /// The constraint behind `token`; `None` if nothing comes behind it.
    fn after(&self, tip: &Tip, token: TokenId) -> Option<Option<Box<dyn Constraint>>> {
        if self.source.ends.contains(&token) {
            return None;
        }
        let Some(constraint) = &tip.constraint else { return Some(None) };
        let mut constraint = constraint.fork();
        constraint.advance(token).is_ok().then_some(Some(constraint))
    }

    fn push_tip(
        &mut self,
        above: &Tip,
        (node, token): (u32, TokenId),
        place: Option<u32>,
        constraint: Option<Box<dyn Constraint>>,
        worth: f64,
    ) {
        let slot = self.source.tokens.len() as u32 + node;
        let with = |list: &[u32], last| list.iter().copied().chain([last]).collect();
        let (path, slots) = (with(&above.path, token), with(&above.slots, slot));
        self.tips.push(Tip { node: Some(node), place, path, slots, constraint, worth });
    }
}

impl Plan<'_> {
    /// The places right below `parent`, elder siblings first.
    fn children(&self, parent: Option<u32>) -> impl Iterator<Item = u32> + '_ {
        let places: &[Place] = match self {
            Self::Planned(places) => places,
            Self::Chosen { .. } => &[],
        };
        (0..).zip(places).filter(move |(_, place)| place.parent == parent).map(|(index, _)| index)
    }
}

/// The job's own shape, or a chain of its budget.
fn planned<'j>(source: &'j DraftJob<'j>) -> Plan<'j> {
    if !source.shape.is_empty() {
        return Plan::Planned(Cow::Borrowed(source.shape));
    }
    let place = |index: u32| Place { parent: index.checked_sub(1), rank: 0, depth: index + 1 };
    Plan::Planned((0..source.budget as u32).map(place).collect())
}

/// How many nodes the shape has at each depth, deepest first, and how many of them have children.
fn choose(shape: &[Place]) -> Plan<'_> {
    let depth = shape.iter().map(|place| place.depth as usize).max().unwrap_or(0);
    let mut quotas = vec![(0, 0); depth];
    for place in shape {
        let level = depth - place.depth as usize;
        quotas[level].0 += 1;
        // A parent is counted by its eldest child.
        if place.rank == 0 && place.depth > 1 {
            quotas[level + 1].1 += 1;
        }
    }
    let width = shape.iter().map(|place| place.rank as usize + 1).max().unwrap_or(1);
    Plan::Chosen { quotas, width }
}
