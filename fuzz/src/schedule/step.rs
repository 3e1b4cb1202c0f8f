//! One step: planned, drafted, computed in memory, and committed or abandoned as the bytes say.

use redline_scheduler::{Commit, Finish, Lane, Offer, Outcome, SeqId, Span};

use super::memory::{LANES_MAX, Read};
use super::tree::{Tree, Whim};
use super::world::{World, pick};

/// Where a step fails, if it does.
#[derive(PartialEq)]
enum Fate {
    Done,
    /// Before its copies were made.
    NotCopied,
    /// Before it was committed.
    NotComputed,
    /// After it was committed: its moves are not made.
    NotMoved,
}

impl World<'_> {
    pub(super) fn step(&mut self) {
        let offers = self.offers();
        let decoding: Vec<_> =
            self.scheduler.running().filter(|seq| seq.behind() == 1).map(|seq| seq.id()).collect();
        self.scheduler.plan(&mut self.kv, &mut Whim(&mut self.bytes), &offers, &mut self.plan);
        self.void.clear();
        self.collect();
        self.check_plan(&decoding, &offers);
        let fate = match pick(&mut self.bytes, 16) {
            13 => Fate::NotMoved,
            14 => Fate::NotComputed,
            15 => Fate::NotCopied,
            _ => Fate::Done,
        };
        if fate != Fate::NotCopied {
            self.memory.copy(&self.plan.copies);
        }
        for seq in self.scheduler.running() {
            self.memory.scribble(seq.kv().table(), seq.computed()..seq.kv().slots());
        }
        self.interlude();
        if fate == Fate::NotCopied {
            return self.abandon();
        }
        self.draft();
        self.interlude();
        if fate == Fate::NotComputed {
            return self.abandon();
        }
        self.commit(&fate);
    }

    /// Callers do not wait for a step to end.
    fn interlude(&mut self) {
        while pick(&mut self.bytes, 8) == 7 {
            self.meddle();
        }
    }

    fn offers(&mut self) -> Vec<Offer> {
        let nobody = SeqId(u64::MAX);
        let mut offers = vec![Offer { seq: nobody, nodes: 3, lane: None, draft_context: 9 }];
        for seq in self.scheduler.running() {
            let b = &mut self.bytes;
            if pick(b, 3) > 0 {
                let draft_context = if pick(b, 4) == 3 { pick(b, 64) } else { usize::MAX };
                let lane = self.jobs.0[&seq.id()].lane;
                offers.push(Offer { seq: seq.id(), nodes: pick(b, 8), lane, draft_context });
            }
        }
        offers
    }

    fn check_plan(&self, decoding: &[SeqId], offers: &[Offer]) {
        let plan = &self.plan;
        assert!(plan.rows() <= self.scheduler.config().token_budget);
        assert_eq!(plan.is_empty(), !self.scheduler.has_work(), "some progress in every step");
        let paused = self.scheduler.is_paused();
        for id in decoding.iter().filter(|id| !paused && !plan.preempted.contains(id)) {
            assert!(plan.spans.iter().any(|span| span.seq == *id && span.round), "no decode gap");
        }
        for (i, span) in plan.spans.iter().enumerate() {
            assert!(plan.spans[..i].iter().all(|other| other.seq != span.seq), "one span each");
            let seq = self.scheduler.get(span.seq).expect("who is planned is there");
            assert_eq!((span.start, span.round), (seq.computed(), span.len == seq.behind()));
            let slots = seq.tokens().len() + span.drafts;
            assert_eq!(seq.kv().slots(), slots, "slots for exactly what was granted");
            if span.drafts == 0 {
                continue;
            }
            let offer = offers.iter().find(|offer| offer.seq == span.seq).expect("an offer");
            let most = offer.nodes.min(seq.draft_cap()).min(seq.remaining() - 1);
            assert!(span.round && span.drafts <= most && slots <= offer.draft_context);
            let caught_up = plan
                .fills
                .iter()
                .any(|fill| fill.seq == span.seq && fill.start + fill.len == seq.tokens().len());
            assert!(offer.lane.is_none() || caught_up, "who drafts has its lane");
        }
    }

    /// Fills lanes, drafts, and settles; some fills are cut short or not done at all.
    fn draft(&mut self) {
        self.trees.clear();
        for i in 0..self.plan.spans.len() {
            let span = self.plan.spans[i];
            let nodes = pick(&mut self.bytes, span.drafts + 1);
            let mut tree = Tree::grow(&mut self.bytes, nodes);
            if let Some(at) = self.plan.fills.iter().position(|fill| fill.seq == span.seq) {
                let luck = pick(&mut self.bytes, 8);
                let fill = &mut self.plan.fills[at];
                if luck == 7 {
                    self.plan.fills.remove(at);
                    tree = Tree::default();
                } else {
                    if luck == 6 && fill.len > 1 {
                        fill.len -= 1;
                        tree = Tree::default();
                    }
                    self.fill(at, &mut tree);
                }
            }
            self.trees.push(tree);
        }
        let shapes: Vec<_> = self.trees.iter().map(Tree::nodes).collect();
        let copies = self.scheduler.settle(&mut self.kv, &mut self.plan, &shapes);
        self.memory.copy(copies);
        self.collect();
    }

    /// A drafter's pass: over committed tokens, then over its own nodes if it has caught up.
    fn fill(&mut self, at: usize, tree: &mut Tree) {
        let fill = self.plan.fills[at];
        if self.void.contains(&fill.seq) {
            return;
        }
        let seq = self.scheduler.get(fill.seq).expect("a fill is beside a span");
        let (table, end) = (seq.kv().table(), fill.start + fill.len);
        let tokens = &seq.tokens()[fill.start..end];
        let read = self.memory.feed(table, fill.start, tokens, fill.lane);
        if end == seq.tokens().len() {
            let place = (table, seq.kv().slots());
            tree.feed(&mut self.bytes, &mut self.memory, place, (end, fill.lane, read));
        }
    }

    /// The target's pass over one span.
    fn forward(&mut self, i: usize) -> Outcome {
        let span = self.plan.spans[i];
        if self.void.contains(&span.seq) {
            return match span.round {
                true => Outcome::Round { path: vec![], tokens: vec![0], draft_fed: 0 },
                false => Outcome::Chunk,
            };
        }
        if pick(&mut self.bytes, 32) == 31 {
            return Outcome::Failed;
        }
        let seq = self.scheduler.get(span.seq).expect("it was neither cancelled nor ended");
        let (table, end) = (seq.kv().table(), span.start + span.len);
        let tokens = &seq.tokens()[span.start..end];
        let read = self.memory.feed(table, span.start, tokens, Lane::TARGET);
        if !span.round {
            return Outcome::Chunk;
        }
        let (tree, place) = (&self.trees[i], (table, seq.kv().slots()));
        tree.write(&mut self.memory, place, (end, span.drafts), (Lane::TARGET, read));
        tree.outcome(&mut self.bytes)
    }

    fn commit(&mut self, fate: &Fate) {
        let outcomes: Vec<_> = (0..self.plan.spans.len()).map(|i| self.forward(i)).collect();
        self.interlude();
        for (span, outcome) in self.plan.spans.iter().zip(&outcomes) {
            if let Some(job) =
                self.jobs.0.get_mut(&span.seq).filter(|_| !self.void.contains(&span.seq))
            {
                match outcome {
                    Outcome::Failed => job.ends_as = Some(Finish::Failed),
                    _ => job.failures = 0,
                }
            }
        }
        let done = self.scheduler.commit(&mut self.kv, &self.plan, &outcomes, &mut self.jobs);
        assert_eq!(done.commits.len(), outcomes.len());
        for ((commit, span), outcome) in done.commits.iter().zip(&self.plan.spans).zip(&outcomes) {
            check_commit(commit, span, outcome, self.void.contains(&span.seq));
        }
        if *fate != Fate::NotMoved {
            self.memory.relocate(&done.moves);
        }
        self.collect();
        match fate {
            Fate::NotMoved => self.abandon(),
            _ => self.check_memory(),
        }
    }

    fn abandon(&mut self) {
        let retries = self.scheduler.config().retries;
        let mut expected = Vec::new();
        for span in self.plan.spans.iter().filter(|span| !self.void.contains(&span.seq)) {
            let Some(job) = self.jobs.0.get_mut(&span.seq) else { continue };
            job.failures += 1;
            if job.failures > retries {
                job.ends_as = Some(Finish::Failed);
                expected.push(span.seq);
            }
        }
        let failed = self.scheduler.abandon(&mut self.kv, &self.plan);
        assert!(failed.iter().map(|failed| failed.seq).eq(expected), "who failed is named");
        self.collect();
        self.check_memory();
    }

    /// Every slot that counts as filled holds what its sequence's tokens put there.
    fn check_memory(&mut self) {
        for seq in self.scheduler.running() {
            let table = seq.kv().table();
            let filled: [usize; LANES_MAX] =
                std::array::from_fn(|lane| match lane < self.kv.lanes() {
                    true => seq.kv().filled(&self.kv, Lane(lane as u8)),
                    false => 0,
                });
            assert!(seq.computed() <= filled[0], "what is computed is filled");
            let mut read = Read::default();
            for (slot, &token) in seq.tokens().iter().enumerate().take(seq.computed()) {
                let value = read.value(token);
                read = read.slot(value);
                let found = *self.memory.at(table, slot);
                for lane in (0..LANES_MAX).filter(|&lane| slot < filled[lane]) {
                    assert_eq!(found[lane], value, "lane {lane}, slot {slot}, {:?}", seq.id());
                }
            }
        }
    }
}

fn check_commit(commit: &Commit, span: &Span, outcome: &Outcome, void: bool) {
    assert_eq!(commit.seq, span.seq);
    let nothing = Commit { seq: span.seq, kept: 0, accepted: 0, finish: None };
    match outcome {
        _ if void => assert_eq!(*commit, nothing, "what is void is ignored"),
        Outcome::Chunk => assert_eq!(*commit, nothing),
        Outcome::Failed => assert_eq!((commit.kept, commit.finish), (0, Some(Finish::Failed))),
        Outcome::Round { path, tokens, .. } => {
            assert!(commit.kept > 0 && commit.kept <= tokens.len(), "a round yields");
            assert_eq!(commit.accepted, commit.kept.min(path.len()));
            let whole = commit.kept == tokens.len();
            assert!(whole || commit.finish.is_some(), "cut only where it ends");
        }
    }
}
