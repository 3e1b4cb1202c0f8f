//! What the machine can do at most: how fast it reads memory, how fast it multiplies 8-bit numbers.
//!
//! A pass is judged by the larger of two times: its bytes over the one rate, its multiplications over the other. Both
//! are measured by the very instructions of the level the kernels run at, on as many threads, and doing nothing else.

use std::hint::black_box;
use std::time::Instant;

use memmap2::MmapMut;

use super::isa::{GROUP, Isa};
use super::source::{FAR, NEAR};
use super::{Level, Pool};

const SMALL_PAGE: usize = 4 << 10;
const HUGE_PAGE: usize = 2 << 20;

/// Lines read at a turn: each has a register of its own.
const LINES: usize = 4;

/// Size of the pages that memory is mapped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// 4 KiB: what one gets.
    Small,
    /// 2 MiB, where the system has them: what one has to ask for.
    Huge,
}

/// Memory to be read, larger than any cache.
#[derive(Debug)]
pub struct ReadProbe {
    map: MmapMut,
    /// The first byte of a huge page.
    start: usize,
    len: usize,
}

impl ReadProbe {
    /// So many bytes of memory, all of it there.
    ///
    /// # Errors
    /// The system's error if it can't be had.
    pub fn new(len: usize, pages: Pages) -> std::io::Result<Self> {
        let len = len.next_multiple_of(HUGE_PAGE);
        let mut map = MmapMut::map_anon(len + HUGE_PAGE)?;
        advise(&map, pages);
        let start = map.as_ptr().addr().wrapping_neg() % HUGE_PAGE;
        // A page that nobody has written to is one page of zeros that all of them share.
        map.iter_mut().step_by(SMALL_PAGE).for_each(|byte| *byte = 1);
        Ok(Self { map, start, len })
    }

    /// Bytes per second of one sweep, each thread over a part of its own. `ahead`: whether lines are asked for
    /// before they are read, as the kernels do; processors differ in what suits them.
    pub fn sweep(&self, level: Level, pool: &mut Pool, ahead: bool) -> f64 {
        let bytes = &self.map[self.start..self.start + self.len];
        let mut parts = vec![0.0_f32; pool.threads()];
        let started = Instant::now();
        pool.run_each(&mut parts, |part, sum| {
            let bytes = &bytes[part.share(bytes.len(), HUGE_PAGE)];
            *sum = if ahead { read_ahead(level, bytes) } else { read(level, bytes) };
        });
        let elapsed = started.elapsed().as_secs_f64();
        black_box(&parts);
        self.len as f64 / elapsed
    }
}

/// Asks for pages of a size. Where there are none the advice is refused, and the others will have to do.
#[cfg(target_os = "linux")]
fn advise(map: &MmapMut, pages: Pages) {
    let _ = map.advise(match pages {
        Pages::Small => memmap2::Advice::NoHugePage,
        Pages::Huge => memmap2::Advice::HugePage,
    });
}

#[cfg(not(target_os = "linux"))]
fn advise(_: &MmapMut, _: Pages) {}

/// Multiplications of two 8-bit numbers, each added to a sum, per second, over all threads: `rounds` of 64 vectors each.
pub fn multiply_rate(level: Level, pool: &mut Pool, rounds: u32) -> f64 {
    let mut parts = vec![(0.0_f32, 0); pool.threads()];
    let started = Instant::now();
    pool.run_each(&mut parts, |part, done| *done = (multiply(level, rounds), part.of));
    let elapsed = started.elapsed().as_secs_f64();
    black_box(&parts);
    parts[0].1 as f64 * f64::from(rounds) * (VECTORS * GROUP) as f64 / elapsed
}

/// Vectors multiplied in a round.
const VECTORS: usize = 64;

#[inline(always)]
fn read_body<I: Isa>(isa: I, bytes: &[u8]) -> f32 {
    read_lines::<I, false>(isa, bytes)
}

