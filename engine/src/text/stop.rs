//! Stop strings in text that comes piece by piece.

use thiserror::Error;

/// How many stop strings a request may have.
pub const MAX_STOPS: usize = 32;
/// How long a stop string may be, in bytes.
pub const MAX_STOP_BYTES: usize = 1024;

/// Why stop strings are refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopError {
    /// Too many.
    #[error("{count} stop strings; at most {MAX_STOPS} are accepted")]
    TooMany {
        /// How many.
        count: usize,
    },
    /// One is too long.
    #[error("a stop string of {bytes} bytes; at most {MAX_STOP_BYTES} are accepted")]
    TooLong {
        /// How long.
        bytes: usize,
    },
    /// One is empty, and would stop everything.
    #[error("a stop string is empty")]
    Empty,
}

/// Watches text for stop strings. The stop string that *ends* first wins (of several ending together the longest), so
/// the result does not depend on how the text was cut into pieces. Text that may turn out to be the beginning of a
/// stop string is held back until that is decided.
#[derive(Clone, Debug, Default)]
pub struct StopStrings {
    watches: Vec<Watch>,
    held: String,
    stopped: bool,
}

impl StopStrings {
    /// Watches for these strings; with none, text passes straight through.
    ///
    /// # Errors
    /// [`StopError`] if there are too many, or one is empty or too long.
    pub fn new<S: AsRef<str>>(stops: &[S]) -> Result<Self, StopError> {
        if stops.len() > MAX_STOPS {
            return Err(StopError::TooMany { count: stops.len() });
        }
        let mut watches = Vec::with_capacity(stops.len());
        for stop in stops {
            match stop.as_ref() {
                "" => return Err(StopError::Empty),
                stop if stop.len() > MAX_STOP_BYTES => {
                    return Err(StopError::TooLong { bytes: stop.len() });
                }
                stop => watches.push(Watch::new(stop)),
            }
        }
        Ok(Self { watches, held: String::new(), stopped: false })
    }

    /// Takes more text and appends to `out` what is certain to stand before any stop string. `true` once a stop string
    /// is complete: then `out` ends right before it, and nothing comes out any more.
    pub fn push(&mut self, text: &str, out: &mut String) -> bool {
        if self.stopped {
            return true;
        }
        if self.watches.is_empty() {
            out.push_str(text);
            return false;
        }
        let begun = self.held.len();
        self.held.push_str(text);
        for (at, byte) in text.bytes().enumerate() {
            // Every watch must see every byte, so no short-circuit.
            let complete = self.watches.iter_mut().filter_map(|watch| watch.step(byte)).max();
            if let Some(length) = complete {
                out.push_str(&self.held[..begun + at + 1 - length]);
                self.held.clear();
                self.stopped = true;
                return true;
            }
        }
        let undecided = self.watches.iter().map(|watch| watch.matched).max().unwrap_or(0);
        let certain = self.held.len() - undecided;
        out.push_str(&self.held[..certain]);
        self.held.drain(..certain);
        false
    }

    /// The text still held back: after the end of the text it cannot become a stop string.
    pub fn finish(&mut self) -> String {
        for watch in &mut self.watches {
            watch.matched = 0;
        }
        std::mem::take(&mut self.held)
    }

    /// Whether a stop string was found.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stopped
    }
}

/// One stop string, by the algorithm of Knuth, Morris and Pratt.
#[derive(Clone, Debug)]
struct Watch {
    stop: Box<[u8]>,
    /// `fallback[i]`: the length of the longest proper beginning of the stop string that `stop[..=i]` ends with.
    fallback: Box<[usize]>,
    /// How much of the stop string the text ends with.
    matched: usize,
}

impl Watch {
    fn new(stop: &str) -> Self {
        let stop: Box<[u8]> = stop.as_bytes().into();
        let mut fallback = vec![0; stop.len()];
        let mut matched = 0;
        for at in 1..stop.len() {
            matched = advance(&stop, &fallback, matched, stop[at]);
            fallback[at] = matched;
        }
        Self { stop, fallback: fallback.into(), matched: 0 }
    }

    /// Takes a byte; the stop string's length if it is complete.
    fn step(&mut self, byte: u8) -> Option<usize> {
        self.matched = advance(&self.stop, &self.fallback, self.matched, byte);
        (self.matched == self.stop.len()).then_some(self.stop.len())
    }
}

fn advance(stop: &[u8], fallback: &[usize], mut matched: usize, byte: u8) -> usize {
    while matched > 0 && stop.get(matched) != Some(&byte) {
        matched = fallback[matched - 1];
    }
    matched + usize::from(stop.get(matched) == Some(&byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (Vec<String>, bool) {
        let mut watch = StopStrings::new(stops).unwrap();
        let mut outs = Vec::new();
        for piece in pieces {
            let mut out = String::new();
            watch.push(piece, &mut out);
            outs.push(out);
        }
        outs.push(watch.finish());
        (outs, watch.stopped())
    }

    fn check(stops: &[&str], pieces: &[&str], expected: &[&str], stopped: bool) {
        assert_eq!(run(stops, pieces), (expected.iter().map(|&s| s.to_owned()).collect(), stopped));
    }

    #[test]
    fn a_stop_string_may_span_pieces() {
        check(&["END"], &["a E", "N", "D b"], &["a ", "", "", ""], true);
        check(&["END"], &["a E", "N", "X b"], &["a ", "", "ENX b", ""], false);
        check(&["END"], &["a EN"], &["a ", "EN"], false);
        check(&["END"], &["END"], &["", ""], true);
        check(&["END"], &["x END y", "z"], &["x ", "", ""], true);
        check(&[], &["x"], &["x", ""], false);
    }

    #[test]
    fn the_one_that_ends_first_wins() {
        check(&["abcd", "bc"], &["abcd"], &["a", ""], true);
        check(&["bc", "abc"], &["xabc"], &["x", ""], true);
        check(&["aab"], &["aaa", "b"], &["a", "", ""], true);
        check(&["é"], &["caf", "é!"], &["caf", "", ""], true);
        // The first byte of é is also that of è: held text must still be cut at characters.
        check(&["é"], &["è"], &["è", ""], false);
    }

    #[test]
    fn bounds() {
        assert_eq!(StopStrings::new(&["a", ""]).unwrap_err(), StopError::Empty);
        assert_eq!(StopStrings::new(&vec!["a"; 33]).unwrap_err(), StopError::TooMany { count: 33 });
        assert!(matches!(
            StopStrings::new(&["a".repeat(1025)]),
            Err(StopError::TooLong { bytes: 1025 })
        ));
    }

    /// The definition, on the whole text at once.
    fn naive(stops: &[String], text: &str) -> (String, bool) {
        for end in text.char_indices().map(|(at, c)| at + c.len_utf8()) {
            let longest =
                stops.iter().filter(|stop| text[..end].ends_with(*stop)).map(String::len).max();
            if let Some(longest) = longest {
                return (text[..end - longest].to_owned(), true);
            }
        }
        (text.to_owned(), false)
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_text(
            stops in proptest::collection::vec("[abé]{1,4}", 0..4),
            pieces in proptest::collection::vec("[abé]{0,5}", 0..8),
        ) {
            let stops_ref: Vec<&str> = stops.iter().map(String::as_str).collect();
            let pieces_ref: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let (outs, stopped) = run(&stops_ref, &pieces_ref);
            prop_assert_eq!((outs.concat(), stopped), naive(&stops, &pieces.concat()));
        }
    }
}
