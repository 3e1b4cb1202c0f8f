//! The engine's errors: one enum for what can befall a single request, one for a step, one for loading.

use redline_spec::{ConstraintError, DraftError, LawError, RowError, VerifyError};
use serde::Serialize;
use thiserror::Error;

use crate::runner::RunnerError;

/// Why one request failed. The others of its batch are not touched.
#[derive(Debug, Error)]
pub(crate) enum RequestError {
    /// The drafter could not make a proposal.
    #[error("the drafter `{drafter}` failed")]
    Draft {
        /// Its registered name.
        drafter: String,
        /// What it said.
        source: DraftError,
    },
    /// The drafter proposed more than it was granted.
    #[error("the drafter `{drafter}` proposed {nodes} tokens where {budget} were granted")]
    DraftTooLong {
        /// Its registered name.
        drafter: String,
        /// Nodes proposed.
        nodes: usize,
        /// Nodes granted.
        budget: usize,
    },
    /// The verification rule accepted nodes that are no path of the proposal.
    #[error("the verification rule `{rule}` returned a path that the proposal does not have")]
    Verdict {
        /// Its name.
        rule: String,
    },
    /// The target emitted what the request's constraint forbids.
    #[error("the constraint did not take the committed token {token}")]
    Constraint {
        /// The token.
        token: u32,
        /// What the constraint said.
        source: ConstraintError,
    },
    /// The request's constraint leaves nothing to emit, or can't tell what.
    #[error("the constraint has no token to go on with after {position} tokens")]
    Stuck {
        /// Committed tokens before the round.
        position: usize,
        /// What the constraint said; that no token has any probability if its mask is empty.
        source: LawError,
    },
    /// A target row on the emitted path is no law.
    #[error("the target's output after {position} tokens is no probability law")]
    Target {
        /// Committed tokens before the round.
        position: usize,
        /// What was wrong with it.
        source: VerifyError,
    },
    /// Steps with it failed until the retries were used up.
    #[error("its step kept failing: {message}")]
    Forward {
        /// What the last one failed with.
        message: String,
    },
}

/// What kind of failure ended a request, for a caller to act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureKind {
    /// The drafter made a mistake in a proposal for it.
    Draft,
    /// The target's output for it is no probability law.
    Target,
    /// The verification rule returned nonsense for it.
    Rule,
    /// Its constraint left no token to emit, failed, or refused a token that was committed.
    Constraint,
    /// A pass it was part of failed, and failed again.
    Forward,
}

impl RequestError {
    /// A round without a verdict, `position` tokens in, of a request with or without a constraint.
    pub(crate) fn verdict(position: usize, constrained: bool, source: VerifyError) -> Self {
        match source {
            VerifyError::Row(RowError::Bad {
                source: source @ LawError::Constraint(_), ..
            }) => Self::Stuck { position, source },
            VerifyError::Row(RowError::Bad { source: source @ LawError::NoMass, .. })
                if constrained =>
            {
                Self::Stuck { position, source }
            }
            source => Self::Target { position, source },
        }
    }

    pub(crate) fn kind(&self) -> FailureKind {
        match self {
            Self::Draft { .. } | Self::DraftTooLong { .. } => FailureKind::Draft,
            Self::Target { .. } => FailureKind::Target,
            Self::Verdict { .. } => FailureKind::Rule,
            Self::Constraint { .. } | Self::Stuck { .. } => FailureKind::Constraint,
            Self::Forward { .. } => FailureKind::Forward,
        }
    }
}

/// Why a whole step failed. Its requests are retried, then failed one by one.
#[derive(Debug, Error)]
pub(crate) enum StepError {
    /// The target could not run the pass.
    #[error("the target's forward pass failed")]
    Target(#[source] RunnerError),
    /// KV could not be copied or moved.
    #[error("moving KV failed")]
    Relocate(#[source] RunnerError),
    /// The drafter as a whole failed.
    #[error("the drafter failed")]
    Draft(#[source] DraftError),
}

/// An error and its sources in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !line.ends_with(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        source = cause.source();
    }
    line
}
