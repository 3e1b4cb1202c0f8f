//! A scheduler that is called as the machine says, beside the ledger that judges it.

use crate::choices::{Choices, Whim};
use crate::commit_rules::{Found, STOP};
use crate::ledger::{BLOCK, Ledger};
use crate::machine::{Call, Outline, Phase};
use crate::plan_rules::{Before, Planned};
use proptest_state_machine::StateMachineTest;
use redline_kv_cache::{KvConfig, MAX_LANES};
use redline_scheduler::{
    KvCache, Lane, Offer, Outcome, Scan, Scheduler, SeqId, StepPlan, StopRule, TokenId,
};

pub(crate) struct Rules;

pub(crate) struct System {
    kv: KvCache,
    scheduler: Scheduler,
    plan: StepPlan,
    ledger: Ledger,
}

struct AtStop;

impl StopRule for AtStop {
    fn scan(&mut self, _: SeqId, token: TokenId) -> Scan {
        if token == STOP { Scan::Stop } else { Scan::Go }
    }
}

impl System {
    fn new(outline: &Outline) -> Self {
        let kv = KvConfig {
            blocks: outline.blocks,
            block_size: BLOCK as u32,
            lanes: 3,
            prefix_cache: outline.prefix_cache,
            hash_key: [0; 32],
            with_target_lanes: [false; MAX_LANES],
        };
        let config = &outline.config;
        Self {
            kv: KvCache::new(&kv).unwrap(),
            scheduler: Scheduler::new(config.clone()).unwrap(),
            plan: StepPlan::default(),
            ledger: Ledger::new(config, outline.blocks as usize, outline.prefix_cache),
        }
    }

    /// Offers for most of those inside, and for one who is not.
    fn offers(&self, choices: &mut Choices) -> Vec<Offer> {
        let inside = self.ledger.inside.keys().copied().chain([SeqId(u64::MAX)]);
        let mut offers = Vec::new();
        for seq in inside {
            let lane = [None, Some(Lane(1)), Some(Lane(2))][choices.below(3)];
            let draft_context = if choices.one_in(6) { 14 } else { usize::MAX };
            let nodes = choices.below(7);
            if nodes > 0 {
                offers.push(Offer { seq, nodes, lane, draft_context });
            }
        }
        offers
    }

    fn plan(&mut self, mut choices: Choices) {
        let offers = self.offers(&mut choices);
        let before = Before::of(&self.scheduler, &self.kv);
        self.scheduler.plan(&mut self.kv, &mut Whim(&mut choices), &offers, &mut self.plan);
        let Self { scheduler, kv, plan, .. } = self;
        self.ledger.planned(&Planned { scheduler, kv, plan, offers: &offers, before });
    }

    /// Proposes less than was granted here and there. What was not filled does not draft.
    fn settle(&mut self, mut choices: Choices) {
        let ids: Vec<_> = self.plan.fills.iter().map(|fill| fill.seq).collect();
        let mut shapes: Vec<_> = self.plan.spans.iter().map(|span| span.drafts).collect();
        for id in ids {
            let kind = choices.below(9);
            let at = self.plan.fills.iter().position(|fill| fill.seq == id).unwrap();
            match kind {
                7 => drop(self.plan.fills.remove(at)),
                8 if self.plan.fills[at].len > 1 => self.plan.fills[at].len -= 1,
                _ => continue,
            }
            let span = self.plan.spans.iter().position(|span| span.seq == id).unwrap();
            shapes[span] = 0;
        }
        for shape in &mut shapes {
            *shape -= choices.below(3).min(*shape);
        }
        let copies = self.scheduler.settle(&mut self.kv, &mut self.plan, &shapes);
        assert!(copies.is_empty(), "trees are verified in place");
        for ((span, &shape), &live) in self.plan.spans.iter().zip(&shapes).zip(&self.ledger.live) {
            assert_eq!(span.drafts, shape);
            let seq = self.scheduler.get(span.seq).filter(|_| live);
            let slots = span.start + span.len + shape;
            assert!(
                seq.is_none_or(|seq| !span.round || seq.kv().slots() == slots),
                "no more slots"
            );
        }
    }

