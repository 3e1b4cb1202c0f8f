#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| redline_fuzz::keeping(data, redline_fuzz::prompts::run));
