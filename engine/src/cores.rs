//! How many threads it makes sense to compute with.
//!
//! Two hardware threads of one core share the units that multiply, and the kernels leave none of these
//! idle: a thread per core is as fast as two. Only cores that this process may use count, and a
//! container may be granted the time of fewer.

use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::path::Path;
use std::thread::available_parallelism;

/// Threads where nobody says: one per core, of those that this process may use.
pub(crate) fn physical() -> usize {
    let granted = granted();
    let cores = read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| cores_of(&status, Path::new("/sys/devices/system/cpu")));
    cores.unwrap_or_else(num_cpus::get_physical).clamp(1, granted)
}

/// Threads where `asked` for. More than can run at a time would only wait for each other.
pub(crate) fn at_most(asked: usize) -> usize {
    let granted = granted();
    if asked > granted {
        tracing::info!(asked, granted, "fewer cores than threads asked for: one thread per core");
    }
    asked.min(granted)
}

/// What affinity and quotas leave of the machine.
fn granted() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Number of cores that the hardware threads of a process belong to: those that its status names, by
/// the topology that Linux has under `cpus`.
fn cores_of(status: &str, cpus: &Path) -> Option<usize> {
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let siblings = |cpu: u32| {
        let path = cpus.join(format!("cpu{cpu}/topology/thread_siblings_list"));
        read_to_string(path).ok()
    };
    let cores: Option<BTreeSet<_>> = numbers(allowed.trim())?.into_iter().map(siblings).collect();
    cores.map(|cores| cores.len()).filter(|&cores| cores > 0)
}

/// The numbers of a list like `0-3,8,10-11`.
fn numbers(list: &str) -> Option<Vec<u32>> {
    /// More hardware threads than Linux can be built for.
    const MOST: u32 = 1 << 16;
    let mut all = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.parse().ok().filter(|&n: &u32| n < MOST);
        let (first, last) = (number(first)?, number(last)?);
        all.extend(first..=last);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read_or_refused() {
        let cases = [
            ("0", Some(vec![0])),
            ("0-1", Some(vec![0, 1])),
            ("0-2,5,8-9", Some(vec![0, 1, 2, 5, 8, 9])),
            ("", None),
            ("1-", None),
            ("x", None),
            ("0-4294967295", None),
        ];
        for (list, expected) in cases {
            assert_eq!(numbers(list), expected, "{list:?}");
        }
    }

    #[test]
    fn only_the_cores_of_allowed_processors_count_and_each_once() {
        let cpus = tempfile::tempdir().unwrap();
        // Four cores of two hardware threads each, numbered as usual: 0 and 4 share a core.
        for cpu in 0..8 {
            let topology = cpus.path().join(format!("cpu{cpu}/topology"));
            std::fs::create_dir_all(&topology).unwrap();
            let siblings = format!("{},{}\n", cpu % 4, cpu % 4 + 4);
            std::fs::write(topology.join("thread_siblings_list"), siblings).unwrap();
        }
        let cases = [
            ("0-7", Some(4)),
            ("0-3", Some(4)),
            ("0,4", Some(1)),
            ("1,4-5", Some(2)),
            ("7", Some(1)),
            ("0-8", None), // one that the topology does not know
        ];
        for (allowed, expected) in cases {
            let status =
                format!("Name:\tredline\nCpus_allowed_list:\t{allowed}\nMems_allowed:\t1\n");
            assert_eq!(cores_of(&status, cpus.path()), expected, "{allowed}");
        }
        assert_eq!(cores_of("Name:\tredline\n", cpus.path()), None);
    }

    #[test]
    fn there_is_a_thread_at_least_and_no_more_than_granted() {
        assert!((1..=granted()).contains(&physical()));
        assert_eq!(at_most(1), 1);
        assert_eq!(at_most(usize::MAX), granted());
    }
}
