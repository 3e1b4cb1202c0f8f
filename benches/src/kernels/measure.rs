//! Takes the samples of T(M).

use std::collections::BTreeMap;
use std::time::Duration;

use redline::cli::Interrupt;
use redline::spans::{Busy, SpanTimes};
use serde::Serialize;

use crate::console::note;
use crate::machine::Machine;
use crate::passes::Passes;
use crate::roofline::{Ceiling, Work};
use crate::stats::median;

/// What is measured.
pub(crate) struct Plan<'a> {
    /// Ascending, from 1.
    pub(crate) rows: &'a [u32],
    /// Ascending.
    pub(crate) contexts: &'a [u32],
    pub(crate) samples: u16,
}

/// Passes of a sample: at most this many, and no further one after this many milliseconds.
const PASSES: usize = 3;
const ENOUGH_MS: f64 = 300.0;
/// Passes whose parts are looked at.
const DETAILED: u32 = 3;

/// One size of pass.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    /// New tokens.
    pub(crate) m: u32,
    /// Tokens before them.
    pub(crate) context: u32,
    /// The median of the samples.
    pub(crate) ms: f64,
    /// To T(1): the median over turns.
    pub(crate) ratio: f64,
    /// Bytes that it has to read, per second.
    pub(crate) gb_s: f64,
    /// Multiplications that it has to do, per second.
    pub(crate) gmacs: f64,
    /// The least time, at the moment of each sample, over the sample: the median.
    pub(crate) roofline_share: f64,
    pub(crate) roofline_ms: f64,
    /// What the machine gave beside it.
    pub(crate) ceiling: Ceiling,
    /// `None` if the user ended it before.
    pub(crate) parts: Option<Parts>,
}

/// Milliseconds of a pass by part; `sampling` comes on top of it.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Parts {
    pub(crate) linears: f64,
    pub(crate) attention: f64,
    pub(crate) head: f64,
    pub(crate) rest: f64,
    pub(crate) sampling: f64,
}

/// A pass or a few, and the machine around them.
#[derive(Debug, Clone, Copy)]
struct Sample {
    ms: f64,
    ceiling: Ceiling,
}

/// Measures; what there is when the user ends it.
pub(crate) fn measure(
    plan: &Plan<'_>,
    passes: &mut Passes,
    machine: &mut Machine,
    spans: &SpanTimes,
    interrupt: &Interrupt,
) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for &context in plan.contexts {
        note(&format!("context {context}: computing it"));
        passes.fill(context)?;
        let mut samples: BTreeMap<u32, Vec<Sample>> = BTreeMap::new();
        for turn in 0..plan.samples {
            if interrupt.requested() {
                break;
            }
            note(&format!("context {context}: turn {} of {}", turn + 1, plan.samples));
            let mut order = plan.rows.to_vec();
            if turn % 2 == 1 {
                order.reverse();
            }
            for m in order {
                if interrupt.requested() {
                    break;
                }
                samples.entry(m).or_default().push(sample(passes, machine, context, m)?);
            }
        }
        let Some(ones) = samples.get(&1).cloned() else { break };
        for (&m, samples) in &samples {
            let parts = match interrupt.requested() {
                true => None,
                false => Some(parts(passes, spans, context, m)?),
            };
            rows.push(row((m, context), passes.work(context, m), samples, &ones, parts));
        }
        if interrupt.requested() {
            break;
        }
    }
    Ok(rows)
}

/// The median of some passes, one after the other.
fn sample(
    passes: &mut Passes,
    machine: &mut Machine,
    context: u32,
    m: u32,
) -> anyhow::Result<Sample> {
    let before = machine.now();
    let mut times = vec![passes.pass_ms(context, m)?];
    // The first one finds the caches full of what the reading of the machine left there.
    if times[0] < ENOUGH_MS {
        times.clear();
        while times.len() < PASSES && times.iter().sum::<f64>() < ENOUGH_MS {
            times.push(passes.pass_ms(context, m)?);
        }
    }
    Ok(Sample { ms: median(times), ceiling: before.or(machine.now()) })
}

