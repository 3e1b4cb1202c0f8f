//! Plots as SVG text: axes, bars, lines, bands. No more than a report needs; colours come from a style sheet, which a
//! page has once ([`STYLE`]) and a file of its own brings along ([`standalone`]).

use std::fmt::Write;

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 240.0;
/// Colours and strokes of the classes that marks have. Lines: `theory`, `measured`, `even`, `other`, `third`.
pub const STYLE: &str = include_str!("svg.css");
/// Left, right, top, bottom.
const MARGIN: [f64; 4] = [52.0, 12.0, 12.0, 42.0];

/// A plot over a rectangle of data coordinates.
#[derive(Debug)]
pub struct Plot {
    x: (f64, f64),
    y: (f64, f64),
    body: String,
    legend: Vec<(&'static str, String)>,
}

impl Plot {
    /// An empty plot over these ranges.
    pub fn new(x: (f64, f64), y: (f64, f64)) -> Self {
        Self { x, y, body: String::new(), legend: Vec::new() }
    }

    fn px(&self, x: f64) -> f64 {
        let share = (x - self.x.0) / (self.x.1 - self.x.0);
        MARGIN[0] + share.clamp(-0.02, 1.02) * (WIDTH - MARGIN[0] - MARGIN[1])
    }

    fn py(&self, y: f64) -> f64 {
        let share = (y - self.y.0) / (self.y.1 - self.y.0);
        HEIGHT - MARGIN[3] - share.clamp(-0.02, 1.02) * (HEIGHT - MARGIN[2] - MARGIN[3])
    }

    fn add(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string can't fail.
        let _ = self.body.write_fmt(text);
    }

    /// Says what a class of marks is.
    pub fn legend(&mut self, class: &'static str, text: impl Into<String>) {
        self.legend.push((class, text.into()));
    }

    /// A bar from the bottom to `top`.
    pub fn bar(&mut self, (left, right): (f64, f64), top: f64) {
        let (x, y) = (self.px(left), self.py(top));
        let (width, height) = (self.px(right) - x, self.py(self.y.0.max(0.0)) - y);
        self.add(format_args!(
            r#"<rect class="bar" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{:.1}"/>"#,
            height.max(0.0)
        ));
    }

    fn points(&self, points: &[(f64, f64)]) -> String {
        let mut path = String::new();
        for &(x, y) in points {
            let _ = write!(path, "{:.1},{:.1} ", self.px(x), self.py(y));
        }
        path
    }

