//! What is known of each sequence, and that each ends once, in the way it should.

use std::collections::BTreeMap;

use redline_scheduler::{Finish, Lane, Scan, SeqId, Sequence, StopRule, TokenId};

/// A sequence that was taken and has not ended.
pub(super) struct Job {
    /// The first of its request's sequences.
    pub(super) first: SeqId,
    /// The most tokens it will have, prompt included.
    pub(super) limit: usize,
    pub(super) deadline: Option<u64>,
    pub(super) stop_after: Option<usize>,
    /// Where its drafter keeps its own keys and values.
    pub(super) lane: Option<Lane>,
    pub(super) generated: Vec<TokenId>,
    /// Failed steps in a row.
    pub(super) failures: u32,
    /// Set when it was told to end so.
    pub(super) ends_as: Option<Finish>,
}

#[derive(Default)]
pub(super) struct Jobs(pub(super) BTreeMap<SeqId, Job>);

impl Jobs {
    pub(super) fn holds(&self, id: SeqId) -> bool {
        self.0.contains_key(&id)
    }

    /// Takes leave of one.
    pub(super) fn end(&mut self, seq: &Sequence, finish: Finish) {
        let job = self.0.remove(&seq.id()).expect("each ends once");
        assert_eq!(seq.generated(), job.generated, "the stop rule saw every token");
        let stopped = job.stop_after == Some(job.generated.len());
        let full = seq.tokens().len() == job.limit;
        let expected = match job.ends_as {
            Some(told) => told,
            None if stopped => Finish::Stop,
            None => {
                assert!(full, "{:?} ended without a reason", seq.id());
                Finish::Length
            }
        };
        assert_eq!(finish, expected, "{:?}", seq.id());
    }

    /// Nobody stays who should have ended.
    pub(super) fn check(&self) {
        for (id, job) in &self.0 {
            assert!(job.ends_as.is_none(), "{id:?} did not end");
            let stopped = job.stop_after.is_some_and(|stop| stop <= job.generated.len());
            assert!(!stopped, "{id:?} went on past its stop");
        }
    }
}

impl StopRule for Jobs {
    fn scan(&mut self, seq: SeqId, token: TokenId) -> Scan {
        let job = self.0.get_mut(&seq).expect("only who has not ended gets tokens");
        job.generated.push(token);
        if job.stop_after == Some(job.generated.len()) { Scan::Stop } else { Scan::Go }
    }
}
