//! How much memory the KV cache may take when nobody says.

/// Assumed free memory where the system does not tell.
const UNKNOWN_BYTES: u64 = 2 << 30;

/// The default KV budget in bytes: what `wanted` asks for, but at most a quarter of the memory that is
/// available now.
pub(crate) fn default_kv_bytes(wanted: u64) -> u64 {
    wanted.min(available_bytes() / 4)
}

fn available_bytes() -> u64 {
    std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| parse_available(&text))
        .unwrap_or(UNKNOWN_BYTES)
}

fn parse_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::parse_available;

    #[test]
    fn available_memory_is_read_from_meminfo() {
        let text = "MemTotal:       24644076 kB\nMemAvailable:   24208004 kB\n";
        assert_eq!(parse_available(text), Some(24_208_004 * 1024));
        assert_eq!(parse_available("MemTotal: 1 kB"), None);
        assert_eq!(parse_available("MemAvailable: lots"), None);
    }
}
