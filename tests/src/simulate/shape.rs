//! What a world is made of, as plain data: drawn from a seed, printed with a violation, read back with `--case`.

use serde::{Deserialize, Serialize};

use redline_kv_cache::{KvConfig, MAX_LANES};
use redline_scheduler::Config;

use super::drafter::Kind;
use super::laws::Temperature;
use super::memory::LANES;
use super::rng::{Rng, Stream};

/// Which verifier decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Rule {
    Coupled,
    Token,
    Traversal,
}

/// Who grants drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Grants {
    None,
    /// Anything, too much of it included.
    Whim,
    /// As many as this.
    Fixed(usize),
    /// `spec`'s controller.
    Auto,
}

/// How often something goes wrong: once in so many chances, 0 for never.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Mishaps {
    /// Steps whose copies are not made.
    pub(crate) copies: usize,
    /// Steps whose pass fails.
    pub(crate) passes: usize,
    /// Spans whose own rows are unusable.
    pub(crate) rows: usize,
    /// Draft passes that fail.
    pub(crate) drafts: usize,
    /// Steps whose moves are not made.
    pub(crate) moves: usize,
    /// Chances to cancel a request: before, within and after planning.
    pub(crate) cancels: usize,
    /// The same for taking a request's blocks away.
    pub(crate) preemptions: usize,
    /// Steps in which somebody else takes blocks, so that an allocation fails that would have succeeded.
    pub(crate) thefts: usize,
    /// Spells in which nothing is planned.
    pub(crate) pauses: usize,
    /// Requests that have a deadline.
    pub(crate) deadlines: usize,
    /// Requests that want several samples.
    pub(crate) samples: usize,
    /// Storms: spells in which everybody asks for the same prefix at once.
    pub(crate) storms: usize,
    /// Chances to hold a request, or to let one go on that is held.
    pub(crate) holds: usize,
    /// Steps in which a slot in use is overwritten. No world of the mix has any: it shows that the rules have teeth.
    pub(crate) rot: usize,
}

/// A world: sizes, mood, and how long it lasts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shape {
    /// Steps in which requests may arrive. Then it runs until all have ended.
    pub(crate) steps: u64,
    /// Requests that arrive, at most.
    pub(crate) requests: u64,
    pub(crate) blocks: u32,
    pub(crate) block_size: u32,
    pub(crate) lanes: u8,
    pub(crate) prefix_cache: bool,
    pub(crate) max_seqs: usize,
    pub(crate) token_budget: usize,
    pub(crate) prefill_floor: usize,
    pub(crate) chunk_max: usize,
    pub(crate) queue_len: usize,
    pub(crate) max_model_len: usize,
    pub(crate) ageing_steps: u64,
    pub(crate) retries: u32,
    /// Requests keep arriving while fewer than this wait.
    pub(crate) waiting: usize,
    /// Tokens a request may ask for, at most.
    pub(crate) max_tokens: usize,
    /// Prompts that prompts begin like.
    pub(crate) stems: usize,
    pub(crate) rule: Rule,
    pub(crate) grants: Grants,
    /// One of these drafts for a request.
    pub(crate) drafters: Vec<Kind>,
    /// One of these is a request's.
    pub(crate) temperatures: Vec<Temperature>,
    /// Nodes offered, at most.
    pub(crate) offer: usize,
    pub(crate) mishaps: Mishaps,
}

impl Shape {
    /// The default mix.
    pub(crate) fn random(seed: u64) -> Self {
        let rng = &mut Rng::new(seed, Stream::Shape, 0);
        let (max_seqs, prefill_floor) = (rng.octaves(3, 16), rng.octaves(1, 16));
        let max_model_len = rng.octaves(12, 128);
        let block_size = 1 << rng.below(5);
        // Half of the worlds are short of blocks: there are fewer than a full batch would like to have.
        let wanted = max_seqs * max_model_len / (2 * block_size);
        let blocks = match rng.below(4) {
            0 => rng.octaves(8, 512),
            1 => wanted,
            _ => wanted * rng.within(3, 8) / 10,
        };
        Self {
            steps: rng.within(300, 2000) as u64,
            requests: u64::MAX,
            blocks: blocks.clamp(8, 512) as u32,
            block_size: block_size as u32,
            lanes: if rng.one_in(8) { 1 } else { LANES as u8 },
            prefix_cache: !rng.one_in(8),
            max_seqs,
            token_budget: max_seqs + prefill_floor + rng.below(64),
            prefill_floor,
            chunk_max: rng.octaves(1, 64),
            queue_len: rng.within(1, 16),
            max_model_len,
            ageing_steps: rng.octaves(1, 64) as u64,
            retries: rng.below(3) as u32,
            waiting: rng.within(1, 6),
            max_tokens: rng.octaves(4, 64),
            stems: rng.within(1, 4),
            rule: rng.pick(&[Rule::Coupled, Rule::Coupled, Rule::Token, Rule::Traversal]),
            grants: rng.pick(&[
                Grants::Whim,
                Grants::Whim,
                Grants::Fixed(1),
                Grants::Fixed(3),
                Grants::Fixed(7),
                Grants::Auto,
                Grants::Auto,
                Grants::None,
            ]),
            drafters: Self::random_drafters(rng),
            temperatures: rng
                .pick(&[
                    &[Temperature::Zero][..],
                    &[Temperature::High],
                    &[Temperature::Zero, Temperature::High],
                ])
                .to_vec(),
            offer: rng.octaves(2, 16),
            mishaps: Mishaps::random(rng),
        }
    }

    /// Few kinds in a world, so that each meets itself.
    fn random_drafters(rng: &mut Rng) -> Vec<Kind> {
        let mut kinds: Vec<_> = (0..rng.within(1, 4)).map(|_| rng.pick(&Kind::ALL)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    pub(crate) fn scheduler(&self) -> Config {
        Config {
            max_seqs: self.max_seqs,
            token_budget: self.token_budget,
            prefill_floor: self.prefill_floor,
            chunk_max: self.chunk_max,
            queue_len: self.queue_len,
            max_model_len: self.max_model_len,
            ageing_steps: self.ageing_steps,
            retries: self.retries,
        }
    }

    pub(crate) fn cache(&self, hash_key: u64) -> KvConfig {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&hash_key.to_le_bytes());
        KvConfig {
            blocks: self.blocks,
            block_size: self.block_size,
            lanes: self.lanes,
            prefix_cache: self.prefix_cache,
            hash_key: key,
            with_target_lanes: [false; MAX_LANES],
        }
    }
}

impl Mishaps {
    fn random(rng: &mut Rng) -> Self {
        let calm = rng.one_in(4);
        let mut rate = |often: usize| {
            let never = calm || rng.one_in(2);
            if never { 0 } else { often * rng.octaves(1, 8) }
        };
        Self {
            copies: rate(40),
            passes: rate(20),
            rows: rate(200),
            drafts: rate(8),
            moves: rate(20),
            cancels: rate(10),
            preemptions: rate(10),
            thefts: rate(8),
            pauses: rate(8),
            deadlines: rate(4),
            samples: rate(1),
            storms: rate(1),
            holds: rate(10),
            rot: 0,
        }
    }
}
