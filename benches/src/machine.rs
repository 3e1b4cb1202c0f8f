//! What this machine does at most, now.
//!
//! The bandwidth of a shared machine moves by tens of per cent within minutes. So both rates are taken again before and
//! after whatever is judged by them.

use redline::kernels::probe::{Pages, ReadProbe, multiply_rate};
use redline::kernels::{Level, Pool};
use serde::Serialize;

use crate::roofline::Ceiling;

/// Sweeps of the first look at each size of page.
const SWEEPS: usize = 6;
/// Rounds of a multiplication loop: about a millisecond at the fastest level.
const ROUNDS: u32 = 40_000;
/// Rounds at levels that may be a hundred times slower.
const ROUNDS_SLOW: u32 = 2_000;

/// The machine, with memory to read.
pub(crate) struct Machine {
    level: Level,
    pool: Pool,
    memory: ReadProbe,
    /// Whether it is read fastest when lines are asked for ahead.
    ahead: bool,
    rounds: u32,
    info: MachineInfo,
}

/// The machine at the start of a run.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct MachineInfo {
    #[serde(flatten)]
    pub(crate) ceiling: Ceiling,
    pub(crate) threads: usize,
    pub(crate) level: &'static str,
    pub(crate) read_gb_s_4k_pages: f64,
    pub(crate) read_gb_s_2m_pages: f64,
}

impl Machine {
    /// Takes the first readings, over `mib` MiB of memory.
    pub(crate) fn new(threads: usize, mib: usize) -> anyhow::Result<Self> {
        let level = Level::detect();
        let mut pool = Pool::new(threads)?;
        let mut best = |memory: &ReadProbe| {
            let mut rate = |ahead| {
                (0..SWEEPS).map(|_| memory.sweep(level, &mut pool, ahead)).fold(0.0, f64::max) / 1e9
            };
            let (plain, ahead) = (rate(false), rate(true));
            (plain.max(ahead), ahead > plain)
        };
        let huge = ReadProbe::new(mib << 20, Pages::Huge)?;
        let (read_gb_s_2m_pages, huge_ahead) = best(&huge);
        let small = ReadProbe::new(mib << 20, Pages::Small)?;
        let (read_gb_s_4k_pages, small_ahead) = best(&small);
        let (memory, ahead) = if read_gb_s_4k_pages > read_gb_s_2m_pages {
            (small, small_ahead)
        } else {
            (huge, huge_ahead)
        };
        let rounds = if level == Level::portable() { ROUNDS_SLOW } else { ROUNDS };
        let mut machine = Self {
            level,
            pool,
            memory,
            ahead,
            rounds,
            info: MachineInfo {
                ceiling: Ceiling { read_gb_s: 0.0, int8_gmacs: 0.0 },
                threads,
                level: level.name(),
                read_gb_s_4k_pages,
                read_gb_s_2m_pages,
            },
        };
        let first = (0..SWEEPS).map(|_| machine.now()).reduce(Ceiling::or);
        let seen = read_gb_s_2m_pages.max(read_gb_s_4k_pages);
        machine.info.ceiling =
            Ceiling { read_gb_s: seen, int8_gmacs: 0.0 }.or(first.unwrap_or(machine.info.ceiling));
        Ok(machine)
    }

    /// A reading: the better of two of each.
    pub(crate) fn now(&mut self) -> Ceiling {
        let reading = |machine: &mut Self| Ceiling {
            read_gb_s: machine.memory.sweep(machine.level, &mut machine.pool, machine.ahead) / 1e9,
            int8_gmacs: multiply_rate(machine.level, &mut machine.pool, machine.rounds) / 1e9,
        };
        reading(self).or(reading(self))
    }

    /// The first readings.
    pub(crate) fn info(&self) -> &MachineInfo {
        &self.info
    }
}
