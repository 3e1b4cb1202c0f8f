//! Writes small random models as GGUF files, so that nothing has to be downloaded.

use std::path::Path;

use redline::gguf::TensorType;
use redline::model::tiny::Tiny;

const ALIGNMENT: usize = 32;
/// Entries after the 256 bytes: the marks of a turn.
const MARKS: [&str; 4] = ["<|end|>", "<|user|>", "<|assistant|>", "<|spare|>"];

/// What a file is to hold.
#[derive(Clone)]
pub(crate) struct File {
    pub(crate) model: Tiny,
    /// `general.alignment`; data is laid out for 32 in any case.
    pub(crate) alignment: u32,
    /// The last entry of the vocabulary.
    pub(crate) last_token: &'static str,
    /// The pre-tokenizer.
    pub(crate) pre: &'static str,
}

impl Default for File {
    fn default() -> Self {
        let model = Tiny { vocab: 256 + MARKS.len(), context: 512, ..Tiny::default() };
        Self { model, alignment: 32, last_token: MARKS[3], pre: "gpt-2" }
    }
}

impl File {
    /// The file's bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let tensors = self.model.tensors().expect("sizes fit");
        let (metadata, entries) = self.metadata();
        let mut head = Vec::from(*b"GGUF");
        head.extend(3_u32.to_le_bytes());
        head.extend((tensors.len() as u64).to_le_bytes());
        head.extend(entries.to_le_bytes());
        head.extend(metadata);
        let mut data = Vec::new();
        for (name, tensor) in &tensors {
            string(&mut head, name);
            head.extend((tensor.dims.len() as u32).to_le_bytes());
            tensor.dims.iter().for_each(|&dim| head.extend((dim as u64).to_le_bytes()));
            head.extend(TensorType::id(tensor.dtype).to_le_bytes());
            head.extend((data.len() as u64).to_le_bytes());
            data.extend_from_slice(tensor.bytes.as_slice());
            data.resize(data.len().next_multiple_of(ALIGNMENT), 0);
        }
        head.resize(head.len().next_multiple_of(ALIGNMENT), 0);
        head.extend(data);
        head
    }

    pub(crate) fn write(&self, path: &Path) {
        std::fs::write(path, self.bytes()).expect("the test's folder is writable");
    }

    fn metadata(&self) -> (Vec<u8>, u64) {
        let mut fields = Fields::default();
        let model = &self.model;
        fields.string("general.architecture", "llama");
        fields.string("general.name", "tiny");
        fields.u32("general.alignment", self.alignment);
        for (key, value) in [
            ("block_count", model.layers),
            ("context_length", model.context),
            ("embedding_length", model.width),
            ("feed_forward_length", model.ffn),
            ("attention.head_count", model.heads),
            ("attention.head_count_kv", model.kv_heads),
        ] {
            fields.u32(&format!("llama.{key}"), value as u32);
        }
        fields.f32("llama.attention.layer_norm_rms_epsilon", 1e-5);
        fields.string("tokenizer.ggml.model", "gpt2");
        fields.string("tokenizer.ggml.pre", self.pre);
        let mut tokens: Vec<String> = (0..=255).map(|byte| byte_char(byte).to_string()).collect();
        tokens.extend(MARKS[..3].iter().map(|&mark| mark.to_owned()));
        tokens.push(self.last_token.to_owned());
        let kinds = [vec![1; 256], vec![3; MARKS.len()]].concat();
        fields.strings("tokenizer.ggml.tokens", &tokens);
        fields.i32s("tokenizer.ggml.token_type", &kinds);
        fields.strings("tokenizer.ggml.merges", &[]);
        fields.u32("tokenizer.ggml.eos_token_id", 256);
        let template =
            "{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}<|assistant|>";
        fields.string("tokenizer.chat_template", template);
        (fields.bytes, fields.count)
    }
}

#[derive(Default)]
struct Fields {
    bytes: Vec<u8>,
    count: u64,
}

impl Fields {
    fn key(&mut self, key: &str, kind: u32) {
        self.count += 1;
        string(&mut self.bytes, key);
        self.bytes.extend(kind.to_le_bytes());
    }

    fn u32(&mut self, key: &str, value: u32) {
        self.key(key, 4);
        self.bytes.extend(value.to_le_bytes());
    }

    fn f32(&mut self, key: &str, value: f32) {
        self.key(key, 6);
        self.bytes.extend(value.to_le_bytes());
    }

    fn string(&mut self, key: &str, value: &str) {
        self.key(key, 8);
        string(&mut self.bytes, value);
    }

    fn array(&mut self, key: &str, kind: u32, len: usize) {
        self.key(key, 9);
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend((len as u64).to_le_bytes());
    }

    fn strings(&mut self, key: &str, values: &[String]) {
        self.array(key, 8, values.len());
        values.iter().for_each(|value| string(&mut self.bytes, value));
    }

    fn i32s(&mut self, key: &str, values: &[i32]) {
        self.array(key, 5, values.len());
        values.iter().for_each(|value| self.bytes.extend(value.to_le_bytes()));
    }
}

fn string(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

/// GPT-2's printable stand-in for a byte.
fn byte_char(byte: u8) -> char {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        return char::from(byte);
    }
    let rank = (0..byte).filter(|&other| !printable(other)).count() as u32;
    char::from_u32(256 + rank).unwrap_or('\u{fffd}')
}
