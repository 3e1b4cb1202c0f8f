use super::*;
use crate::{DrawMode, Draws, History, Sampling, TokenFilter};
use proptest::prelude::*;

fn drafts(drafter: &mut Ngram, tokens: &[TokenId], budget: usize) -> Vec<TokenId> {
    drafts_under(drafter, tokens, budget, None)
}

fn drafts_under(
    drafter: &mut Ngram,
    tokens: &[TokenId],
    budget: usize,
    constraint: Option<&dyn crate::Constraint>,
) -> Vec<TokenId> {
    let (sampling, history) = (Sampling::default(), History::default());
    let job = DraftJob {
        seq: 1,
        tokens,
        budget,
        shape: &[],
        mode: DrawMode::Shared,
        draws: Draws { seed: 0, sample: 0 },
        sampling: &sampling,
        history: &history,
        constraint,
        ends: &[],
        table: &[],
        fill: 0..0,
    };
    let mut out = [Ok(Proposal::new())];
    drafter.propose(&[job], &mut out);
    let proposal = out[0].clone().unwrap();
    assert!(proposal.is_chain());
    proposal.nodes().iter().map(|node| node.token).collect()
}

/// By definition: longest suffix first, latest earlier occurrence, copied with overlap.
fn by_scan(tokens: &[TokenId], config: &NgramConfig) -> Vec<TokenId> {
    for n in (config.min_n..=config.max_n).rev().filter(|&n| n < tokens.len()) {
        let suffix = &tokens[tokens.len() - n..];
        let ends = (n - 1..tokens.len() - 1).rev();
        if let Some(end) = ends.into_iter().find(|&e| &tokens[e + 1 - n..=e] == suffix) {
            let mut all = tokens.to_vec();
            for i in 0..config.max_draft {
                all.push(all[end + 1 + i]);
            }
            return all.split_off(tokens.len());
        }
    }
    Vec::new()
}

#[test]
fn longest_suffix_then_latest_occurrence() {
    let mut drafter = Ngram::default();
    // "1 2 3" beats the later "2 3"; of its two occurrences the later counts.
    let tokens = [1, 2, 3, 7, 1, 2, 3, 8, 9, 2, 3, 5, 1, 2, 3];
    assert_eq!(drafts(&mut drafter, &tokens, 3), [8, 9, 2]);
    assert_eq!(drafter.offer(1, &tokens), 16);
    assert_eq!(drafter.offer(2, &[1, 2, 3, 4]), 0);
    assert_eq!(drafter.offer(3, &[]), 0);
}

#[test]
fn loops_are_drafted_at_full_length() {
    let mut drafter = Ngram::default();
    assert_eq!(drafts(&mut drafter, &[4, 4, 4], 5), [4; 5]);
    let mut drafter = Ngram::default();
    assert_eq!(drafts(&mut drafter, &[1, 2, 3, 1, 2, 3], 7), [1, 2, 3, 1, 2, 3, 1]);
}

#[test]
fn constraint_ends_the_draft() {
    let mut drafter = Ngram::default();
    let ban = TokenFilter::ban([3]);
    let tokens = [1, 2, 9, 3, 1, 2];
    assert_eq!(drafts_under(&mut drafter, &tokens, 5, Some(&ban)), [9]);
}

