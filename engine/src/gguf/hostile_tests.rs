//! Files that a stranger might send (after llama.cpp's `test-gguf.cpp`), and random bytes.

use proptest::prelude::*;

use super::write::Bytes;
use super::*;

fn scan(b: &Bytes) -> Result<Header, GgufError> {
    Header::scan(b.0.as_slice(), b.0.len() as u64)
}

/// One metadata entry, two tensors of data.
fn good() -> Bytes {
    Bytes::head(3, 2, 3)
        .key("general.architecture", 8)
        .string(b"llama")
        .key("tokens", 9)
        .u32(8)
        .u64(3)
        .string(b"a")
        .string(b"")
        .string("\u{120}the".as_bytes())
        .key("nested", 9)
        .u32(9)
        .u64(1)
        .u32(6)
        .u64(2)
        .raw(&1.5_f32.to_le_bytes())
        .raw(&2.5_f32.to_le_bytes())
        .tensor("w", &[32, 2], 2, 0)
        .tensor("b", &[4], 0, 64)
        .pad(32)
        .raw(&[7; 64 + 16])
}

#[test]
fn a_good_file_is_read() {
    for version in [2, 3] {
        let mut b = good();
        b.0[4] = version;
        let h = scan(&b).unwrap();
        assert_eq!(h.version, u32::from(version));
        assert_eq!(h.require::<&str>("general.architecture").unwrap(), "llama");
        let tokens: &StringArray = h.require("tokens").unwrap();
        assert_eq!(tokens.iter().collect::<Vec<_>>(), ["a", "", "\u{120}the"]);
        assert_eq!(
            h.metadata["nested"],
            Value::Array(Array::Array(vec![Array::F32(vec![1.5, 2.5])]))
        );
        let w = &h.tensors["w"];
        assert_eq!((w.dims.as_slice(), w.bytes), ([32, 2].as_slice(), 36));
        assert_eq!(h.tensors["b"].offset, h.data_start + 64);
        assert_eq!(h.data_start % 32, 0);
    }
}

#[test]
fn every_prefix_of_a_good_file_is_an_error() {
    let b = good();
    for len in 0..b.0.len() {
        let cut = Bytes(b.0[..len].to_vec());
        assert!(scan(&cut).is_err(), "{len} bytes accepted");
    }
}

#[test]
fn a_file_shorter_than_it_claims_is_an_error() {
    let b = good();
    let short = &b.0[..60];
    assert!(matches!(Header::scan(short, b.0.len() as u64), Err(GgufError::Io { .. })));
}

/// Each hostile file and what its error must say.
fn hostile_metadata() -> Vec<(&'static str, Bytes, &'static str)> {
    let empty = |tensors, metadata| Bytes::head(3, tensors, metadata);
    let one = |key, value_type| empty(0, 1).key(key, value_type);
    let deep = (0..5).fold(one("k", 9), |b, _| b.u32(9).u64(1));
    vec![
        ("no bytes", Bytes::default(), "magic"),
        ("wrong magic", Bytes(b"GGML\x03\0\0\0".to_vec()), "not a GGUF file"),
        ("version 0", Bytes::head(0, 0, 0), "version 0"),
        ("version 1", Bytes::head(1, 0, 0), "version 1"),
        ("version 4", Bytes::head(4, 0, 0), "version 4"),
        ("big endian", Bytes::head(3_u32.swap_bytes(), 0, 0), "big-endian"),
        ("minus one tensors", empty(u64::MAX, 0), "tensor count"),
        ("tensors without entries", empty(1000, 0), "tensor count"),
        ("minus one keys", empty(0, u64::MAX), "metadata count"),
        ("keys without entries", empty(0, 1000), "metadata count"),
        ("key longer than the file", empty(0, 1).u64(1 << 40).raw(&[0; 64]), "entry 0"),
        ("key of length minus one", empty(0, 1).u64(u64::MAX).raw(&[0; 64]), "entry 0"),
        ("empty key", empty(0, 1).u64(0).raw(&[0; 64]), "empty"),
        ("key over the limit", empty(0, 1).string(&vec![b'k'; 70_000]).raw(&[0; 64]), "limit"),
        ("key not UTF-8", empty(0, 1).string(b"\xff\xfe").raw(&[0; 64]), "UTF-8"),
        ("value type 13", one("k", 13).raw(&[0; 64]), "k at byte"),
        ("value type minus one", one("k", u32::MAX).raw(&[0; 64]), "unknown value type"),
        ("bool 2", one("k", 7).raw(&[2; 64]), "not a bool"),
        ("string longer than the file", one("k", 8).u64(1 << 62), "metadata k"),
        ("string not UTF-8", one("k", 8).string(b"\xc3\x28"), "UTF-8"),
        ("array of unknown type", one("k", 9).u32(77).u64(1).raw(&[0; 8]), "element type 77"),
        ("array of minus one u64", one("k", 9).u32(10).u64(u64::MAX), "metadata k"),
        ("array size overflows", one("k", 9).u32(12).u64(1 << 61).raw(&[0; 64]), "metadata k"),
        ("strings without room", one("k", 9).u32(8).u64(1 << 33).raw(&[0; 64]), "metadata k"),
        ("arrays without room", one("k", 9).u32(9).u64(1 << 33).raw(&[0; 64]), "metadata k"),
        ("arrays too deep", deep.u32(0).u64(0), "limit of 4"),
        (
            "too many inner arrays",
            {
                let n = NESTED_ARRAYS_MAX + 1;
                (0..n).fold(one("k", 9).u32(9).u64(n), |b, _| b.u32(0).u64(0))
            },
            "limit",
        ),
        ("duplicate key", empty(0, 2).key("k", 4).u32(1).key("k", 4).u32(2), "duplicate"),
        ("alignment 0", one("general.alignment", 4).u32(0), "general.alignment"),
        ("alignment 48", one("general.alignment", 4).u32(48), "general.alignment"),
        ("alignment 2^31", one("general.alignment", 4).u32(1 << 31), "general.alignment"),
        ("alignment a string", one("general.alignment", 8).string(b"32"), "general.alignment"),
    ]
}

