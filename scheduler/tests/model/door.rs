//! Who is let in at all, and who is sent away.

use crate::ledger::{BLOCK, Ledger};
use redline_scheduler::{Finish, Request, SeqId, SubmitError};

impl Ledger {
    /// Every reason to refuse the request.
    fn refusals(&self, request: &Request) -> Vec<SubmitError> {
        let (prompt, samples) = (request.prompt.len(), request.samples);
        let Self { config, blocks: blocks_total, .. } = self;
        let most = (prompt + request.max_tokens).min(config.max_model_len);
        // The last token needs no slot.
        let blocks_needed = most.saturating_sub(1).div_ceil(BLOCK);
        let ids = || (0..samples).map(|sample| request.sample_id(sample));
        let queued = self.inside.values().filter(|entry| self.is_waiting_anew(entry)).count();
        let limit = config.queue_len;
        let too_long = SubmitError::TooLong { prompt, limit: config.max_model_len - 1 };
        let never = SubmitError::NeverFits { blocks_needed, blocks_total: *blocks_total };
        let reasons = [
            (self.draining, SubmitError::Draining),
            (prompt == 0, SubmitError::EmptyPrompt),
            (request.max_tokens == 0, SubmitError::ZeroTokens),
            (samples == 0, SubmitError::ZeroSamples),
            (samples > limit, SubmitError::TooManySamples { samples, limit }),
            (prompt >= config.max_model_len, too_long),
            (blocks_needed > *blocks_total, never),
            (ids().any(|id| self.inside.contains_key(&id)), SubmitError::DuplicateId),
            (queued + samples > limit, SubmitError::QueueFull { limit }),
            (
                self.inside.len() + samples > config.max_seqs + limit,
                SubmitError::QueueFull { limit },
            ),
        ];
        reasons.into_iter().filter_map(|(holds, reason)| holds.then_some(reason)).collect()
    }

    /// A request is refused if and only if there is a reason, and for one that holds.
    pub(crate) fn submitted(&mut self, request: &Request, answer: Result<(), SubmitError>) {
        let reasons = self.refusals(request);
        match answer {
            Ok(()) => {
                assert_eq!(reasons, [], "it should have been refused");
                self.enter(request);
            }
            Err(reason) => assert!(reasons.contains(&reason), "{reason:?} is none of {reasons:?}"),
        }
    }

    /// Who must go by `now`.
    pub(crate) fn expired(&mut self, now: u64) -> Vec<SeqId> {
        let due = self.in_order(|entry| entry.deadline.is_some_and(|deadline| deadline <= now));
        due.iter().for_each(|&id| self.end(id, Finish::Expired));
        self.expired += due.len() as u64;
        due
    }

    pub(crate) fn cancelled(&mut self, which: impl Fn(SeqId, SeqId) -> bool) -> Vec<SeqId> {
        let mut ids = self.in_order(|_| true);
        ids.retain(|id| which(*id, self.inside[id].first));
        ids.iter().for_each(|&id| self.end(id, Finish::Cancelled));
        ids
    }
}
