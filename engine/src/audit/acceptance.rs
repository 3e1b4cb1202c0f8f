//! How many drafts were kept, by position in the round, beside what the two laws say.

use serde::Serialize;

use super::judge::Trial;

/// Acceptance over all rounds that had drafts.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Acceptance {
    /// Of the drafts at each distance from the last committed token: how many that were reached were accepted.
    pub by_position: Vec<Position>,
    /// Tokens per round, the target's own included, over rounds that had drafts.
    pub mean_length: f64,
    /// 1 + Σ Π α over the rates of theory; null where a position has none.
    pub expected_length: Option<f64>,
    /// Rounds with drafts.
    pub rounds: u64,
    /// Rounds without: the drafter had nothing to offer, or there was no room.
    pub rounds_without: u64,
    /// `histogram[j]`: rounds in which j drafts were kept.
    pub histogram: Vec<u64>,
}

/// Drafts at one distance from the last committed token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Position {
    /// How often it was reached with a draft.
    pub tried: u64,
    /// How often that was accepted.
    pub accepted: u64,
    /// The share.
    pub rate: f64,
    /// What the laws at those places give on average; null where there is no closed form.
    pub expected: Option<f64>,
    /// Sum over the tries that have one.
    #[serde(skip)]
    sum: f64,
    #[serde(skip)]
    with_theory: u64,
}

impl Acceptance {
    /// Takes in a round with drafts.
    pub(super) fn round(&mut self, accepted: usize) {
        self.rounds += 1;
        if self.histogram.len() <= accepted {
            self.histogram.resize(accepted + 1, 0);
        }
        self.histogram[accepted] += 1;
    }

    /// Takes in rounds without drafts.
    pub(super) fn plain(&mut self, rounds: usize) {
        self.rounds_without += rounds as u64;
    }

    /// Takes in what became of drafts.
    pub(super) fn trials(&mut self, trials: &[Trial]) {
        for trial in trials {
            if self.by_position.len() <= trial.depth {
                self.by_position.resize(trial.depth + 1, Position::default());
            }
            let position = &mut self.by_position[trial.depth];
            position.tried += 1;
            position.accepted += u64::from(trial.accepted);
            if let Some(rate) = trial.expected.value() {
                position.sum += rate;
                position.with_theory += 1;
            }
        }
    }

    /// Works out shares and means.
    pub(super) fn finish(&mut self) {
        for position in &mut self.by_position {
            position.rate = position.accepted as f64 / position.tried.max(1) as f64;
            // Where some tries have no closed form, the mean of the others stands for other places.
            position.expected = (position.with_theory == position.tried)
                .then(|| position.sum / position.tried.max(1) as f64);
        }
        let drafts: u64 =
            (0..).zip(&self.histogram).map(|(kept, rounds): (u64, _)| kept * rounds).sum();
        self.mean_length = match self.rounds {
            0 => 1.0,
            rounds => 1.0 + drafts as f64 / rounds as f64,
        };
        let rates: Option<Vec<f64>> =
            self.by_position.iter().map(|position| position.expected).collect();
        self.expected_length = rates.filter(|rates| !rates.is_empty()).map(|rates| length(&rates));
    }

    /// The acceptance rate at a depth: of theory, else as measured; beyond the last, that of the last.
    pub(super) fn rate(&self, depth: usize) -> f64 {
        let last = self.by_position.len().saturating_sub(1);
        let position = self.by_position.get(depth.min(last));
        position.map_or(0.0, |position| position.expected.unwrap_or(position.rate))
    }

    /// The share of rounds that have drafts.
    pub(super) fn share(&self) -> f64 {
        self.rounds as f64 / (self.rounds + self.rounds_without).max(1) as f64
    }

    /// The expected length of a round of `drafts`.
    pub(super) fn length_of(&self, drafts: usize) -> f64 {
        length(&(0..drafts).map(|depth| self.rate(depth)).collect::<Vec<_>>())
    }
}

/// 1 + Σ Π α: Leviathan et al. 2023, with a rate of its own for every position.
fn length(rates: &[f64]) -> f64 {
    let reached = rates.iter().scan(1.0, |product, rate| {
        *product *= rate;
        Some(*product)
    });
    1.0 + reached.sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::theory::Expected;

    #[test]
    fn rates_lengths_and_means_add_up() {
        let mut acceptance = Acceptance::default();
        let trial =
            |depth, accepted, rate| Trial { depth, accepted, expected: Expected::Exactly(rate) };
        for kept in [2, 0, 1] {
            acceptance.round(kept);
            let trials = (0..=kept.min(1)).map(|depth| trial(depth, kept > depth, 0.5));
            acceptance.trials(&trials.collect::<Vec<_>>());
        }
        acceptance.finish();
        acceptance.plain(9);
        assert_eq!(acceptance.share(), 0.25);
        assert_eq!(acceptance.histogram, [1, 1, 1]);
        assert_eq!(acceptance.mean_length, 2.0);
        let tried: Vec<_> = acceptance.by_position.iter().map(|p| (p.tried, p.accepted)).collect();
        assert_eq!(tried, [(3, 2), (2, 1)]);
        assert_eq!(acceptance.expected_length, Some(1.75));
        assert_eq!(acceptance.length_of(3), 1.875);
        let unknown = Trial { depth: 1, accepted: true, expected: Expected::Unknown };
        acceptance.trials(&[unknown]);
        acceptance.finish();
        assert_eq!(acceptance.by_position[1].expected, None);
        assert_eq!(acceptance.expected_length, None);
    }
}
