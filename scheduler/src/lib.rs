//! Who computes how many tokens this step. A pure function of state: no tensors, threads, clocks,
//! files, tokenizers.
//!
//! ```text
//! request.rs     Request (what was asked), SubmitError, Finish
//! config.rs      Config: the bounds, validated
//! sequence.rs    Sequence: tokens, blocks, place in line
//! rank.rs        Rank: the one fixed order of all requests
//! roster.rs      Roster: sequences in slots; who waits and who runs, in order of rank
//! budget.rs      Offer, RoundView, Room, DraftBudget: what drafters have, who may spend how much
//! plan.rs        StepPlan, Span, FillSpan: one step as plain data
//! outcome.rs     Outcome, StopRule, Done: what came of a step
//! scheduler.rs   Scheduler: submit, cancel, look; START READING HERE
//! planning.rs    plan: the order in which a step's rows and blocks are given out
//! admission.rs   from the queue into the batch
//! siblings.rs    samples of one prompt: what they share
//! speculation.rs drafts and the filling of draft lanes
//! commit.rs      settle, commit, abandon
//! audit.rs       every invariant, checked
//! ```
//!
//! # How it works
//!
//! There is no prefill phase and no decode phase. A sequence has `n` committed tokens, of which
//! `computed` have target keys and values in the cache; a step gives it rows so that `computed`
//! catches up. A *round* is a span that reaches the last committed token: it yields at least one
//! new token, and may verify drafts.
//!
//! # Promises
//!
//! 1. **Order.** Requests have one fixed order ([`Rank`]), by priority and arrival. One level of
//!    priority is worth [`Config::ageing_steps`] steps of waiting, so nobody is overtaken by
//!    requests that come later than that. Blocks are only taken from a lower rank for a higher.
//! 2. **Progress.** The highest-ranked sequence is never preempted and every sequence in the batch
//!    that is not held gets at least one row of budget per step while it decodes; at least
//!    [`Config::prefill_floor`] rows go to prefill while there is any. A request admitted to the
//!    queue fits the pool alone, so each ends after a bounded number of steps.
//! 3. **Waiting.** Requests may pass one that does not fit yet, but only for
//!    [`Config::ageing_steps`] steps; then the queue waits behind it. A request that `n` others rank
//!    before ends within `(n + 1) *` [`Config::service_steps`], under any order of arrival.
//! 4. **Drafts give way.** They get blocks last. Nobody is preempted or kept out of the batch for a
//!    draft.
//! 5. **Slots.** Every span's slots are reserved before the plan is handed out, for exactly the
//!    committed tokens and the granted drafts.
//! 6. **One end.** Each submitted request ends in exactly one [`Finish`].
#![forbid(unsafe_code)]

mod admission;
mod audit;
mod budget;
mod commit;
mod config;
mod outcome;
mod plan;
mod planning;
mod rank;
mod request;
mod roster;
mod scheduler;
mod sequence;
mod siblings;
mod speculation;
#[cfg(test)]
mod tests;

pub use audit::Violation;
pub use budget::{DraftBudget, NoDrafts, Offer, Room, RoundView};
pub use config::{Config, ConfigError};
pub use outcome::{Commit, Done, Finished, Outcome, Scan, StopRule};
pub use plan::{FillSpan, Span, StepPlan};
pub use rank::Rank;
pub use request::{Finish, Request, SeqId, SubmitError};
pub use scheduler::{INLINE_FILL_MAX, Scheduler, Stats};
pub use sequence::Sequence;

pub use redline_kv_cache::{BlockCopy, KvCache, Lane, SlotMove, TokenId};
