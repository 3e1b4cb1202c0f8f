//! The input at work, in a file. libFuzzer writes an input after a crash that it can still handle; a stack overflow on
//! another thread and a kill from outside leave it no time to.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// Names the file; without it nothing is kept.
const NAME: &str = "FUZZ_LAST";

/// Runs `work` on an input that stays behind if the process does not survive it. Two system calls: little beside what
/// any target does.
pub fn keeping(data: &[u8], work: impl FnOnce(&[u8])) {
    static LAST: OnceLock<Option<File>> = OnceLock::new();
    let last = LAST.get_or_init(|| {
        let name = std::env::var_os(NAME)?;
        Some(File::create(name).expect("the file for the last input can be created"))
    });
    if let Some(file) = last {
        let written = file.write_all_at(data, 0).and_then(|()| file.set_len(data.len() as u64));
        written.expect("the last input can be kept");
    }
    work(data);
}
