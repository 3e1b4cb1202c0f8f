//! Writes the binary seeds of `corpus/`: headers of model files, whole and broken, and a few runs of the scheduler. (The
//! other seeds are text, written by hand.) A file of its own that needs nothing but the standard library:
//!
//! ```sh
//! mkdir -p fuzz/target && rustc --edition 2024 -o fuzz/target/seeds fuzz/seeds.rs && fuzz/target/seeds
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

// GGUF's value types.
const U32: u32 = 4;
const I32: u32 = 5;
const F32: u32 = 6;
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

fn corpus(target: &str) -> PathBuf {
    Path::new(file!()).with_file_name("corpus").join(target)
}

fn main() -> io::Result<()> {
    let whole = model("llama", 3, 32, true);
    let gguf = [
        ("llama", whole.clone()),
        ("llama_cut_in_the_metadata", whole[..whole.len() / 2].to_vec()),
        ("llama_cut_in_the_tensors", whole[..whole.len() - 40].to_vec()),
        ("llama_version_2", model("llama", 2, 64, false)),
        ("qwen2", model("qwen2", 3, 32, false)),
        ("qwen3", model("qwen3", 3, 32, false)),
        ("alignment_0", model("llama", 3, 0, false)),
        ("alignment_48", model("llama", 3, 48, false)),
        ("arrays_in_arrays", nested()),
        ("empty", head(3, 0, 0)),
        ("every_type", every_type()),
    ];
    let folder = corpus("gguf_scan");
    gguf.iter().try_for_each(|(name, bytes)| fs::write(folder.join(name), bytes))?;
    // Runs of the scheduler mean nothing byte by byte: what counts is that they differ, and are long enough.
    let folder = corpus("scheduler_run");
    (0..8).try_for_each(|seed| fs::write(folder.join(format!("run_{seed}")), noise(seed)))
}

fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..128 << (seed % 4)).map(|_| next()).collect()
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

fn head(version: u32, tensors: u64, entries: u64) -> Vec<u8> {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.extend(tensors.to_le_bytes());
    bytes.extend(entries.to_le_bytes());
    bytes
}

/// Metadata under construction.
#[derive(Default)]
struct Fields {
    bytes: Vec<u8>,
    count: u64,
}

impl Fields {
    fn key(&mut self, key: &str, kind: u32) {
        self.count += 1;
        text(&mut self.bytes, key);
        self.bytes.extend(kind.to_le_bytes());
    }

    fn u32(&mut self, key: &str, value: u32) {
        self.key(key, U32);
        self.bytes.extend(value.to_le_bytes());
    }

    fn string(&mut self, key: &str, value: &str) {
        self.key(key, STRING);
        text(&mut self.bytes, value);
    }

    fn array(&mut self, key: &str, kind: u32, len: usize) {
        self.key(key, ARRAY);
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend((len as u64).to_le_bytes());
    }

    fn file(self, version: u32, tensors: u64) -> Vec<u8> {
        [head(version, tensors, self.count), self.bytes].concat()
    }
}

/// A header as converters write it, with a vocabulary of the 256 bytes, or of too few.
fn model(arch: &str, version: u32, alignment: u32, every_byte: bool) -> Vec<u8> {
    let mut fields = Fields::default();
    fields.string("general.architecture", arch);
    fields.u32("general.alignment", alignment);
    let sizes = [
        ("block_count", 1),
        ("context_length", 64),
        ("embedding_length", 32),
        ("feed_forward_length", 32),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 1),
    ];
    sizes.iter().for_each(|(key, size)| fields.u32(&format!("{arch}.{key}"), *size));
    fields.key(&format!("{arch}.attention.layer_norm_rms_epsilon"), F32);
    fields.bytes.extend(1e-5_f32.to_le_bytes());
    tokenizer(&mut fields, every_byte);
    let tensors = [("token_embd.weight", 8, vec![32, 16]), ("output_norm.weight", 0, vec![32])];
    let mut bytes = fields.file(version, tensors.len() as u64);
    let mut offset = 0_u64;
    for (name, kind, dims) in tensors {
        text(&mut bytes, name);
        bytes.extend((dims.len() as u32).to_le_bytes());
        dims.iter().for_each(|dim: &u64| bytes.extend(dim.to_le_bytes()));
        bytes.extend(u32::to_le_bytes(kind));
        bytes.extend(offset.to_le_bytes());
        offset += 1024;
    }
    bytes
}

fn tokenizer(fields: &mut Fields, every_byte: bool) {
    fields.string("tokenizer.ggml.model", "gpt2");
    fields.string("tokenizer.ggml.pre", if every_byte { "smollm" } else { "qwen2" });
    let bytes = if every_byte { 0..=255 } else { b'a'..=b'f' };
    let mut tokens: Vec<String> = bytes.map(|byte| byte_char(byte).to_string()).collect();
    let plain = tokens.len();
    tokens.extend(["ab", "<|end|>"].map(str::to_owned));
    fields.array("tokenizer.ggml.tokens", STRING, tokens.len());
    tokens.iter().for_each(|token| text(&mut fields.bytes, token));
    fields.array("tokenizer.ggml.token_type", I32, tokens.len());
    let kinds = (0..tokens.len()).map(|id| if id > plain { 3_i32 } else { 1 });
    kinds.for_each(|kind| fields.bytes.extend(kind.to_le_bytes()));
    fields.array("tokenizer.ggml.merges", STRING, 1);
    text(&mut fields.bytes, "a b");
    fields.u32("tokenizer.ggml.eos_token_id", plain as u32 + 1);
    fields.key("tokenizer.ggml.add_bos_token", BOOL);
    fields.bytes.push(0);
    fields.string("tokenizer.chat_template", "{% for m in messages %}{{ m.content }}{% endfor %}");
}

/// GPT-2's printable stand-in for a byte.
fn byte_char(byte: u8) -> char {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let rank = (0..byte).filter(|&other| !printable(other)).count() as u32;
    if printable(byte) { char::from(byte) } else { char::from_u32(256 + rank).unwrap_or('?') }
}

fn nested() -> Vec<u8> {
    let mut fields = Fields::default();
    fields.array("deep", ARRAY, 2);
    for value in [1.5_f32, 2.5] {
        fields.bytes.extend(F32.to_le_bytes());
        fields.bytes.extend(1_u64.to_le_bytes());
        fields.bytes.extend(value.to_le_bytes());
    }
    fields.file(3, 0)
}

fn every_type() -> Vec<u8> {
    let mut fields = Fields::default();
    let sizes = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8];
    for (kind, &size) in (0_u32..).zip(&sizes).filter(|(_, size)| **size > 0) {
        fields.key(&format!("one {kind}"), kind);
        fields.bytes.extend(vec![1; size]);
        fields.array(&format!("two {kind}"), kind, 2);
        fields.bytes.extend(vec![0; 2 * size]);
    }
    fields.string("text", "é");
    fields.file(3, 0)
}
