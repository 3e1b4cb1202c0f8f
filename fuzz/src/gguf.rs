//! A model file from a stranger: everything that loading does before it reads weights.

use std::io::{Read, repeat};

use redline::gguf::{GgufError, Header};
use redline::model::Config;
use redline::text::{ChatTemplate, Tokenizer};

use crate::limit::within;

/// Weights that the input is followed by: they are never read here, and need not be in the corpus.
const WEIGHTS: u64 = 1 << 14;
/// What a header may take for each byte of its file, and besides: far less than is promised for small files (64 MiB).
const BYTES_PER_BYTE: usize = 32;
const SLACK_BYTES: usize = 1 << 18;
/// Tokenizer and template: compiled regular expressions, tables per token.
const TEXT_BYTES: usize = 64 << 20;

pub fn run(data: &[u8]) {
    let whole_len = data.len() as u64 + WEIGHTS;
    let limit = whole_len as usize * BYTES_PER_BYTE + SLACK_BYTES;
    let bare = within(limit, || Header::scan(data, data.len() as u64));
    let long = data.chain(repeat(0).take(WEIGHTS));
    let whole = within(limit, || Header::scan(long, whole_len));
    if let Err(error) = &whole {
        assert!(!error.to_string().is_empty());
        assert!(bare.is_err(), "a file is no worse for being longer: {error}");
        return;
    }
    let Ok(header) = whole else { return };
    if let Ok(bare) = bare {
        // As text, where NaN equals NaN.
        let (bare, header) = (format!("{bare:?}"), format!("{header:?}"));
        assert_eq!(bare, header, "weights do not change the header");
    }
    check(&header, whole_len);
    within(TEXT_BYTES, || load(&header));
}

fn check(header: &Header, file_len: u64) {
    assert!(header.alignment.is_power_of_two());
    assert!(header.data_start.is_multiple_of(header.alignment));
    let mut spans = Vec::new();
    for (name, tensor) in &header.tensors {
        assert!(tensor.offset >= header.data_start, "{name}");
        assert!(tensor.offset.is_multiple_of(header.alignment), "{name}");
        let elements: u128 = tensor.dims.iter().map(|&dim| u128::from(dim)).product();
        let (per_block, block) = (tensor.dtype.block_len(), tensor.dtype.block_bytes());
        let bytes = elements / per_block as u128 * block as u128;
        assert_eq!(u128::from(tensor.bytes), bytes, "{name}");
        let end = tensor.offset.checked_add(tensor.bytes);
        assert!(end.is_some_and(|end| end <= file_len), "{name}");
        spans.push((tensor.offset, tensor.bytes));
    }
    spans.sort_unstable();
    assert!(spans.is_sorted_by(|a, b| a.0 + a.1 <= b.0), "tensors overlap");
}

/// What comes between the header and the weights. None of it depends on the others, so all of it is tried.
fn load(header: &Header) {
    let _ = Config::from_header(header);
    for key in header.metadata.keys() {
        let number: Result<Option<u32>, GgufError> = header.get(key);
        let text: Result<Option<&str>, GgufError> = header.get(key);
        assert!(number.is_err() || text.is_err(), "{key} is a number and a text");
    }
    let Ok(tokenizer) = Tokenizer::from_gguf(header) else { return };
    let _ = ChatTemplate::from_gguf(header, &tokenizer);
    if let Ok(ids) = tokenizer.encode("The 7 <|end|> é\n", Default::default()) {
        assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
        let _ = tokenizer.decode(&ids, true);
    }
}