#[inline(always)]
fn read_ahead_body<I: Isa>(isa: I, bytes: &[u8]) -> f32 {
    read_lines::<I, true>(isa, bytes)
}

#[inline(always)]
fn read_lines<I: Isa, const AHEAD: bool>(isa: I, bytes: &[u8]) -> f32 {
    let mut seen = [isa.columns(&[0; GROUP]); LINES];
    for lines in bytes.as_chunks::<{ LINES * GROUP }>().0 {
        let lines = lines.as_chunks::<GROUP>().0;
        for i in 0..LINES {
            if AHEAD {
                isa.fetch(lines[i].as_ptr().wrapping_add(NEAR));
                isa.fetch_far(lines[i].as_ptr().wrapping_add(FAR));
            }
            seen[i] = isa.both(seen[i], isa.columns(&lines[i]));
        }
    }
    let mut sum = isa.whole(0);
    for i in 0..LINES {
        sum = isa.dot_columns(sum, seen[i], [1; 4], true);
    }
    isa.sum(isa.floats(sum))
}
super::level::dispatch! {
    fn read(bytes: &[u8]) -> f32 = read_body
}
super::level::dispatch! {
    fn read_ahead(bytes: &[u8]) -> f32 = read_ahead_body
}

#[inline(always)]
fn multiply_body<I: Isa>(isa: I, rounds: u32) -> f32 {
    // As many sums as registers hold beside the operands, none of which waits for another.
    if const { I::TILE_ROWS >= 8 } {
        multiply_into::<I, 16>(isa, rounds)
    } else {
        multiply_into::<I, 4>(isa, rounds)
    }
}
super::level::dispatch! {
    fn multiply(rounds: u32) -> f32 = multiply_body
}

#[inline(always)]
fn multiply_into<I: Isa, const SUMS: usize>(isa: I, rounds: u32) -> f32 {
    let mut sums = [isa.whole(0); SUMS];
    for _ in 0..rounds {
        // Taken from memory every time, so that nothing can be multiplied out beforehand.
        let (w, x) = black_box((&[3_u8; GROUP], [1_i8; 4]));
        let w = isa.columns(w);
        for _ in 0..VECTORS / SUMS {
            for i in 0..SUMS {
                sums[i] = isa.dot_columns(sums[i], w, x, false);
            }
        }
    }
    let mut all = isa.splat(0.0);
    for i in 0..SUMS {
        all = isa.add(all, isa.floats(sums[i]));
    }
    isa.sum(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte is read once and every multiplication done: the sums know.
    #[test]
    fn nothing_is_left_out_at_any_level() {
        for level in Level::available() {
            let mut bytes = vec![0_u8; 3 * LINES * GROUP];
            assert_eq!(read(level, &bytes), 0.0);
            for at in 0..bytes.len() {
                bytes[at] = 1;
                assert_eq!(read(level, &bytes), 1.0, "{} {at}", level.name());
                assert_eq!(read_ahead(level, &bytes), 1.0, "{} {at}", level.name());
                bytes[at] = 0;
            }
            let products = VECTORS * GROUP * 5;
            assert_eq!(multiply(level, 5), 3.0 * products as f32, "{}", level.name());
        }
    }

    #[test]
    fn rates_are_rates() {
        let mut pool = Pool::new(2).unwrap();
        for pages in [Pages::Small, Pages::Huge] {
            let probe = ReadProbe::new(3 * HUGE_PAGE - 5, pages).unwrap();
            assert_eq!(probe.len, 3 * HUGE_PAGE);
            assert!((probe.map.as_ptr().addr() + probe.start).is_multiple_of(HUGE_PAGE));
            assert!(probe.sweep(Level::portable(), &mut pool, false) > 0.0);
            assert!(probe.sweep(Level::detect(), &mut pool, true) > 0.0);
        }
        assert!(multiply_rate(Level::detect(), &mut pool, 10).is_finite());
    }
}
