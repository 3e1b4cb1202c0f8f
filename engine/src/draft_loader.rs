//! From `-d` and what goes with it to a draft model: which file, its weights how small, its tokens which of the target's.

use redline_spec::{Drafter, VocabMap};
use tracing::warn;

use crate::draft_head::DraftHead;
use crate::draft_model::DraftModel;
use crate::draft_policy::Tree;
use crate::load_error::LoadError;
use crate::load_options::LoadOptions;
use crate::loader::Target;
use crate::model::DraftQuant;
use crate::model::slim::Slim;
use crate::model_file::{Machine, ModelFile};
use crate::registry::Registry;
use crate::runner::ModelRunner;
use crate::text::{Mapping, Relation, Tokenizer, relate};

/// A drafter's name that means the target itself begins so.
const OWN: &str = "self:";

/// A draft model, and what its tokens are to the target.
pub struct DraftParts {
    /// The model.
    pub runner: Box<dyn ModelRunner>,
    /// Leading entries that both vocabularies have, where a token has the same id in both.
    pub shared: usize,
    /// Which token is which, where ids differ or the head has not all of them.
    pub map: Option<VocabMap>,
}

impl DraftParts {
    /// The drafter, called `name`, of trees if `tree` branches.
    pub fn drafter(self, name: &str, tree: Tree) -> Box<dyn Drafter> {
        let mut drafter = DraftModel::new(name, self.runner, self.shared);
        if let Some(map) = self.map {
            drafter = drafter.with_map(map);
        }
        Box::new(if tree.branches() { drafter.with_trees() } else { drafter })
    }
}

/// Whose weights a draft model has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weights<'a> {
    /// Those of a model of this name.
    Model(&'a str),
    /// The target's own, re-quantised.
    Own(DraftQuant),
}

fn weights(draft: &str) -> Result<Weights<'_>, LoadError> {
    match draft.strip_prefix(OWN) {
        None => Ok(Weights::Model(draft)),
        Some(quant) => match quant.parse() {
            Ok(quant) => Ok(Weights::Own(quant)),
            Err(_) => Err(LoadError::NoSuchSelf { draft: draft.to_owned() }),
        },
    }
}

impl LoadOptions {
    /// The draft model besides the target that has to be there, if there is one: `None` for a drafter of `registry` and
    /// for the target's own weights. Everything is checked that can be without it.
    ///
    /// # Errors
    /// [`LoadError`] for options that contradict each other.
    pub fn draft_model(&self, registry: &Registry) -> Result<Option<&str>, LoadError> {
        let slim = [
            ("a re-quantised draft (--draft-quant)", self.draft_quant.is_some()),
            ("a smaller draft head (--draft-head)", self.draft_head != DraftHead::Whole),
        ];
        if registry.contains(&self.draft) {
            return match slim.into_iter().find(|(_, asked)| *asked) {
                None => Ok(None),
                Some((what, _)) => Err(LoadError::NoWeights { drafter: self.draft.clone(), what }),
            };
        }
        match weights(&self.draft)? {
            Weights::Model(name) => Ok(Some(name)),
            Weights::Own(_) if self.draft_quant.is_some() => {
                Err(LoadError::QuantTwice { draft: self.draft.clone() })
            }
            Weights::Own(_) => Ok(None),
        }
    }
}

/// The draft model that `options` ask for, for a target that is there.
///
/// # Errors
/// [`LoadError`] names what can't be used.
pub fn load_draft(options: &LoadOptions, target: &Target) -> Result<DraftParts, LoadError> {
    let (name, quant) = match weights(&options.draft)? {
        Weights::Model(name) => (name, options.draft_quant),
        Weights::Own(_) if options.draft_quant.is_some() => {
            return Err(LoadError::QuantTwice { draft: options.draft.clone() });
        }
        Weights::Own(quant) => (options.model.as_str(), Some(quant)),
    };
    let file = ModelFile::open(name)?;
    // Before the weights are read: that may take a while.
    let tokenizer = file.tokenizer()?;
    let (shared, map) = related(options, &tokenizer, target)?;
    let head = {
        let common = |id: u32| match &map {
            Some(map) => map.to_target(id).is_some(),
            None => (id as usize) < shared,
        };
        let kept = options.draft_head.kept(&tokenizer, common);
        kept.map_err(|source| LoadError::DraftHead { draft: options.draft.clone(), source })?
    };
    let map = match &head {
        None => map,
        Some(kept) => Some(restrict(options, map, kept, (&tokenizer, shared))?),
    };
    let machine = Machine { backend: options.backend, threads: options.threads };
    let runner = match (quant, head) {
        (None, None) => file.runner(machine)?,
        (quant, head) => file.slim_runner(machine, Slim { quant, head, threads: 0 })?,
    };
    Ok(DraftParts { runner, shared, map })
}

/// How many leading tokens mean the same to both, or which is which.
fn related(
    options: &LoadOptions,
    draft: &Tokenizer,
    target: &Target,
) -> Result<(usize, Option<VocabMap>), LoadError> {
    let vocab = target.runner.info().vocab_size;
    let Some(tokenizer) = &target.tokenizer else {
        return Ok((vocab.min(draft.vocab().len_used()), None));
    };
    let related = relate(draft, tokenizer).map_err(|source| mismatch(options, source))?;
    Ok(match related {
        Relation::Same(same) => (vocab.min(same.shared), None),
        Relation::Mapped(Mapping { map, common, draft, target }) => {
            warn!(
                "the draft model has another vocabulary: {common} of its {draft} tokens are the target's, which has {target}"
            );
            (vocab, Some(map))
        }
    })
}

/// The map of a draft whose head keeps these of its tokens.
fn restrict(
    options: &LoadOptions,
    map: Option<VocabMap>,
    kept: &[u32],
    (draft, shared): (&Tokenizer, usize),
) -> Result<VocabMap, LoadError> {
    let whole = match map {
        Some(map) => Ok(map),
        // A list may name tokens that only the draft has.
        None => {
            let used = draft.vocab().len_used() as u32;
            VocabMap::new((0..used).map(|id| ((id as usize) < shared).then_some(id)), shared)
        }
    };
    whole.and_then(|map| map.with_head(kept)).map_err(|source| mismatch(options, source.into()))
}

fn mismatch(options: &LoadOptions, source: crate::text::Unrelated) -> LoadError {
    LoadError::Mismatch { draft: options.draft.clone(), target: options.model.clone(), source }
}
