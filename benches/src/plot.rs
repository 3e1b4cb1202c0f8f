//! Plots: times of a pass over its rows, and speed-up over numbers of drafts.

use std::io::{self, Read, Write};

use redline::svg::{Plot, standalone, ticks};
use serde::Deserialize;

/// A line with a name.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Series {
    pub(crate) name: String,
    /// Rows, and milliseconds.
    pub(crate) points: Vec<(f64, f64)>,
}

/// What `redline-bench plot` reads.
#[derive(Deserialize)]
struct Picture {
    title: String,
    series: Vec<Series>,
}

/// `redline-bench plot`.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut text = String::new();
    io::stdin().lock().read_to_string(&mut text)?;
    let picture: Picture = serde_json::from_str(&text)?;
    let svg = times_plot(&picture.title, &picture.series);
    Ok(writeln!(io::stdout().lock(), "{svg}")?)
}

/// Classes of lines, by turns; rooflines are dashed.
const CLASSES: [&str; 4] = ["measured", "theory", "other", "third"];

/// Times over numbers of rows, both by powers.
pub(crate) fn times_plot(title: &str, series: &[Series]) -> String {
    let points =
        || series.iter().flat_map(|series| &series.points).filter(|p| p.0 > 0.0 && p.1 > 0.0);
    let range = |of: fn(&(f64, f64)) -> f64| {
        points().map(of).fold((f64::INFINITY, 0.0_f64), |(low, high), v| (low.min(v), high.max(v)))
    };
    let (x, y) = (range(|p| p.0), range(|p| p.1));
    if points().next().is_none() {
        return standalone(&Plot::new((0.0, 1.0), (0.0, 1.0)).finish((&[], ""), (&[], ""), title));
    }
    let x = (x.0.log2(), x.1.log2().max(x.0.log2() + 1.0));
    // Room above for the legend.
    let y = (y.0.log10() - 0.1, y.1.log10() + 0.1 + 0.08 * series.len() as f64);
    let mut plot = Plot::new(x, y);
    let mut classes = CLASSES.into_iter().cycle();
    for series in series {
        let class = if series.name.starts_with("roofline") { Some("even") } else { classes.next() };
        let class = class.unwrap_or(CLASSES[0]);
        let points = series.points.iter().filter(|p| p.0 > 0.0 && p.1 > 0.0);
        let line: Vec<_> = points.map(|p| (p.0.log2(), p.1.log10())).collect();
        plot.line(class, &line);
        plot.legend(class, escape(&series.name));
    }
    let powers = (x.0.ceil() as i32..=x.1.floor() as i32).map(|power| {
        let rows = 2_f64.powi(power);
        (f64::from(power), format!("{rows}"))
    });
    let times = (y.0.floor() as i32..=y.1.ceil() as i32)
        .flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power)))
        .filter(|time| (y.0..=y.1).contains(&time.log10()))
        .map(|time| (time.log10(), format!("{time}")));
    let (powers, times): (Vec<_>, Vec<_>) = (powers.collect(), times.collect());
    let title = escape(title);
    standalone(&plot.finish((&powers, "new tokens of a pass, M"), (&times, "milliseconds"), &title))
}

/// Speed-up over settings: a line for the middle of all categories, one for what theory predicts, a dot for each
/// category.
pub(crate) fn gains_plot(title: &str, settings: &[String], gains: &Gains) -> String {
    let last = settings.len().saturating_sub(1).max(1) as f64;
    let values = gains.measured.iter().chain(&gains.predicted).chain(gains.each.iter().flatten());
    let top = values.copied().filter(|value| value.is_finite()).fold(1.0, f64::max);
    let mut plot = Plot::new((-0.3, last + 0.3), (0.0, top * 1.35));
    plot.line("even", &[(-0.3, 1.0), (last + 0.3, 1.0)]);
    let line = |values: &[f64]| -> Vec<(f64, f64)> {
        (0_u32..).zip(values).map(|(at, &value)| (f64::from(at), value)).collect()
    };
    plot.line("theory", &line(&gains.predicted));
    plot.line("measured", &line(&gains.measured));
    for (at, values) in (0_u32..).zip(&gains.each) {
        for &value in values {
            plot.dot((f64::from(at), value), 0.0);
        }
    }
    plot.legend("measured", "measured, geometric mean");
    plot.legend("theory", "predicted from T(M) and acceptance");
    plot.legend("dot", "a category");
    let names: Vec<_> =
        (0_u32..).zip(settings).map(|(at, name)| (f64::from(at), escape(name))).collect();
    let title = escape(title);
    standalone(&plot.finish(
        (&names, "draft tokens a round"),
        (&ticks((0.0, top * 1.2), false), "times as fast as without"),
        &title,
    ))
}

/// What [`gains_plot`] shows, by setting.
pub(crate) struct Gains {
    pub(crate) measured: Vec<f64>,
    pub(crate) predicted: Vec<f64>,
    pub(crate) each: Vec<Vec<f64>>,
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_ticks_and_every_line_has_a_name() {
        let series = |name: &str, points: &[(f64, f64)]| Series {
            name: name.to_owned(),
            points: points.to_vec(),
        };
        let svg = times_plot(
            "t",
            &[
                series("redline", &[(1.0, 20.0), (8.0, 45.0)]),
                series("roofline", &[(1.0, 18.0), (8.0, 36.0)]),
            ],
        );
        for text in [">1<", ">2<", ">4<", ">8<", ">20<", ">50<", "redline", "class=\"even\""] {
            assert!(svg.contains(text), "{text} is not in {svg}");
        }
        // A time of nothing has no logarithm.
        assert!(times_plot("t", &[series("none", &[(0.0, 1.0)])]).ends_with("</svg>"));
    }

    #[test]
    fn gains_have_a_tick_for_each_setting() {
        let names = ["0".to_owned(), "auto".to_owned()];
        let gains = Gains {
            measured: vec![1.0, 1.5],
            predicted: vec![1.0, 1.6],
            each: vec![vec![1.0], vec![1.4, 1.7]],
        };
        let svg = gains_plot("a & b", &names, &gains);
        assert!(svg.contains(">auto<") && svg.contains("a &amp; b"));
        assert_eq!(svg.matches("class=\"dot\"").count(), 4);
    }
}
