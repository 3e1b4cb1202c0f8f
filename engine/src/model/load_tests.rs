//! Files that are and are not a model.

use std::io::Write;

use redline_kv_cache::BlockId;

use super::tiny::Tiny;
use super::{Architecture, LoadError};
use crate::gguf::TensorType;
use crate::gguf::write::Bytes;
use crate::model_runner::{CpuRunner, RunOptions};
use crate::runner::{Batch, ModelRunner, Rows};

/// A file under construction: metadata and tensors that a test may change before it is written.
struct Model {
    metadata: Vec<(String, u32, Vec<u8>)>,
    tensors: Vec<(String, Vec<u64>, TensorType, Vec<u8>)>,
}

impl Model {
    fn new(tiny: &Tiny) -> Self {
        let arch = tiny.architecture.name();
        let mut string = (arch.len() as u64).to_le_bytes().to_vec();
        string.extend(arch.bytes());
        let mut model =
            Self { metadata: vec![("general.architecture".into(), 8, string)], tensors: vec![] };
        let numbers = [
            ("block_count", tiny.layers),
            ("context_length", tiny.context),
            ("embedding_length", tiny.width),
            ("feed_forward_length", tiny.ffn),
            ("attention.head_count", tiny.heads),
            ("attention.head_count_kv", tiny.kv_heads),
            ("attention.key_length", tiny.head_dim),
        ];
        for (key, value) in numbers {
            model.set(&format!("{arch}.{key}"), value as u32);
        }
        let eps = 1e-5f32.to_le_bytes().to_vec();
        model.metadata.push((format!("{arch}.attention.layer_norm_rms_epsilon"), 6, eps));
        for (name, t) in tiny.tensors().unwrap() {
            let dims = t.dims.iter().map(|&d| d as u64).collect();
            model.tensors.push((name, dims, t.dtype, t.bytes.as_slice().to_vec()));
        }
        model
    }

    fn set(&mut self, key: &str, value: u32) {
        self.drop_key(key);
        self.metadata.push((key.to_owned(), 4, value.to_le_bytes().to_vec()));
    }

    fn drop_key(&mut self, key: &str) {
        self.metadata.retain(|(k, ..)| k != key);
    }

    fn bytes(&self) -> Vec<u8> {
        let mut b = Bytes::head(3, self.tensors.len() as u64, self.metadata.len() as u64);
        for (key, id, value) in &self.metadata {
            b = b.key(key, *id).raw(value);
        }
        let mut offset = 0;
        for (name, dims, dtype, bytes) in &self.tensors {
            b = b.tensor(name, dims, dtype.id(), offset);
            offset += (bytes.len() as u64).next_multiple_of(32);
        }
        b = b.pad(32);
        for (.., bytes) in &self.tensors {
            b = b.raw(bytes).pad(32);
        }
        b.0
    }

    fn open(&self) -> Result<CpuRunner, LoadError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&self.bytes()).unwrap();
        CpuRunner::open(file.path(), RunOptions { threads: 1, ..RunOptions::default() })
    }
}

fn logits(model: &mut CpuRunner) -> Vec<f32> {
    model.allocate(1, 16).unwrap();
    let (mut batch, mut rows) = (Batch::default(), Rows::default());
    batch.push_seq(&[BlockId(0)]);
    for i in 0..5 {
        let row = batch.push_row(3 * i, i);
        batch.want.push(row);
    }
    model.forward(&batch, &mut rows).unwrap();
    rows.logits
}

#[test]
fn a_file_gives_the_model_it_was_made_of() {
    for architecture in [Architecture::Llama, Architecture::Qwen2, Architecture::Qwen3] {
        for tied in [false, true] {
            let tiny = Tiny { architecture, tied, dtype: TensorType::Q5_1, ..Tiny::default() };
            let mut from_file = Model::new(&tiny).open().unwrap();
            assert_eq!(from_file.info().vocab_size, tiny.vocab);
            let mut built = tiny.build(RunOptions { threads: 1, ..RunOptions::default() }).unwrap();
            assert_eq!(logits(&mut from_file), logits(&mut built), "{architecture:?} {tied}");
        }
    }
}

