//! [`Ops`] on candle, for any device candle has.
//!
//! Written for clarity: weights are dequantised to f32, attention gathers what a row sees. It shows
//! that the architectures know nothing of an implementation, and it is the oracle of the CPU
//! kernels, with which it shares no arithmetic. Rows of f32 products are padded to eight, below
//! which candle changes kernels.

use std::ops::Range;

use candle_core::{D, DType, Device, Result as Candle, Tensor};
use redline_kv_cache::{BlockCopy, LaneGeometry, SlotMove};

use super::Config;
use super::cpu_ops::lane;
use super::load::{LoadError, Tensor as Stored, weights_of};
use super::ops::{OpResult, Ops};
use crate::kernels::vector::Pairing;
use crate::kernels::{Arena, Level, Pool};
use crate::kv_store::CacheType;
use crate::runner::{Batch, RunnerError};

/// Fewest rows of a product.
const ROWS_LEAST: usize = 8;

/// Operations on candle tensors.
pub struct CandleOps {
    device: Device,
    cache: CacheType,
    /// Per layer keys and values, `[slots, kv_heads, head_dim]`.
    store: Vec<[Tensor; 2]>,
    blocks: Option<(u32, u32)>,
    pass: Option<Pass>,
}

/// What the rows of the current pass have in common.
struct Pass {
    config: Config,
    /// Slot of each row in the store.
    slots: Vec<usize>,
    /// Slots that each row sees, by logical position.
    seen: Vec<Tensor>,
    /// `[rows, 1, dims / 2]`.
    cos: Tensor,
    sin: Tensor,
}

/// A weight matrix `[out, in]` as f32, and its bias.
pub struct CandleLinear {
    weights: Tensor,
    bias: Option<Tensor>,
}

/// Activations; nothing before the first use.
#[derive(Default)]
pub struct Activations(Option<Tensor>);

impl Activations {
    fn get(&self) -> Candle<&Tensor> {
        self.0
            .as_ref()
            .ok_or_else(|| candle_core::Error::msg("activations are read before written"))
    }
}

impl From<candle_core::Error> for RunnerError {
    fn from(e: candle_core::Error) -> Self {
        Self::Other(Box::new(e))
    }
}

impl CandleOps {
    /// Operations on a device.
    pub fn new(device: Device, cache: CacheType) -> Self {
        Self { device, cache, store: Vec::new(), blocks: None, pass: None }
    }

    fn dtype(&self) -> DType {
        match self.cache {
            CacheType::F16 => DType::F16,
            CacheType::F32 => DType::F32,
        }
    }

    fn pass(&self) -> Result<&Pass, RunnerError> {
        self.pass.as_ref().ok_or(RunnerError::NotAllocated)
    }
}

fn product(x: &Tensor, linear: &CandleLinear) -> Candle<Tensor> {
    let rows = x.dim(0)?;
    let padded = match ROWS_LEAST.checked_sub(rows) {
        Some(missing) if missing > 0 => x.pad_with_zeros(0, 0, missing)?,
        _ => x.clone(),
    };
    let out = padded.matmul(&linear.weights.t()?)?.narrow(0, 0, rows)?;
    linear.bias.as_ref().map_or(Ok(out.clone()), |bias| out.broadcast_add(bias))
}

fn norm(x: &Tensor, weights: &Tensor, eps: f32) -> Candle<Tensor> {
    let mean = x.sqr()?.mean_keepdim(D::Minus1)?;
    x.broadcast_div(&(mean + f64::from(eps))?.sqrt()?)?.broadcast_mul(weights)
}

/// Rotates the first values of each head; `x` is `[rows, heads, head_dim]`.
fn rotate(x: &Tensor, pass: &Pass) -> Candle<Tensor> {
    let (dims, head_dim) = (pass.config.rope.dims, x.dim(2)?);
    let turned = x.narrow(2, 0, dims)?;
    let (rows, heads, _) = turned.dims3()?;
    let (a, b) = match pass.config.architecture.pairing() {
        Pairing::Halves => (turned.narrow(2, 0, dims / 2)?, turned.narrow(2, dims / 2, dims / 2)?),
        Pairing::Neighbours => {
            let pairs = turned.reshape((rows, heads, dims / 2, 2))?;
            (pairs.narrow(3, 0, 1)?.squeeze(3)?, pairs.narrow(3, 1, 1)?.squeeze(3)?)
        }
    };
    let (cos, sin) = (&pass.cos, &pass.sin);
    let first = (a.broadcast_mul(cos)? - b.broadcast_mul(sin)?)?;
    let second = (a.broadcast_mul(sin)? + b.broadcast_mul(cos)?)?;
    let turned = match pass.config.architecture.pairing() {
        Pairing::Halves => Tensor::cat(&[first, second], 2)?,
        Pairing::Neighbours => Tensor::stack(&[first, second], 3)?.reshape((rows, heads, dims))?,
    };
    if dims == head_dim {
        return Ok(turned);
    }
    Tensor::cat(&[turned, x.narrow(2, dims, head_dim - dims)?], 2)
}

