//! Audits a drafter of one's own: does the output stay the target's, and are its drafts kept as often as they should?

use std::io::Write;

use redline::audit::{Plan, Subject, built_in, run};
use redline::spec::{DraftError, DraftJob, Drafter, Proposal};
use redline::{DraftLength, LoadOptions, Registry, TokenId};

/// Bets that the last token comes again.
struct Stutter;

impl Drafter for Stutter {
    fn name(&self) -> &str {
        "stutter"
    }

    fn offer(&mut self, _seq: u64, _tokens: &[TokenId]) -> usize {
        usize::MAX
    }

    fn propose(&mut self, jobs: &[DraftJob<'_>], out: &mut [Result<Proposal, DraftError>]) {
        for (job, slot) in jobs.iter().zip(out) {
            let (Ok(proposal), Some(&last)) = (slot, job.tokens.last()) else { continue };
            let mut builder = proposal.build(job.budget);
            let mut parent = None;
            while let Ok(node) = builder.point(parent, last) {
                parent = Some(node);
            }
        }
    }

    fn forget(&mut self, _seq: u64) {}
}

fn main() -> anyhow::Result<()> {
    let mut registry = Registry::default();
    registry.add("stutter", |_| Ok(Some(Box::new(Stutter))));
    let options = LoadOptions {
        draft: "stutter".into(),
        verify: "token".into(),
        length: DraftLength::Fixed(2),
        ..LoadOptions::default()
    };
    let mut subject = Subject::load(&options, &registry)?;
    // A taste: some thousands of tokens are needed to see small deviations.
    let plan = Plan { samples: 8, max_tokens: 24, identity_prompts: 2, ..Plan::default() };
    let prompts = built_in(subject.has_template());
    let report = run(&mut subject, &prompts[..4], &plan, &mut ())?;
    Ok(writeln!(std::io::stdout(), "{}", report.lines().join("\n"))?)
}
