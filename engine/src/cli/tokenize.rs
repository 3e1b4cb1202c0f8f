//! `redline tokenize`: the ids and pieces of a text, special tokens recognised.

use std::io::{BufWriter, Write};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use serde::Deserialize;
use serde_json::json;

use super::Failure;
use super::fetch::fetch;
use super::interrupt::{INTERRUPTED, Interrupt};
use super::options::InputFile;
use super::prompts::read_lines;
use crate::loader::load_tokenizer;
use crate::text::{Encode, Tokenizer};

/// Flags of `redline tokenize`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The text
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    text: Option<String>,
    /// A file with one {"text"} object a line
    #[arg(long, value_name = "FILE.jsonl")]
    file: Option<InputFile>,
    /// Model whose tokenizer to use
    #[arg(short, long, default_value = "smollm2-135m")]
    model: String,
    /// One {"text","ids","pieces"} object a line
    #[arg(long)]
    json: bool,
}

#[derive(Deserialize)]
struct Line {
    text: String,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let texts = match (&args.text, &args.file) {
        (Some(text), _) => vec![text.clone()],
        (None, Some(path)) => read_texts(path).map_err(Failure::Usage)?,
        (None, None) => return Err(Failure::Usage(anyhow!("give a text or --file"))),
    };
    let interrupt = Interrupt::listen();
    fetch(&args.model, &interrupt)?;
    let tokenizer = load_tokenizer(&args.model).map_err(Failure::load)?;
    let mut out = BufWriter::new(std::io::stdout());
    for text in texts {
        if interrupt.requested() {
            return Ok(ExitCode::from(INTERRUPTED));
        }
        print(&mut out, &tokenizer, &text, args.json)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn read_texts(path: &InputFile) -> anyhow::Result<Vec<String>> {
    read_lines(path)?
        .into_iter()
        .map(|(number, line)| {
            serde_json::from_str::<Line>(&line)
                .map(|line| line.text)
                .with_context(|| format!("{}, line {number}", path.display()))
        })
        .collect()
}

fn print(
    out: &mut impl Write,
    tokenizer: &Tokenizer,
    text: &str,
    json: bool,
) -> Result<(), Failure> {
    let ids = tokenizer.encode(text, Encode::default()).map_err(Failure::usage)?;
    let pieces: Vec<String> = ids.iter().map(|&id| tokenizer.piece(id).into_owned()).collect();
    if json {
        writeln!(out, "{}", json!({"text": text, "ids": ids, "pieces": pieces}))?;
    } else {
        for (id, piece) in ids.iter().zip(&pieces) {
            writeln!(out, "{id}\t{piece:?}")?;
        }
    }
    Ok(())
}
