//! [`Left`]: what rejections have left of the target's law, and of a node's weight, at one node.
//!
//! All ratio rules share one recursion. Let p₁ be the target's law at a node of weight a₁ (1 for a
//! rule that tests from the root downwards), and q_k the law its k-th child was drawn from. After
//! that child is rejected, with all that is below it,
//!
//! ```text
//! Z = Σ (a_k p_k − q_k)+     p_{k+1} = (a_k p_k − q_k)+ / Z     a_{k+1} = Z / (Z + 1 − a_k)
//! ```
//!
//! (Miao et al. 2023, arXiv 2305.09781, and Chen et al. 2024, arXiv 2402.12374, with a = 1; the
//! weighted form in Weng et al. 2025, arXiv 2505.12398.) Nothing of it has to be stored per token:
//!
//! * With one law q for all children, p_k is proportional to (p − e·q)+ for a single number e,
//!   because the positive part of a difference that was already zero stays zero. Each rejection adds
//!   M/a to e, where M = Σ (p − e·q)+ before it, and Z = a·M'/M with M' after it.
//! * Without replacement q_k is q over the tokens not drawn yet, divided by their mass S. A token
//!   is rejected only if a·p_k < q_k there, so it has nothing left, and the same single number does.
//!   It is kept in units of q/S, so that a remaining mass of 1e-310 overflows nothing.
//! * A child chosen without chance has q_k = 1 on itself: p_k is p over the tokens not tried.
//!
//! A rejection costs one pass over the two laws, a node four numbers, and rounding stays at the
//! size of one ulp of p: where M or a is small enough to amplify it, the node is as rarely reached.

use super::buffers::Buffers;
use crate::{Choices, Law, Origin, Proposal, Site, TokenId};

/// The children of one node.
#[derive(Clone, Copy)]
pub(super) struct Family<'a> {
    pub(super) proposal: &'a Proposal,
    /// Their parent; `None` is the root.
    pub(super) node: Option<u32>,
    /// The law they were drawn from, and whether with replacement; `None` if chance had no part.
    sampled: Option<(&'a Law, bool)>,
}

impl<'a> Family<'a> {
    pub(super) fn below(proposal: &'a Proposal, node: Option<u32>) -> Self {
        let sampled = match (proposal.origin(node), proposal.drawn_from(node)) {
            (Some(Origin::Sampled { replacement }), Some(law)) => Some((law, replacement)),
            _ => None,
        };
        Self { proposal, node, sampled }
    }

    /// Whether the children were drawn at random.
    pub(super) fn is_sampled(&self) -> bool {
        self.sampled.is_some()
    }

    /// Index and token of the child that comes after `tried` others in draw order.
    pub(super) fn child(&self, tried: u32) -> Option<(u32, TokenId)> {
        let index = self.proposal.children(self.node).nth(tried as usize)?;
        Some((index, self.proposal.node(index)?.token))
    }

    /// The tokens of the first `count` children, ascending, into `out`.
    fn tokens(&self, count: u32, out: &mut Vec<TokenId>) {
        out.clear();
        let first = self.proposal.children(self.node).take(count as usize);
        out.extend(first.filter_map(|n| self.proposal.node(n)).map(|node| node.token));
        out.sort_unstable();
    }
}

/// What is left at a node; see the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    /// Children rejected.
    tried: u32,
    /// The node's weight a: how likely it is kept if nothing below it is.
    weight: f64,
    /// M: the mass of what is left of p.
    mass: f64,
    /// e, in units of q/S.
    taken: f64,
    /// S: the weights of q over the tokens that the next child may be.
    rest: f64,
    /// No child can be accepted any more, by weight or by rounding.
    spent: bool,
}

impl Left {
    /// Nothing rejected yet.
    pub(super) fn all(weight: f64) -> Self {
        Self { tried: 0, weight, mass: 1.0, taken: 0.0, rest: 0.0, spent: false }
    }

    pub(super) fn weight(&self) -> f64 {
        self.weight
    }

    pub(super) fn is_spent(&self) -> bool {
        self.spent
    }

    /// The next child to test: its index, p_k and q_k at its token.
    pub(super) fn next(
        &mut self,
        p: &Law,
        family: &Family<'_>,
        buffer: &mut Vec<TokenId>,
    ) -> Option<(u32, f64, f64)> {
        if self.spent {
            return None;
        }
        let (index, token) = family.child(self.tried)?;
        let Some((q, replacement)) = family.sampled else {
            return Some((index, p.p(token) / self.mass, 1.0));
        };
        let before = self.rest;
        self.rest = if replacement || self.tried == 0 {
            q.total()
        } else {
            family.tokens(self.tried, buffer);
            weight_without(q, buffer)
        };
        if self.tried > 0 {
            self.taken *= self.rest / before;
        }
        let q_k = weight_of(q, token) / self.rest;
        Some((index, (p.p(token) - self.taken * q_k).max(0.0) / self.mass, q_k))
    }

    /// The child that [`Left::next`] gave is rejected, with all below it. False if that cannot
    /// have happened but by rounding: nothing would be left at a node that is kept for certain.
    /// What was left before is then kept.
    pub(super) fn reject(
        &mut self,
        p: &Law,
        family: &Family<'_>,
        buffer: &mut Vec<TokenId>,
    ) -> bool {
        // Where a is too small for the quotient, the node is kept with no more probability than a.
        let step = (self.mass / self.weight).min(f64::MAX);
        let taken = (self.taken + step).min(f64::MAX);
        let mass = match family.sampled {
            Some((q, _)) => mass_left_over(p, q, taken, self.rest),
            None => {
                family.tokens(self.tried + 1, buffer);
                weight_without(p, buffer) / p.total()
            }
        };
        if mass > 0.0 {
            let z = self.weight * mass / self.mass;
            // Exactly 1 stays 1.
            self.weight = z / (z + (1.0 - self.weight));
            (self.mass, self.taken) = (mass, taken);
            self.tried += 1;
            return true;
        }
        self.spent = true;
        if self.weight < 1.0 {
            self.weight = 0.0;
            return true;
        }
        false
    }

