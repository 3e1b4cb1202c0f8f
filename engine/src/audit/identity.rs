//! Whether speculation changes a single token where the token is determined.
//!
//! At temperature 0 under every rule, and with a seed under `coupled`, a text is a function of model, prompt and
//! parameters. Each prompt is continued with speculation and without, side by side in one batch, and the independent
//! pass says what each token had to be.

use std::ops::ControlFlow;

use redline_spec::{Sampling, TokenId};
use serde::Serialize;

use super::drive::{Job, drive};
use super::judge::{Judge, Text};
use super::{AuditError, Plan, Watcher};
use crate::engine::Engine;
use crate::request::{GenerateRequest, Prompt, Speculation};

/// How many texts were as they had to be.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Identity {
    /// Prompts looked at.
    pub prompts: usize,
    /// Those of which every text is the same with speculation, without it, and by the independent pass.
    pub identical: usize,
    /// Whether they are also continued at the audit's temperature, with seeds: under `coupled`.
    pub seeded: bool,
    /// The first that was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
}

/// Where a text is not what it had to be.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The prompt's name.
    pub prompt: String,
    /// Whether it was continued with a seed; else greedily.
    pub seeded: bool,
    /// First token that is another one, counted from 0.
    pub token: usize,
    /// What it differs from.
    pub from: &'static str,
}

/// Which text of a prompt.
#[derive(Debug, Clone, Copy)]
struct Which {
    prompt: usize,
    seeded: bool,
    speculates: bool,
}

/// A prompt that has been tokenized.
pub(super) struct Known {
    pub(super) name: String,
    pub(super) category: String,
    pub(super) tokens: Vec<TokenId>,
}

/// Prompts whose texts without speculation must not reuse what the others computed have salts of their own.
const APART: u64 = 1 << 40;

/// Continues the first prompts of the plan. What was found so far comes back also if the watcher ended it, with false.
///
/// # Errors
/// A request that fails, or a pass.
pub(super) fn compare(
    (engine, judge): (&mut Engine, &mut Judge<'_>),
    prompts: &[Known],
    plan: &Plan,
    watcher: &mut dyn Watcher,
    forget: impl Fn(u64),
) -> Result<(Identity, bool), AuditError> {
    let prompts = &prompts[..plan.identity_prompts.min(prompts.len())];
    let seeded = judge.rule == "coupled";
    let ways: &[bool] = if seeded { &[false, true] } else { &[false] };
    let jobs = (0..prompts.len()).flat_map(|prompt| {
        let all = ways.iter().flat_map(|&seeded| [(seeded, true), (seeded, false)]);
        all.map(move |(seeded, speculates)| Which { prompt, seeded, speculates })
    });
    let jobs = jobs.map(|which| job(which, &prompts[which.prompt], plan));
    let mut waiting: Vec<(Which, Vec<TokenId>)> = Vec::new();
    let (mut looked_at, mut same) = (vec![0; prompts.len()], vec![true; prompts.len()]);
    let mut identity = Identity { seeded, ..Identity::default() };
    let on_output =
        |which: Which, output: &crate::request::RequestOutput, watcher: &mut dyn Watcher| {
            forget(output.seed);
            let twin = waiting.iter().position(|(other, _)| {
                (other.prompt, other.seeded) == (which.prompt, which.seeded)
            });
            let Some(twin) = twin else {
                waiting.push((which, output.token_ids.clone()));
                return Ok(ControlFlow::Continue(()));
            };
            let (_, other) = waiting.swap_remove(twin);
            let (on, off) = match which.speculates {
                true => (&output.token_ids, &other),
                false => (&other, &output.token_ids),
            };
            let known = &prompts[which.prompt];
            let text = Text {
                prompt: &known.tokens,
                output: on,
                sampling: &sampling(which, plan),
                seed: output.seed,
                index: APART + which.prompt as u64,
            };
            let judged = judge.read(&text, Vec::new())?;
            let found = match differ(on, off) {
                Some(token) => Some((token, "decoding without speculation")),
                None => judged.stray.map(|token| (token, "the independent pass")),
            };
            if let Some((token, from)) = found {
                same[which.prompt] = false;
                identity.difference.get_or_insert_with(|| Difference {
                    prompt: known.name.clone(),
                    seeded: which.seeded,
                    token,
                    from,
                });
            }
            looked_at[which.prompt] += 1;
            watcher.progress(looked_at.iter().sum(), prompts.len() * ways.len(), None);
            Ok(ControlFlow::Continue(()))
        };
    let complete = drive(engine, jobs, watcher, on_output)?;
    for (looked_at, same) in looked_at.into_iter().zip(same) {
        let whole = looked_at == ways.len();
        identity.prompts += usize::from(whole || !same);
        identity.identical += usize::from(whole && same);
    }
    Ok((identity, complete))
}

fn sampling(which: Which, plan: &Plan) -> Sampling {
    let temperature = if which.seeded { plan.sampling.temperature } else { 0.0 };
    Sampling { temperature, ..plan.sampling.clone() }
}

fn job(which: Which, known: &Known, plan: &Plan) -> Job<Which> {
    let index = which.prompt as u64;
    Job {
        tag: which,
        prompt: known.name.clone(),
        request: GenerateRequest {
            max_tokens: plan.max_tokens,
            sampling: sampling(which, plan),
            seed: Some(super::uniforms::seed(plan.seed ^ APART, index)),
            speculation: if which.speculates { Speculation::Engine } else { Speculation::Off },
            salt: if which.speculates { 0 } else { APART + index },
            ..GenerateRequest::new(Prompt::Tokens(known.tokens.clone()))
        },
    }
}

/// Index of the first token that differs, the end of one of them included.
fn differ(a: &[TokenId], b: &[TokenId]) -> Option<usize> {
    let common = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    (a.len().max(b.len()) > common).then_some(common)
}

#[cfg(test)]
mod tests {
    use super::differ;

    #[test]
    fn texts_differ_where_one_ends_too() {
        assert_eq!(differ(&[1, 2, 3], &[1, 2, 3]), None);
        assert_eq!(differ(&[1, 2, 3], &[1, 5, 3]), Some(1));
        assert_eq!(differ(&[1, 2], &[1, 2, 3]), Some(2));
    }
}