/// The same for tensor entries.
fn hostile_tensors() -> Vec<(&'static str, Bytes, &'static str)> {
    let empty = |tensors, metadata| Bytes::head(3, tensors, metadata);
    let tensor =
        |dims: &[u64], id, offset| empty(1, 0).tensor("w", dims, id, offset).pad(32).raw(&[0; 256]);
    vec![
        ("dimension count 0", tensor(&[], 0, 0), "no dimensions"),
        ("dimension count 5", tensor(&[1; 5], 0, 0), "limit of 4"),
        ("dimension count 2^32 - 1", empty(1, 0).string(b"w").u32(u32::MAX).raw(&[0; 64]), "limit"),
        ("dimension 0", tensor(&[32, 0], 0, 0), "dimension of 0"),
        ("dimension minus one", tensor(&[u64::MAX], 0, 0), "overflows"),
        ("product wraps to 0", tensor(&[1 << 32, 1 << 32], 0, 0), "overflows"),
        ("product wraps to 32", tensor(&[(1 << 63) + 16, 2], 0, 0), "overflows"),
        ("bytes overflow", tensor(&[1 << 61, 2], 0, 0), "overflows"),
        ("not whole blocks", tensor(&[33, 2], 2, 0), "multiple of the type's block"),
        ("type removed from ggml", tensor(&[32], 4, 0), "unknown tensor type 4"),
        ("type minus one", tensor(&[32], u32::MAX, 0), "unknown tensor type"),
        ("type IQ4_XS", tensor(&[256], 23, 0), "IQ4_XS"),
        ("offset not aligned", tensor(&[4], 0, 4), "not aligned to 32"),
        ("offset outside", tensor(&[4], 0, 1 << 40), "outside the data section"),
        ("offset plus size overflows", tensor(&[4], 0, u64::MAX - 31), "outside the data section"),
        ("larger than the file", tensor(&[1 << 40], 0, 0), "outside the data section"),
        (
            "duplicate tensor",
            {
                let b = empty(2, 0).tensor("w", &[4], 0, 0).tensor("w", &[4], 0, 32);
                b.pad(32).raw(&[0; 64])
            },
            "duplicate",
        ),
        (
            "overlapping tensors",
            {
                let b = empty(2, 0).tensor("v", &[16], 0, 0).tensor("w", &[4], 0, 32);
                b.pad(32).raw(&[0; 64])
            },
            "overlaps tensor v",
        ),
    ]
}

#[test]
fn hostile_files_are_refused_by_name() {
    for (kind, bytes, said) in [hostile_metadata(), hostile_tensors()].concat() {
        let error = scan(&bytes).expect_err(kind).to_string();
        assert!(error.contains(said), "{kind}: {error:?} does not say {said:?}");
    }
}

#[test]
fn a_value_of_the_wrong_type_is_named() {
    let h = scan(&Bytes::head(3, 0, 1).key("llama.block_count", 5).raw(&(-3_i32).to_le_bytes()))
        .unwrap();
    let error = h.require::<u32>("llama.block_count").unwrap_err().to_string();
    assert!(error.contains("llama.block_count") && error.contains("-3"), "{error}");
    assert!(matches!(h.require::<u32>("other"), Err(GgufError::Missing { .. })));
}

/// Bytes at which a good file is changed.
fn edits() -> impl Strategy<Value = Vec<(usize, u8)>> {
    prop::collection::vec(
        (any::<prop::sample::Index>().prop_map(|i| i.index(good().0.len())), any::<u8>()),
        1..8,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn random_bytes_never_panic(
        tail in prop::collection::vec(any::<u8>(), 0..300),
        counts in any::<(u8, u8)>(),
    ) {
        let b = Bytes::head(3, counts.0.into(), counts.1.into()).raw(&tail);
        let _ = scan(&b);
    }

    #[test]
    fn a_good_file_with_changed_bytes_never_panics(edits in edits()) {
        let mut b = good();
        for (at, byte) in edits {
            b.0[at] = byte;
        }
        if let Ok(h) = scan(&b) {
            for t in h.tensors.values() {
                prop_assert!(t.offset + t.bytes <= b.0.len() as u64);
            }
        }
    }
}
