//! The report as one page that needs nothing else: each plot with a sentence on how to read it.

use std::fmt::Write;

use super::battery::FAMILY_ERROR;
use super::plots::{counts, figure, law_plots, speed_section};
use super::report::Report;
use super::verdict::{Verdict, p_text, size};
use crate::svg::{self, Plot, ticks};

const STYLE: &str = include_str!("style.css");

impl Report {
    /// The report as one self-contained page.
    pub fn html(&self) -> String {
        let mut page = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
             content=\"width=device-width\"><title>redline audit: {}</title><style>{}{STYLE}</style></head><body>\n",
            escape(&self.model),
            svg::STYLE
        );
        page += &self.head();
        page += &self.tests_section();
        page += &self.law_section();
        page += &self.acceptance_section();
        page += &self.category_section();
        if let Some(speed) = &self.speed {
            page += &speed_section(speed);
        }
        page + "</body></html>\n"
    }

    fn head(&self) -> String {
        let class = match self.verdict {
            Verdict::Pass => "pass",
            Verdict::Fail => "fail",
            Verdict::Interrupted | Verdict::Inconclusive => "wait",
        };
        let early = match self.stopped_early {
            true => " The audit ended early: what it had found by then holds at any moment.",
            false => "",
        };
        format!(
            "<h1>redline audit</h1>\n<p class=\"small\">Target {}, drafts by {}, {} a round, rule <code>{}</code>, \
             temperature {}, seed {}. {} prompts, {} of {} samples, {} tokens.{early}</p>\n\
             <div class=\"verdict {class}\">{}</div>\n",
            escape(&self.model),
            escape(&self.drafter),
            escape(&self.draft_tokens),
            escape(&self.rule),
            self.temperature,
            self.seed,
            self.prompts,
            self.samples,
            self.samples_planned,
            self.tokens,
            escape(&self.headline())
        )
    }

    fn tests_section(&self) -> String {
        let mut text = String::from(
            "<h2>What was tested, and what was found</h2>\n<table><tr><th>test</th><th class=\"n\">looked at</th>\
             <th class=\"n\">p-value</th><th>found</th><th>would have been seen (99 %)</th></tr>\n",
        );
        let same = self.identity.identical == self.identity.prompts;
        text += &row(
            "texts with and without speculation",
            &format!("{} prompts", self.identity.prompts),
            "",
            same || !self.exact_rows,
            "a single other token",
        );
        for test in &self.tests {
            let seen = match test.detectable {
                Some(least) => format!("{} {}", size(least), test.deviation),
                None => "too little to say".to_owned(),
            };
            text += &row(test.name, &test.n.to_string(), &p_text(test.p_value), test.pass, &seen);
        }
        let tokens = format!("{} tokens", self.tokens);
        let possible = self.impossible == 0 || !self.exact_rows;
        text += &row("tokens the law can't give", &tokens, "", possible, "a single one");
        let _ = write!(
            text,
            "</table>\n<p class=\"small\">{}. A p-value is the chance of seeing as much in an engine without fault; all \
             tests together accuse such an engine with a probability below {FAMILY_ERROR} (Holm).</p>\n",
            escape(&self.identity_line())
        );
        text
    }

    fn law_section(&self) -> String {
        let mut text = String::from(
            "<h2>Is every token drawn from the target's law?</h2>\n<p>Each sampled token was looked up in the law that \
             an independent pass of the target gives at its place, and turned into its rank there: 0 is the first, 1 \
             the last, each token taking as much room as it has probability. If the output is right, ranks are spread \
             evenly, whatever the texts are about. The shaded band holds what chance does; a mark that leaves it is \
             rare.</p>\n<h3>Likely tokens first</h3>\n<div class=\"plots\">\n",
        );
        text += &law_plots(
            &self.by_likelihood,
            "Bars too high on the left: likely tokens come too often, as if at a lower temperature; on the right: unlikely \
             ones do.",
        );
        text += "</div>\n";
        if let Some(view) = &self.by_draft {
            text += "<h3>What the draft overrates first</h3>\n<div class=\"plots\">\n";
            text += &law_plots(
                view,
                "Bars too high on the left: the draft's favourites get through too often, as with a wrong acceptance \
                 test; too low: they are held back.",
            );
            text += "</div>\n";
        }
        text
    }

    fn acceptance_section(&self) -> String {
        let acceptance = &self.acceptance;
        if acceptance.rounds == 0 {
            return "<h2>How many drafts are kept?</h2>\n<p>No round had drafts.</p>\n".to_owned();
        }
        let theory = match self.rule.as_str() {
            "block" | "traversal" => "what token-by-token rejection would accept",
            _ => "by the two laws",
        };
        let mut text = format!(
            "<h2>How many drafts are kept?</h2>\n<p>{:.2} tokens a round over {} rounds with drafts, the target's own \
             token included; {} more rounds had none.</p>\n<div class=\"plots\">\n",
            acceptance.mean_length, acceptance.rounds, acceptance.rounds_without
        );
        text += &figure(
            &self.by_position(theory),
            "Share of the drafts at each position that were kept, of those that were reached. Dots (with 95 % bars) \
             should lie on the line; below it, the drafter does not say what its model would say.",
        );
        text += &figure(
            &self.lengths(theory),
            "Tokens a round would give if cut after so many drafts: 1 + the chances that the first, the first two, … \
             are all kept (1 + ΣΠα). It flattens where longer drafts stop paying.",
        );
        text += &figure(
            &self.kept_histogram(),
            "Rounds by how many drafts were kept. Much at 0: the drafter guesses badly; much at the end: it could \
             draft more.",
        );
        text + "</div>\n"
    }

    fn by_position(&self, theory: &str) -> String {
        let positions = &self.acceptance.by_position;
        let mut plot = Plot::new((0.5, positions.len().max(2) as f64 + 0.5), (0.0, 1.3));
        let at = |i: usize| i as f64 + 1.0;
        let line: Vec<_> =
            (0..).zip(positions).filter_map(|(i, p)| Some((at(i), p.expected?))).collect();
        if !line.is_empty() {
            plot.line("theory", &line);
            plot.legend("theory", theory);
        }
        for (i, position) in positions.iter().enumerate() {
            let spread =
                (position.rate * (1.0 - position.rate) / position.tried.max(1) as f64).sqrt();
            plot.dot((at(i), position.rate), 1.96 * spread);
        }
        plot.legend("dot", "measured");
        let share: Vec<_> = ticks((0.0, 1.0), true);
        plot.finish(
            (&counts(1, positions.len().max(2)), "position in the round"),
            (&share, "accepted"),
            "acceptance by position",
        )
    }

    fn lengths(&self, theory: &str) -> String {
        let positions = &self.acceptance.by_position;
        let curve = |rates: Vec<f64>| -> Vec<(f64, f64)> {
            let mut points = vec![(0.0, 1.0)];
            let (mut product, mut sum) = (1.0, 1.0);
            for (drafts, rate) in (1_u32..).zip(rates) {
                product *= rate;
                sum += product;
                points.push((f64::from(drafts), sum));
            }
            points
        };
        let measured = curve(positions.iter().map(|position| position.rate).collect());
        let expected: Option<Vec<f64>> =
            positions.iter().map(|position| position.expected).collect();
        let most = positions.len().max(1) as f64 + 1.0;
        let mut plot = Plot::new((0.0, most - 1.0), (0.0, most * 1.15));
        if let Some(rates) = expected {
            plot.line("theory", &curve(rates));
            plot.legend("theory", theory);
        }
        measured.iter().for_each(|&point| plot.dot(point, 0.0));
        plot.legend("dot", "measured");
        plot.finish(
            (&counts(0, positions.len().max(1)), "drafts a round"),
            (&ticks((0.0, most), false), "tokens a round"),
            "tokens a round",
        )
    }

    fn kept_histogram(&self) -> String {
        let histogram = &self.acceptance.histogram;
        let rounds = self.acceptance.rounds.max(1) as f64;
        let top = histogram.iter().max().copied().unwrap_or(0) as f64 / rounds;
        let bars = histogram.len().max(self.acceptance.by_position.len() + 1);
        let mut plot = Plot::new((-0.5, bars as f64 - 0.5), (0.0, top * 1.1));
        for (kept, &count) in histogram.iter().enumerate() {
            let at = kept as f64;
            plot.bar((at - 0.4, at + 0.4), count as f64 / rounds);
        }
        plot.finish(
            (&counts(0, bars - 1), "drafts kept"),
            (&ticks((0.0, top * 1.1), true), "rounds"),
            "drafts kept per round",
        )
    }

    fn category_section(&self) -> String {
        let mut text = String::from(
            "<h2>By kind of prompt</h2>\n<table><tr><th>kind</th><th class=\"n\">prompts</th><th class=\"n\">tokens</th>\
             <th class=\"n\">tokens a round</th><th class=\"n\">first draft kept</th><th class=\"n\">law, p</th></tr>\n",
        );
        for category in &self.categories {
            let length =
                category.mean_length.map_or("–".to_owned(), |length| format!("{length:.2}"));
            let first = category.first_accepted.map_or("–".to_owned(), size);
            let _ = writeln!(
                text,
                "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{length}</td>\
                 <td class=\"n\">{first}</td><td class=\"n\">{}</td></tr>",
                escape(&category.name),
                category.prompts,
                category.tokens,
                p_text(category.p_value)
            );
        }
        text + "</table>\n<p class=\"small\">The p-values here are for description: several kinds make one below 0.05 \
                likely, and the verdict does not use them.</p>\n"
    }
}

fn row(name: &str, n: &str, p: &str, pass: bool, seen: &str) -> String {
    let (class, found) = if pass { ("pass", "nothing") } else { ("fail", "a deviation") };
    format!(
        "<tr><td>{name}</td><td class=\"n\">{n}</td><td class=\"n\">{p}</td><td class=\"{class}\">{found}</td>\
         <td>{seen}</td></tr>\n"
    )
}

/// Names come from files and command lines.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_not_write_the_page() {
        assert_eq!(escape("<b a=\"&\">"), "&lt;b a=&quot;&amp;&quot;&gt;");
    }
}
