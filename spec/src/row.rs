//! [`Row`]: a row of logits, ready to be drawn from, of which no more is worked out than somebody asks for.
//!
//! An exponential per token of a large vocabulary is most of what sampling costs, and hardly any of them matters. The
//! largest logit of each group of tokens, which one fast pass finds, bounds what its members can be: most groups
//! hold none of the likeliest tokens, and cannot win a race. **A bound decides only that nothing is to be looked at;
//! what is looked at is compared exactly**, so laws and draws are those of the plain definition, bit for bit.

use crate::draws::GROUP;
use crate::law::{Law, LawError};
use crate::process::Scratch;
use crate::rowmath::{Scale, bodies};
use crate::{Sampling, TokenId, select};

/// A row that has been checked and edited, but not weighed.
pub(crate) struct Row<'a> {
    values: &'a [f32],
    /// The largest value of each group.
    tops: &'a [f32],
    max: f32,
    sampling: &'a Sampling,
}

/// The largest value of each group of `values` into `tops`, and of all; −∞ if there is nothing else.
///
/// # Errors
/// [`LawError::NotFinite`] names the first that is NaN or +∞.
pub(crate) fn scan(values: &[f32], tops: &mut Vec<f32>) -> Result<f32, LawError> {
    tops.clear();
    tops.resize(values.len().div_ceil(GROUP as usize), f32::NEG_INFINITY);
    if bodies::tops(values, tops) {
        return Ok(tops.iter().fold(f32::NEG_INFINITY, |a, &x| if x > a { x } else { a }));
    }
    let at = values.iter().position(|&x| x.is_nan() || x == f32::INFINITY).unwrap_or_default();
    Err(LawError::NotFinite { token: at as TokenId, value: f64::from(values[at]) })
}

impl<'a> Row<'a> {
    /// Of values with what [`scan`] has found of them.
    ///
    /// # Errors
    /// [`LawError::NoMass`] if every token is banned.
    pub(crate) fn new(
        values: &'a [f32],
        (tops, max): (&'a [f32], f32),
        sampling: &'a Sampling,
    ) -> Result<Self, LawError> {
        if max == f32::NEG_INFINITY {
            return Err(LawError::NoMass);
        }
        Ok(Self { values, tops, max, sampling })
    }

    /// Whether every token that is not banned may be drawn, and there is chance in it.
    pub(crate) fn is_whole(&self) -> bool {
        let Sampling { temperature, top_k, top_p, min_p, .. } = *self.sampling;
        let all = top_k == 0 || top_k as usize >= self.values.len();
        temperature > 0.0 && all && top_p >= 1.0 && min_p <= 0.0
    }

    /// How logits become weights; for temperatures above zero.
    pub(crate) fn scale(&self) -> Scale {
        Scale { max: f64::from(self.max), temperature: self.sampling.temperature }
    }

    pub(crate) fn tops(&self) -> &'a [f32] {
        self.tops
    }

    /// The first of the largest values.
    pub(crate) fn argmax(&self) -> TokenId {
        let group = self.tops.iter().position(|&top| top == self.max).unwrap_or_default();
        let at = self.group(group).iter().position(|&x| x == self.max).unwrap_or_default();
        (group * GROUP as usize + at) as TokenId
    }

