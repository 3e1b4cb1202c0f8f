//! The client proper: the environment variables of the Python client, its cache layout, and a check of what came.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use hf_hub::api::sync::{ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Cache, Repo};
use sha2::{Digest, Sha256};

use crate::hub::cache;
use crate::hub::error::HubError;
use crate::hub::lock::Lock;
use crate::hub::partial::hex;
use crate::hub::progress::{Event, Progress};
use crate::hub::spec::HfFile;

/// The file, from the cache that other tools share, or downloaded into it.
pub(in crate::hub) fn fetch(
    file: &HfFile,
    home: &Path,
    progress: &mut dyn Progress,
) -> Result<PathBuf, HubError> {
    let settings = Settings::read(|name| env::var_os(name))?;
    fetch_with(&settings, file, home, progress)
}

/// What the environment says.
#[derive(Debug, PartialEq, Eq)]
struct Settings {
    cache: PathBuf,
    token: Option<String>,
    endpoint: Option<String>,
    offline: bool,
}

impl Settings {
    /// `HF_HUB_CACHE`, else `HF_HOME/hub`, else `huggingface/hub` in the XDG cache; `HF_TOKEN`, else the token
    /// file beside the cache; `HF_ENDPOINT`; `HF_HUB_OFFLINE` (1, on, yes, true).
    fn read(var: impl Fn(&str) -> Option<OsString>) -> Result<Self, HubError> {
        let set = |name| var(name).filter(|value| !value.is_empty());
        let text = |name| set(name).and_then(|value| value.into_string().ok());
        let path = |name| set(name).map(PathBuf::from);
        let home = path("HF_HOME")
            .or_else(|| path("XDG_CACHE_HOME").map(|cache| cache.join("huggingface")))
            .or_else(|| path("HOME").map(|home| home.join(".cache").join("huggingface")));
        let cache = path("HF_HUB_CACHE")
            .or_else(|| home.map(|home| home.join("hub")))
            .ok_or(HubError::NoHome)?;
        // The client compares paths component by component and insists on absolute ones.
        let cache = std::path::absolute(&cache).unwrap_or(cache);
        let yes = |value: String| {
            ["1", "on", "yes", "true"].contains(&value.to_ascii_lowercase().as_str())
        };
        Ok(Self {
            token: text("HF_TOKEN").or_else(|| Cache::new(cache.clone()).token()),
            endpoint: text("HF_ENDPOINT").map(|url| url.trim_end_matches('/').to_owned()),
            offline: text("HF_HUB_OFFLINE").is_some_and(yes),
            cache,
        })
    }
}

fn fetch_with(
    settings: &Settings,
    file: &HfFile,
    home: &Path,
    progress: &mut dyn Progress,
) -> Result<PathBuf, HubError> {
    let cached = Cache::new(settings.cache.clone()).repo(Repo::model(file.repo.clone()));
    if let Some(path) = cached.get(&file.file) {
        return Ok(path);
    }
    let spec = file.to_string();
    if settings.offline {
        return Err(HubError::HfOffline { spec, cache: settings.cache.clone() });
    }
    // The client's own lock gives up after five seconds; ours waits as long as the download takes.
    let locks = home.join("locks");
    cache::create_dir(&locks)?;
    let lock_name = format!("hf--{}--{}.lock", file.repo, file.file).replace('/', "--");
    let _lock = Lock::acquire(&locks.join(lock_name), &spec, progress)?;
    if let Some(path) = cached.get(&file.file) {
        return Ok(path);
    }
    let repo = repo(settings, file).map_err(|error| explain(&spec, settings, error))?;
    let path = download(&repo, file, progress).map_err(|error| explain(&spec, settings, error))?;
    verify(&spec, &path)?;
    progress.report(&Event::Done { name: &spec, path: &path });
    Ok(path)
}

fn repo(settings: &Settings, file: &HfFile) -> Result<ApiRepo, ApiError> {
    let mut builder = ApiBuilder::from_cache(Cache::new(settings.cache.clone()))
        .with_token(settings.token.clone())
        .with_progress(false)
        .with_retries(3);
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_endpoint(endpoint.clone());
    }
    Ok(builder.build()?.repo(Repo::model(file.repo.clone())))
}

fn download(
    repo: &ApiRepo,
    file: &HfFile,
    progress: &mut dyn Progress,
) -> Result<PathBuf, ApiError> {
    let name = file.to_string();
    let path =
        repo.download_with_progress(&file.file, Bridge { progress, name, at: 0, started: false })?;
    Ok(path)
}

/// Our progress in the client's terms.
struct Bridge<'a> {
    progress: &'a mut dyn Progress,
    name: String,
    at: u64,
    started: bool,
}

impl hf_hub::api::Progress for Bridge<'_> {
    fn init(&mut self, size: usize, _filename: &str) {
        // Called again for each retry.
        self.at = 0;
        if !std::mem::replace(&mut self.started, true) {
            self.progress.report(&Event::Start {
                name: &self.name,
                bytes: size as u64,
                resumed: 0,
            });
        }
    }

    fn update(&mut self, size: usize) {
        self.at += size as u64;
        self.progress.report(&Event::At { bytes: self.at });
    }

    fn finish(&mut self) {}
}

/// The cache names the content of large files by SHA-256; where it does, what came must be that.
fn verify(spec: &str, path: &Path) -> Result<(), HubError> {
    let blob = fs::canonicalize(path).map_err(|error| HubError::io("read", path, error))?;
    let expected = blob.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if expected.len() != 64 || !expected.bytes().all(|b| b.is_ascii_hexdigit()) {
        return cache::check_model_file(path);
    }
    let mut hasher = Sha256::new();
    let copied = File::open(&blob).and_then(|mut file| io::copy(&mut file, &mut Sink(&mut hasher)));
    copied.map_err(|error| HubError::io("read", &blob, error))?;
    let found = hex(&hasher);
    if found == expected {
        return Ok(());
    }
    for path in [path, &blob] {
        fs::remove_file(path).map_err(|error| HubError::io("remove", path, error))?;
    }
    Err(HubError::Checksum { name: spec.to_owned(), expected, found })
}

struct Sink<'a>(&'a mut Sha256);

impl io::Write for Sink<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.0.update(buffer);
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One line with the way out.
fn explain(spec: &str, settings: &Settings, error: ApiError) -> HubError {
    if let ApiError::IoError(source) = error {
        return HubError::io("download into", &settings.cache, source);
    }
    let text = error.to_string().replace(['\n', '\r'], " ");
    let hint = if text.contains("401") || text.contains("403") {
        "; the repository is private, gated or misspelt: set HF_TOKEN to a token that may read it"
    } else if text.contains("404") {
        "; no such repository or file"
    } else if settings.endpoint.is_some() {
        "; is HF_ENDPOINT right?"
    } else {
        ""
    };
    HubError::Hf { spec: spec.to_owned(), reason: format!("{text}{hint}") }
}

#[cfg(test)]
mod tests;