    fn commit(&mut self, mut choices: Choices) {
        let outcome = |round: bool, drafts: usize| {
            if choices.one_in(30) {
                return Outcome::Failed;
            }
            if !round {
                return Outcome::Chunk;
            }
            let path: Vec<_> = (0..drafts as u32).filter(|_| choices.below(3) < 2).collect();
            let token = |choices: &mut Choices| [1, 2, 1, 2, STOP][choices.below(41) / 10];
            let tokens = (0..=path.len()).map(|_| token(&mut choices)).collect();
            Outcome::Round { path, tokens, draft_fed: choices.below(drafts + 1) }
        };
        let outcomes: Vec<_> = self
            .plan
            .spans
            .iter()
            .map(|s| (s.round, s.drafts))
            .map({
                let mut outcome = outcome;
                move |(round, drafts)| outcome(round, drafts)
            })
            .collect();
        let found = Found::of(&self.plan, &self.scheduler, &self.kv);
        let done = self.scheduler.commit(&mut self.kv, &self.plan, &outcomes, &mut AtStop);
        self.ledger.committed(&self.plan, &outcomes, &found, done);
        self.ledger.filled(&self.plan, &outcomes, &found, (&self.scheduler, &self.kv));
    }

    fn abandon(&mut self) {
        let copied = self.copied();
        let failed = self.scheduler.abandon(&mut self.kv, &self.plan).to_vec();
        self.ledger.abandoned(&self.plan, &failed, &copied);
    }

    /// Who holds a block that the plan copies to, and how many slots it has below.
    fn copied(&self) -> Vec<(SeqId, usize)> {
        let copies = self.plan.copies.iter().filter(|_| self.ledger.open);
        let holds = copies.flat_map(|copy| {
            self.scheduler.running().filter_map(|seq| {
                let at = seq.kv().table().iter().position(|&block| block == copy.to)?;
                Some((seq.id(), at * BLOCK))
            })
        });
        holds.collect()
    }

    fn void(&mut self, ids: &[SeqId]) {
        ids.iter().for_each(|&id| self.ledger.void(&self.plan, id));
    }
}

impl StateMachineTest for Rules {
    type SystemUnderTest = System;
    type Reference = Outline;

    fn init_test(outline: &Outline) -> System {
        System::new(outline)
    }

    fn apply(mut system: System, _: &Outline, call: Call) -> System {
        let (scheduler, kv) = (&mut system.scheduler, &mut system.kv);
        match call {
            Call::Submit(request) => {
                let answer = scheduler.submit(request.clone(), kv);
                system.ledger.submitted(&request, answer);
            }
            Call::Cancel(id) => {
                let answer = scheduler.cancel(kv, id);
                let ids = system.ledger.cancelled(|own, _| own == id);
                assert_eq!(answer, ids.len() == 1);
                system.void(&ids);
            }
            Call::CancelSamples(id) => {
                let answer = scheduler.cancel_samples(kv, id);
                let ids = system.ledger.cancelled(|_, first| first == id);
                assert_eq!(answer, ids.len());
                system.void(&ids);
            }
            Call::Expire(now) => {
                let answer = scheduler.expire(kv, now);
                let ids = system.ledger.expired(now);
                assert_eq!(answer, ids.len());
                system.void(&ids);
            }
            Call::Preempt(id) => {
                let answer = scheduler.preempt(kv, id);
                system.ledger.preempted(id, answer);
                system.void(&[id]);
            }
            Call::Hold(first, held) => {
                let answer = scheduler.hold(first, held);
                assert_eq!(answer, system.ledger.hold(first, held));
            }
            Call::Pause => {
                scheduler.pause();
                system.ledger.paused = true;
            }
            Call::Drain => {
                scheduler.drain();
                system.ledger.draining = true;
            }
            Call::Resume => {
                scheduler.resume();
                (system.ledger.paused, system.ledger.draining) = (false, false);
            }
            Call::Step(choices) => {
                system.plan(choices.clone());
                system.settle(choices.clone());
                system.commit(choices);
            }
            Call::Plan(choices) => system.plan(choices),
            Call::Settle(choices) => system.settle(choices),
            Call::Commit(choices) => system.commit(choices),
            Call::Abandon => system.abandon(),
        }
        system
    }

    fn check_invariants(system: &System, _: &Outline) {
        system.ledger.compare(&system.scheduler, &system.kv);
    }

    /// All that are inside end, and all blocks come back.
    fn teardown(mut system: System, outline: Outline) {
        if matches!(outline.phase, Phase::Planned | Phase::Settled) {
            system.abandon();
        }
        system.scheduler.resume();
        (system.ledger.paused, system.ledger.draining) = (false, false);
        let firsts: Vec<_> = system.ledger.inside.values().map(|entry| entry.first).collect();
        for first in firsts {
            assert_eq!(system.scheduler.hold(first, false), system.ledger.hold(first, false));
        }
        let mut steps = system.ledger.inside.len() as u64 * outline.config.service_steps();
        while system.scheduler.has_work() {
            assert!(steps > 0, "it does not end");
            steps -= 1;
            system.plan(Choices::simplest());
            system.commit(Choices::simplest());
            Self::check_invariants(&system, &outline);
        }
        assert_eq!(system.kv.usage().free, system.kv.blocks(), "nothing leaked");
    }
}
