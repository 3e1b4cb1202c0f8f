//! Many requests in one batch, each with its own parameters; results come as they finish.

use std::io::Write;

use redline::{
    EngineOptions, Event, GenerateRequest, LoadOptions, Prompt, Sampling, Speculation, load,
};

fn main() -> anyhow::Result<()> {
    let options = LoadOptions {
        engine: EngineOptions { max_seqs: 4, ..EngineOptions::default() },
        ..LoadOptions::default()
    };
    let mut engine = load(&options)?;
    for index in 0..8_u64 {
        let prompt = Prompt::Text(format!("{index} is a number, and so are {}, ", index + 1));
        let temperature = if index % 2 == 0 { 0.0 } else { 0.8 };
        engine.submit(GenerateRequest {
            max_tokens: 16,
            sampling: Sampling { temperature, ..Sampling::default() },
            seed: Some(index),
            speculation: if index < 4 { Speculation::Engine } else { Speculation::AtMost(2) },
            ..GenerateRequest::new(prompt)
        })?;
    }
    let mut out = std::io::stdout();
    while engine.has_work() {
        for event in engine.step() {
            if let Event::Finished { id, output, .. } = event {
                writeln!(out, "{id}: {:?} ({:?})", output.text, output.finish_reason)?;
            }
        }
    }
    Ok(())
}
