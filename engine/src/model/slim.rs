//! A draft's weights, made smaller on their way from the file: fewer bits, and a head of some tokens only.
//!
//! Either changes what the draft says, and so which drafts are accepted; never what comes out, since verification
//! takes drafts by the law that they were really drawn from. It happens tensor by tensor, between file and
//! model, so that every architecture and implementation has it, and a model is in memory once.

use redline_spec::TokenId;

use super::load::{EMBEDDING, HEAD, LoadError, Tensor, TensorSource};
use super::requantise::{DraftQuant, requantise};
use crate::kernels::AlignedBytes;

/// What is done to a model's tensors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slim {
    /// What matrices are re-quantised to that have more bits. The embedding is one of them only where it makes the
    /// logits, too: of a table that tokens are looked up in, nobody reads more than a row.
    pub quant: Option<DraftQuant>,
    /// The tokens that get logits, in this order; the others' rows of the head are not kept. Where the embedding is
    /// the head, it stays whole for tokens to be looked up in, and these rows are kept a second time.
    pub head: Option<Vec<TokenId>>,
    /// Threads that re-quantise; 0 is as 1.
    pub threads: usize,
}

/// Tensors of another source, made smaller.
pub struct SlimSource<'a> {
    inner: &'a mut dyn TensorSource,
    slim: Slim,
    /// Whether the embedding is the head.
    tied: bool,
    /// The rows of a tied embedding that make the head.
    rows: Option<Tensor>,
    report: Report<'a>,
    taken: usize,
    tensors: usize,
}

/// Told how many tensors of how many are done.
pub type Report<'a> = Box<dyn FnMut(usize, usize) + 'a>;

impl<'a> SlimSource<'a> {
    /// The tensors of `inner`.
    pub fn new(inner: &'a mut dyn TensorSource, slim: Slim) -> Self {
        let names = inner.names();
        let tied = !names.iter().any(|name| name == HEAD);
        let report = Box::new(|_, _| ());
        Self { inner, slim, tied, rows: None, report, taken: 0, tensors: names.len() }
    }

    /// The same, with somebody to be told how far it is.
    #[must_use]
    pub fn reporting(self, report: Report<'a>) -> Self {
        Self { report, ..self }
    }

    /// A tensor, with the rows of the head that are wanted.
    fn cut(&mut self, name: &str) -> Result<Option<Tensor>, LoadError> {
        let Some(kept) = &self.slim.head else { return self.inner.take(name) };
        match name {
            HEAD if self.tied => Ok(self.rows.take()),
            HEAD => self.inner.take(name)?.map(|head| rows_of(&head, kept)).transpose(),
            EMBEDDING if self.tied => {
                let whole = self.inner.take(name)?;
                self.rows = whole.as_ref().map(|whole| rows_of(whole, kept)).transpose()?;
                Ok(whole)
            }
            _ => self.inner.take(name),
        }
    }
}

impl TensorSource for SlimSource<'_> {
    fn names(&self) -> Vec<String> {
        let mut names = self.inner.names();
        if self.tied && self.slim.head.is_some() {
            names.push(HEAD.to_owned());
        }
        names
    }

    fn take(&mut self, name: &str) -> Result<Option<Tensor>, LoadError> {
        let Some(tensor) = self.cut(name)? else { return Ok(None) };
        self.taken += 1;
        (self.report)(self.taken, self.tensors);
        let looked_up_only = name == EMBEDDING && !(self.tied && self.slim.head.is_none());
        let [cols, _] = tensor.dims[..] else { return Ok(Some(tensor)) };
        match self.slim.quant.and_then(|quant| quant.target(tensor.dtype, cols)) {
            Some(to) if !looked_up_only => requantise(tensor, to, self.slim.threads).map(Some),
            _ => Ok(Some(tensor)),
        }
    }

    fn head_rows(&self) -> Option<usize> {
        self.slim.head.as_ref().map(Vec::len)
    }
}

/// Some rows of a matrix, as they are stored.
fn rows_of(whole: &Tensor, kept: &[TokenId]) -> Result<Tensor, LoadError> {
    let cols = whole.dims.first().copied().unwrap_or(0);
    let size = cols / whole.dtype.block_len() * whole.dtype.block_bytes();
    let mut bytes = AlignedBytes::zeroed(kept.len() * size);
    for (&token, row) in kept.iter().zip(bytes.as_mut_slice().chunks_exact_mut(size.max(1))) {
        let stored = whole.bytes.as_slice().get(token as usize * size..);
        let Some(stored) = stored.and_then(|rows| rows.get(..size)) else {
            let problem = "has no row for a token that is to be kept";
            return Err(LoadError::Key { key: whole.name.clone(), problem });
        };
        row.copy_from_slice(stored);
    }
    let dims = vec![cols, kept.len()];
    Ok(Tensor { name: HEAD.to_owned(), dims, dtype: whole.dtype, bytes })
}

#[cfg(test)]
#[path = "slim_tests.rs"]
mod tests;
