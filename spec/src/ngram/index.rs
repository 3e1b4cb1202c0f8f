//! Where each n-gram of a sequence occurred last.

use super::NgramConfig;
use crate::TokenId;

/// Marks a free slot of a table; no position is that large.
const FREE: u32 = u32::MAX;

/// Slots looked at before an entry is overwritten. A crafted prompt can fill one run of slots; it
/// cannot make a look-up longer than this.
const PROBES_MAX: usize = 16;

#[cfg(test)]
thread_local! {
    /// Slots looked at on this thread: what a step costs.
    pub(super) static LOOKED_AT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Last occurrences of one length of n-gram: open addressing over end positions. A key is not
/// stored; the tokens at the position are compared instead, so a collision can never make a false
/// match.
#[derive(Debug, Default)]
struct Table {
    /// A power of two of slots, or none.
    slots: Vec<u32>,
    used: usize,
}

/// The n-gram that ends at `end`, if there is one.
fn gram(tokens: &[TokenId], n: usize, end: usize) -> Option<&[TokenId]> {
    tokens.get((end + 1).checked_sub(n)?..=end)
}

fn hash(gram: &[TokenId]) -> usize {
    let mix = |h: u64, &t: &TokenId| (h.rotate_left(23) ^ u64::from(t)).wrapping_mul(MIX);
    let h = gram.iter().fold(0, mix);
    (h ^ h >> 32) as usize
}

/// An odd multiplier of even bit density (the golden ratio's fraction).
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

impl Table {
    /// The slot that holds `gram`, else the slot to put it in.
    fn slot(&self, tokens: &[TokenId], gram_sought: &[TokenId]) -> usize {
        let mask = self.slots.len() - 1;
        let home = hash(gram_sought) & mask;
        for probe in 0..PROBES_MAX.min(self.slots.len()) {
            let at = (home + probe) & mask;
            let held = self.slots[at];
            #[cfg(test)]
            LOOKED_AT.with(|count| count.set(count.get() + 1));
            if held == FREE || gram(tokens, gram_sought.len(), held as usize) == Some(gram_sought) {
                return at;
            }
        }
        home
    }

    fn find(&self, tokens: &[TokenId], sought: &[TokenId]) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let held = self.slots[self.slot(tokens, sought)];
        let matches = held != FREE && gram(tokens, sought.len(), held as usize) == Some(sought);
        matches.then_some(held as usize)
    }

    fn insert(&mut self, tokens: &[TokenId], n: usize, end: u32) {
        if self.used * 2 >= self.slots.len() {
            self.grow(tokens, n);
        }
        self.put(tokens, n, end);
    }

    fn put(&mut self, tokens: &[TokenId], n: usize, end: u32) {
        if let Some(sought) = gram(tokens, n, end as usize) {
            let at = self.slot(tokens, sought);
            self.used += usize::from(self.slots[at] == FREE);
            self.slots[at] = end;
        }
    }

    fn grow(&mut self, tokens: &[TokenId], n: usize) {
        let slots = vec![FREE; (self.slots.len() * 2).max(64)];
        let mut old = std::mem::replace(&mut self.slots, slots);
        self.used = 0;
        // Ascending, so that where probes run out the later position stays.
        old.sort_unstable();
        for end in old.into_iter().take_while(|&end| end != FREE) {
            self.put(tokens, n, end);
        }
    }
}

/// The tables of one sequence, in two generations: when the current one has taken `window`
/// positions it becomes the previous one, whose own tables are emptied for reuse. Memory stays
/// bounded, nothing is ever removed one by one, and the latest `window` positions are always found.
#[derive(Debug)]
pub(super) struct Index {
    min_n: usize,
    window: usize,
    /// Per length from `min_n` up: current and previous generation.
    tables: Vec<[Table; 2]>,
    /// Positions taken by the current generation.
    taken: usize,
    /// All n-grams that end below this position are in.
    indexed: usize,
}

impl Index {
    pub(super) fn new(config: &NgramConfig) -> Self {
        let lengths = config.max_n + 1 - config.min_n;
        let tables = (0..lengths).map(|_| Default::default()).collect();
        Self { min_n: config.min_n, window: config.window, tables, taken: 0, indexed: 0 }
    }

    pub(super) fn bytes(&self) -> usize {
        let tables = self.tables.iter().flatten();
        tables.map(|table| table.slots.capacity() * size_of::<u32>()).sum()
    }

    /// The position after the latest earlier occurrence of the longest suffix that has one.
    pub(super) fn continuation(&mut self, tokens: &[TokenId]) -> Option<usize> {
        self.catch_up(tokens);
        let last = tokens.len().checked_sub(1)?;
        for (offset, generations) in self.tables.iter().enumerate().rev() {
            let sought = gram(tokens, self.min_n + offset, last);
            let found = sought
                .and_then(|sought| generations.iter().find_map(|table| table.find(tokens, sought)));
            // Never the suffix itself: it goes in when a token follows it.
            if let Some(end) = found.filter(|&end| end < last) {
                return Some(end + 1);
            }
        }
        None
    }

    /// Takes in every n-gram that a token follows.
    fn catch_up(&mut self, tokens: &[TokenId]) {
        let ready = tokens.len().saturating_sub(1).min(FREE as usize);
        if ready < self.indexed {
            // Fewer tokens than before: the id now names another sequence.
            self.restart();
        }
        // Older than the window would be dropped again anyway.
        self.indexed = self.indexed.max(ready.saturating_sub(2 * self.window));
        for end in self.indexed..ready {
            if self.taken == self.window {
                self.turn();
            }
            for (offset, [current, _]) in self.tables.iter_mut().enumerate() {
                current.insert(tokens, self.min_n + offset, end as u32);
            }
            self.taken += 1;
        }
        self.indexed = ready;
    }

    /// The current generation becomes the previous one.
    fn turn(&mut self) {
        for [current, previous] in &mut self.tables {
            std::mem::swap(current, previous);
            current.slots.fill(FREE);
            current.used = 0;
        }
        self.taken = 0;
    }

    fn restart(&mut self) {
        self.tables.iter_mut().for_each(|generations| *generations = Default::default());
        (self.taken, self.indexed) = (0, 0);
    }
}