/// Each change to a good file, and what the error must say.
#[test]
fn what_is_wrong_is_named() {
    type Change = fn(&mut Model);
    let changes: [(Change, &str); 22] = [
        (|m| m.metadata[0].2 = [&5u64.to_le_bytes()[..], b"mamba"].concat(), "mamba"),
        (|m| m.drop_key("general.architecture"), "general.architecture"),
        (|m| m.drop_key("llama.block_count"), "llama.block_count"),
        (|m| m.set("llama.block_count", 0), "llama.block_count"),
        (|m| m.set("llama.block_count", u32::MAX), "blk.2.attn_norm.weight"),
        (|m| m.set("llama.block_count", 1), "blk.1."),
        (|m| m.set("llama.embedding_length", 32), "token_embd.weight"),
        (|m| m.set("llama.feed_forward_length", 64), "blk.0.ffn_gate.weight"),
        (|m| m.set("llama.attention.head_count", 3), "head_count"),
        (|m| m.set("llama.attention.head_count_kv", 3), "head_count_kv"),
        (|m| m.set("llama.attention.key_length", 1 << 30), "key_length"),
        (|m| m.set("llama.attention.value_length", 8), "value_length"),
        (|m| m.set("llama.expert_count", 8), "mixture of experts"),
        (|m| m.set("llama.attention.sliding_window", 4096), "sliding-window"),
        (|m| m.set("llama.rope.dimension_count", 7), "dimension_count"),
        (
            |m| m.metadata.push(("llama.rope.freq_base".into(), 6, (-1f32).to_le_bytes().to_vec())),
            "freq_base",
        ),
        (
            |m| {
                m.metadata.push(("llama.rope.freq_base".into(), 6, f32::NAN.to_le_bytes().to_vec()))
            },
            "freq_base",
        ),
        (|m| m.tensors.retain(|t| t.0 != "blk.1.ffn_up.weight"), "blk.1.ffn_up.weight is missing"),
        (|m| m.tensors.retain(|t| t.0 != "token_embd.weight"), "token_embd.weight is missing"),
        (
            |m| {
                m.tensors
                    .iter_mut()
                    .filter(|t| t.0 == "blk.0.attn_q.weight")
                    .for_each(|t| t.1 = vec![32, 128])
            },
            "[32, 128]",
        ),
        (
            |m| m.tensors.push(("blk.0.attn_sinks".into(), vec![4], TensorType::F32, vec![0; 16])),
            "attn_sinks",
        ),
        (
            |m| m.tensors.push(("rope_freqs.weight".into(), vec![8], TensorType::F32, vec![0; 32])),
            "rope_freqs",
        ),
    ];
    for (change, said) in changes {
        let mut model = Model::new(&Tiny::default());
        change(&mut model);
        let error = model.open().unwrap_err().to_string();
        assert!(error.contains(said), "{error:?} does not say {said:?}");
    }
    let mut qwen = Model::new(&Tiny { architecture: Architecture::Qwen2, ..Tiny::default() });
    qwen.tensors.retain(|t| t.0 != "blk.0.attn_k.bias");
    assert!(qwen.open().unwrap_err().to_string().contains("blk.0.attn_k.bias is missing"));
}

#[test]
fn frequency_factors_change_the_rotation() {
    let mut model = Model::new(&Tiny::default());
    let plain = logits(&mut model.open().unwrap());
    let ones: Vec<u8> = [1f32; 8].iter().flat_map(|x| x.to_le_bytes()).collect();
    model.tensors.push(("rope_freqs.weight".into(), vec![8], TensorType::F32, ones));
    assert_eq!(logits(&mut model.open().unwrap()), plain);
    let twos = [2f32; 8].iter().flat_map(|x| x.to_le_bytes()).collect();
    model.tensors.last_mut().unwrap().3 = twos;
    assert_ne!(logits(&mut model.open().unwrap()), plain);
}

#[test]
fn a_truncated_file_is_refused() {
    let whole = Model::new(&Tiny::default()).bytes();
    for len in [0, 3, 100, whole.len() / 2, whole.len() - 64] {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&whole[..len]).unwrap();
        let options = RunOptions { threads: 1, ..RunOptions::default() };
        assert!(CpuRunner::open(file.path(), options).is_err(), "{len} bytes");
    }
}
