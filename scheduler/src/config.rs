//! The bounds of a scheduler.

/// Bounds, in tokens, sequences and steps. There is no clock here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Sequences in the batch, at most.
    pub max_seqs: usize,
    /// Rows of a step, at most: prompt tokens, rounds, drafts and lane fills together. At least
    /// `max_seqs + prefill_floor`, so that neither decoding nor prefill can be starved.
    pub token_budget: usize,
    /// Rows that prefill gets in every step in which a prompt has to be computed, whatever drafts
    /// would like. At least 1.
    pub prefill_floor: usize,
    /// Tokens of one span of prefill or lane fill, at most. Bounds how long a step takes.
    pub chunk_max: usize,
    /// Sequences that may wait, preempted ones not counted. No more than `max_seqs + queue_len` are
    /// inside at all, so that ever more important requests can't make the preempted ones pile up.
    pub queue_len: usize,
    /// Tokens of a sequence, prompt and generated, at most.
    pub max_model_len: usize,
    /// Steps of waiting that are worth one level of priority, and for which a request that does not
    /// fit yet may be passed by others. At least 1.
    pub ageing_steps: u64,
    /// How many failed steps in a row a sequence survives.
    pub retries: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_seqs: 32,
            token_budget: 512,
            prefill_floor: 64,
            chunk_max: 256,
            queue_len: 1024,
            max_model_len: 4096,
            ageing_steps: 64,
            retries: 1,
        }
    }
}

/// Bounds that contradict each other or mean nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A field is below its least value.
    #[error("{field} is {value}, must be at least {least}")]
    TooSmall {
        /// Name of the field.
        field: &'static str,
        /// What was given.
        value: usize,
        /// The least allowed.
        least: usize,
    },
}

impl Config {
    /// Sequences that may be inside, waiting or running.
    pub(crate) fn inside_max(&self) -> usize {
        self.max_seqs.saturating_add(self.queue_len)
    }

    /// Steps within which the best-ranked of all requests ends, whatever else comes: it is passed
    /// for `ageing_steps` steps at most, waits until the batch is empty at worst, and is never
    /// preempted. Every step of that feeds at least one token of each running sequence that decodes
    /// and, of those that do not, of the best-ranked. Failed and paused steps do not count.
    ///
    /// A request that `n` others rank before, those that came later included, therefore ends within
    /// `(n + 1) * service_steps()`, under any order of arrival.
    pub fn service_steps(&self) -> u64 {
        let longest = u64::try_from(self.max_model_len).unwrap_or(u64::MAX);
        let seats = u64::try_from(self.max_seqs).unwrap_or(u64::MAX);
        longest.saturating_mul(seats.saturating_add(1)).saturating_add(self.ageing_steps)
    }

    /// Checks every field; the first one that is wrong is named.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let at_least = |field, value, least| {
            let holds = value >= least;
            holds.then_some(()).ok_or(ConfigError::TooSmall { field, value, least })
        };
        at_least("max_seqs", self.max_seqs, 1)?;
        at_least("prefill_floor", self.prefill_floor, 1)?;
        let rows = self.max_seqs.saturating_add(self.prefill_floor);
        at_least("token_budget", self.token_budget, rows)?;
        at_least("chunk_max", self.chunk_max, 1)?;
        at_least("queue_len", self.queue_len, 1)?;
        // One token of prompt and one to generate.
        at_least("max_model_len", self.max_model_len, 2)?;
        at_least("ageing_steps", usize::try_from(self.ageing_steps).unwrap_or(usize::MAX), 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid() {
        assert_eq!(Config::default().validate(), Ok(()));
    }

    #[test]
    fn every_bound_is_checked_by_name() {
        let wrong = |edit: fn(&mut Config)| {
            let mut config = Config::default();
            edit(&mut config);
            let ConfigError::TooSmall { field, .. } = config.validate().unwrap_err();
            field
        };
        assert_eq!(wrong(|c| c.max_seqs = 0), "max_seqs");
        assert_eq!(wrong(|c| c.prefill_floor = 0), "prefill_floor");
        assert_eq!(wrong(|c| c.token_budget = c.max_seqs + c.prefill_floor - 1), "token_budget");
        assert_eq!(wrong(|c| c.chunk_max = 0), "chunk_max");
        assert_eq!(wrong(|c| c.queue_len = 0), "queue_len");
        assert_eq!(wrong(|c| c.max_model_len = 1), "max_model_len");
        assert_eq!(wrong(|c| c.ageing_steps = 0), "ageing_steps");
        let mut least = Config::default();
        least.token_budget = least.max_seqs + least.prefill_floor;
        assert_eq!(least.validate(), Ok(()));
    }
}
