//! What speculation should gain, from the times of passes and the drafts that are kept.
//!
//! A round of K drafts takes a pass over K + 1 rows and K passes of the drafter, and commits E(K) tokens:
//! E(K) · T(1) / (T(K + 1) + K · T_draft) times as fast as plain decoding. Where a drafter has something to offer in a
//! share of the rounds only, tokens and time are means over all of them.

/// How deep rounds are accepted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Acceptance {
    /// Share of the rounds in which at least so many drafts were kept, from 1 on.
    reached: Vec<f64>,
    /// Share of the rounds that had drafts.
    share: f64,
}

impl Acceptance {
    /// From how many rounds kept exactly 0, 1, … drafts, and how many there were in all, where a round could have
    /// `deepest`.
    pub(crate) fn of(histogram: &[usize], drafted: usize, deepest: usize) -> Self {
        let rounds = histogram.iter().sum::<usize>().max(1) as f64;
        let share = (drafted as f64 / (rounds * deepest.max(1) as f64)).min(1.0);
        let reached = (1..histogram.len())
            .map(|depth| histogram[depth..].iter().sum::<usize>() as f64 / rounds)
            .collect();
        Self { reached, share }
    }

    /// E(K): tokens that a round of `drafts` brings, the target's own among them.
    pub(crate) fn length(&self, drafts: usize) -> f64 {
        1.0 + self.reached.iter().take(drafts).sum::<f64>()
    }
}

/// Times of the parts of a round, in milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Times {
    /// T(1), T(2), …
    pub(crate) passes: Vec<f64>,
    /// T_draft.
    pub(crate) draft: f64,
}

impl Times {
    /// Times as fast as plain decoding with `drafts` a round; `None` if that pass was not timed.
    pub(crate) fn speed_up(&self, acceptance: &Acceptance, drafts: usize) -> Option<f64> {
        let (plain, with) = (self.passes.first()?, self.passes.get(drafts)?);
        let with = with + drafts as f64 * self.draft;
        let round = acceptance.share * with + (1.0 - acceptance.share) * plain;
        Some(acceptance.length(drafts) * plain / round)
    }

    /// The best there is over all numbers of drafts, none among them: what `auto` is after.
    pub(crate) fn best(&self, acceptance: &Acceptance) -> f64 {
        let all = (0..self.passes.len()).filter_map(|drafts| self.speed_up(acceptance, drafts));
        all.fold(1.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_sums_of_what_was_reached() {
        // 10 rounds: 2 kept nothing, 3 one draft, 5 two.
        let acceptance = Acceptance::of(&[2, 3, 5], 20, 2);
        assert_eq!(acceptance.length(0), 1.0);
        assert_eq!(acceptance.length(1), 1.8);
        assert_eq!(acceptance.length(2), 2.3);
        assert_eq!(acceptance.length(9), 2.3);
        assert_eq!(Acceptance::of(&[], 0, 2).length(4), 1.0);
    }

    #[test]
    fn a_speed_up_is_tokens_over_time() {
        let times = Times { passes: vec![20.0, 22.0, 30.0], draft: 5.0 };
        let acceptance = Acceptance::of(&[2, 3, 5], 20, 2);
        assert_eq!(times.speed_up(&acceptance, 0), Some(1.0));
        assert_eq!(times.speed_up(&acceptance, 1), Some(1.8 * 20.0 / 27.0));
        assert_eq!(times.speed_up(&acceptance, 2), Some(2.3 * 20.0 / 40.0));
        assert_eq!(times.speed_up(&acceptance, 3), None);
        assert_eq!(times.best(&acceptance), 1.8 * 20.0 / 27.0);
        assert_eq!(times.best(&Acceptance::of(&[7], 14, 2)), 1.0);
        // Half of the rounds had nothing to verify.
        let acceptance = Acceptance::of(&[7, 0, 3], 10, 2);
        assert_eq!(times.speed_up(&acceptance, 2), Some(1.6 * 20.0 / 30.0));
    }
}
