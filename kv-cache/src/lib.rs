//! Which physical block holds which tokens. Pure bookkeeping: no tensors, threads, clocks, files.
//!
//! ```text
//! ids.rs       TokenId, BlockId, Lane
//! geometry.rs  bytes per token and block; how many blocks fit a budget (checked maths)
//! ops.rs       BlockCopy, SlotMove: what must be done in memory, as data
//! pool.rs      BlockPool: reference counts, free list, fill per block and lane
//! prefix.rs    PrefixIndex: chained keyed hashes of full committed blocks
//! cache.rs     KvCache: one pool and one index that agree with each other
//! sequence.rs  SequenceKv: one sequence's blocks; reserve, commit, truncate, release
//! attach.rs    the first blocks of a sequence: a cached prefix, a fork of another sequence
//! watermark.rs how far each lane of a sequence is filled
//! audit.rs     every invariant below, checked
//! ```
//!
//! One sequence, block size 4, `len` 6, ten slots reserved:
//!
//! ```text
//! slot     0  1  2  3 | 4  5  6  7 | 8  9  .  .
//!          ---- committed --- ---- reserved -- (not owned)
//! block    full, may be | private: written by the step that
//!          shared       | reserved it, nothing reads it later
//! ```
//!
//! # Invariants
//!
//! 1. The reference count of a block is the number of table entries that name it. A block is in the
//!    free list if and only if its count is zero, and is there once.
//! 2. The free list holds blocks without a prefix entry first (they are reused first), then those
//!    with one, least recently freed first.
//! 3. A block that is shared or in the prefix index is never written, except that a lane may be
//!    filled where it was not filled before. Who wants to write it copies it first.
//! 4. The slots of `[len, reserved)` lie in blocks that one table owns alone, that have no prefix
//!    entry, and no lane of which counts as filled at or above `len`. So nothing that a failed or
//!    rejected step wrote there can be attended, hashed or shared.
//! 5. A prefix entry leads to a block that was committed in full, whose tokens, tenant and chain of
//!    predecessors are the ones asked for: compared, not trusted to a hash.
//! 6. The first `fill` slots of a block in a lane hold that lane's keys and values of the tokens
//!    committed there. A sequence's watermark in a lane is derived from its blocks.
#![forbid(unsafe_code)]

mod attach;
mod audit;
mod cache;
mod geometry;
mod ids;
mod ops;
mod pool;
mod prefix;
mod sequence;
#[cfg(test)]
mod tests;
mod watermark;

pub use audit::Violation;
pub use cache::{ConfigError, KvCache, KvConfig, Usage};
pub use geometry::{GeometryError, LaneGeometry, blocks_within};
pub use ids::{BlockId, Lane, MAX_LANES, TokenId};
pub use ops::{BlockCopy, SlotMove};
pub use pool::{BLOCKS_MAX, BlockPool};
pub use prefix::{Insert, PrefixIndex, PrefixKey};
pub use sequence::{OutOfBlocks, SequenceKv};
