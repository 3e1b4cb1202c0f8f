//! [`climb`]: from the leaves to the root, the walk of `traversal` and, on a chain, of `block`.

use super::left::{Family, Left};
use super::{Verdict, VerifyError};
use crate::{Choices, Proposal, Site, TargetRows};

/// A node on the way from the root to where the walk is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    node: Option<u32>,
    left: Left,
}

impl Frame {
    fn new(node: Option<u32>, weight: f64) -> Self {
        Self { node, left: Left::all(weight) }
    }
}

/// Keeps the deepest node, in depth-first order of the draws, that passes its test, and draws the
/// token after it from what is left there.
///
/// Each node has a weight: 1 at the root, min(1, a·p(x)/q(x)) for a child x of a node of weight a.
/// A node is tested after everything below it has been rejected, with the weight that these
/// rejections have left. So a row is read only where the weight is above zero, and on a chain the
/// laws are summed up only as far back as the walk comes.
///
/// `site` names the test of a node. No recursion: a tree may be deeper than a stack.
pub(super) fn climb(
    proposal: &Proposal,
    rows: &mut dyn TargetRows,
    choices: &mut dyn Choices,
    verdict: &mut Verdict,
    site: fn(u32) -> Site,
) -> Result<(), VerifyError> {
    verdict.clear();
    let mut frames = std::mem::take(&mut verdict.buffers.frames);
    frames.clear();
    frames.push(Frame::new(None, 1.0));
    let climbed = walk(proposal, rows, choices, (&mut frames, verdict), site);
    verdict.buffers.frames = frames;
    climbed
}

fn walk(
    proposal: &Proposal,
    rows: &mut dyn TargetRows,
    choices: &mut dyn Choices,
    (frames, verdict): (&mut Vec<Frame>, &mut Verdict),
    site: fn(u32) -> Site,
) -> Result<(), VerifyError> {
    while let Some(frame) = frames.last_mut() {
        let family = Family::below(proposal, frame.node);
        let tokens = &mut verdict.buffers.tokens;
        if proposal.origin(frame.node).is_some() && !frame.left.is_spent() {
            let p = rows.law(frame.node)?;
            if let Some((child, p_k, q_k)) = frame.left.next(p, &family, tokens) {
                let weight = weight(frame.left.weight(), p_k, q_k);
                if weight > 0.0 {
                    frames.push(Frame::new(Some(child), weight));
                } else if !frame.left.reject(p, &family, tokens) {
                    verdict.fallbacks = verdict.fallbacks.saturating_add(1);
                }
                continue;
            }
        }
        // Nothing below is kept. The node itself? The root always is.
        let Some(node) = frame.node else { break };
        if choices.accept(site(node), frame.left.weight(), 1.0) {
            break;
        }
        frames.pop();
        let Some(parent) = frames.last_mut() else { break };
        let p = rows.law(parent.node)?;
        if !parent.left.reject(p, &Family::below(proposal, parent.node), tokens) {
            verdict.fallbacks = verdict.fallbacks.saturating_add(1);
        }
    }
    let Some(&Frame { node, left }) = frames.last() else { return Ok(()) };
    verdict.path.extend(frames.iter().filter_map(|frame| frame.node));
    let family = Family::below(proposal, node);
    verdict.next = left.draw(rows.law(node)?, &family, &mut verdict.buffers, choices);
    Ok(())
}

/// min(1, a·p/q).
fn weight(a: f64, p: f64, q: f64) -> f64 {
    let p = a * p;
    if p >= q { f64::from(u8::from(p > 0.0)) } else { p / q }
}
