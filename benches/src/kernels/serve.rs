//! Measures on request, a line of JSON in, a line out, so that another program's measurements can take turns with ours.

use std::io::{self, BufRead, Write};

use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::machine::Machine;
use crate::passes::Passes;

/// What is asked for.
#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Question {
    /// A reading of the machine.
    Probe { probe: bool },
    /// Some passes over `m` tokens behind `context`.
    Passes { context: u32, m: u32, passes: u16 },
}

/// Answers until the input ends.
pub(crate) fn serve(
    passes: &mut Passes,
    machine: &mut Machine,
    longest: u32,
) -> anyhow::Result<()> {
    answer(&json!({ "machine": machine.info() }))?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let question =
            serde_json::from_str(&line).with_context(|| format!("not a question: {line}"))?;
        answer(&match question {
            Question::Probe { probe } => {
                ensure!(probe, "not a question: {line}");
                serde_json::to_value(machine.now())?
            }
            Question::Passes { context, m, passes: count } => {
                let fits = context.checked_add(m).is_some_and(|end| end <= longest);
                ensure!(fits && m > 0, "{m} tokens behind {context} do not fit in {longest}");
                passes.fill(context)?;
                let times = (0..count).map(|_| passes.pass_ms(context, m));
                let times = times.collect::<anyhow::Result<Vec<_>>>()?;
                let work = passes.work(context, m);
                json!({ "m": m, "context": context, "ms": times, "bytes": work.bytes, "macs": work.macs })
            }
        })?;
    }
    Ok(())
}

fn answer(value: &Value) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{value}")?;
    Ok(out.flush()?)
}
