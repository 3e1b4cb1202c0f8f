//! Every invariant of the crate, checked against the facts. O(blocks + table entries).

use crate::{BlockId, KvCache, Lane, SequenceKv, TokenId};

/// An invariant that does not hold. Always a bug in this crate or a cache used against its rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("block {block:?}, sequence {sequence:?}: {rule}")]
pub struct Violation {
    /// What should have held.
    pub rule: &'static str,
    /// The block at fault, if one.
    pub block: Option<BlockId>,
    /// Which of the given sequences is at fault, if one.
    pub sequence: Option<usize>,
}

type Check = Result<(), Violation>;

/// Marks a block that was met in the free list. No block has so many references.
const IN_LIST: u32 = 1 << 31;

fn block(holds: bool, block: BlockId, rule: &'static str) -> Check {
    holds.then_some(()).ok_or(Violation { rule, block: Some(block), sequence: None })
}

fn sequence(holds: bool, sequence: usize, rule: &'static str) -> Check {
    holds.then_some(()).ok_or(Violation { rule, block: None, sequence: Some(sequence) })
}

impl KvCache {
    /// Checks every invariant, `seqs` being *all* sequences that hold blocks of this cache.
    pub fn audit<'a>(&self, seqs: impl IntoIterator<Item = &'a SequenceKv>) -> Check {
        // Per block its table entries; the top bit marks it as in the free list.
        let mut entries = vec![0u32; self.blocks()];
        for (i, seq) in seqs.into_iter().enumerate() {
            self.audit_sequence(i, seq)?;
            for &id in &seq.table {
                entries[id.index()] += 1;
            }
        }
        self.audit_free_list(&mut entries)?;
        let mut indexed = 0;
        for (i, &entries) in entries.iter().enumerate() {
            let id = BlockId(i as u32);
            let refs = self.refs(id);
            block(refs == entries & !IN_LIST, id, "references are table entries")?;
            let in_list = entries & IN_LIST != 0;
            block(in_list == (refs == 0), id, "free if and only if nobody refers to it")?;
            indexed += usize::from(self.audit_index(id)?);
            let full = self.pool.block_size();
            let fills = self.pool.fills(id);
            block(fills.iter().all(|&fill| fill <= full), id, "no fill exceeds the block")?;
        }
        let sound = self.index.as_ref().map_or(0, crate::PrefixIndex::len) == indexed;
        let rule = "every hash leads to an indexed block";
        sound.then_some(()).ok_or(Violation { rule, block: None, sequence: None })
    }

    /// Marks the blocks in the free list: each once, linked both ways, in the right order.
    fn audit_free_list(&self, entries: &mut [u32]) -> Check {
        let (mut last, mut cached, mut count) = (None, 0, 0);
        for (id, prev) in self.pool.free_list() {
            let entry = &mut entries[id.index()];
            block(*entry & IN_LIST == 0, id, "in the free list once")?;
            *entry |= IN_LIST;
            block(prev == last, id, "linked both ways")?;
            let indexed = self.is_indexed(id);
            block(indexed || cached == 0, id, "blocks worth nothing come first")?;
            cached += usize::from(indexed);
            count += 1;
            last = Some(id);
        }
        let usage = self.usage();
        let all = BlockId(0);
        block(self.pool.free_list_back() == last, all, "the list ends at its end")?;
        block(count == usage.free, all, "free blocks are counted right")?;
        block(cached == usage.cached, all, "cached blocks are counted right")
    }

    /// Whether the block is indexed, and rightly.
    fn audit_index(&self, id: BlockId) -> Result<bool, Violation> {
        let Some(index) = self.index.as_ref().filter(|index| index.holds(id)) else {
            return Ok(false);
        };
        block(index.finds_itself(id), id, "an indexed block is found by its hash")?;
        let full = self.pool.fill(id, Lane::TARGET) == self.pool.block_size();
        block(full, id, "an indexed block is committed in full")?;
        Ok(true)
    }

    fn audit_sequence(&self, i: usize, seq: &SequenceKv) -> Check {
        let size = self.block_size();
        sequence(seq.len <= seq.reserved, i, "committed slots are reserved slots")?;
        let fits = seq.table.len() == self.blocks_for(seq.reserved);
        sequence(fits, i, "the table holds the reserved slots and no more")?;
        let chained = seq.chain.len() <= seq.len / size;
        sequence(chained, i, "only full committed blocks are chained")?;
        for (k, &id) in seq.table.iter().enumerate() {
            let committed = seq.len.saturating_sub(k * size).min(size);
            let filled = self.fill(id, Lane::TARGET) >= committed;
            block(filled, id, "the target's fill covers what is committed")?;
            if committed == size {
                self.audit_chain(seq, k, id)?;
            } else if seq.reserved > seq.len {
                block(self.refs(id) == 1, id, "writable slots are private")?;
                block(!self.is_indexed(id), id, "writable slots are not indexed")?;
                let fills = self.pool.fills(id);
                let below = fills.iter().all(|&fill| fill as usize <= committed);
                block(below, id, "nothing counts as filled where slots are writable")?;
            }
        }
        for (lane, &full) in seq.full_blocks.iter().enumerate().take(self.lanes()) {
            let lane = Lane(lane as u8);
            let known = seq.table.get(..full);
            let right =
                known.is_some_and(|known| known.iter().all(|&id| self.fill(id, lane) == size));
            sequence(right, i, "blocks remembered as full are full")?;
        }
        Ok(())
    }

    /// A full block of a table that is indexed is indexed under the chain of that table.
    fn audit_chain(&self, seq: &SequenceKv, k: usize, id: BlockId) -> Check {
        let Some(serial) = self.index.as_ref().and_then(|index| index.serial(id)) else {
            return Ok(());
        };
        block(seq.chain.get(k) == Some(&serial), id, "an indexed block is what its table says")
    }
}

impl SequenceKv {
    /// Whether every full committed block that is indexed is indexed with these tokens. For audits:
    /// it compares all of them.
    pub fn holds_prefix_of(&self, kv: &KvCache, tokens: &[TokenId]) -> bool {
        let Some(index) = kv.index.as_ref() else { return true };
        let full = self.len / kv.block_size();
        let blocks = self.table[..full].iter().zip(tokens.chunks_exact(kv.block_size()));
        self.len <= tokens.len()
            && blocks.into_iter().all(|(&id, own)| index.tokens(id).is_none_or(|kept| kept == own))
    }
}
