//! B16: prompt lookup over very long prompts. That a token costs the same number of look-ups whatever the context is
//! counted in `spec/src/ngram/tests.rs`; here the engine runs it.

use std::sync::{Arc, Mutex};

use redline::TokenId;
use redline::spec::{DraftError, DraftJob, Drafter, Ngram, NgramConfig, Proposal};
use redline_tests::requests::{Random, greedy};
use redline_tests::rig::{Rig, run};
use redline_tests::runners::Table;

const LONG: usize = 100_000;

/// Tells how many bytes the drafter held at most.
struct Weighed {
    inner: Ngram,
    most: Arc<Mutex<usize>>,
}

impl Drafter for Weighed {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn offer(&mut self, seq: u64, tokens: &[TokenId]) -> usize {
        let offered = self.inner.offer(seq, tokens);
        let mut most = self.most.lock().unwrap();
        *most = self.inner.bytes().max(*most);
        offered
    }

    fn propose(&mut self, jobs: &[DraftJob<'_>], out: &mut [Result<Proposal, DraftError>]) {
        self.inner.propose(jobs, out);
    }

    fn forget(&mut self, seq: u64) {
        self.inner.forget(seq);
        assert_eq!(self.inner.bytes(), 0, "it was the only one");
    }
}

/// The target repeats what came 1000 tokens before, so that prompt lookup is always right.
#[test]
fn b16_a_prompt_of_100k_tokens_is_drafted_for_in_bounded_memory() {
    let mut random = Random(16);
    let motif: Vec<TokenId> = (0..1000).map(|_| random.below(50_000) as TokenId).collect();
    let tokens: Vec<_> = motif.into_iter().cycle().take(LONG).collect();
    let target = Table::new(50_000, LONG + 200, |seen, logits| {
        logits[seen[seen.len() - 1000] as usize] = 1.0;
    });
    let config = NgramConfig::default();
    let most = Arc::default();
    let inner = Ngram::new(config).unwrap();
    let rig = Rig {
        target: Box::new(target),
        drafter: Some(Box::new(Weighed { inner, most: Arc::clone(&most) })),
        blocks: LONG as u64 / 32 + 10,
        seqs: 1,
        text: false,
        ..Rig::default()
    };
    let output = run(&mut rig.build(), &[greedy(&tokens, 100)]).remove(0);
    assert_eq!(output.token_ids, tokens[LONG % 1000..][..100]);
    let stats = &output.speculation;
    assert!(stats.drafted >= 70 && stats.accepted == stats.drafted, "{stats:?}");
    let lengths = config.max_n + 1 - config.min_n;
    let (most, bound) = (*most.lock().unwrap(), 32 * config.window * lengths);
    assert!(0 < most && most <= bound, "{most} bytes, at most {bound}");
}
