//! A request's constraint: an embedder's own, the banned tokens, or both.

use std::fmt;

use redline_spec::{Constraint, ConstraintError, TokenFilter, TokenId, TokenMask};

/// A [`Constraint`] as part of a request: cloned by forking, so that requests stay values.
pub struct RequestConstraint(Box<dyn Constraint>);

impl RequestConstraint {
    /// Takes a constraint in its initial state: nothing generated yet.
    pub fn new(constraint: impl Constraint + 'static) -> Self {
        Self(Box::new(constraint))
    }
}

impl Clone for RequestConstraint {
    fn clone(&self) -> Self {
        Self(self.0.fork())
    }
}

impl fmt::Debug for RequestConstraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestConstraint")
    }
}

/// What a request's tokens have to keep to, if to anything.
pub(crate) fn combine(
    own: Option<RequestConstraint>,
    banned: Vec<TokenId>,
) -> Option<Box<dyn Constraint>> {
    let bans = (!banned.is_empty()).then(|| TokenFilter::ban(banned));
    match (own, bans) {
        (None, None) => None,
        (Some(own), None) => Some(own.0),
        (None, Some(bans)) => Some(Box::new(bans)),
        (Some(own), Some(bans)) => Some(Box::new(Both { own: own.0, bans })),
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
        let own = RequestConstraint::new(TokenFilter::allow([1, 2, 3]));
        let both = combine(Some(own.clone()), vec![2]).unwrap();
        assert_eq!(allowed(both.fork().as_ref()), [1, 3]);
        assert_eq!(allowed(combine(Some(own), vec![]).unwrap().as_ref()), [1, 2, 3]);
        assert_eq!(allowed(combine(None, vec![0, 5]).unwrap().as_ref()), [1, 2, 3, 4]);
        assert!(combine(None, vec![]).is_none());
    }
}