    /// Draws the token that ends the round at this node from what is left.
    pub(super) fn draw(
        &self,
        p: &Law,
        family: &Family<'_>,
        buffers: &mut Buffers,
        choices: &mut dyn Choices,
    ) -> TokenId {
        let site = Site::next(family.node);
        if self.tried == 0 {
            return choices.pick(site, p);
        }
        let (mut ids, mut weights) = buffers.law();
        let mut keep = |id, weight| {
            ids.push(id);
            weights.push(weight);
        };
        let mut dense = false;
        match family.sampled {
            Some((q, _)) if is_dense(p) && is_dense(q) => {
                dense = true;
                let left = difference(p, self.taken, self.rest);
                let (of_p, of_q) = (p.parts().1, q.parts().1);
                weights.extend(of_p.iter().zip(of_q).map(|(&p, &q)| left(p, q)));
                weights.extend_from_slice(of_p.get(of_q.len()..).unwrap_or_default());
            }
            Some((q, _)) => {
                let left = left_over(p, q, self.taken, self.rest);
                left.filter(|&(_, weight)| weight > 0.0).for_each(|(id, w)| keep(id, w));
            }
            None => {
                family.tokens(self.tried, &mut buffers.tokens);
                let tried = |id| buffers.tokens.binary_search(&id).is_ok();
                p.weighted().filter(|&(id, _)| !tried(id)).for_each(|(id, w)| keep(id, w));
            }
        }
        let Ok(left) = Law::checked((!dense).then_some(ids), weights) else {
            return choices.pick(site, p); // Not reached: the mass was seen to be above zero.
        };
        let token = choices.pick(site, &left);
        buffers.recycle(left);
        token
    }
}

/// Over the support of p: (p − taken · q/rest)+, in units of p's weights.
fn left_over<'a>(
    p: &'a Law,
    q: &'a Law,
    taken: f64,
    rest: f64,
) -> impl Iterator<Item = (TokenId, f64)> + 'a {
    let mut others = q.weighted().peekable();
    let left = difference(p, taken, rest);
    p.weighted().map(move |(id, p)| {
        while others.next_if(|&(other, _)| other < id).is_some() {}
        let q = others.next_if(|&(other, _)| other == id);
        (id, q.map_or(p, |(_, q)| left(p, q)))
    })
}

/// The mass of [`left_over`]; for two dense laws in parts that need not wait for each other.
fn mass_left_over(p: &Law, q: &Law, taken: f64, rest: f64) -> f64 {
    let ((None, of_p), (None, of_q)) = (p.parts(), q.parts()) else {
        return left_over(p, q, taken, rest).map(|(_, left)| left).sum::<f64>() / p.total();
    };
    let left = difference(p, taken, rest);
    let (of_p, beyond) = of_p.split_at(of_p.len().min(of_q.len()));
    let (p_chunks, q_chunks) = (of_p.chunks_exact(8), of_q[..of_p.len()].chunks_exact(8));
    let tail = p_chunks.remainder().iter().zip(q_chunks.remainder());
    let tail: f64 = tail.map(|(&p, &q)| left(p, q)).sum();
    let mut parts = [0.0; 8];
    for (p, q) in p_chunks.zip(q_chunks) {
        for ((part, &p), &q) in parts.iter_mut().zip(p).zip(q) {
            *part += left(p, q);
        }
    }
    (parts.iter().sum::<f64>() + tail + crate::law::sum(beyond)) / p.total()
}

/// (p − taken · q/rest)+ of a weight of each law, in units of p's.
fn difference(p: &Law, taken: f64, rest: f64) -> impl Fn(f64, f64) -> f64 {
    let total = p.total();
    let factor = taken * (total / rest);
    // Where little is left of q the factor is infinite, though q/rest is at most 1 for all tokens
    // that still matter.
    let (by, unit) =
        if factor.is_finite() { (factor, 1.0) } else { ((taken * total).min(f64::MAX), rest) };
    move |p, q| {
        let left = p - by * (q / unit);
        if left > 0.0 { left } else { 0.0 }
    }
}

fn is_dense(law: &Law) -> bool {
    law.parts().0.is_none()
}

fn weight_of(law: &Law, id: TokenId) -> f64 {
    let (ids, weights) = law.parts();
    let index = match ids {
        None => id as usize,
        Some(ids) => ids.binary_search(&id).unwrap_or(usize::MAX),
    };
    weights.get(index).copied().unwrap_or_default()
}

/// The sum of the weights of all but the given tokens, which ascend. Summed, not subtracted: what
/// is left may be a hundred orders of magnitude smaller.
fn weight_without(law: &Law, tokens: &[TokenId]) -> f64 {
    let (ids, weights) = law.parts();
    let mut sum = 0.0;
    let mut from = 0;
    for &token in tokens {
        let (until, after) = match ids {
            None => (token as usize, token as usize + 1),
            Some(ids) => match ids.binary_search(&token) {
                Ok(at) => (at, at + 1),
                Err(at) => (at, at),
            },
        };
        let (until, after) = (until.min(weights.len()), after.min(weights.len()));
        sum += crate::law::sum(weights.get(from..until).unwrap_or_default());
        from = after;
    }
    sum + crate::law::sum(weights.get(from..).unwrap_or_default())
}