    /// A line through points.
    pub fn line(&mut self, class: &str, points: &[(f64, f64)]) {
        let path = self.points(points);
        self.add(format_args!(r#"<polyline class="{class}" points="{path}"/>"#));
    }

    /// The area between two lines.
    pub fn band(&mut self, below: &[(f64, f64)], above: &[(f64, f64)]) {
        let mut around = below.to_vec();
        around.extend(above.iter().rev());
        let path = self.points(&around);
        self.add(format_args!(r#"<polygon class="band" points="{path}"/>"#));
    }

    /// A dot, with how far off it may be.
    pub fn dot(&mut self, (x, y): (f64, f64), spread: f64) {
        let (cx, cy) = (self.px(x), self.py(y));
        let (low, high) = (self.py(y - spread), self.py(y + spread));
        if spread > 0.0 {
            self.add(format_args!(
                r#"<line class="spread" x1="{cx:.1}" x2="{cx:.1}" y1="{low:.1}" y2="{high:.1}"/>"#
            ));
        }
        self.add(format_args!(r#"<circle class="dot" cx="{cx:.1}" cy="{cy:.1}" r="3.5"/>"#));
    }

    /// The picture, with axes. Ticks are values with their texts.
    pub fn finish(
        mut self,
        (x_ticks, x_label): (&[(f64, String)], &str),
        (y_ticks, y_label): (&[(f64, String)], &str),
        title: &str,
    ) -> String {
        let (left, right) = (MARGIN[0], WIDTH - MARGIN[1]);
        let (top, bottom) = (MARGIN[2], HEIGHT - MARGIN[3]);
        let mut axes = String::new();
        for (value, text) in y_ticks {
            let y = self.py(*value);
            let _ = write!(
                axes,
                r#"<line class="grid" x1="{left}" x2="{right}" y1="{y:.1}" y2="{y:.1}"/><text x="{:.1}" y="{:.1}" text-anchor="end">{text}</text>"#,
                left - 6.0,
                y + 4.0
            );
        }
        for (value, text) in x_ticks {
            let x = self.px(*value);
            let _ = write!(
                axes,
                r#"<text x="{x:.1}" y="{:.1}" text-anchor="middle">{text}</text>"#,
                bottom + 15.0
            );
        }
        let _ = write!(
            axes,
            r#"<text x="{:.1}" y="{:.1}" text-anchor="middle" class="label">{x_label}</text><text transform="translate(12 {:.1}) rotate(-90)" text-anchor="middle" class="label">{y_label}</text>"#,
            f64::midpoint(left, right),
            HEIGHT - 8.0,
            f64::midpoint(top, bottom)
        );
        let legend = std::mem::take(&mut self.legend);
        for (row, (class, text)) in (0_u8..).zip(legend) {
            let y = top + 10.0 + 15.0 * f64::from(row);
            let x = left + 8.0;
            let mark = match class {
                "dot" => {
                    format!(r#"<circle class="dot" cx="{}" cy="{}" r="3.5"/>"#, x + 8.0, y - 4.0)
                }
                "bar" | "band" => {
                    format!(
                        r#"<rect class="{class}" x="{x}" y="{}" width="16" height="9"/>"#,
                        y - 9.0
                    )
                }
                _ => format!(
                    r#"<line class="{class}" x1="{x}" x2="{}" y1="{1}" y2="{1}"/>"#,
                    x + 16.0,
                    y - 4.0
                ),
            };
            self.add(format_args!(r#"{mark}<text x="{:.1}" y="{y:.1}">{text}</text>"#, x + 21.0));
        }
        format!(
            r#"<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">{axes}<line class="axis" x1="{left}" x2="{right}" y1="{bottom}" y2="{bottom}"/><line class="axis" x1="{left}" x2="{left}" y1="{top}" y2="{bottom}"/>{}</svg>"#,
            self.body
        )
    }
}

/// A plot as a file that needs no page around it.
pub fn standalone(svg: &str) -> String {
    let style = format!("><style>{STYLE}svg {{ background: var(--paper); }}</style>");
    let file = svg.replacen('>', &style, 1);
    file.replacen("<svg ", r#"<svg xmlns="http://www.w3.org/2000/svg" "#, 1)
}

/// Up to seven round values from `low` to `high`, with their texts.
pub fn ticks((low, high): (f64, f64), percent: bool) -> Vec<(f64, String)> {
    let raw = ((high - low) / 5.0).max(1e-9);
    let power = 10_f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|&step| step >= raw);
    let step = step.unwrap_or(10.0 * power);
    let scale = if percent { 100.0 } else { 1.0 };
    let digits = (-(step * scale).log10().floor()).max(0.0) as usize;
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    let tick = |index: i64| {
        let value = index as f64 * step;
        let text = format!("{:.digits$}{}", value * scale, if percent { " %" } else { "" });
        (value, text)
    };
    (first..=last).map(tick).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        let texts = |range, percent| -> Vec<String> {
            ticks(range, percent).into_iter().map(|tick| tick.1).collect()
        };
        assert_eq!(texts((0.0, 1.0), false), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(texts((0.0, 0.12), true), ["0 %", "5 %", "10 %"]);
        assert_eq!(texts((-0.01, 0.01), true), ["-1.0 %", "-0.5 %", "0.0 %", "0.5 %", "1.0 %"]);
        assert_eq!(texts((0.0, 8.0), false), ["0", "2", "4", "6", "8"]);
    }

    #[test]
    fn what_lies_outside_stays_near_the_frame() {
        let mut plot = Plot::new((0.0, 1.0), (0.0, 1.0));
        plot.dot((0.5, 1e9), 0.0);
        plot.legend("dot", "a dot");
        let svg = plot.finish((&[], "x"), (&[], "y"), "title");
        assert!(svg.contains(r#"cy="8.3""#), "{svg}");
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>") && svg.contains("a dot"));
        let file = standalone(&svg);
        assert!(
            file.starts_with("<svg xmlns=") && file.contains("\"title\"><style>:root"),
            "{file}"
        );
    }
}
