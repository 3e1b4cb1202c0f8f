//! The engine on its own thread, read from async code. Dropping a stream cancels its request.

use std::io::Write;

use redline::{AsyncEngine, Event, GenerateRequest, LoadOptions, Prompt, load};

fn main() -> anyhow::Result<()> {
    let engine = AsyncEngine::spawn(load(&LoadOptions::default())?)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let request = GenerateRequest::new(Prompt::Text("The three primary colours are".into()));
        let mut first = engine.submit(GenerateRequest { max_tokens: 32, ..request }).await?;
        let request = GenerateRequest::new(Prompt::Text("Once upon a time".into()));
        let second = engine.submit(GenerateRequest { max_tokens: 4096, ..request }).await?;
        drop(second); // nobody wants it any more: its blocks are free again within a step

        let mut out = std::io::stdout();
        while let Some(event) = first.next().await {
            match event {
                Event::Tokens { tokens, .. } => {
                    tokens.iter().try_for_each(|token| write!(out, "{}", token.text))?;
                    out.flush()?;
                }
                Event::Finished { output, .. } => writeln!(out, "\n{:?}", output.usage)?,
            }
        }
        engine.shut_down().await;
        Ok(())
    })
}
