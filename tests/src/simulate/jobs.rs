//! The requests inside, and what is known about each: what plain decoding would give, token by token.

use redline_scheduler::{Rank, Scan, SeqId, StopRule, TokenId};
use redline_spec::{Draws, History, Sampling};

use super::drafter::Kind;
use super::laws::{Laws, Tally, Temperature};
use super::memory::Read;
use super::rule::Broken;
use super::shape::Rule;

/// A request that has not ended.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) id: SeqId,
    pub(crate) prompt_len: usize,
    /// The most it will generate.
    pub(crate) count: usize,
    /// Its stop rule says stop at this token.
    pub(crate) stop_after: Option<usize>,
    pub(crate) kind: Kind,
    pub(crate) temperature: Temperature,
    pub(crate) draws: Draws,
    /// A fixed number of drafts, asked for by the request.
    pub(crate) pinned: Option<usize>,
    /// What plain decoding has read after the committed tokens.
    pub(crate) plain: Read,
    pub(crate) generated: usize,
    /// Step in which it last came into the queue.
    pub(crate) queued_at: u64,
    /// Step in which somebody behind it was let in before it, since it came into the queue.
    pub(crate) passed_at: Option<u64>,
    /// The name of the first sequence of its request.
    pub(crate) first: SeqId,
    pub(crate) deadline: Option<u64>,
    pub(crate) rank: Option<Rank>,
    /// How many that rank before it were inside with it.
    pub(crate) ahead: u64,
    /// Good steps of the world when it came.
    pub(crate) since: u64,
}

/// All sequences inside, found by the low bits of their id; and the stop rule over them.
#[derive(Debug)]
pub(crate) struct Jobs {
    /// By place of the request and number of the sample.
    places: Vec<[Option<Job>; SAMPLES]>,
    /// Places without a job.
    vacant: Vec<usize>,
    count: usize,
    serial: u64,
    pub(crate) laws: Laws,
    pub(crate) rule: Rule,
    pub(crate) tally: Tally,
    /// The first rule broken inside a callback, where nothing can be returned.
    pub(crate) broken: Option<Broken>,
    pub(crate) sampling: Sampling,
    pub(crate) history: History,
}

/// Sequences of one request, at most.
pub(crate) const SAMPLES: usize = 4;
const PLACE_BITS: u32 = 16;

impl Jobs {
    pub(crate) fn new(rule: Rule) -> Self {
        Self {
            places: Vec::new(),
            vacant: Vec::new(),
            count: 0,
            serial: 0,
            laws: Laws::new(),
            rule,
            tally: Tally::default(),
            broken: None,
            sampling: Sampling::default(),
            history: History::default(),
        }
    }

    fn place(id: SeqId) -> (usize, usize) {
        let low = (id.0 & ((1 << PLACE_BITS) - 1)) as usize;
        (low / SAMPLES, low % SAMPLES)
    }

    /// A name for the first sequence of a new request; those of further samples follow. Nothing is taken until
    /// [`Jobs::insert`].
    pub(crate) fn fresh_id(&mut self) -> SeqId {
        self.serial += 1;
        let place = self.vacant.last().copied().unwrap_or(self.places.len());
        SeqId((self.serial << PLACE_BITS) | (place * SAMPLES) as u64)
    }

    pub(crate) fn insert(&mut self, job: Job) {
        let (place, sample) = Self::place(job.id);
        if place == self.places.len() {
            self.places.push(Default::default());
        } else if self.places[place].iter().all(Option::is_none) {
            self.vacant.retain(|&vacant| vacant != place);
        }
        self.count += 1;
        self.places[place][sample] = Some(job);
    }

    pub(crate) fn remove(&mut self, id: SeqId) -> Option<Job> {
        self.get(id)?;
        let (place, sample) = Self::place(id);
        let job = self.places[place][sample].take();
        if self.places[place].iter().all(Option::is_none) {
            self.vacant.push(place);
        }
        self.count -= 1;
        job
    }

    pub(crate) fn get(&self, id: SeqId) -> Option<&Job> {
        let (place, sample) = Self::place(id);
        self.places.get(place)?[sample].as_ref().filter(|job| job.id == id)
    }

    pub(crate) fn get_mut(&mut self, id: SeqId) -> Option<&mut Job> {
        let (place, sample) = Self::place(id);
        self.places.get_mut(place)?[sample].as_mut().filter(|job| job.id == id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Job> {
        self.places.iter().flatten().flatten()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Job> {
        self.places.iter_mut().flatten().flatten()
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Whether the output must be the plain sampler's, token for token.
    pub(crate) fn is_exact(rule: Rule, job: &Job) -> bool {
        rule == Rule::Coupled || job.temperature == Temperature::Zero
    }

    pub(crate) fn note(&mut self, text: impl FnOnce() -> String) {
        if self.broken.is_none() {
            self.broken = Some(Broken(text()));
        }
    }
}

impl Job {
    /// Position of the next token.
    pub(crate) fn position(&self) -> u64 {
        (self.prompt_len + self.generated) as u64
    }

    /// What plain decoding emits next.
    pub(crate) fn next(&self, laws: &Laws) -> TokenId {
        laws.plain(self.plain, self.temperature, (&self.draws, self.position()))
    }
}

impl StopRule for Jobs {
    fn scan(&mut self, seq: SeqId, token: TokenId) -> Scan {
        let (laws, rule) = (&self.laws, self.rule);
        let (place, sample) = Self::place(seq);
        let job = self.places.get_mut(place).and_then(|jobs| jobs[sample].as_mut());
        let Some(job) = job.filter(|job| job.id == seq) else {
            self.note(|| format!("a token for request {}, which is not inside", seq.0));
            return Scan::Stop;
        };
        let expected = Self::is_exact(rule, job).then(|| job.next(laws));
        match expected {
            None => self.tally.count(job.plain, token, job.kind == Kind::Sloppy),
            Some(expected) if expected != token => {
                let (id, at) = (job.id.0, job.generated);
                self.note(|| format!("token {at} of request {id} is not that of the plain run"));
                return Scan::Stop;
            }
            Some(_) => (),
        }
        job.plain = job.plain.token(token);
        job.generated += 1;
        if job.stop_after == Some(job.generated) { Scan::Stop } else { Scan::Go }
    }
}
