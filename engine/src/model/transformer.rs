//! The forward pass, once for all architectures.

use std::ops::Range;

use super::Config;
use super::ops::{OpResult, Ops};
use crate::kernels::Part;
use crate::runner::{Batch, Rows};

/// A dense decoder-only transformer.
pub struct Transformer<O: Ops> {
    /// Its hyper-parameters.
    pub config: Config,
    /// Entries of the vocabulary.
    pub vocab: usize,
    /// Entries of a row of logits.
    pub outputs: usize,
    pub(super) embedding: O::Linear,
    pub(super) layers: Vec<Layer<O>>,
    pub(super) norm: O::Norm,
    /// `None` where the embedding is used.
    pub(super) head: Option<O::Linear>,
}

/// One block's weights.
pub(super) struct Layer<O: Ops> {
    pub(super) attn_norm: O::Norm,
    pub(super) q: O::Linear,
    pub(super) k: O::Linear,
    pub(super) v: O::Linear,
    pub(super) q_norm: Option<O::Norm>,
    pub(super) k_norm: Option<O::Norm>,
    pub(super) out: O::Linear,
    pub(super) ffn_norm: O::Norm,
    pub(super) gate: O::Linear,
    pub(super) up: O::Linear,
    pub(super) down: O::Linear,
}

/// Activations, kept from pass to pass.
pub struct Buffers<O: Ops> {
    tokens: Vec<u32>,
    /// Rows whose logits are wanted.
    wanted: Vec<usize>,
    /// The residual stream, `[rows, width]`.
    x: O::Matrix,
    /// The stream's last rows, normed for the head.
    h: O::Matrix,
    q: O::Matrix,
    k: O::Matrix,
    v: O::Matrix,
    /// Attention's output, `[rows, heads * head_dim]`.
    a: O::Matrix,
    gate: O::Matrix,
    up: O::Matrix,
}

impl<O: Ops> Default for Buffers<O> {
    fn default() -> Self {
        Self {
            tokens: Vec::new(),
            wanted: Vec::new(),
            x: O::Matrix::default(),
            h: O::Matrix::default(),
            q: O::Matrix::default(),
            k: O::Matrix::default(),
            v: O::Matrix::default(),
            a: O::Matrix::default(),
            gate: O::Matrix::default(),
            up: O::Matrix::default(),
        }
    }
}

impl<O: Ops> Transformer<O> {
    /// Computes a checked batch, a bounded number of rows at a time. Rows depend on earlier rows
    /// only, so the cut changes nothing.
    ///
    /// # Errors
    /// What an operation fails with.
    pub fn forward(
        &self,
        ops: &mut O,
        batch: &Batch,
        bufs: &mut Buffers<O>,
        out: &mut Rows,
    ) -> OpResult {
        // All of it will be written: what is there from the last pass is not cleared first, a vocabulary is large.
        out.logits.resize(batch.want.len() * self.outputs, 0.0);
        let mut logits = out.logits.as_mut_slice();
        out.hidden.clear();
        let mut want = batch.want.as_slice();
        for rows in pieces(batch.rows.len(), O::ROWS) {
            let start = rows.start;
            let wanted_here = want.partition_point(|&w| (w as usize) < rows.end);
            let (here, later) = want.split_at(wanted_here);
            want = later;
            bufs.tokens.clear();
            bufs.tokens.extend(batch.rows[rows.clone()].iter().map(|r| r.token));
            ops.begin(&self.config, batch, rows)?;
            self.blocks(ops, bufs)?;
            bufs.wanted.clear();
            bufs.wanted.extend(here.iter().map(|&w| w as usize - start));
            let (logits_here, rest) = logits.split_at_mut(here.len() * self.outputs);
            logits = rest;
            let hidden = out.keep_hidden.then_some(&mut out.hidden);
            self.logits(ops, bufs, logits_here, hidden)?;
        }
        Ok(())
    }

    fn blocks(&self, ops: &mut O, b: &mut Buffers<O>) -> OpResult {
        let eps = self.config.norm_eps;
        ops.embed(&self.embedding, &b.tokens, &mut b.x)?;
        for (i, layer) in self.layers.iter().enumerate() {
            let qkv = [(&layer.q, &mut b.q), (&layer.k, &mut b.k), (&layer.v, &mut b.v)];
            traced("linear", || ops.norm_linears(&b.x, (&layer.attn_norm, eps), qkv))?;
            if let Some(norm) = &layer.q_norm {
                ops.head_norm(&mut b.q, norm, eps)?;
            }
            if let Some(norm) = &layer.k_norm {
                ops.head_norm(&mut b.k, norm, eps)?;
            }
            ops.rotary_write(i, &mut b.q, &mut b.k, &b.v)?;
            traced("attention", || ops.attention(i, &b.q, &mut b.a))?;
            traced("linear", || ops.add_linear(&b.a, &layer.out, &mut b.x))?;

            let gate_up = [(&layer.gate, &mut b.gate), (&layer.up, &mut b.up)];
            traced("linear", || ops.norm_linears(&b.x, (&layer.ffn_norm, eps), gate_up))?;
            traced("linear", || ops.add_silu_linear(&b.gate, &b.up, &layer.down, &mut b.x))?;
        }
        Ok(())
    }

    fn logits(
        &self,
        ops: &mut O,
        b: &mut Buffers<O>,
        logits: &mut [f32],
        hidden: Option<&mut Vec<f32>>,
    ) -> OpResult {
        if b.wanted.is_empty() {
            return Ok(());
        }
        ops.gather(&b.x, &b.wanted, &mut b.a)?;
        ops.rms_norm(&b.a, &self.norm, self.config.norm_eps, &mut b.h)?;
        if let Some(hidden) = hidden {
            ops.read(&b.h, hidden)?;
        }
        let head = self.head.as_ref().unwrap_or(&self.embedding);
        traced("head", || ops.head(&b.h, head, logits))
    }
}

/// Rows that are computed together: about `usual`, which bounds the memory of a pass whatever the size of a prefill, and
/// about the same number each time, since few rows cost nearly what many do.
fn pieces(rows: usize, usual: usize) -> impl Iterator<Item = Range<usize>> {
    /// What kernels take at once, on most machines.
    const BLOCK: usize = 8;
    let of = if rows == 0 { 0 } else { ((rows + usual / 2) / usual).max(1) };
    (0..of).map(move |index| Part { index, of }.share(rows, BLOCK))
}

/// Runs a part of the pass inside a span, so that its time can be told apart.
fn traced<T>(part: &'static str, f: impl FnOnce() -> T) -> T {
    let _span = tracing::trace_span!("forward", part).entered();
    f()
}

#[cfg(test)]
mod tests {
    use super::pieces;

    #[test]
    fn rows_are_cut_into_pieces_of_about_the_same_size() {
        for usual in [64, 256] {
            for rows in 1..2000 {
                let (mut next, mut sizes) = (0, Vec::new());
                for piece in pieces(rows, usual) {
                    assert_eq!(piece.start, next, "{rows}");
                    next = piece.end;
                    sizes.push(piece.len());
                }
                assert_eq!(next, rows);
                let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
                assert!(*most <= usual + usual / 2 && most - least < 16, "{rows}: {sizes:?}");
            }
        }
        let sizes = |rows| pieces(rows, 64).map(|piece| piece.len()).collect::<Vec<_>>();
        assert_eq!(sizes(512), [64; 8]);
        assert_eq!((sizes(72), sizes(100)), (vec![72], vec![56, 44]));
        assert!(sizes(0).is_empty());
    }
}
