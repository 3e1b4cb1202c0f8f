//! A request's constraint: a grammar or an embedder's own, the banned tokens, or both.

use std::fmt;

use redline_spec::{Constraint, ConstraintError, TokenFilter, TokenId, TokenMask};

use crate::grammar::Grammar;

/// A [`Constraint`] as part of a request: cloned by forking, so that requests stay values; or a [`Grammar`], which is
/// compiled when the request is prepared.
pub struct RequestConstraint(Kind);

enum Kind {
    Own(Box<dyn Constraint>),
    Grammar(Grammar),
}

impl RequestConstraint {
    /// Takes a constraint in its initial state: nothing generated yet.
    pub fn new(constraint: impl Constraint + 'static) -> Self {
        Self(Kind::Own(Box::new(constraint)))
    }

    /// The grammar, if it is one.
    pub(crate) fn grammar(&self) -> Option<&Grammar> {
        match &self.0 {
            Kind::Grammar(grammar) => Some(grammar),
            Kind::Own(_) => None,
        }
    }

    /// The constraint before the first token; grammars are compiled by `compile`.
    pub(crate) fn start<E>(
        self,
        compile: impl FnOnce(&Grammar) -> Result<Box<dyn Constraint>, E>,
    ) -> Result<Box<dyn Constraint>, E> {
        match self.0 {
            Kind::Own(constraint) => Ok(constraint),
            Kind::Grammar(grammar) => compile(&grammar),
        }
    }
}

impl From<Grammar> for RequestConstraint {
    fn from(grammar: Grammar) -> Self {
        Self(Kind::Grammar(grammar))
    }
}

impl Clone for RequestConstraint {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Kind::Own(constraint) => Kind::Own(constraint.fork()),
            Kind::Grammar(grammar) => Kind::Grammar(grammar.clone()),
        })
    }
}

impl fmt::Debug for RequestConstraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Own(_) => f.write_str("RequestConstraint"),
            Kind::Grammar(grammar) => grammar.fmt(f),
        }
    }
}

/// What a request's tokens have to keep to, if to anything.
pub(crate) fn combine(
    own: Option<Box<dyn Constraint>>,
    banned: Vec<TokenId>,
) -> Option<Box<dyn Constraint>> {
    let bans = (!banned.is_empty()).then(|| TokenFilter::ban(banned));
    match (own, bans) {
        (None, None) => None,
        (Some(own), None) => Some(own),
        (None, Some(bans)) => Some(Box::new(bans)),
        (Some(own), Some(bans)) => Some(Box::new(Both { own, bans })),
    }
}

/// Keeps to a constraint and to the bans.
struct Both {
    own: Box<dyn Constraint>,
    bans: TokenFilter,
}

impl Constraint for Both {
    fn mask(&self, mask: &mut TokenMask) -> Result<(), ConstraintError> {
        self.own.mask(mask)?;
        self.bans.mask(mask)
    }

    fn advance(&mut self, token: TokenId) -> Result<(), ConstraintError> {
        self.bans.advance(token)?;
        self.own.advance(token)
    }

    fn fork(&self) -> Box<dyn Constraint> {
        Box::new(Self { own: self.own.fork(), bans: self.bans.clone() })
    }

    fn is_finished(&self) -> bool {
        self.own.is_finished()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(constraint: &dyn Constraint) -> Vec<TokenId> {
        let mut mask = TokenMask::default();
        mask.reset(6);
        constraint.mask(&mut mask).unwrap();
        (0..6).filter(|&token| mask.allows(token)).collect()
    }

    #[test]
    fn a_constraint_and_bans_hold_together() {
        let own = || {
            let request = RequestConstraint::new(TokenFilter::allow([1, 2, 3]));
            Some(request.start(|_| Err(())).unwrap())
        };
        let both = combine(own(), vec![2]).unwrap();
        assert_eq!(allowed(both.fork().as_ref()), [1, 3]);
        assert_eq!(allowed(combine(own(), vec![]).unwrap().as_ref()), [1, 2, 3]);
        assert_eq!(allowed(combine(None, vec![0, 5]).unwrap().as_ref()), [1, 2, 3, 4]);
        assert!(combine(None, vec![]).is_none());
    }
}
