//! `redline pull` and `redline models`.

use std::io::Write;
use std::process::ExitCode;

use indicatif::HumanBytes;
use serde_json::json;

use super::Failure;
use super::fetch::{failure, fetch};
use super::interrupt::Interrupt;
use crate::hub::Hub;

/// Flags of `redline pull`.
#[derive(clap::Args)]
pub(super) struct PullArgs {
    /// An alias of `redline models`, or hf:OWNER/REPO/FILE.gguf
    model: String,
}

/// Flags of `redline models`.
#[derive(clap::Args)]
pub(super) struct ListArgs {
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

pub(super) fn pull(args: &PullArgs) -> Result<ExitCode, Failure> {
    let path = fetch(&args.model, &Interrupt::listen())?;
    writeln!(std::io::stdout(), "{}", path.display())?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn list(args: &ListArgs) -> Result<ExitCode, Failure> {
    let hub = Hub::from_env().map_err(Failure::usage)?;
    let mut out = std::io::stdout().lock();
    if !args.json {
        writeln!(out, "cache: {}", hub.home().display())?;
    }
    for entry in hub.list().map_err(|error| failure(error, &Interrupt::default()))? {
        let cached = entry.path.is_some();
        if args.json {
            let line = json!({
                "name": entry.name, "cached": cached, "bytes": entry.bytes, "path": entry.path,
                "about": entry.about,
            });
            writeln!(out, "{line}")?;
        } else {
            let state = if cached { "cached" } else { "not cached" };
            let size = HumanBytes(entry.bytes).to_string();
            writeln!(out, "{:<22}{size:>12}  {state:<11} {}", entry.name, entry.about)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
