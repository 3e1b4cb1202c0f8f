//! What the engine asks of a model: rows in, logits out.

use std::ops::Range;

use redline_kv_cache::{BlockCopy, BlockId, LaneGeometry, SlotMove};

use crate::kv_store::StoreError;

/// A model with its own KV cache. An embedder may bring another implementation (a GPU, a mock).
pub trait ModelRunner: Send {
    /// What the model is.
    fn info(&self) -> &ModelInfo;

    /// Makes the KV cache: `blocks` blocks of `block_size` tokens (a power of two). Replaces an
    /// earlier one.
    ///
    /// # Errors
    /// [`RunnerError::Store`] if there is no room for it.
    fn allocate(&mut self, blocks: u32, block_size: u32) -> Result<(), RunnerError>;

    /// Computes a batch: writes each row's keys and values to its slot, and the wanted rows' logits
    /// to `out`. Rows of one sequence come in the order of their slots; a row sees rows before it,
    /// never after.
    ///
    /// # Errors
    /// [`RunnerError`] if a row makes no sense; nothing has been computed then.
    fn forward(&mut self, batch: &Batch, out: &mut Rows) -> Result<(), RunnerError>;

    /// Copies blocks, then moves slots, in the order given.
    ///
    /// # Errors
    /// [`RunnerError`] if a block or slot does not exist; nothing has been moved then.
    fn relocate(&mut self, copies: &[BlockCopy], moves: &[SlotMove]) -> Result<(), RunnerError>;
}

/// What a model is.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelInfo {
    /// Name, for messages.
    pub name: String,
    /// Entries of the vocabulary: tokens that may be fed.
    pub vocab_size: usize,
    /// Entries of a row of logits: as many, or fewer where a draft model's head was cut.
    pub logits: usize,
    /// Positions the model was made for.
    pub context_length: usize,
    /// Size of its hidden rows.
    pub hidden_size: usize,
    /// Size of its keys and values.
    pub lane: LaneGeometry,
}

/// Rows to compute, as plain data; the buffers are reused from step to step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// The rows; rows of one sequence are neighbours.
    pub rows: Vec<Row>,
    /// Slots of ancestors, see [`Row::extra`].
    pub extras: Vec<u32>,
    /// Block tables of all sequences, one after the other.
    pub tables: Vec<BlockId>,
    /// The sequences.
    pub seqs: Vec<SeqRows>,
    /// Indices of the rows whose logits are wanted, ascending.
    pub want: Vec<u32>,
}

/// One token to feed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// The token.
    pub token: u32,
    /// Its logical position: what rotary embedding sees.
    pub position: u32,
    /// Where its keys and values go, counted over the sequence's block table.
    pub slot: u32,
    /// Slots `0..prefix` are visible, at positions equal to their slots. Includes the row itself
    /// where slot and position are the same.
    pub prefix: u32,
    /// Range of [`Batch::extras`]: slots at logical positions `prefix`, `prefix + 1`, …, the row's
    /// own last. Empty for chains.
    pub extra: Range<u32>,
    /// Index into [`Batch::seqs`].
    pub seq: u32,
}

/// A sequence's part of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeqRows {
    /// Its rows in [`Batch::rows`].
    pub rows: Range<u32>,
    /// Its block table in [`Batch::tables`].
    pub table: Range<u32>,
}

