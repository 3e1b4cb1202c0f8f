//! Known wrong variants as test doubles: each must be caught, or the tests prove nothing. Every
//! double also exists without its bug and then passes, so nothing is caught for the wrong reason.
//!
//! | variant | seen in | caught by |
//! |---|---|---|
//! | first draft unverified | lattice #243 | enumeration (`token`, `traversal`); equality (`coupled`) |
//! | correction from the row after the rejected token | openvino.genai #4190 | enumeration |
//! | bonus from the row before; from the drafter's law | | enumeration |
//! | last accepted token said twice | imp #667 | enumeration |
//! | correction from p, not (p − q)+ | | enumeration |
//! | raw q; q in another precision | transformers #47932; DeepSpec #31 | enumeration |
//! | target's law before truncation | vllm #10198 | enumeration |
//! | greedy or top-k drafts tested as sampled | dflash #74, EAGLE #110 | enumeration |
//! | sampled drafts tested as chosen *and* by ratio | | enumeration |
//! | anticipating truncation; draft cut by a grammar | D-cut, DSpark appendices | enumeration, all ratio rules |
//! | typical acceptance, thresholds | Medusa, SGLang | enumeration |
//! | without replacement: q not renormalised; removed before the residual | Sequoia's notes | enumeration (`token`, `traversal`) |
//! | later siblings tested against p | | enumeration |
//! | a target sample per path | fms-extras #12 | enumeration |
//! | `block`: break at the first failure | vllm-ascend #7807 | enumeration |
//! | `block`: residual of `token` | | enumeration |
//! | `block`: thresholds of `token`; weight not capped at 1 | | enumeration |
//! | `block`: η by absolute position | | sampling over rounds |
//! | `traversal`: weight, or law, not lowered by rejected children; residual without the weight | | enumeration |
//! | `traversal`: a child of weight 0 leaves no residual; parent tested before its children | | enumeration |
//! | one number for two choices of a round | vllm #47386 | the oracle's names; sampling |
//! | one number in two rounds | | sampling over rounds |
//! | shared noise under a ratio test | vllm #47386 | sampling |
//! | `u·q ≤ p` | SGLang #35771 | boundary injection |
//! | `coupled`: noise by place in the round; without the sample; of the next position | | equality with the plain sampler |
//! | `coupled`: ratio test; row of the parent; match on another path; inverse distribution | | equality with the plain sampler |
//! | noise of 24 bits | | test of the generator |
//! | a tree under `block` | | refusal by name |

mod block;
mod chance;
mod coupled;
mod token;
mod traversal;

use super::hostile::Pair;
use super::plan::{Make, Plan};
use crate::exact::{WalkError, distance, emitted, joint};
use crate::{Law, RatioRule};

/// Five laws: with three tokens, a path's law then depends on all of the path.
fn model() -> Pair {
    let law = |weights: [f64; 3]| Law::dense(weights.to_vec()).unwrap();
    Pair::new(
        3,
        vec![
            (law([0.6, 0.4, 0.0]), law([0.45, 0.2, 0.35])),
            (law([0.2, 0.3, 0.5]), law([0.5, 0.3, 0.2])),
            (law([0.1, 0.8, 0.1]), law([0.3, 0.6, 0.1])),
            (law([0.45, 0.45, 0.1]), law([0.05, 0.1, 0.85])),
            (law([0.5, 0.1, 0.4]), law([0.1, 0.8, 0.1])),
        ],
    )
}

/// The largest error in the law of `depth + 1` tokens after one round of full trees.
fn error(rule: &dyn RatioRule, make: Make, depth: usize, width: usize) -> Result<f64, WalkError> {
    let pair = model();
    let target = |path: &[u32]| pair.p(path);
    let plan = Plan::full(make, depth, width);
    let round =
        emitted(rule, 8, &target, |builder, choices| plan.draft(&pair, &[], builder, choices))?;
    Ok(distance(&round.completed(&target, depth + 1), &joint(&target, depth + 1)))
}
