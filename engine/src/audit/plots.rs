//! The plots of the report that need most drawing: ranks, and speed.

use super::battery::FAMILY_ERROR;
use super::fit;
use super::report::LawView;
use super::speed::SpeedPoint;
use crate::svg::{Plot, ticks};

/// Histogram and distribution function of values that should be even.
pub(super) fn law_plots(view: &LawView, how: &str) -> String {
    let n = view.n.max(1) as f64;
    let bins = view.histogram.len().max(1) as f64;
    let alpha = FAMILY_ERROR;
    // Of a bin: the normal law at alpha over all bins. Of the function: Kolmogorov and Smirnov's.
    let spread = fit::normal_two_sided_quantile(alpha / bins) * ((bins - 1.0) / n).sqrt();
    let heights: Vec<f64> = view.histogram.iter().map(|&count| count as f64 * bins / n).collect();
    let top = heights.iter().copied().fold(1.0 + spread, f64::max) * 1.3;
    let mut plot = Plot::new((0.0, 1.0), (0.0, top));
    let flat = |y: f64| [(0.0, y), (1.0, y)];
    plot.band(&flat((1.0 - spread).max(0.0)), &flat(1.0 + spread));
    for (bin, &height) in (0_u32..).zip(&heights) {
        let left = f64::from(bin) / bins;
        plot.bar((left + 0.1 / bins, left + 0.9 / bins), height);
    }
    plot.line("even", &flat(1.0));
    plot.legend("bar", "tokens, by rank");
    plot.legend("band", "what chance does (999 of 1000 times)");
    let unit = ticks((0.0, 1.0), false);
    let histogram = plot.finish(
        (&unit, "rank of the token in the law"),
        (&ticks((0.0, top), false), "share, over even"),
        "histogram of ranks",
    );
    let width = ((2.0 / alpha).ln() / 2.0).sqrt() / n.sqrt();
    let steps = view.distribution.len().saturating_sub(1).max(1) as f64;
    let points: Vec<(f64, f64)> =
        (0_u32..).zip(&view.distribution).map(|(i, &f)| (f64::from(i) / steps, f)).collect();
    let mut plot = Plot::new((0.0, 1.0), (0.0, 1.0));
    plot.band(&[(0.0, -width), (1.0, 1.0 - width)], &[(0.0, width), (1.0, 1.0 + width)]);
    plot.line("even", &[(0.0, 0.0), (1.0, 1.0)]);
    plot.line("measured", &points);
    plot.legend("measured", "tokens of this rank or before");
    let function =
        plot.finish((&unit, "rank"), (&unit, "share of tokens"), "distribution function of ranks");
    let gaps: Vec<(f64, f64)> = points.iter().map(|&(x, f)| (x, f - x)).collect();
    let most = gaps.iter().map(|gap| gap.1.abs()).fold(width, f64::max) * 1.35;
    let mut plot = Plot::new((0.0, 1.0), (-most, most));
    plot.band(&flat(-width), &flat(width));
    plot.line("even", &flat(0.0));
    plot.line("measured", &gaps);
    plot.legend("measured", "distance from even");
    let difference = plot.finish(
        (&unit, "rank"),
        (&ticks((-most, most), true), "too many − too few"),
        "distance of the distribution function from the diagonal",
    );
    [
        figure(&histogram, how),
        figure(&function, "The same as a running total: it should follow the diagonal."),
        figure(
            &difference,
            "The running total minus the diagonal, enlarged: the line should stay within the band. Where it rises \
             there are too many tokens.",
        ),
    ]
    .concat()
}

/// What speculation gains, by number of drafts.
pub(super) fn speed_section(speed: &[SpeedPoint]) -> String {
    let most = speed.last().map_or(1, |point| point.drafts).max(1);
    let top = speed
        .iter()
        .flat_map(|point| [Some(point.expected), point.measured])
        .flatten()
        .fold(1.0, f64::max);
    let mut plot = Plot::new((0.0, most as f64), (0.0, top * 1.25));
    plot.line("even", &[(0.0, 1.0), (most as f64, 1.0)]);
    let expected: Vec<_> =
        speed.iter().map(|point| (point.drafts as f64, point.expected)).collect();
    plot.line("theory", &expected);
    for point in speed {
        if let Some(measured) = point.measured {
            plot.dot((point.drafts as f64, measured), 0.0);
        }
    }
    plot.legend("theory", "expected from step times and acceptance");
    plot.legend("dot", "measured, one sequence at a time");
    let gain = plot.finish(
        (&counts(0, most), "drafts a round"),
        (&ticks((0.0, top * 1.2), false), "times as fast as without"),
        "speed-up by number of drafts",
    );
    let slowest = speed.iter().map(|point| point.pass_s * 1e3).fold(0.0, f64::max);
    let mut plot = Plot::new((1.0, most as f64 + 1.0), (0.0, slowest * 1.15));
    let times: Vec<_> =
        speed.iter().map(|point| (point.drafts as f64 + 1.0, point.pass_s * 1e3)).collect();
    plot.line("measured", &times);
    let passes = plot.finish(
        (&counts(1, most + 1), "rows of a pass, M"),
        (&ticks((0.0, slowest * 1.1), false), "milliseconds"),
        "time of a pass",
    );
    let mut text = String::from("<h2>What does it gain?</h2>\n<div class=\"plots\">\n");
    text += &figure(
        &gain,
        "Above the dashed line speculation is faster than decoding without. The highest point is the best number of \
         drafts here. Measured by the clock on a machine that may have been busy: no verdict depends on it.",
    );
    text += &figure(
        &passes,
        "What a pass of the target over M rows costs, T(M). As long as it is flat, drafts are verified for nothing.",
    );
    text + "</div>\n"
}

/// A plot and how to read it.
pub(super) fn figure(svg: &str, caption: &str) -> String {
    format!("<figure>{svg}<figcaption>{caption}</figcaption></figure>\n")
}

/// Whole numbers as ticks; every other one, or fewer, where there are many.
pub(super) fn counts(from: usize, to: usize) -> Vec<(f64, String)> {
    let step = ((to - from) / 8).max(1);
    (from..=to).step_by(step).map(|value| (value as f64, value.to_string())).collect()
}