/// What a pass is made of, from its spans; and drawing from its rows.
fn parts(passes: &mut Passes, spans: &SpanTimes, context: u32, m: u32) -> anyhow::Result<Parts> {
    passes.pass_ms(context, m)?;
    spans.detailed(true);
    spans.reset();
    let mut all = 0.0;
    for _ in 0..DETAILED {
        all += passes.pass_ms(context, m)?;
    }
    spans.detailed(false);
    let sums = spans.sums();
    let sampling = median([passes.sampling_ms()?, passes.sampling_ms()?, passes.sampling_ms()?]);
    Ok(Parts::of(&sums, all, sampling))
}

impl Parts {
    fn of(sums: &BTreeMap<String, Busy>, all_ms: f64, sampling: f64) -> Self {
        let ms = |name: &str| {
            let time = sums.get(name).map_or(Duration::ZERO, |busy| busy.time);
            time.as_secs_f64() * 1e3 / f64::from(DETAILED)
        };
        let (linears, attention, head) = (ms("linear"), ms("attention"), ms("head"));
        let rest = all_ms / f64::from(DETAILED) - linears - attention - head;
        Self { linears, attention, head, rest, sampling }
    }
}

fn row(
    (m, context): (u32, u32),
    work: Work,
    samples: &[Sample],
    ones: &[Sample],
    parts: Option<Parts>,
) -> Row {
    let of = |f: &dyn Fn(&Sample) -> f64| median(samples.iter().map(f));
    let ms = of(&|sample| sample.ms);
    Row {
        m,
        context,
        ms,
        ratio: median(samples.iter().zip(ones).map(|(sample, one)| sample.ms / one.ms)),
        gb_s: work.bytes / ms / 1e6,
        gmacs: work.macs / ms / 1e6,
        roofline_share: of(&|sample| work.roofline_ms(sample.ceiling) / sample.ms),
        roofline_ms: of(&|sample| work.roofline_ms(sample.ceiling)),
        ceiling: Ceiling {
            read_gb_s: of(&|sample| sample.ceiling.read_gb_s),
            int8_gmacs: of(&|sample| sample.ceiling.int8_gmacs),
        },
        parts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(ms: f64, read_gb_s: f64) -> Sample {
        Sample { ms, ceiling: Ceiling { read_gb_s, int8_gmacs: 400.0 } }
    }

    /// Bandwidth halves after the first turn, and times double: neither ratio nor share may notice.
    #[test]
    fn every_sample_is_judged_by_its_own_moment() {
        let work = Work { bytes: 1e9, macs: 1e9 };
        let ones = [sample(25.0, 50.0), sample(50.0, 25.0), sample(50.0, 25.0)];
        let two = [sample(30.0, 50.0), sample(60.0, 25.0), sample(60.0, 25.0)];
        let row = row((2, 128), work, &two, &ones, None);
        assert_eq!((row.m, row.context, row.ms), (2, 128, 60.0));
        assert!((row.ratio - 1.2).abs() < 1e-12);
        assert!((row.roofline_share - 2.0 / 3.0).abs() < 1e-12);
        assert!((row.gb_s - 1e9 / 60.0 / 1e6).abs() < 1e-9);
    }

    #[test]
    fn what_no_span_covers_is_the_rest() {
        let busy = |ms| Busy { time: Duration::from_millis(ms), count: 1 };
        let sums = [("linear", 30), ("attention", 6), ("head", 9)];
        let sums = sums.map(|(name, ms)| (name.to_owned(), busy(ms))).into();
        let parts = Parts::of(&sums, 48.0, 0.5);
        assert!((parts.linears - 10.0).abs() < 1e-9 && (parts.rest - 1.0).abs() < 1e-9);
        assert!((parts.attention - 2.0).abs() < 1e-9 && (parts.head - 3.0).abs() < 1e-9);
    }
}
