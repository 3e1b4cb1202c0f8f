//! Plain decoding in thirty lines, without engine, scheduler, cache or batch: what must come out.

use redline::spec::{
    Constraint, Draws, History, Position, Scratch, TokenFilter, coupled_sample, law,
};
use redline::{Batch, GenerateRequest, ModelRunner, Prompt, Rows, TokenId};
use redline_kv_cache::BlockId;

use crate::words::EOS;

const BLOCK: u32 = 32;

/// The tokens that a sample of `request` must give (its stop strings left aside), computed token by token.
pub fn oracle(model: &mut dyn ModelRunner, request: &GenerateRequest, sample: u32) -> Vec<TokenId> {
    let Prompt::Tokens(prompt) = &request.prompt else { panic!("the oracle takes tokens") };
    let blocks = ((prompt.len() + request.max_tokens) as u32).div_ceil(BLOCK);
    // Backwards, so that block tables matter.
    let table: Vec<_> = (0..blocks).rev().map(BlockId).collect();
    model.allocate(blocks, BLOCK).unwrap();

    let draws = Draws { seed: request.seed.unwrap(), sample };
    let filter = TokenFilter::ban(request.banned.iter().copied());
    let constraint = (!request.banned.is_empty()).then_some(&filter as &dyn Constraint);
    let (mut history, mut scratch) = (History::new(prompt), Scratch::default());
    let (mut batch, mut rows) = (Batch::default(), Rows::default());
    let mut tokens = prompt.clone();
    let mut fed = 0;
    while tokens.len() < prompt.len() + request.max_tokens {
        while fed < tokens.len() {
            batch.clear();
            batch.push_seq(&table);
            batch.push_row(tokens[fed], fed as u32);
            batch.want.push(0);
            model.forward(&batch, &mut rows).unwrap();
            fed += 1;
        }
        let (sampling, history_now) = (&request.sampling, &history);
        let at = Position { sampling, history: history_now, path: &[], constraint };
        let next = law(&rows.logits, &at, &mut scratch).unwrap();
        let token = coupled_sample(&next, &draws, tokens.len() as u64);
        history.push(token);
        tokens.push(token);
        if token == EOS && !request.ignore_eos {
            break;
        }
    }
    tokens.split_off(prompt.len())
}
