//! The combinations that are compared.

use redline::DraftLength;

/// How much there is for keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    /// As much as all running sequences can use.
    Ample,
    /// As much as the longest sequence needs alone, so that the others have to give way.
    Tight,
}

/// The noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Temperature {
    /// Greedy.
    Zero,
    /// The model's own law, with a seed for each prompt.
    One,
}

/// One combination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) draft: String,
    pub(super) length: DraftLength,
    pub(super) concurrency: usize,
    pub(super) memory: Memory,
    pub(super) temperature: Temperature,
}

impl Cell {
    /// Plain decoding, alone, with ample memory.
    pub(super) fn reference(temperature: Temperature) -> Self {
        Self {
            draft: "none".to_owned(),
            length: DraftLength::Fixed(0),
            concurrency: 1,
            memory: Memory::Ample,
            temperature,
        }
    }

    /// What it is called in the state file.
    pub(super) fn name(&self) -> String {
        let length = match self.length {
            DraftLength::Auto => "auto".to_owned(),
            DraftLength::Fixed(k) => k.to_string(),
        };
        let memory = if self.memory == Memory::Ample { "ample" } else { "tight" };
        let temperature = if self.temperature == Temperature::Zero { 0 } else { 1 };
        format!(
            "d={} k={length} c={} memory={memory} t={temperature}",
            self.draft, self.concurrency
        )
    }
}

const LENGTHS: [DraftLength; 4] =
    [DraftLength::Fixed(1), DraftLength::Fixed(4), DraftLength::Fixed(8), DraftLength::Auto];

/// The cells for `drafts`: all of them, or a few that touch every setting.
pub(super) fn of(drafts: &[String], full: bool) -> Vec<Cell> {
    let mut cells = Vec::new();
    for draft in drafts {
        let plain = [DraftLength::Fixed(0)];
        let lengths = if draft == "none" { &plain[..] } else { &LENGTHS };
        for temperature in [Temperature::Zero, Temperature::One] {
            for memory in [Memory::Ample, Memory::Tight] {
                for concurrency in [1, 8] {
                    cells.extend(lengths.iter().map(|&length| Cell {
                        draft: draft.clone(),
                        length,
                        concurrency,
                        memory,
                        temperature,
                    }));
                }
            }
        }
    }
    // The reference itself is in no need of comparison.
    cells.retain(|cell| *cell != Cell::reference(cell.temperature));
    if !full {
        cells.retain(is_short);
    }
    cells
}

fn is_short(cell: &Cell) -> bool {
    use DraftLength::{Auto, Fixed};
    matches!(
        (cell.length, cell.concurrency, cell.memory, cell.temperature),
        (Fixed(0), 8, Memory::Tight, Temperature::One)
            | (Fixed(1), 1, Memory::Tight, Temperature::Zero)
            | (Fixed(4), 8, Memory::Tight, Temperature::Zero)
            | (Fixed(8), 8, Memory::Tight, Temperature::One)
            | (Auto, 8, Memory::Ample, Temperature::One)
            | (Auto, 1, Memory::Ample, Temperature::Zero)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_set_is_every_combination_but_the_reference() {
        let drafts = ["none".to_owned(), "ngram".to_owned()];
        let full = of(&drafts, true);
        assert_eq!(full.len(), 6 + 32);
        let mut names: Vec<_> = full.iter().map(Cell::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), full.len());
        assert_eq!(of(&drafts, false).len(), 6);
    }
}
