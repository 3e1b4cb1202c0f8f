//! Target and drafter as tables, and the law of all that can be said with them.
//!
//! A logit is a function of the last two tokens. [`plain`] makes probabilities of logits with the least of means, and
//! shares nothing with the code that does so in the engine.

use redline::spec::Law;
use redline::{Sampling, TokenId};

use crate::random::Random;

use super::grid::{Cell, Memory, samplings};

/// A place in the tree of all sequences: what has been said.
pub type Place = usize;

/// Both tables, one request's parameters, and the laws after everything that can be said.
pub struct World {
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// Tokens of a sequence.
    pub length: usize,
    /// What comes before it.
    pub prompt: Vec<TokenId>,
    /// How it is sampled.
    pub sampling: Sampling,
    target: Vec<Vec<f32>>,
    draft: Vec<Vec<f32>>,
    /// Target and drafter after everything shorter than a sequence.
    laws: Vec<[Law; 2]>,
}

impl World {
    /// The world of a cell.
    pub fn new(cell: &Cell) -> Self {
        let mut random = Random(0x7A_B1E5 + cell.number as u64);
        let (target, draft) = tables(cell.vocab, &mut random);
        // Where memory is to be short, a sequence crosses from its first block to its second.
        let before = if cell.memory == Memory::Ample { 2 } else { 28 };
        let prompt = [2, 0].into_iter().cycle().take(before).collect();
        let sampling = samplings().swap_remove(cell.sampling).1;
        Self::of(cell.vocab, cell.length(), prompt, sampling, (target, draft))
    }

    /// A world of given tables: logits by the last two tokens.
    pub fn of(
        vocab: usize,
        length: usize,
        prompt: Vec<TokenId>,
        sampling: Sampling,
        (target, draft): (Vec<Vec<f32>>, Vec<Vec<f32>>),
    ) -> Self {
        let mut this = Self { vocab, length, prompt, sampling, target, draft, laws: Vec::new() };
        let mut said = Vec::new();
        for place in 0..this.first(length) {
            this.said(place, &mut said);
            let tokens = [&this.prompt[..], &said].concat();
            let law = |table: &[Vec<f32>]| {
                let logits = &table[state(vocab, &tokens)];
                Law::dense(plain(logits, &this.sampling, &this.prompt, &said)).unwrap()
            };
            this.laws.push([law(&this.target), law(&this.draft)]);
        }
        this
    }

    /// The first place of those where so much has been said.
    pub fn first(&self, said: usize) -> Place {
        (0..said).map(|len| self.vocab.pow(len as u32)).sum()
    }

    /// The place one token on.
    pub fn step(&self, place: Place, token: TokenId) -> Place {
        place * self.vocab + 1 + token as usize
    }

    /// The place some tokens on.
    pub fn walk(&self, place: Place, tokens: &[TokenId]) -> Place {
        tokens.iter().fold(place, |place, &token| self.step(place, token))
    }

    /// What has been said at a place, into `out`.
    pub fn said(&self, mut place: Place, out: &mut Vec<TokenId>) {
        out.clear();
        while place > 0 {
            out.push(((place - 1) % self.vocab) as TokenId);
            place = (place - 1) / self.vocab;
        }
        out.reverse();
    }

    /// The target's law at a place.
    pub fn p(&self, place: Place) -> &Law {
        &self.laws[place][0]
    }

    /// The drafter's.
    pub fn q(&self, place: Place) -> &Law {
        &self.laws[place][1]
    }

    /// The probability of each whole sequence, in the order of places.
    pub fn joint(&self) -> Vec<f64> {
        let mut mass = vec![1.0];
        for place in 0..self.laws.len() {
            let here = mass[place];
            mass.extend((0..self.vocab as TokenId).map(|token| here * self.p(place).p(token)));
        }
        mass.split_off(self.laws.len())
    }

    /// Logits of target and drafter by the last two tokens.
    pub fn tables(&self) -> [&[Vec<f32>]; 2] {
        [&self.target, &self.draft]
    }
}

/// Which row of a table follows these tokens.
pub fn state(vocab: usize, tokens: &[TokenId]) -> usize {
    tokens[tokens.len() - 2..].iter().fold(0, |state, &token| state * vocab + token as usize)
}

