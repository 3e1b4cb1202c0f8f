//! Wrong variants of `coupled`: each says something that plain decoding does not.

use redline::spec::{
    Choices, Coupled, DrawMode, Draws, Round, Site, TargetRows, Verdict, Verifier, VerifyError,
    coupled_sample,
};

use crate::exact::{says_plain, shared};

use super::{By, Finding, model};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// Noise counted from the beginning of the round.
    PlaceInRound,
    /// One position's noise for the whole round.
    BaseForAll,
    /// Noise of the position after the token's.
    NextPosition,
    /// All samples of a request share their noise.
    NoSample,
    /// The first draft is taken as it is.
    FirstUnverified,
    /// A draft is accepted by min(1, p/q) with q = 1 and corrected with the noise.
    RatioTest,
    /// The law of the row before.
    ParentRow,
    /// A draft of the right depth counts, wherever it hangs.
    OtherPath,
    /// The law is sampled by its inverse distribution with a number of the position.
    Inverse,
}

struct Double(Bug);

impl Verifier for Double {
    fn name(&self) -> &'static str {
        "double"
    }

    fn draw_mode(&self) -> DrawMode {
        DrawMode::Shared
    }

    fn verify(
        &self,
        round: &Round<'_>,
        rows: &mut dyn TargetRows,
        verdict: &mut Verdict,
    ) -> Result<(), VerifyError> {
        verdict.clear();
        let (proposal, mut node) = (round.proposal, None);
        loop {
            let depth = verdict.path.len() as u64;
            let position = match self.0 {
                Bug::PlaceInRound => depth,
                Bug::BaseForAll => round.base,
                Bug::NextPosition => round.base + depth + 1,
                _ => round.base + depth,
            };
            let sample = if self.0 == Bug::NoSample { 0 } else { round.draws.sample };
            let draws = Draws { sample, ..round.draws };
            let parent = node.and_then(|n| proposal.node(n)?.parent);
            let law = rows.law(if self.0 == Bug::ParentRow { parent } else { node })?.clone();
            let token = match self.0 {
                Bug::Inverse => draws.round(position).pick(Site::next(None), &law),
                _ => coupled_sample(&law, &draws, position),
            };
            let first = proposal.children(node).next();
            let taken = match (self.0, first) {
                (Bug::FirstUnverified, Some(child)) if node.is_none() => Some(child),
                (Bug::RatioTest, Some(child)) => {
                    let p = law.p(proposal.node(child).unwrap().token);
                    Some(child).filter(|&n| draws.round(position).accept(Site::accept(n), p, 1.0))
                }
                (Bug::OtherPath, _) => (0..proposal.len() as u32).find(|&n| {
                    let other = proposal.node(n).unwrap();
                    u64::from(other.depth) == depth + 1 && other.token == token
                }),
                _ => proposal.child(node, token),
            };
            let Some(child) = taken else {
                verdict.next = token;
                return Ok(());
            };
            verdict.path.push(child);
            node = Some(child);
        }
    }
}

/// How many of `seeds` seeds say something else than plain decoding within one round.
fn differing(rule: &dyn Verifier, seeds: u64) -> u64 {
    let pair = model();
    let differs = |&seed: &u64| {
        let (draws, base) = (Draws { seed, sample: 1 }, 2 + seed % 5);
        !says_plain(rule, &pair, &shared(&pair, (2, 2), draws, base), (draws, base))
    };
    (0..seeds).filter(differs).count() as u64
}

/// Every variant, and the double without one.
pub(super) fn findings() -> Vec<Finding> {
    let seeds = 400;
    let finding = |variant: &str, rule: &dyn Verifier| {
        let seen = differing(rule, seeds);
        Finding {
            rule: "coupled",
            variant: variant.to_owned(),
            seen_in: "",
            by: By::Equality,
            found: format!("{seen} of {seeds} seeds say something else"),
            samples: None,
            error: 0.0,
            caught: seen >= 1,
            unseen: (1.0 - seen as f64 / seeds as f64).powi(seeds as i32),
            control: false,
        }
    };
    let mut findings = vec![
        finding("the rule", &Coupled).sound(),
        finding("the double", &Double(Bug::None)).sound(),
    ];
    let variants = [
        (Bug::PlaceInRound, "noise counted from the round's beginning"),
        (Bug::BaseForAll, "one position's noise for the whole round"),
        (Bug::NextPosition, "noise of the next position"),
        (Bug::NoSample, "noise without the sample"),
        (Bug::FirstUnverified, "first draft unverified"),
        (Bug::RatioTest, "ratio test with the shared noise"),
        (Bug::ParentRow, "row of the parent"),
        (Bug::OtherPath, "match on another path"),
        (Bug::Inverse, "inverse distribution in place of the race"),
    ];
    findings.extend(variants.map(|(bug, variant)| finding(variant, &Double(bug))));
    findings
}