#[test]
fn sizes_are_checked() {
    let ok = NgramConfig::default();
    for bad in [
        NgramConfig { min_n: 0, ..ok },
        NgramConfig { min_n: 5, ..ok },
        NgramConfig { max_n: MAX_N + 1, ..ok },
        NgramConfig { max_draft: 0, ..ok },
        NgramConfig { window: 0, ..ok },
    ] {
        assert!(Ngram::new(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn memory_is_bounded_and_given_back() {
    let config = NgramConfig { window: 64, ..NgramConfig::default() };
    let mut drafter = Ngram::new(config).unwrap();
    let tokens: Vec<TokenId> =
        (0..5_000_u32).map(|i| i.wrapping_mul(2_654_435_761) >> 20).collect();
    for len in 1..=tokens.len() {
        drafter.offer(1, &tokens[..len]);
    }
    assert!(drafter.bytes() <= 3 * 32 * config.window, "{}", drafter.bytes());
    drafter.forget(1);
    assert_eq!(drafter.bytes(), 0);
}

/// What a token costs does not grow with what came before, whether the text never repeats itself, does so soon, or only
/// after the window has been left; and once the tables have grown no step is dearer than another.
#[test]
fn b16_a_token_costs_the_same_after_100k_as_at_the_start() {
    const LONG: usize = 100_000;
    /// Slots of a look-up; a step looks up twice and inserts once for each length.
    const PROBES: usize = 16;
    let random = |i: usize| (i as u32).wrapping_mul(2_654_435_761) >> 12;
    let config = NgramConfig::default();
    let lengths = config.max_n + 1 - config.min_n;
    for period in [usize::MAX, 1000, 90_000, 1] {
        let tokens: Vec<TokenId> = (0..2 * LONG).map(|i| random(i % period)).collect();
        let mut drafter = Ngram::new(config).unwrap();
        let mut looked_at = |from: usize, to: usize| {
            let (mut all, mut most) = (0, 0);
            for len in from..to {
                let before = index::LOOKED_AT.get();
                drafter.offer(1, &tokens[..len]);
                let step = index::LOOKED_AT.get() - before;
                (all, most) = (all + step, most.max(step));
                // Here, so that it fails before it takes for ever.
                assert!(
                    all <= (1024 + len - from) * lengths * 12,
                    "period {period}: {all}, at {len}"
                );
                assert!(drafter.bytes() <= lengths * 32 * config.window, "period {period}");
            }
            (all, most)
        };
        let (early, _) = looked_at(1, LONG);
        let (late, most) = looked_at(LONG, 2 * LONG);
        assert!(late <= early + early / 10, "period {period}: {late} after {early}");
        assert!(most <= 3 * lengths * PROBES, "period {period}: {most} in one step");
        // A prompt is taken in at once, no dearer than token by token.
        let (mut fresh, before) = (Ngram::new(config).unwrap(), index::LOOKED_AT.get());
        fresh.offer(1, &tokens[..LONG]);
        assert!(index::LOOKED_AT.get() - before <= early, "period {period}");
    }
}

#[test]
fn a_reused_id_starts_over() {
    let mut drafter = Ngram::default();
    assert_eq!(drafts(&mut drafter, &[1, 2, 3, 1, 2], 1), [3]);
    assert_eq!(drafts(&mut drafter, &[1, 2], 1), []);
    assert_eq!(drafts(&mut drafter, &[1, 2, 9, 1, 2], 1), [9]);
}

proptest! {
    #[test]
    fn equals_a_scan_at_every_step(
        tokens in prop::collection::vec(0u32..3, 1..120),
        first in 0usize..120,
    ) {
        let config = NgramConfig { max_draft: 6, ..NgramConfig::default() };
        let mut drafter = Ngram::new(config).unwrap();
        // A prompt of any length at first, then token by token.
        for len in first.min(tokens.len() - 1) + 1..=tokens.len() {
            let got = drafts(&mut drafter, &tokens[..len], 99);
            prop_assert_eq!(got, by_scan(&tokens[..len], &config));
        }
    }

    #[test]
    fn a_window_forgets_only_what_is_older(
        tokens in prop::collection::vec(0u32..4, 60..200),
    ) {
        let config = NgramConfig { window: 16, max_draft: 1, ..NgramConfig::default() };
        let mut drafter = Ngram::new(config).unwrap();
        for len in 1..=tokens.len() {
            let got = drafts(&mut drafter, &tokens[..len], 1);
            let recent = by_scan(&tokens[len.saturating_sub(16)..len], &config);
            // What lies in the window is always found; a longer match may lie further back.
            prop_assert!(recent.is_empty() || !got.is_empty());
        }
    }
}
