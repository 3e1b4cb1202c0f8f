//! [`Ops`] on the CPU, by our own kernels.

use std::ops::Range;

use redline_kv_cache::{BlockCopy, LaneGeometry, SlotMove};

use super::config::Config;
use super::load::{LoadError, Tensor, weights_of};
use super::ops::{OpResult, Ops};
use crate::kernels::attention::{self, Shape, Sight, attention};
use crate::kernels::input::Input;
use crate::kernels::linear::{self, Linear, linears};
use crate::kernels::vector::{self, Pairing};
use crate::kernels::{Arena, Level, Pool, Weights};
use crate::kv_store::{CacheType, KvStore};
use crate::runner::{Batch, RunnerError};

/// The CPU implementation: weights as in the file, activations as plain f32 rows.
pub struct CpuOps {
    level: Level,
    pool: Pool,
    arena: Arena,
    cache: CacheType,
    store: Option<KvStore>,
    pass: Pass,
    linear: linear::Scratch,
    attention: attention::Scratch,
}

/// What the rows of the current pass have in common.
struct Pass {
    shape: Shape,
    pairing: Pairing,
    /// Pairs rotated per head.
    pairs: usize,
    /// Slot of each row in the store.
    slots: Vec<usize>,
    sights: Vec<Sight>,
    tables: Vec<u32>,
    extras: Vec<u32>,
    /// `[rows, pairs]`.
    cos: Vec<f32>,
    sin: Vec<f32>,
}

/// Size of a model's keys and values in a cache type.
pub(super) fn lane(config: &Config, cache: CacheType) -> LaneGeometry {
    LaneGeometry {
        layers: config.layers as u32,
        kv_heads: config.kv_heads as u32,
        head_dim: config.head_dim as u32,
        element_bytes: cache.bytes(),
    }
}

/// Activations.
#[derive(Debug, Default)]
pub struct Matrix {
    width: usize,
    values: Vec<f32>,
}

impl Matrix {
    /// Gives it a shape; values are whatever they were.
    fn shape(&mut self, rows: usize, width: usize) -> &mut [f32] {
        self.width = width;
        self.values.resize(rows * width, 0.0);
        &mut self.values
    }

    fn rows(&self) -> usize {
        self.values.len() / self.width.max(1)
    }
}

/// A weight matrix and its bias.
#[derive(Debug)]
pub struct CpuLinear {
    weights: Weights,
    bias: Option<Vec<f32>>,
}

impl CpuLinear {
    fn layer<'a>(&'a self, out: &'a mut [f32], add: bool) -> Linear<'a> {
        Linear { weights: &self.weights, bias: self.bias.as_deref(), out, add }
    }
}

impl CpuOps {
    /// Operations over `threads` threads at an instruction-set level.
    ///
    /// # Errors
    /// The system's error if threads can't be started.
    pub fn new(level: Level, threads: usize, cache: CacheType) -> std::io::Result<Self> {
        let shape = Shape { heads: 1, kv_heads: 1, head_dim: 1, block_size: 1, scale: 1.0 };
        let pass = Pass {
            shape,
            pairing: Pairing::Halves,
            pairs: 0,
            slots: Vec::new(),
            sights: Vec::new(),
            tables: Vec::new(),
            extras: Vec::new(),
            cos: Vec::new(),
            sin: Vec::new(),
        };
        Ok(Self {
            level,
            pool: Pool::new(threads)?,
            arena: Arena::joint(),
            cache,
            store: None,
            pass,
            linear: linear::Scratch::default(),
            attention: attention::Scratch::default(),
        })
    }

    /// The cache, to be changed (poisoned, in tests).
    pub fn store_mut(&mut self) -> Option<&mut KvStore> {
        self.store.as_mut()
    }
}

impl Ops for CpuOps {
    type Linear = CpuLinear;
    type Norm = Vec<f32>;
    type Matrix = Matrix;
    const ROWS: usize = 64;

    fn linear(&mut self, weights: Tensor, bias: Option<Vec<f32>>) -> Result<CpuLinear, LoadError> {
        Ok(CpuLinear { weights: weights_of((&mut self.arena, &mut self.pool), weights)?, bias })
    }

    fn norm(&mut self, weights: Vec<f32>) -> Result<Vec<f32>, LoadError> {
        Ok(weights)
    }

    fn allocate(
        &mut self,
        config: &Config,
        blocks: u32,
        block_size: u32,
    ) -> Result<(), RunnerError> {
        self.store = None; // the old one goes before the new one comes
        self.store = Some(KvStore::new(self.lane(config), blocks, block_size, self.cache)?);
        Ok(())
    }

    fn blocks(&self) -> Option<(u32, u32)> {
        self.store.as_ref().map(|s| (s.blocks(), s.block_size()))
    }

    fn lane(&self, config: &Config) -> LaneGeometry {
        lane(config, self.cache)
    }

    fn relocate(&mut self, copies: &[BlockCopy], moves: &[SlotMove]) -> OpResult {
        if let Some(store) = &mut self.store {
            store.relocate(copies, moves);
        }
        Ok(())
    }

    fn begin(&mut self, config: &Config, batch: &Batch, rows: Range<usize>) -> OpResult {
        let block_size = self.store.as_ref().map_or(1, KvStore::block_size) as usize;
        self.pass.begin(config, batch, rows, block_size);
        Ok(())
    }

