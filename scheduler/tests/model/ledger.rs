//! Who is inside and what each has: told by what was asked for and what was answered.

use redline_kv_cache::BlockId;
use redline_scheduler::{Config, Finish, KvCache, Request, Scheduler, SeqId, StepPlan, TokenId};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const BLOCK: usize = 4;

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) first: SeqId,
    /// The arrival of the first. Names are used again, this is not.
    pub(crate) request: u64,
    pub(crate) samples: usize,
    pub(crate) prompt: usize,
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) limit: usize,
    pub(crate) priority: i32,
    pub(crate) deadline: Option<u64>,
    pub(crate) draft_cap: Option<usize>,
    /// The step of arrival less `ageing_steps` per level of priority, then the order of arrival.
    pub(crate) rank: (i64, u64),
    pub(crate) running: bool,
    pub(crate) computed: usize,
    pub(crate) preempted: bool,
    pub(crate) failures: u32,
    pub(crate) held: bool,
    /// The step in which one that ranks behind it first came in before it.
    pub(crate) passed: Option<u64>,
}

impl Entry {
    pub(crate) fn behind(&self) -> usize {
        self.tokens.len() - self.computed
    }

    pub(crate) fn generated(&self) -> &[TokenId] {
        &self.tokens[self.prompt..]
    }

    /// Whether siblings can share all of its prompt but the last token.
    pub(crate) fn has_prompt(&self) -> bool {
        self.running && self.computed + 1 >= self.prompt
    }
}

#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) config: Config,
    pub(crate) blocks: usize,
    pub(crate) prefix_cache: bool,
    pub(crate) inside: BTreeMap<SeqId, Entry>,
    pub(crate) step: u64,
    pub(crate) paused: bool,
    pub(crate) draining: bool,
    /// Per span of the plan under way, whether it is still that sequence's.
    pub(crate) live: Vec<bool>,
    /// Whether a plan waits for its end.
    pub(crate) open: bool,
    /// Since the last plan, in order.
    pub(crate) ended: Vec<(SeqId, Finish, Vec<TokenId>)>,
    pub(crate) arrivals: u64,
    pub(crate) finished: u64,
    pub(crate) tokens: u64,
    pub(crate) preemptions: u64,
    pub(crate) abandoned: u64,
    pub(crate) expired: u64,
}

impl Ledger {
    pub(crate) fn new(config: &Config, blocks: usize, prefix_cache: bool) -> Self {
        Self {
            config: config.clone(),
            blocks,
            prefix_cache,
            inside: BTreeMap::new(),
            step: 0,
            paused: false,
            draining: false,
            live: Vec::new(),
            open: false,
            ended: Vec::new(),
            arrivals: 0,
            finished: 0,
            tokens: 0,
            preemptions: 0,
            abandoned: 0,
            expired: 0,
        }
    }

    /// One end each.
    pub(crate) fn end(&mut self, id: SeqId, finish: Finish) {
        let entry = self.inside.remove(&id).unwrap();
        self.ended.push((id, finish, entry.tokens));
        self.finished += 1;
    }

    /// It lost its blocks.
    pub(crate) fn put_back(&mut self, id: SeqId) {
        let entry = self.inside.get_mut(&id).unwrap();
        assert!(entry.running, "only who has blocks can lose them");
        (entry.running, entry.computed, entry.preempted) = (false, 0, true);
        self.preemptions += 1;
    }

    /// What comes of its span is of no interest any more.
    pub(crate) fn void(&mut self, plan: &StepPlan, id: SeqId) {
        for (live, _) in self.live.iter_mut().zip(&plan.spans).filter(|(_, s)| s.seq == id) {
            *live = false;
        }
    }

    /// Those that `which` holds for, best rank first, the running before the waiting.
    pub(crate) fn in_order(&self, which: impl Fn(&Entry) -> bool) -> Vec<SeqId> {
        let mut ids: Vec<_> = self.inside.iter().filter(|(_, entry)| which(entry)).collect();
        ids.sort_by_key(|(_, entry)| (!entry.running, entry.rank));
        ids.into_iter().map(|(&id, _)| id).collect()
    }

