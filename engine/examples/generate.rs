//! The shortest way to an answer: load, submit, run.
//!
//! `cargo run --release --example generate -- "Why is the sky blue?"`

use std::io::Write;

use redline::text::Message;
use redline::{Event, GenerateRequest, LoadOptions, Prompt, load};

fn main() -> anyhow::Result<()> {
    let question = std::env::args().nth(1).unwrap_or_else(|| "Why is the sky blue?".to_owned());
    let mut engine = load(&LoadOptions::default())?;
    let prompt = Prompt::Messages(vec![Message::user(question)]);
    engine.submit(GenerateRequest { max_tokens: 48, ..GenerateRequest::new(prompt) })?;

    let mut out = std::io::stdout();
    while engine.has_work() {
        for event in engine.step() {
            match event {
                Event::Tokens { tokens, .. } => {
                    for token in tokens {
                        write!(out, "{}", token.text)?;
                    }
                    out.flush()?;
                }
                Event::Finished { output, .. } => {
                    writeln!(out, "\n{:?}", output.speculation)?;
                }
            }
        }
    }
    Ok(())
}
