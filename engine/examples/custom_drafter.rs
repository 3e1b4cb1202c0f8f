//! A drafter of one's own, found by `-d` like the built-in ones. Whatever it proposes, the output stays the same.

use std::io::Write;

use redline::spec::{DraftError, DraftJob, Drafter, Proposal};
use redline::{
    DraftLength, Event, GenerateRequest, LoadOptions, Prompt, Registry, TokenId, load_with,
};

/// Bets that the text goes on as it did one period ago.
struct Echo {
    period: usize,
}

impl Drafter for Echo {
    fn name(&self) -> &str {
        "echo"
    }

    fn offer(&mut self, _seq: u64, tokens: &[TokenId]) -> usize {
        if tokens.len() > self.period { self.period } else { 0 }
    }

    fn propose(&mut self, jobs: &[DraftJob<'_>], out: &mut [Result<Proposal, DraftError>]) {
        for (job, slot) in jobs.iter().zip(out) {
            let Ok(proposal) = slot else { continue };
            let mut builder = proposal.build(job.budget);
            let from = job.tokens.len() - self.period;
            let mut parent = None;
            for &token in job.tokens[from..].iter().take(job.budget) {
                match builder.point(parent, token) {
                    Ok(node) => parent = Some(node),
                    Err(_) => break,
                }
            }
        }
    }

    fn forget(&mut self, _seq: u64) {}
}

fn main() -> anyhow::Result<()> {
    let mut registry = Registry::default();
    registry.add("echo", |_| Ok(Some(Box::new(Echo { period: 4 }))));
    let options = LoadOptions {
        draft: "echo".into(),
        length: DraftLength::Fixed(4),
        ..LoadOptions::default()
    };
    let mut engine = load_with(&options, &registry)?;
    let prompt = Prompt::Text("red green blue, red green blue, red green blue,".into());
    engine.submit(GenerateRequest { max_tokens: 32, ..GenerateRequest::new(prompt) })?;
    let mut out = Vec::new();
    engine.run(|event| {
        if let Event::Finished { output, .. } = event {
            out.push(format!("{}\n{:?}", output.text, output.speculation));
        }
    });
    Ok(writeln!(std::io::stdout(), "{}", out.join("\n"))?)
}
