//! A vLLM-style loop of one's own over nothing but `redline-spec` and `redline-kv-cache`.
//!
//! There is no engine and no redline scheduler here: first come, first served, a speculative round per sequence
//! and step. The model is a mock that computes its logits from the tokens it *reads through the block table*, so a
//! wrong slot would change the output; the output is compared with plain decoding.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;

use anyhow::{Result, ensure};
use redline_kv_cache::{BlockId, KvCache, KvConfig, MAX_LANES, SequenceKv};
use redline_spec::{
    Coupled, DraftJob, Drafter, Draws, History, LogitRows, Ngram, Proposal, Round, Sampling,
    Scratch, TokenId, Verdict, Verifier,
};

const VOCAB: usize = 6;
const BLOCK: usize = 4;
const BLOCKS: usize = 24;
const GOAL: usize = 30;

/// "KV memory": what a model would have cached for a slot is here the token itself.
struct Mock(Vec<TokenId>);

impl Mock {
    /// Feeds `tokens` into the slots from `start` on and gives a row of logits after each.
    fn forward(&mut self, table: &[BlockId], start: usize, tokens: &[TokenId]) -> Vec<f32> {
        let at = |slot: usize| table[slot / BLOCK].0 as usize * BLOCK + slot % BLOCK;
        let mut logits = Vec::with_capacity(tokens.len() * VOCAB);
        for (slot, &token) in (start..).zip(tokens) {
            self.0[at(slot)] = token;
            let visible = (slot.saturating_sub(2)..=slot).map(|slot| self.0[at(slot)]);
            let state = visible.fold(7_u32, |hash, t| hash.wrapping_mul(31).wrapping_add(t));
            logits.extend((0..VOCAB as u32).map(|id| {
                let mixed = (state ^ id.wrapping_mul(0x9E37_79B9)).wrapping_mul(0x85EB_CA6B);
                (mixed >> 16) as f32 / 16_384.0
            }));
        }
        logits
    }
}

struct Sequence {
    id: u64,
    tokens: Vec<TokenId>,
    kv: SequenceKv,
    history: History,
    draws: Draws,
}

struct Loop {
    kv: KvCache,
    model: Mock,
    drafter: Ngram,
    scratch: Scratch,
    sampling: Sampling,
    drafts: usize,
    rounds: usize,
}

impl Loop {
    fn new(drafts: usize) -> Result<Self> {
        let kv = KvCache::new(&KvConfig {
            blocks: BLOCKS as u32,
            block_size: BLOCK as u32,
            lanes: 1,
            prefix_cache: true,
            hash_key: [1; 32],
            with_target_lanes: [false; MAX_LANES],
        })?;
        let model = Mock(vec![TokenId::MAX; BLOCKS * BLOCK]);
        let sampling = Sampling { temperature: 0.7, ..Sampling::default() };
        let (drafter, scratch) = (Ngram::default(), Scratch::default());
        Ok(Self { kv, model, drafter, scratch, sampling, drafts, rounds: 0 })
    }

    /// Whoever fits with all they may ever need joins the batch.
    fn admit(&mut self, id: u64, prompt: &[TokenId]) -> Option<Sequence> {
        let mut kv = SequenceKv::new(0);
        kv.attach_prefix(&mut self.kv, prompt, prompt.len() - 1);
        if kv.reserve(&mut self.kv, GOAL + self.drafts, &mut Vec::new()).is_err() {
            kv.release(&mut self.kv);
            return None;
        }
        let (history, draws) = (History::new(prompt), Draws { seed: 100 + id, sample: 0 });
        Some(Sequence { id, tokens: prompt.to_vec(), kv, history, draws })
    }

    /// Draft, one pass of the target, verify, commit. The first round feeds the whole prompt.
    fn round(&mut self, seq: &mut Sequence) -> Result<()> {
        let offered = self.drafter.offer(seq.id, &seq.tokens);
        let job = DraftJob {
            seq: seq.id,
            tokens: &seq.tokens,
            budget: offered.min(self.drafts),
            shape: &[],
            mode: Coupled.draw_mode(),
            draws: seq.draws,
            sampling: &self.sampling,
            history: &seq.history,
            constraint: None,
            ends: &[],
            table: &[],
            fill: 0..0,
        };
        let mut out = [Ok(Proposal::new())];
        self.drafter.propose(&[job], &mut out);
        let [proposal] = out;
        let proposal = proposal?;

        let (start, base) = (seq.kv.len(), seq.tokens.len());
        let drafted = proposal.nodes().iter().map(|node| node.token);
        let fed: Vec<TokenId> = seq.tokens[start..].iter().copied().chain(drafted).collect();
        seq.kv.reserve(&mut self.kv, start + fed.len(), &mut Vec::new())?;
        let logits = self.model.forward(seq.kv.table(), start, &fed);

        let root = (&logits[(base - start - 1) * VOCAB..], VOCAB);
        let law_of = (&self.sampling, &seq.history);
        let mut rows = LogitRows::new(root, &proposal, law_of, None, &mut self.scratch);
        let round = Round { proposal: &proposal, base: base as u64, draws: seq.draws };
        let (mut verdict, mut new) = (Verdict::default(), Vec::new());
        Coupled.verify(&round, &mut rows, &mut verdict)?;

        drop(rows);
        verdict.tokens(&proposal, &mut new);
        new.iter().for_each(|&token| seq.history.push(token));
        seq.tokens.extend_from_slice(&new);
        seq.kv.commit(&mut self.kv, &seq.tokens, base + verdict.path.len());
        self.rounds += 1;
        Ok(())
    }

    fn run(mut self) -> Result<(BTreeMap<u64, Vec<TokenId>>, usize)> {
        let prompt = |id: u64| (0..9).map(|i| ((i * (id + 1)) % VOCAB as u64) as TokenId).collect();
        let mut waiting: VecDeque<(u64, Vec<TokenId>)> = (0..6).map(|i| (i, prompt(i))).collect();
        let (mut running, mut done) = (Vec::new(), BTreeMap::new());
        while !waiting.is_empty() || !running.is_empty() {
            while let Some(seq) = waiting.front().and_then(|(id, prompt)| self.admit(*id, prompt)) {
                running.push(seq);
                waiting.pop_front();
            }
            running.iter_mut().try_for_each(|seq| self.round(seq))?;
            for seq in running.extract_if(.., |seq| seq.tokens.len() >= GOAL) {
                seq.kv.release(&mut self.kv);
                self.drafter.forget(seq.id);
                done.insert(seq.id, seq.tokens[..GOAL].to_vec());
            }
            self.kv.audit(running.iter().map(|seq| &seq.kv))?;
        }
        ensure!(self.kv.usage().used == 0, "blocks were lost");
        Ok((done, self.rounds))
    }
}

fn main() -> Result<()> {
    let ((plain, many), (speculative, few)) = (Loop::new(0)?.run()?, Loop::new(3)?.run()?);
    ensure!(plain == speculative, "speculation changed the output");
    Ok(writeln!(std::io::stdout(), "{} equal outputs in {few} rounds, not {many}", plain.len())?)
}
