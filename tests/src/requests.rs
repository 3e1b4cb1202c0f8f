//! Requests of all sorts, the same ones for the same seed.

use redline::{GenerateRequest, Prompt, RequestOutput, Sampling, TokenId};

pub use crate::random::Random;
use crate::words::{EOS, VOCAB};

/// Lengths around the block size and far from each other.
const LENGTHS: [usize; 12] = [3, 33, 1, 130, 64, 9, 250, 31, 32, 65, 97, 2];

/// `n` requests: short and long prompts, some of them repetitive; greedy and sampled, every processor on
/// somewhere, bans, a likely end of text.
pub fn mixed(seed: u64, n: usize) -> Vec<GenerateRequest> {
    let mut random = Random(seed);
    let turn = random.below(LENGTHS.len());
    (0..n).map(|i| one(&mut random, i + turn)).collect()
}

fn one(random: &mut Random, i: usize) -> GenerateRequest {
    let length = LENGTHS[i % LENGTHS.len()];
    // Without marks, so that only the model ends a text.
    let mut token = |bound: usize| random.below(bound) as TokenId;
    let prompt: Vec<_> = if i.is_multiple_of(3) {
        let motif: Vec<_> = (0..5).map(|_| token(VOCAB - 2)).collect();
        motif.into_iter().cycle().take(length).collect()
    } else {
        (0..length).map(|_| token(VOCAB - 2)).collect()
    };
    let sampling = sampling(i, random);
    GenerateRequest {
        max_tokens: 12 + random.below(36),
        sampling,
        seed: Some(random.next_u64()),
        ignore_eos: i % 4 == 1,
        banned: if i % 5 == 2 { vec![4, 17, 40, EOS] } else { Vec::new() },
        ..GenerateRequest::new(Prompt::Tokens(prompt))
    }
}

/// Eight ways to sample.
fn sampling(i: usize, random: &mut Random) -> Sampling {
    let plain = Sampling { temperature: 1.0, ..Sampling::default() };
    match i % 8 {
        0 | 1 => Sampling::default(),
        2 => plain,
        3 => Sampling { top_k: 5, ..plain },
        4 => Sampling { temperature: 0.8, top_p: 0.9, ..plain },
        5 => Sampling { min_p: 0.05, logit_bias: vec![(EOS, 3.0), (7, -2.0)], ..plain },
        6 => Sampling {
            repetition_penalty: 1.3,
            presence_penalty: 0.5,
            frequency_penalty: 0.25,
            ..Sampling::default()
        },
        _ => Sampling {
            temperature: 1.2,
            top_k: 20,
            top_p: 0.95,
            min_p: 0.01,
            repetition_penalty: 1.1,
            presence_penalty: -0.5,
            frequency_penalty: 0.5,
            logit_bias: vec![(random.below(VOCAB) as TokenId, 1.5)],
        },
    }
}

/// Gives every third request a stop string out of the middle of what it says without one.
pub fn stop_midway(requests: &mut [GenerateRequest], outputs: &[RequestOutput]) {
    for (request, output) in requests.iter_mut().zip(outputs).step_by(3) {
        let text: Vec<char> = output.text.chars().collect();
        if text.len() >= 6 {
            let middle = text.len() / 2;
            request.stop = vec![text[middle..middle + 3].iter().collect(), "never said".into()];
        }
    }
}

/// A greedy request for exactly `max_tokens` tokens.
pub fn greedy(prompt: &[TokenId], max_tokens: usize) -> GenerateRequest {
    GenerateRequest {
        max_tokens,
        seed: Some(0),
        ignore_eos: true,
        ..GenerateRequest::new(Prompt::Tokens(prompt.to_vec()))
    }
}

/// A prompt of `length` random tokens.
pub fn prompt(seed: u64, length: usize) -> Vec<TokenId> {
    let mut random = Random(seed);
    (0..length).map(|_| random.below(VOCAB - 2) as TokenId).collect()
}

/// Prompt and output of each request.
pub fn whole(requests: &[GenerateRequest], outputs: &[RequestOutput]) -> Vec<Vec<TokenId>> {
    let pairs = requests.iter().zip(outputs);
    pairs
        .map(|(request, output)| match &request.prompt {
            Prompt::Tokens(tokens) => [&tokens[..], &output.token_ids].concat(),
            _ => Vec::new(),
        })
        .collect()
}