impl Pass {
    fn new(
        config: &Config,
        batch: &Batch,
        rows: Range<usize>,
        block_size: usize,
        device: &Device,
    ) -> Candle<Self> {
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        let (mut slots, mut seen) = (Vec::new(), Vec::new());
        for row in &batch.rows[rows] {
            let table = batch.table(row.seq);
            let at = |slot: u32| {
                let slot = slot as usize;
                table[slot / block_size].0 as usize * block_size + slot % block_size
            };
            slots.push(at(row.slot));
            let visible = (0..row.prefix).chain(batch.extras_of(row).iter().copied());
            let visible: Vec<u32> = visible.map(|slot| at(slot) as u32).collect();
            seen.push(Tensor::new(visible, device)?);
            config.rope.angles(row.position, &mut cos, &mut sin);
        }
        let shape = (slots.len(), 1, config.rope.dims / 2);
        Ok(Self {
            config: config.clone(),
            slots,
            seen,
            cos: Tensor::from_vec(cos, shape, device)?,
            sin: Tensor::from_vec(sin, shape, device)?,
        })
    }

    /// One row's attention: `q` is `[heads, head_dim]`, `k` and `v` are `[seen, kv_heads,
    /// head_dim]`.
    fn attend(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Candle<Tensor> {
        let c = &self.config;
        let q = q.reshape((c.kv_heads, c.heads / c.kv_heads, c.head_dim))?;
        let (k, v) = (k.transpose(0, 1)?.contiguous()?, v.transpose(0, 1)?.contiguous()?);
        let scores = (q.matmul(&k.transpose(1, 2)?.contiguous()?)? / (c.head_dim as f64).sqrt())?;
        let weights = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?)?.exp()?;
        let weights = weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)?;
        weights.matmul(&v)?.reshape((1, c.heads * c.head_dim))
    }
}

impl Ops for CandleOps {
    type Linear = CandleLinear;
    type Norm = Tensor;
    type Matrix = Activations;
    const ROWS: usize = 256;

    fn linear(
        &mut self,
        stored: Stored,
        bias: Option<Vec<f32>>,
    ) -> Result<CandleLinear, LoadError> {
        let name = stored.name.clone();
        let weights = weights_of((&mut Arena::apart(), &mut Pool::alone()), stored)?;
        let (rows, cols) = (weights.rows(), weights.cols());
        let mut values = vec![0.0; rows * cols];
        for (row, out) in values.chunks_exact_mut(cols).enumerate() {
            weights.dequantise_row(Level::detect(), row, out);
        }
        let fail = |e| LoadError::Device { name: name.clone(), source: Box::new(e) };
        Ok(CandleLinear {
            weights: Tensor::from_vec(values, (rows, cols), &self.device).map_err(fail)?,
            bias: bias.map(|b| Tensor::new(b, &self.device)).transpose().map_err(fail)?,
        })
    }

    fn norm(&mut self, weights: Vec<f32>) -> Result<Tensor, LoadError> {
        let fail = |e| LoadError::Device { name: "norm".to_owned(), source: Box::new(e) };
        Tensor::new(weights, &self.device).map_err(fail)
    }

    fn allocate(&mut self, config: &Config, blocks: u32, block_size: u32) -> OpResult {
        self.store.clear();
        let shape = (blocks as usize * block_size as usize, config.kv_heads, config.head_dim);
        let plane = || Tensor::zeros(shape, self.dtype(), &self.device);
        let layers = (0..config.layers).map(|_| Ok([plane()?, plane()?]));
        self.store = layers.collect::<Candle<_>>()?;
        self.blocks = Some((blocks, block_size));
        Ok(())
    }

    fn blocks(&self) -> Option<(u32, u32)> {
        self.blocks
    }

    fn lane(&self, config: &Config) -> LaneGeometry {
        lane(config, self.cache)
    }

    fn relocate(&mut self, copies: &[BlockCopy], moves: &[SlotMove]) -> OpResult {
        let size = self.blocks.map_or(1, |(_, size)| size as usize);
        let at = |block: u32, slot: u32| block as usize * size + slot as usize;
        for plane in self.store.iter().flatten() {
            let copy = |from: usize, to: usize, slots: usize| -> Candle<()> {
                plane.slice_set(&plane.narrow(0, from, slots)?.copy()?, 0, to)
            };
            for c in copies.iter().filter(|c| c.slots > 0) {
                copy(at(c.from.0, 0), at(c.to.0, 0), c.slots as usize)?;
            }
            for m in moves {
                copy(at(m.from_block.0, m.from_slot), at(m.to_block.0, m.to_slot), 1)?;
            }
        }
        Ok(())
    }

