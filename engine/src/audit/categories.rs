//! The same figures by kind of prompt.

use serde::Serialize;

use super::fit;
use super::identity::Known;
use super::judge::Judged;

/// Figures of the prompts of one category.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Category {
    /// Its name.
    pub name: String,
    /// Prompts of it.
    pub prompts: usize,
    /// Tokens sampled.
    pub tokens: u64,
    /// Tokens per round, over rounds that had drafts; null if none had.
    pub mean_length: Option<f64>,
    /// Share of the first drafts of a round that were accepted.
    pub first_accepted: Option<f64>,
    /// p-value of the law within the category (Kolmogorov and Smirnov), for description only: it is not one of the
    /// audit's tests.
    pub p_value: f64,
}

/// Sums by category.
#[derive(Debug, Default)]
pub(super) struct Categories(Vec<Sums>);

#[derive(Debug, Default)]
struct Sums {
    name: String,
    prompts: usize,
    values: Vec<f64>,
    rounds: u64,
    kept: u64,
    first: u64,
}

impl Categories {
    /// The categories of `known`, in the order in which they come.
    pub(super) fn new(known: &[Known]) -> Self {
        let mut all = Self::default();
        for prompt in known {
            all.sums(&prompt.category).prompts += 1;
        }
        all
    }

    fn sums(&mut self, name: &str) -> &mut Sums {
        let at = self.0.iter().position(|sums| sums.name == name).unwrap_or_else(|| {
            self.0.push(Sums { name: name.to_owned(), ..Sums::default() });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// A text of a category; `kept` has the accepted drafts of each round that had drafts.
    pub(super) fn see(&mut self, name: &str, judged: &Judged, kept: &[usize]) {
        let sums = self.sums(name);
        sums.values.extend(judged.tokens.iter().map(|token| token.by_likelihood));
        sums.rounds += kept.len() as u64;
        sums.kept += kept.iter().sum::<usize>() as u64;
        sums.first += kept.iter().filter(|&&kept| kept > 0).count() as u64;
    }

    /// Prompts of all of them.
    pub(super) fn prompts(&self) -> usize {
        self.0.iter().map(|sums| sums.prompts).sum()
    }

    pub(super) fn finish(self) -> Vec<Category> {
        self.0.into_iter().map(Sums::finish).collect()
    }
}

impl Sums {
    fn finish(mut self) -> Category {
        let share = |part: u64| (self.rounds > 0).then(|| part as f64 / self.rounds as f64);
        let (mean_length, first_accepted) =
            (share(self.kept).map(|kept| 1.0 + kept), share(self.first));
        let n = self.values.len();
        self.values.sort_unstable_by(f64::total_cmp);
        Category {
            name: self.name,
            prompts: self.prompts,
            tokens: n as u64,
            mean_length,
            first_accepted,
            p_value: match n {
                0 => 1.0,
                n => fit::kolmogorov_tail(fit::kolmogorov_distance(&self.values), n),
            },
        }
    }
}
