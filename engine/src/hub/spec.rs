//! The ways to name a model.

use std::path::PathBuf;

use super::alias::Known;
use super::error::HubError;

/// A parsed model name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelSpec {
    /// One of the known aliases.
    Alias(Known),
    /// A file on this machine.
    Path(PathBuf),
    /// A file on a model hub.
    Hf(HfFile),
}

/// `hf:OWNER/REPO/FILE.gguf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HfFile {
    /// `OWNER/REPO`.
    pub repo: String,
    /// The file inside the repository, possibly in folders.
    pub file: String,
}

impl std::fmt::Display for HfFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "hf:{}/{}", self.repo, self.file)
    }
}

impl ModelSpec {
    /// Reads a model name. An alias wins over a file of the same name in the current directory, so that a
    /// command means the same wherever it runs; write `./NAME` for the file.
    ///
    /// # Errors
    /// [`HubError::UnknownModel`] or [`HubError::BadHfSpec`].
    pub fn parse(spec: &str, known: &[Known]) -> Result<Self, HubError> {
        if let Some(known) = known.iter().find(|known| known.name == spec) {
            return Ok(Self::Alias(known.clone()));
        }
        if let Some(rest) = spec.strip_prefix("hf:") {
            return parse_hf(spec, rest).map(Self::Hf);
        }
        let path = PathBuf::from(spec);
        let looks_like_path = spec.contains(std::path::is_separator)
            || path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf"));
        if looks_like_path || (!spec.is_empty() && path.exists()) {
            return Ok(Self::Path(path));
        }
        Err(unknown(spec, known))
    }
}

fn parse_hf(spec: &str, rest: &str) -> Result<HfFile, HubError> {
    let bad = |reason| HubError::BadHfSpec { spec: spec.to_owned(), reason };
    let mut segments = rest.split('/');
    let (Some(owner), Some(repo)) = (segments.next(), segments.next()) else {
        return Err(bad("owner or repository missing"));
    };
    let file: Vec<&str> = segments.collect();
    if file.is_empty() {
        return Err(bad("file missing"));
    }
    // Each segment becomes a folder or file name of the cache, so nothing may climb out of it.
    let fits = |s: &&str| {
        !s.is_empty()
            && !s.starts_with('.')
            && s.chars().all(|c| c.is_ascii_alphanumeric() || "-_.+".contains(c))
    };
    if ![owner, repo].iter().chain(&file).all(fits) {
        return Err(bad(
            "only letters, digits, `-`, `_`, `+` and inner dots may stand between the slashes",
        ));
    }
    let file = file.join("/");
    if !file.to_ascii_lowercase().ends_with(".gguf") {
        return Err(bad("the file must end in .gguf"));
    }
    Ok(HfFile { repo: format!("{owner}/{repo}"), file })
}

fn unknown(name: &str, known: &[Known]) -> HubError {
    let near = known
        .iter()
        .map(|known| (distance(name, known.name), known.name))
        .min()
        .filter(|(distance, near)| *distance <= near.len() / 3 + 1);
    HubError::UnknownModel {
        name: name.to_owned(),
        known: known.iter().map(|known| known.name).collect::<Vec<_>>().join(", "),
        hint: near.map_or(String::new(), |(_, near)| format!(" (did you mean `{near}`?)")),
    }
}

/// Levenshtein distance in bytes, of the first 64: more is no near miss.
fn distance(a: &str, b: &str) -> usize {
    let a = &a.as_bytes()[..a.len().min(64)];
    let b = &b.as_bytes()[..b.len().min(64)];
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(!x.eq_ignore_ascii_case(y));
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::super::alias::KNOWN;
    use super::*;

    fn parse(spec: &str) -> Result<ModelSpec, String> {
        ModelSpec::parse(spec, KNOWN).map_err(|error| error.to_string())
    }

    #[test]
    fn aliases_paths_and_hub_files() {
        assert_eq!(parse("smollm2-135m"), Ok(ModelSpec::Alias(KNOWN[0].clone())));
        assert_eq!(parse("./smollm2-135m"), Ok(ModelSpec::Path("./smollm2-135m".into())));
        assert_eq!(parse("x.GGUF"), Ok(ModelSpec::Path("x.GGUF".into())));
        let hf = HfFile { repo: "o/r".into(), file: "a/b.gguf".into() };
        assert_eq!(parse("hf:o/r/a/b.gguf"), Ok(ModelSpec::Hf(hf)));
    }

    #[test]
    fn unknown_names_get_the_list_and_a_near_miss() {
        let error = parse("smolm2-135").unwrap_err();
        assert!(error.contains("qwen2.5-coder-1.5b"), "{error}");
        assert!(error.contains("did you mean `smollm2-135m`?"), "{error}");
        assert!(!parse("gpt").unwrap_err().contains("did you mean"));
        assert!(parse("").is_err());
    }

    #[test]
    fn hub_files_cannot_leave_the_cache() {
        for spec in [
            "hf:",
            "hf:o",
            "hf:o/r",
            "hf:o/r/",
            "hf:o/r/x.bin",
            "hf:o/../x.gguf",
            "hf:o/r/../x.gguf",
        ] {
            assert!(parse(spec).unwrap_err().contains("hf:OWNER/REPO/FILE.gguf"), "{spec}");
        }
        assert!(parse("hf:o/r/x y.gguf").is_err() && parse("hf:o/r/x?y.gguf").is_err());
    }
}