    fn begin(&mut self, config: &Config, batch: &Batch, rows: Range<usize>) -> OpResult {
        let (_, block_size) = self.blocks.ok_or(RunnerError::NotAllocated)?;
        self.pass = Some(Pass::new(config, batch, rows, block_size as usize, &self.device)?);
        Ok(())
    }

    fn embed(&mut self, table: &CandleLinear, tokens: &[u32], out: &mut Activations) -> OpResult {
        let tokens = Tensor::new(tokens, &self.device)?;
        out.0 = Some(table.weights.index_select(&tokens, 0)?);
        Ok(())
    }

    fn rms_norm(
        &mut self,
        x: &Activations,
        weights: &Tensor,
        eps: f32,
        out: &mut Activations,
    ) -> OpResult {
        out.0 = Some(norm(x.get()?, weights, eps)?);
        Ok(())
    }

    fn head_norm(&mut self, x: &mut Activations, weights: &Tensor, eps: f32) -> OpResult {
        let (rows, width) = x.get()?.dims2()?;
        let heads = x.get()?.reshape((rows, (), weights.dim(0)?))?;
        x.0 = Some(norm(&heads, weights, eps)?.reshape((rows, width))?);
        Ok(())
    }

    fn norm_linears<const N: usize>(
        &mut self,
        x: &Activations,
        (weights, eps): (&Tensor, f32),
        to: [(&CandleLinear, &mut Activations); N],
    ) -> OpResult {
        let x = norm(x.get()?, weights, eps)?;
        for (linear, out) in to {
            out.0 = Some(product(&x, linear)?);
        }
        Ok(())
    }

    fn add_linear(
        &mut self,
        x: &Activations,
        weights: &CandleLinear,
        out: &mut Activations,
    ) -> OpResult {
        out.0 = Some((out.get()? + product(x.get()?, weights)?)?);
        Ok(())
    }

    fn add_silu_linear(
        &mut self,
        gate: &Activations,
        up: &Activations,
        weights: &CandleLinear,
        out: &mut Activations,
    ) -> OpResult {
        let x = (gate.get()?.silu()? * up.get()?)?;
        out.0 = Some((out.get()? + product(&x, weights)?)?);
        Ok(())
    }

    fn rotary_write(
        &mut self,
        layer: usize,
        q: &mut Activations,
        k: &mut Activations,
        v: &Activations,
    ) -> OpResult {
        let pass = self.pass()?;
        let head_dim = pass.config.head_dim;
        let heads = |x: &Tensor| x.reshape((x.dim(0)?, (), head_dim));
        q.0 = Some(rotate(&heads(q.get()?)?, pass)?);
        let k = rotate(&heads(k.get()?)?, pass)?.to_dtype(self.dtype())?;
        let v = heads(v.get()?)?.to_dtype(self.dtype())?;
        let [keys, values] = &self.store[layer];
        for (row, &slot) in pass.slots.iter().enumerate() {
            keys.slice_set(&k.narrow(0, row, 1)?.contiguous()?, 0, slot)?;
            values.slice_set(&v.narrow(0, row, 1)?.contiguous()?, 0, slot)?;
        }
        Ok(())
    }

    fn attention(&mut self, layer: usize, q: &Activations, out: &mut Activations) -> OpResult {
        let (pass, [keys, values]) = (self.pass()?, &self.store[layer]);
        let row = |(i, seen): (usize, &Tensor)| {
            let k = keys.index_select(seen, 0)?.to_dtype(DType::F32)?;
            let v = values.index_select(seen, 0)?.to_dtype(DType::F32)?;
            pass.attend(&q.get()?.get(i)?, &k, &v)
        };
        let rows = pass.seen.iter().enumerate().map(row).collect::<Candle<Vec<_>>>()?;
        out.0 = Some(Tensor::cat(&rows, 0)?);
        Ok(())
    }

    fn gather(&mut self, x: &Activations, rows: &[usize], out: &mut Activations) -> OpResult {
        let rows: Vec<u32> = rows.iter().map(|&r| r as u32).collect();
        out.0 = Some(x.get()?.index_select(&Tensor::new(rows, &self.device)?, 0)?);
        Ok(())
    }

    fn read(&mut self, x: &Activations, out: &mut Vec<f32>) -> OpResult {
        out.extend(x.get()?.flatten_all()?.to_vec1::<f32>()?);
        Ok(())
    }

    fn head(&mut self, x: &Activations, weights: &CandleLinear, out: &mut [f32]) -> OpResult {
        out.copy_from_slice(&product(x.get()?, weights)?.flatten_all()?.to_vec1::<f32>()?);
        Ok(())
    }
}