    pub(crate) fn has_work(&self) -> bool {
        self.inside.values().any(|entry| !entry.held) && !self.paused
    }

    /// How many sequences there are of the request whose first was called so.
    pub(crate) fn hold(&mut self, first: SeqId, held: bool) -> usize {
        let of_request = self.inside.values_mut().filter(|entry| entry.first == first);
        of_request.map(|entry| entry.held = held).count()
    }

    pub(crate) fn is_waiting_anew(&self, entry: &Entry) -> bool {
        !entry.running && !entry.preempted
    }

    pub(crate) fn enter(&mut self, request: &Request) {
        let limit = (request.prompt.len() + request.max_tokens).min(self.config.max_model_len);
        let age = self.step as i64 - i64::from(request.priority) * self.config.ageing_steps as i64;
        let number = self.arrivals;
        for sample in 0..request.samples {
            let entry = Entry {
                first: request.id,
                request: number,
                samples: request.samples,
                prompt: request.prompt.len(),
                tokens: request.prompt.clone(),
                limit,
                priority: request.priority,
                deadline: request.deadline,
                draft_cap: request.draft_cap,
                rank: (age, self.arrivals),
                running: false,
                computed: 0,
                preempted: false,
                failures: 0,
                held: false,
                passed: None,
            };
            self.arrivals += 1;
            assert!(self.inside.insert(request.sample_id(sample), entry).is_none());
        }
    }

    /// The scheduler shows what the ledger says.
    pub(crate) fn compare(&self, scheduler: &Scheduler, kv: &KvCache) {
        scheduler.audit(kv).unwrap();
        let running: Vec<_> = scheduler.running().map(|seq| seq.id()).collect();
        let waiting: Vec<_> = scheduler.waiting().map(|seq| seq.id()).collect();
        assert_eq!(running, self.in_order(|entry| entry.running));
        assert_eq!(waiting, self.in_order(|entry| !entry.running));
        assert_eq!(
            (scheduler.running_len(), scheduler.waiting_len()),
            (running.len(), waiting.len())
        );
        assert_eq!(scheduler.is_empty(), self.inside.is_empty());
        assert_eq!(scheduler.has_work(), self.has_work());
        assert_eq!((scheduler.is_paused(), scheduler.is_draining()), (self.paused, self.draining));
        for (id, entry) in &self.inside {
            let seq = scheduler.get(*id).unwrap();
            assert_eq!((seq.tokens(), seq.computed()), (&*entry.tokens, entry.computed), "{id:?}");
            assert_eq!((seq.first(), seq.generated()), (entry.first, entry.generated()));
            assert_eq!(seq.remaining(), entry.limit - entry.tokens.len());
            assert_eq!((seq.preemptions() > 0, seq.is_held()), (entry.preempted, entry.held));
            let spare = seq.kv().slots().saturating_sub(entry.tokens.len());
            assert!(self.open || spare == 0, "no draft outlives its step");
        }
        let ended =
            scheduler.ended().map(|(seq, finish)| (seq.id(), finish, seq.tokens().to_vec()));
        assert_eq!(ended.collect::<Vec<_>>(), self.ended);
        self.compare_blocks(scheduler, kv);
        let stats = scheduler.stats();
        assert_eq!((stats.submitted, stats.finished), (self.arrivals, self.finished));
        assert_eq!((stats.tokens, stats.preempted), (self.tokens, self.preemptions));
        assert_eq!((stats.abandoned, stats.expired), (self.abandoned, self.expired));
        assert_eq!(stats.steps, self.step);
    }

    /// Every block is held for a slot that somebody needs, and every such slot has one.
    fn compare_blocks(&self, scheduler: &Scheduler, kv: &KvCache) {
        let mut held: BTreeSet<BlockId> = BTreeSet::new();
        for seq in scheduler.running() {
            assert_eq!(seq.kv().table().len(), seq.kv().slots().div_ceil(BLOCK));
            held.extend(seq.kv().table());
        }
        assert_eq!(kv.usage().used, held.len());
        assert_eq!(kv.usage().free + kv.usage().used, self.blocks);
    }
}