    /// The values of a group.
    pub(crate) fn group(&self, group: usize) -> &'a [f32] {
        let start = group * GROUP as usize;
        let end = self.values.len().min(start + GROUP as usize);
        self.values.get(start..end).unwrap_or_default()
    }

    /// The law, of weights that are 1 for the largest value: min-p, top-k and top-p in the order that spares the most
    /// work. Min-p and top-k both keep a prefix of the tokens by likelihood, whichever comes first.
    pub(crate) fn law(&self, scratch: &mut Scratch) -> Result<Law, LawError> {
        let Sampling { top_k, top_p, min_p, .. } = *self.sampling;
        if self.sampling.is_greedy() {
            return Ok(Law::point(self.argmax()));
        }
        if self.is_whole() {
            return Ok(self.whole(scratch));
        }
        let (mut ids, mut weights) = (scratch.ids(), scratch.weights());
        let mut goal = None;
        if top_k > 0 && (top_k as usize) < self.values.len() {
            self.first(top_k as usize, &mut scratch.order, (&mut ids, &mut weights));
        } else if min_p > 0.0 {
            for (id, x) in self.at_least(min_p) {
                let weight = self.scale().weight(x);
                if weight >= min_p && weight > 0.0 {
                    ids.push(id);
                    weights.push(weight);
                }
            }
        } else {
            goal = Some(self.head(scratch, (&mut ids, &mut weights)));
        }
        if top_p >= 1.0 {
            return Law::scaled(Some(ids), weights);
        }
        let goal = goal.unwrap_or_else(|| top_p * crate::law::sum(&weights));
        let (mut kept, mut masses) = (scratch.ids(), scratch.weights());
        select::top_p((&ids, &weights), goal, &mut scratch.order, (&mut kept, &mut masses));
        scratch.keep(Some(ids), weights);
        Law::scaled(Some(kept), masses)
    }

    /// Every token with its weight.
    fn whole(&self, scratch: &mut Scratch) -> Law {
        let mut weights = scratch.weights();
        weights.resize(self.values.len(), 0.0);
        let total = scratch.math().weights(self.values, self.scale(), &mut weights);
        // Of several that round to 1 the first.
        let near = self.scale().reach(1.0);
        let groups = weights.chunks(GROUP as usize).zip(self.tops).zip(0_u32..);
        let mut near = groups.filter(|&((_, &top), _)| self.scale().distance(top) >= near);
        let mode = near.find_map(|((weights, _), group)| {
            let at = weights.iter().position(|&w| w == 1.0)?;
            Some(group * GROUP + at as TokenId)
        });
        Law::weighed(weights, total, mode.unwrap_or_else(|| self.argmax()))
    }

    /// The `k` likeliest tokens, those below min-p aside.
    fn first(
        &self,
        k: usize,
        order: &mut Vec<u32>,
        (ids, weights): (&mut Vec<TokenId>, &mut Vec<f64>),
    ) {
        let weight = |id: TokenId| self.scale().weight(self.values[id as usize]);
        select::top_k(self.values, self.tops, k, order);
        ids.extend(order.iter().filter(|&&id| weight(id) >= self.sampling.min_p));
        ids.sort_unstable();
        weights.extend(ids.iter().map(|&id| weight(id)));
    }

    /// Every token that may have a weight of at least `least`, and perhaps a few others.
    fn at_least(&self, least: f64) -> impl Iterator<Item = (TokenId, f32)> + '_ {
        let (scale, reach) = (self.scale(), self.scale().reach(least));
        let near = move |x: f32| scale.distance(x) >= reach;
        let groups = self.tops.iter().enumerate().filter(move |&(_, &top)| near(top));
        groups.flat_map(move |(group, _)| {
            let members = (group as TokenId * GROUP..).zip(self.group(group).iter().copied());
            members.filter(move |&(_, x)| near(x))
        })
    }

    /// For top-p alone: a head of the law that holds all that is kept, and the mass to be reached. A head of all tokens
    /// above some weight holds it once it has that mass, and somewhat more than rounding could make of less. The last
    /// head is the whole law.
    fn head(
        &self,
        scratch: &mut Scratch,
        (ids, weights): (&mut Vec<TokenId>, &mut Vec<f64>),
    ) -> f64 {
        let mut all = scratch.weights();
        all.resize(self.values.len(), 0.0);
        let total = scratch.math().weights(self.values, self.scale(), &mut all);
        let (goal, missing) = (self.sampling.top_p * total, (1.0 - self.sampling.top_p) * total);
        for parts in HEADS {
            ids.clear();
            ids.extend(self.at_least(missing / parts).map(|(id, _)| id));
            weights.clear();
            weights.extend(ids.iter().map(|&id| all[id as usize]));
            if crate::law::sum(weights) >= goal * (1.0 + 1e-9) {
                break;
            }
        }
        scratch.keep(None, all);
        goal
    }
}

/// Into how many tokens the mass that top-p may leave out is parted, to guess which are too small to be kept.
const HEADS: [f64; 4] = [64.0, 4_096.0, 262_144.0, f64::INFINITY];
