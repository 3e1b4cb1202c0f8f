//! Log-probabilities of emitted tokens, for requests that ask: what the caller gets, in the shape of OpenAI's API,
//! and taking them off the rows that a round was verified on.

use redline_spec::{LawError, Proposal, TargetRows, TokenId, TokenLogprobs, Verdict, VerifyError};
use serde::Serialize;

use crate::text::Tokenizer;

/// The most alternatives a request may ask for, as in the OpenAI API.
pub const TOP_LOGPROBS_MAX: usize = 20;

/// Which law the log-probabilities are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogprobsMode {
    /// The model's own: the log-softmax of its logits, whatever is done to them afterwards
    #[default]
    Raw,
    /// The one the token was drawn from: after temperature, truncation, penalties, bias and constraint
    Processed,
}

/// What a request wants to know about its tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Logprobs {
    /// How many of the likeliest tokens are told beside the emitted one: at most [`TOP_LOGPROBS_MAX`].
    pub top: usize,
    /// Which law is meant.
    pub mode: LogprobsMode,
}

/// A token and its natural-log probability.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Logprob {
    /// The token's text, with U+FFFD for broken characters; marks as the vocabulary writes them.
    pub token: String,
    /// Its id.
    pub id: TokenId,
    /// −∞, which is `null` in JSON, if the law does not hold it.
    pub logprob: f64,
    /// The bytes it adds to the text: a character may be spread over several tokens. `None` without a tokenizer.
    pub bytes: Option<Vec<u8>>,
}

/// An emitted token's log-probability, and the likeliest tokens in its place.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TokenLogprob {
    /// The emitted token's.
    #[serde(flatten)]
    pub own: Logprob,
    /// The likeliest tokens, best first, lower ids first among equals; the emitted one need not be among them. Fewer than
    /// asked for where the law has fewer: greedy decoding's processed law has a single token.
    pub top_logprobs: Vec<Logprob>,
}

/// The log-probabilities of a sample, one entry for each of its tokens.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct LogprobsOutput {
    /// In the order of [`RequestOutput::token_ids`](crate::RequestOutput::token_ids).
    pub content: Vec<TokenLogprob>,
}

impl TokenLogprob {
    pub(crate) fn new(
        token: TokenId,
        found: &TokenLogprobs,
        tokenizer: Option<&Tokenizer>,
    ) -> Self {
        let describe = |id: TokenId, logprob: f64| Logprob {
            token: tokenizer.map_or_else(|| format!("<id {id}>"), |t| t.piece(id).into_owned()),
            id,
            logprob,
            bytes: tokenizer.and_then(|t| t.token_bytes(id)).map(<[u8]>::to_vec),
        };
        Self {
            own: describe(token, found.logprob),
            top_logprobs: found.top.iter().map(|&(id, logprob)| describe(id, logprob)).collect(),
        }
    }
}

/// A round that has a verdict, and the logits it was reached on.
pub(crate) struct Decided<'a> {
    pub(crate) verdict: &'a Verdict,
    pub(crate) proposal: &'a Proposal,
    /// The root's row, then one per node; the first `used` of each `width` values belong to tokens.
    pub(crate) logits: &'a [f32],
    pub(crate) width: usize,
    pub(crate) used: usize,
    /// Tokens that end the text: what was drawn behind one is cut, and its row need not be a law.
    pub(crate) ends: &'a [TokenId],
}

impl Decided<'_> {
    /// What `wanted` says of each token of the round, up to the end of the text.
    pub(crate) fn logprobs(
        &self,
        wanted: Logprobs,
        rows: &mut dyn TargetRows,
        out: &mut Vec<(TokenId, TokenLogprobs)>,
    ) -> Result<(), VerifyError> {
        out.clear();
        let mut tokens = Vec::new();
        self.verdict.tokens(self.proposal, &mut tokens);
        let above = std::iter::once(None).chain(self.verdict.path.iter().map(|&node| Some(node)));
        for (node, token) in above.zip(tokens) {
            let found = match wanted.mode {
                LogprobsMode::Processed => {
                    TokenLogprobs::of_law(rows.law(node)?, token, wanted.top)
                }
                LogprobsMode::Raw => self.raw(node, token, wanted.top).map_err(|source| {
                    VerifyError::Row(redline_spec::RowError::Bad { node, source })
                })?,
            };
            out.push((token, found));
            if self.ends.contains(&token) {
                break;
            }
        }
        Ok(())
    }

    fn raw(
        &self,
        node: Option<u32>,
        token: TokenId,
        top: usize,
    ) -> Result<TokenLogprobs, LawError> {
        let start = node.map_or(0, |node| node as usize + 1) * self.width;
        let row = self.logits.get(start..start + self.used).unwrap_or_default();
        TokenLogprobs::of_logits(row, token, top)
    }
}
