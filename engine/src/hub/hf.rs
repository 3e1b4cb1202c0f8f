//! `hf:OWNER/REPO/FILE.gguf`. The client is the `hf-hub` crate, behind the cargo feature `hf`: it brings a TLS
//! stack of some forty crates that nothing else here needs.

#[cfg(not(feature = "hf"))]
pub(super) fn fetch(
    file: &super::spec::HfFile,
    _home: &std::path::Path,
    _progress: &mut dyn super::progress::Progress,
) -> Result<std::path::PathBuf, super::error::HubError> {
    Err(super::error::HubError::HfNotBuilt { spec: file.to_string() })
}

#[cfg(feature = "hf")]
pub(super) use client::fetch;

#[cfg(feature = "hf")]
mod client;
