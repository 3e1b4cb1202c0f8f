//! The few operations a transformer is made of.
//!
//! [`super::transformer`] writes every architecture once, in these words. An implementation brings
//! its own weights, activations and cache: the CPU kernels ([`super::CpuOps`]), a device's, an
//! oracle's.

use std::ops::Range;

use redline_kv_cache::{BlockCopy, LaneGeometry, SlotMove};

use super::Config;
use super::load::{LoadError, Tensor};
use crate::runner::{Batch, RunnerError};

/// What an operation gives back.
pub type OpResult = Result<(), RunnerError>;

/// Operations on activations. All matrices are row-major with one row per batch row.
pub trait Ops: Send {
    /// A weight matrix with its bias, if any.
    type Linear: Send;
    /// A norm's weights.
    type Norm: Send;
    /// Activations, `[rows, width]` of f32; a buffer that is reused.
    type Matrix: Send + Default;
    /// Rows of a pass that are computed together, more or less: so many that weights are worth their reading, and so few
    /// that what one layer leaves for the next is still in a cache.
    const ROWS: usize;

    /// Takes a matrix `[out, in]` and perhaps a bias `[out]` from the loader. Must not keep two
    /// copies.
    ///
    /// # Errors
    /// [`LoadError`] if the type is not supported.
    fn linear(
        &mut self,
        weights: Tensor,
        bias: Option<Vec<f32>>,
    ) -> Result<Self::Linear, LoadError>;
    /// Takes a norm's weights from the loader.
    ///
    /// # Errors
    /// [`LoadError`] if the device has no room.
    fn norm(&mut self, weights: Vec<f32>) -> Result<Self::Norm, LoadError>;
    /// Makes the KV cache.
    ///
    /// # Errors
    /// [`RunnerError`] if there is no room.
    fn allocate(
        &mut self,
        config: &Config,
        blocks: u32,
        block_size: u32,
    ) -> Result<(), RunnerError>;
    /// Number and size of the cache's blocks, once allocated.
    fn blocks(&self) -> Option<(u32, u32)>;
    /// Size of a model's keys and values in this implementation's cache.
    fn lane(&self, config: &Config) -> LaneGeometry;
    /// Copies blocks and moves slots, which have been checked.
    ///
    /// # Errors
    /// As for every operation: [`RunnerError::Other`] where the device fails. The CPU's never do.
    fn relocate(&mut self, copies: &[BlockCopy], moves: &[SlotMove]) -> OpResult;

    // Below: errors as in `relocate`.

    /// Starts a pass over some rows of a batch, which has been checked: positions, slots and sights
    /// of the calls that follow are those of these rows.
    fn begin(&mut self, config: &Config, batch: &Batch, rows: Range<usize>) -> OpResult;
    /// `out[i] = table[tokens[i]]`.
    fn embed(&mut self, table: &Self::Linear, tokens: &[u32], out: &mut Self::Matrix) -> OpResult;
    /// `out = x / rms(x) * norm`, row by row.
    fn rms_norm(
        &mut self,
        x: &Self::Matrix,
        norm: &Self::Norm,
        eps: f32,
        out: &mut Self::Matrix,
    ) -> OpResult;
    /// The same in place on each head of each row (as long as the norm).
    fn head_norm(&mut self, x: &mut Self::Matrix, norm: &Self::Norm, eps: f32) -> OpResult;
    /// `out = (x / rms(x) * norm) · weightsᵀ + bias` for several weights over the same input.
    fn norm_linears<const N: usize>(
        &mut self,
        x: &Self::Matrix,
        norm: (&Self::Norm, f32),
        to: [(&Self::Linear, &mut Self::Matrix); N],
    ) -> OpResult;
    /// `out += x · weightsᵀ + bias`.
    fn add_linear(
        &mut self,
        x: &Self::Matrix,
        weights: &Self::Linear,
        out: &mut Self::Matrix,
    ) -> OpResult;
    /// `out += (silu(gate) * up) · weightsᵀ + bias`.
    fn add_silu_linear(
        &mut self,
        gate: &Self::Matrix,
        up: &Self::Matrix,
        weights: &Self::Linear,
        out: &mut Self::Matrix,
    ) -> OpResult;
    /// Rotates q and k by the rows' positions and writes k and v to the rows' slots of a layer.
    fn rotary_write(
        &mut self,
        layer: usize,
        q: &mut Self::Matrix,
        k: &mut Self::Matrix,
        v: &Self::Matrix,
    ) -> OpResult;
    /// `out` = attention of the rows' queries over what they see of a layer.
    fn attention(&mut self, layer: usize, q: &Self::Matrix, out: &mut Self::Matrix) -> OpResult;
    /// `out[i] = x[rows[i]]`.
    fn gather(&mut self, x: &Self::Matrix, rows: &[usize], out: &mut Self::Matrix) -> OpResult;
    /// Appends all values of `x` to `out`.
    fn read(&mut self, x: &Self::Matrix, out: &mut Vec<f32>) -> OpResult;
    /// Writes `x · weightsᵀ` (the logits) to `out`, which is as large.
    fn head(&mut self, x: &Self::Matrix, weights: &Self::Linear, out: &mut [f32]) -> OpResult;
}
