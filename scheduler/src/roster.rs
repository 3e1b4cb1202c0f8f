//! Where sequences live, and the two lists of who waits and who runs, each in order of rank.

use crate::sequence::Phase;
use crate::{SeqId, Sequence};
use rustc_hash::FxHashMap;

/// A place in the roster.
pub(crate) type Slot = u32;

/// All sequences that have not ended. The hash map is for look-ups by id only and never iterated.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    places: Vec<Option<Sequence>>,
    vacant: Vec<Slot>,
    by_id: FxHashMap<SeqId, Slot>,
    /// Best rank *last*: the usual candidate is taken off the end.
    waiting: Vec<Slot>,
    /// Best rank first.
    running: Vec<Slot>,
}

impl Roster {
    pub(crate) fn find(&self, id: SeqId) -> Option<Slot> {
        self.by_id.get(&id).copied()
    }

    pub(crate) fn get(&self, slot: Slot) -> &Sequence {
        let seq = self.places[slot as usize].as_ref();
        seq.unwrap_or_else(|| unreachable!("slot {slot} of the roster is vacant"))
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> &mut Sequence {
        let seq = self.places[slot as usize].as_mut();
        seq.unwrap_or_else(|| unreachable!("slot {slot} of the roster is vacant"))
    }

    /// The sequence, if it is still the one admitted under that number.
    pub(crate) fn find_admitted(&self, slot: Slot, admission: u64) -> Option<&Sequence> {
        let seq = self.places.get(slot as usize)?.as_ref()?;
        (seq.phase == Phase::Running { admission }).then_some(seq)
    }

    pub(crate) fn places(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn occupied(&self) -> usize {
        self.places.len() - self.vacant.len()
    }

    pub(crate) fn ids(&self) -> usize {
        self.by_id.len()
    }

    /// Best rank last.
    pub(crate) fn waiting(&self) -> &[Slot] {
        &self.waiting
    }

    /// Best rank first.
    pub(crate) fn running(&self) -> &[Slot] {
        &self.running
    }

    /// Puts a new sequence into the queue.
    pub(crate) fn enter(&mut self, seq: Sequence) {
        assert!(seq.phase == Phase::Waiting, "a new sequence waits");
        let id = seq.id();
        let slot = match self.vacant.pop() {
            Some(slot) => {
                self.places[slot as usize] = Some(seq);
                slot
            }
            None => {
                self.places.push(Some(seq));
                (self.places.len() - 1) as Slot
            }
        };
        let before = self.by_id.insert(id, slot);
        assert!(before.is_none(), "ids are checked at the door");
        self.insert_waiting(slot);
    }

    /// From the queue into the batch.
    pub(crate) fn start(&mut self, slot: Slot, admission: u64) {
        self.remove_waiting(slot);
        self.get_mut(slot).phase = Phase::Running { admission };
        let at = self.running_place(slot);
        self.running.insert(at, slot);
    }

    /// From the batch back into the queue, at its old rank.
    pub(crate) fn stop(&mut self, slot: Slot) {
        self.remove_running(slot);
        self.get_mut(slot).phase = Phase::Waiting;
        self.insert_waiting(slot);
    }

    /// Takes a sequence out for good.
    pub(crate) fn leave(&mut self, slot: Slot) -> Sequence {
        match self.get(slot).phase {
            Phase::Waiting => self.remove_waiting(slot),
            Phase::Running { .. } => self.remove_running(slot),
        }
        let id = self.get(slot).id();
        self.by_id.remove(&id);
        self.vacant.push(slot);
        let seq = self.places[slot as usize].take();
        let mut seq = seq.unwrap_or_else(|| unreachable!("slot {slot} was read above"));
        seq.phase = Phase::Waiting;
        seq
    }

    /// All sequences, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Sequence> {
        self.places.iter().flatten()
    }

    /// The same, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Sequence> {
        self.places.iter_mut().flatten()
    }

    /// Who waits, who runs, and all ids, for tests to break.
    #[cfg(test)]
    pub(crate) fn parts(
        &mut self,
    ) -> (&mut Vec<Slot>, &mut Vec<Slot>, &mut FxHashMap<SeqId, Slot>) {
        (&mut self.waiting, &mut self.running, &mut self.by_id)
    }

    /// Takes every sequence out, whatever its state.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Sequence> + '_ {
        self.waiting.clear();
        self.running.clear();
        self.by_id.clear();
        self.vacant.clear();
        self.places.drain(..).flatten()
    }

    fn running_place(&self, slot: Slot) -> usize {
        let rank = self.get(slot).rank;
        self.running.partition_point(|&other| self.get(other).rank < rank)
    }

    fn waiting_place(&self, slot: Slot) -> usize {
        let rank = self.get(slot).rank;
        self.waiting.partition_point(|&other| self.get(other).rank > rank)
    }

    fn insert_waiting(&mut self, slot: Slot) {
        let at = self.waiting_place(slot);
        self.waiting.insert(at, slot);
    }

    fn remove_waiting(&mut self, slot: Slot) {
        let at = self.waiting_place(slot);
        assert_eq!(self.waiting.get(at), Some(&slot), "a waiting sequence is in the queue");
        self.waiting.remove(at);
    }

    fn remove_running(&mut self, slot: Slot) {
        let at = self.running_place(slot);
        assert_eq!(self.running.get(at), Some(&slot), "a running sequence is in the batch");
        self.running.remove(at);
    }
}