impl Batch {
    /// Empties it; the buffers stay.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.extras.clear();
        self.tables.clear();
        self.seqs.clear();
        self.want.clear();
    }

    /// Adds a sequence without rows; they follow by [`Batch::push_row`]. Returns its index.
    pub fn push_seq(&mut self, table: &[BlockId]) -> u32 {
        let (rows, tables) = (self.rows.len() as u32, self.tables.len() as u32);
        self.tables.extend_from_slice(table);
        self.seqs.push(SeqRows { rows: rows..rows, table: tables..self.tables.len() as u32 });
        self.seqs.len() as u32 - 1
    }

    /// Adds a row of a chain (slot = position, all earlier slots visible) to the last sequence.
    /// Returns its index.
    pub fn push_row(&mut self, token: u32, position: u32) -> u32 {
        let at = self.extras.len() as u32;
        self.push(Row {
            token,
            position,
            slot: position,
            prefix: position + 1,
            extra: at..at,
            seq: 0,
        })
    }

    /// Adds a row of a tree to the last sequence: it sees `prefix` slots and then `ancestors` (its
    /// own slot last).
    pub fn push_node(&mut self, token: u32, prefix: u32, ancestors: &[u32]) -> u32 {
        let at = self.extras.len() as u32;
        self.extras.extend_from_slice(ancestors);
        let position = (prefix + ancestors.len() as u32).saturating_sub(1);
        let slot = ancestors.last().copied().unwrap_or(position);
        let extra = at..self.extras.len() as u32;
        self.push(Row { token, position, slot, prefix, extra, seq: 0 })
    }

    fn push(&mut self, mut row: Row) -> u32 {
        let index = self.rows.len() as u32;
        row.seq = (self.seqs.len() as u32).saturating_sub(1);
        self.rows.push(row);
        if let Some(seq) = self.seqs.last_mut() {
            seq.rows.end = index + 1;
        }
        index
    }

    /// The block table of sequence `seq`.
    pub fn table(&self, seq: u32) -> &[BlockId] {
        let range = self.seqs.get(seq as usize).map_or(0..0, |s| s.table.clone());
        self.tables.get(range.start as usize..range.end as usize).unwrap_or_default()
    }

    /// The ancestors' slots of a row.
    pub fn extras_of(&self, row: &Row) -> &[u32] {
        self.extras.get(row.extra.start as usize..row.extra.end as usize).unwrap_or_default()
    }

    /// Checks every row against the model's and the cache's size.
    ///
    /// # Errors
    /// [`RunnerError::Batch`] naming the first row that makes no sense.
    pub fn check(&self, info: &ModelInfo, blocks: u32, block_size: u32) -> Result<(), RunnerError> {
        if let Some(seq) = self.seqs.iter().find(|s| {
            let table = self.tables.get(s.table.start as usize..s.table.end as usize);
            table.is_none_or(|t| t.iter().any(|b| b.0 >= blocks))
        }) {
            let problem = "a block of the table does not exist";
            return Err(RunnerError::Batch { row: seq.rows.start as usize, problem });
        }
        for (i, row) in self.rows.iter().enumerate() {
            if let Some(problem) = self.problem(row, info, block_size) {
                return Err(RunnerError::Batch { row: i, problem });
            }
        }
        let ascending = self.want.windows(2).all(|w| w[0] < w[1]);
        match self.want.last() {
            Some(&last) if !ascending || last as usize >= self.rows.len() => {
                Err(RunnerError::Batch {
                    row: last as usize,
                    problem: "wanted rows are not ascending rows",
                })
            }
            _ => Ok(()),
        }
    }

    fn problem(&self, row: &Row, info: &ModelInfo, block_size: u32) -> Option<&'static str> {
        let table = self.table(row.seq);
        let extras = self.extras_of(row);
        let slots = table.len() as u64 * u64::from(block_size);
        let seen = row.prefix as usize + extras.len();
        if row.token as usize >= info.vocab_size {
            Some("the token is outside the vocabulary")
        } else if row.position as usize >= info.context_length {
            Some("the position is beyond the model's context")
        } else if extras.len() != row.extra.len() {
            Some("the ancestors' range is outside the batch")
        } else if seen != row.position as usize + 1 {
            Some("visible slots do not add up to position + 1")
        } else if extras.last().map_or(row.slot + 1 != row.prefix, |&own| own != row.slot) {
            Some("the row does not see itself last")
        } else if u64::from(row.prefix) > slots || extras.iter().any(|&s| u64::from(s) >= slots) {
            Some("a visible slot is outside the block table")
        } else {
            None
        }
    }
}

/// What a batch gives back; the buffers are reused from step to step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rows {
    /// Row-major `[want, logits]`.
    pub logits: Vec<f32>,
    /// Row-major `[want, hidden_size]`: the last layer's output after the final norm. Filled if
    /// `keep_hidden`.
    pub hidden: Vec<f32>,
    /// Whether hidden rows are wanted.
    pub keep_hidden: bool,
}

impl Rows {
    /// Logits of wanted row `i`, of so many entries.
    pub fn row(&self, i: usize, logits: usize) -> &[f32] {
        self.logits.get(i * logits..(i + 1) * logits).unwrap_or_default()
    }
}

/// A pass that can't be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunnerError {
    /// A row makes no sense.
    #[error("row {row} of the batch: {problem}")]
    Batch {
        /// Index of the row.
        row: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// `allocate` has not been called.
    #[error("the model has no KV cache yet")]
    NotAllocated,
    /// A copy or move of a block or slot that does not exist.
    #[error("{what} outside the KV cache of {blocks} blocks")]
    Relocate {
        /// The copy or move.
        what: String,
        /// Blocks there are.
        blocks: u32,
    },
    /// The block size is not a power of two.
    #[error("block size {0} is not a power of two")]
    BlockSize(u32),
    /// The KV cache can't be made.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another implementation's own error.
    #[error("{0}")]
    Other(Box<dyn std::error::Error + Send + Sync>),
}
