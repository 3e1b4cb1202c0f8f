//! Drafters by name, so that `-d` finds an embedder's own, and verifiers by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use redline_spec::{Block, Coupled, Drafter, Ngram, Token, Traversal, Verifier};
use thiserror::Error;

use crate::text::Tokenizer;

/// What a drafter's factory is told about the target.
pub struct DrafterContext<'a> {
    /// Entries of the target's vocabulary, padding included.
    pub vocab: usize,
    /// The target's context length in tokens.
    pub context_length: usize,
    /// The target's tokenizer, if it has one.
    pub tokenizer: Option<&'a Arc<Tokenizer>>,
}

/// Makes a drafter, or says in one line why it can't.
pub type Factory =
    Box<dyn Fn(&DrafterContext<'_>) -> Result<Option<Box<dyn Drafter>>, String> + Send + Sync>;

/// Why a name gave nothing.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// No verification rule of this name.
    #[error("no verification rule is called `{name}`; there are: {known}")]
    UnknownVerifier {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The factory refused.
    #[error("the drafter `{name}` can't be used: {why}")]
    Factory {
        /// Its name.
        name: String,
        /// What it said.
        why: String,
    },
}

/// Drafters by name. [`Registry::default`] holds `none` and `ngram`; any other name is a draft model.
pub struct Registry {
    factories: BTreeMap<String, Factory>,
}

impl Default for Registry {
    fn default() -> Self {
        let mut registry = Self { factories: BTreeMap::new() };
        registry.add("none", |_| Ok(None));
        registry.add("ngram", |_| Ok(Some(Box::new(Ngram::default()))));
        registry
    }
}

impl Registry {
    /// Registers a drafter under `name`, in place of any that had it.
    pub fn add(
        &mut self,
        name: &str,
        factory: impl Fn(&DrafterContext<'_>) -> Result<Option<Box<dyn Drafter>>, String>
        + Send
        + Sync
        + 'static,
    ) {
        self.factories.insert(name.to_owned(), Box::new(factory));
    }

    /// Whether `name` is a registered drafter; any other name is a draft model.
    pub fn contains(&self, name: &str) -> bool {
        self.factories.contains_key(name)
    }

    /// The drafter called `name`; `None` in the outer option when no factory has that name.
    ///
    /// # Errors
    /// [`RegistryError::Factory`] with the factory's reason.
    pub fn make(
        &self,
        name: &str,
        context: &DrafterContext<'_>,
    ) -> Result<Option<Option<Box<dyn Drafter>>>, RegistryError> {
        match self.factories.get(name) {
            None => Ok(None),
            Some(factory) => factory(context)
                .map(Some)
                .map_err(|why| RegistryError::Factory { name: name.to_owned(), why }),
        }
    }
}

/// The verification rule called `name`.
///
/// # Errors
/// [`RegistryError::UnknownVerifier`] lists what there is.
pub fn verifier(name: &str) -> Result<Box<dyn Verifier>, RegistryError> {
    match name {
        "coupled" => Ok(Box::new(Coupled)),
        "token" => Ok(Box::new(Token)),
        "block" => Ok(Box::new(Block)),
        "traversal" => Ok(Box::new(Traversal)),
        _ => Err(RegistryError::UnknownVerifier {
            name: name.to_owned(),
            known: "coupled, token, block, traversal".to_owned(),
        }),
    }
}