/// Laws not too far from each other, some tokens impossible in one of them, here and there the same.
fn tables(vocab: usize, random: &mut Random) -> (Vec<Vec<f32>>, Vec<Vec<f32>>) {
    let rows = vocab * vocab;
    let row = |random: &mut Random| -> Vec<f32> {
        // Positive and negative logits, so that both arms of the repetition penalty are met.
        let lift = random.uniform() * 2.0 - 1.5;
        let mut row: Vec<f32> =
            (0..vocab).map(|_| (random.uniform() * 2.2 + lift) as f32).collect();
        if random.below(4) == 0 {
            row[random.below(vocab)] = f32::NEG_INFINITY;
        }
        row
    };
    let target: Vec<_> = (0..rows).map(|_| row(random)).collect();
    let draft = target.iter().map(|same| match random.below(8) {
        0 => same.clone(),
        _ => row(random),
    });
    let draft = draft.collect();
    (target, draft)
}

/// From logits to probabilities, as documented: bias; penalties; temperature; min-p; top-k; top-p.
pub fn plain(
    logits: &[f32],
    sampling: &Sampling,
    prompt: &[TokenId],
    said: &[TokenId],
) -> Vec<f64> {
    let adjusted = |(token, &logit): (usize, &f32)| {
        let id = token as TokenId;
        let mut x = f64::from(logit);
        x += sampling.logit_bias.iter().filter(|b| b.0 == id).map(|b| f64::from(b.1)).sum::<f64>();
        let times = said.iter().filter(|&&t| t == id).count() as f64;
        if times > 0.0 || prompt.contains(&id) {
            let by = sampling.repetition_penalty;
            x = if x > 0.0 { x / by } else { x * by };
        }
        x -= times * sampling.frequency_penalty;
        if times > 0.0 { x - sampling.presence_penalty } else { x }
    };
    let scores: Vec<f64> = logits.iter().enumerate().map(adjusted).collect();
    let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weight = |x: f64| ((x - best) / sampling.temperature).exp();
    let mut ranked: Vec<(usize, f64)> =
        scores.iter().map(|&x| weight(x)).enumerate().filter(|r| r.1 > 0.0).collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    ranked.retain(|r| r.1 >= sampling.min_p);
    if sampling.top_k > 0 {
        ranked.truncate(sampling.top_k as usize);
    }
    let all: f64 = ranked.iter().map(|r| r.1).sum();
    let mut before = 0.0;
    let mut p = vec![0.0; logits.len()];
    for (token, weight) in ranked {
        if sampling.top_p < 1.0 && before >= sampling.top_p * all {
            break;
        }
        before += weight;
        p[token] = weight;
    }
    p.iter().map(|weight| weight / before).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_sequences() {
        let cell =
            Cell { vocab: 4, ..Cell::plain("token", super::super::grid::Kind::Point, false) };
        let world = World::new(&cell);
        let mut said = Vec::new();
        let place = world.walk(0, &[3, 0, 2]);
        world.said(place, &mut said);
        assert_eq!(said, [3, 0, 2]);
        assert!((world.first(3)..world.first(4)).contains(&place));
        let joint = world.joint();
        assert_eq!(joint.len(), 4_usize.pow(world.length as u32));
        assert!((joint.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }

    /// Worked by hand: e⁰ = 1 for 2, which the others fall short of.
    #[test]
    fn the_processors_do_what_they_say() {
        let on = |sampling: &Sampling| plain(&[0.0, -1.0, 1.0], sampling, &[1], &[2, 2]);
        let plain = || Sampling { temperature: 1.0, ..Sampling::default() };
        let close = |a: Vec<f64>, b: [f64; 3]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
        let of = |x: [f64; 3]| {
            let sum: f64 = x.iter().map(|x| x.exp()).sum();
            x.map(|x| x.exp() / sum)
        };
        assert!(close(on(&plain()), of([0.0, -1.0, 1.0])));
        let penalties = Sampling {
            repetition_penalty: 2.0,
            frequency_penalty: 0.5,
            presence_penalty: 0.25,
            logit_bias: vec![(0, 0.5)],
            temperature: 0.5,
            ..Sampling::default()
        };
        assert!(close(on(&penalties), of([1.0, -4.0, -1.5])));
        let cut = on(&Sampling { top_k: 2, ..plain() });
        let e = std::f64::consts::E;
        assert!(close(cut, [1.0 / (1.0 + e), 0.0, e / (1.0 + e)]));
        assert!(close(on(&Sampling { top_p: 0.5, ..plain() }), [0.0, 0.0, 1.0]));
        assert!(close(
            on(&Sampling { min_p: 0.3, ..plain() }),
            [1.0 / (1.0 + e), 0.0, e / (1.0 + e)]
        ));
    }
}