    fn embed(&mut self, table: &CpuLinear, tokens: &[u32], out: &mut Matrix) -> OpResult {
        let width = table.weights.cols();
        let out = out.shape(tokens.len(), width);
        for (&token, row) in tokens.iter().zip(out.chunks_exact_mut(width)) {
            table.weights.dequantise_row(self.level, token as usize, row);
        }
        Ok(())
    }

    fn rms_norm(&mut self, x: &Matrix, norm: &Vec<f32>, eps: f32, out: &mut Matrix) -> OpResult {
        let out = out.shape(x.rows(), norm.len());
        vector::rms_norm(self.level, &x.values, norm, eps, out);
        Ok(())
    }

    fn head_norm(&mut self, x: &mut Matrix, norm: &Vec<f32>, eps: f32) -> OpResult {
        vector::rms_norm_in_place(self.level, &mut x.values, norm, eps);
        Ok(())
    }

    fn norm_linears<const N: usize>(
        &mut self,
        x: &Matrix,
        (weight, eps): (&Vec<f32>, f32),
        to: [(&CpuLinear, &mut Matrix); N],
    ) -> OpResult {
        let layers = to.map(|(l, out)| l.layer(out.shape(x.rows(), l.weights.rows()), false));
        let input = Input::Norm { x: &x.values, weight, eps };
        linears(self.level, &mut self.pool, input, layers, &mut self.linear);
        Ok(())
    }

    fn add_linear(&mut self, x: &Matrix, weights: &CpuLinear, out: &mut Matrix) -> OpResult {
        let layers = [weights.layer(&mut out.values, true)];
        linears(self.level, &mut self.pool, Input::Rows(&x.values), layers, &mut self.linear);
        Ok(())
    }

    fn add_silu_linear(
        &mut self,
        gate: &Matrix,
        up: &Matrix,
        weights: &CpuLinear,
        out: &mut Matrix,
    ) -> OpResult {
        let layers = [weights.layer(&mut out.values, true)];
        let input = Input::Silu { gate: &gate.values, up: &up.values };
        linears(self.level, &mut self.pool, input, layers, &mut self.linear);
        Ok(())
    }

    fn rotary_write(
        &mut self,
        layer: usize,
        q: &mut Matrix,
        k: &mut Matrix,
        v: &Matrix,
    ) -> OpResult {
        let store = self.store.as_mut().ok_or(RunnerError::NotAllocated)?;
        let p = &self.pass;
        for (row, &slot) in p.slots.iter().enumerate() {
            let angles = row * p.pairs..(row + 1) * p.pairs;
            let (cos, sin) = (&p.cos[angles.clone()], &p.sin[angles]);
            let q = &mut q.values[row * q.width..][..q.width];
            vector::rotate(self.level, q, p.shape.head_dim, (cos, sin), p.pairing);
            let k = &mut k.values[row * k.width..][..k.width];
            vector::rotate(self.level, k, p.shape.head_dim, (cos, sin), p.pairing);
            store.write(layer, slot, k, &v.values[row * v.width..][..v.width]);
        }
        Ok(())
    }

    fn attention(&mut self, layer: usize, q: &Matrix, out: &mut Matrix) -> OpResult {
        let store = self.store.as_ref().ok_or(RunnerError::NotAllocated)?;
        let p = &self.pass;
        let input = attention::Input {
            shape: p.shape,
            k: store.keys(layer),
            v: store.values(layer),
            q: &q.values,
            sights: &p.sights,
            tables: &p.tables,
            extras: &p.extras,
        };
        let out = out.shape(q.rows(), q.width);
        attention(self.level, &mut self.pool, input, out, &mut self.attention);
        Ok(())
    }

    fn gather(&mut self, x: &Matrix, rows: &[usize], out: &mut Matrix) -> OpResult {
        out.shape(rows.len(), x.width);
        for (&row, out) in rows.iter().zip(out.values.chunks_exact_mut(x.width)) {
            out.copy_from_slice(&x.values[row * x.width..][..x.width]);
        }
        Ok(())
    }

    fn read(&mut self, x: &Matrix, out: &mut Vec<f32>) -> OpResult {
        out.extend_from_slice(&x.values);
        Ok(())
    }

    fn head(&mut self, x: &Matrix, weights: &CpuLinear, out: &mut [f32]) -> OpResult {
        let layers = [weights.layer(out, false)];
        linears(self.level, &mut self.pool, Input::Rows(&x.values), layers, &mut self.linear);
        Ok(())
    }
}

impl Pass {
    fn begin(&mut self, config: &Config, batch: &Batch, rows: Range<usize>, block_size: usize) {
        self.shape = Shape {
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            block_size,
            scale: 1.0 / (config.head_dim as f32).sqrt(),
        };
        self.pairing = config.architecture.pairing();
        self.pairs = config.rope.dims / 2;
        self.tables.clear();
        self.tables.extend(batch.tables.iter().map(|b| b.0));
        self.extras.clear();
        self.extras.extend_from_slice(&batch.extras);
        self.slots.clear();
        self.sights.clear();
        self.cos.clear();
        self.sin.clear();
        for row in &batch.rows[rows] {
            let table = batch.seqs[row.seq as usize].table.clone();
            let table = table.start as usize..table.end as usize;
            let slot = row.slot as usize;
            let block = self.tables[table.clone()][slot / block_size] as usize;
            self.slots.push(block * block_size + slot % block_size);
            self.sights.push(Sight {
                prefix: row.prefix as usize,
                extras: row.extra.start as usize..row.extra.end as usize,
                table,
                seq: row.seq,
            });
            config.rope.angles(row.position, &mut self.cos, &mut self.sin);
        }
    }
}
