//! A grammar beside a sequence: which tokens may come next, along committed tokens and, on forks, along drafts.

use std::cell::RefCell;
use std::sync::Arc;

use llguidance::Matcher;
use redline_spec::{Constraint, ConstraintError, TokenId, TokenMask};

use super::error::one_line;

/// A [`Constraint`] over a compiled grammar.
///
/// Forks share what the lexer has learnt, which only grows, and own the rest: a fork costs microseconds.
pub(super) struct GrammarState {
    /// Asking changes what it has cached, and nothing else.
    matcher: RefCell<Matcher>,
    ends: Arc<[TokenId]>,
    /// An end of text has been taken.
    ended: bool,
}

impl GrammarState {
    /// Nothing has been taken yet.
    pub(super) fn new(matcher: Matcher, ends: Arc<[TokenId]>) -> Self {
        Self { matcher: RefCell::new(matcher), ends, ended: false }
    }

    /// Whether the text is one of the grammar, if it ends here.
    fn is_whole(&self, matcher: &mut Matcher) -> Result<bool, ConstraintError> {
        let accepting = |matcher: &mut Matcher| matcher.is_accepting().map_err(|e| failed(&e));
        if accepting(matcher)? || matcher.is_stopped() {
            return Ok(true);
        }
        // It may be the end that completes a terminal.
        let mut probe = matcher.clone();
        let Some(&end) = self.ends.first() else { return Ok(false) };
        Ok(probe.consume_token(end).is_ok() && accepting(&mut probe)?)
    }

    /// One that shares nothing with this one: for another request, maybe on another thread.
    pub(super) fn apart(&self) -> Self {
        Self::new(self.matcher.borrow().deep_clone(), Arc::clone(&self.ends))
    }
}

fn failed(error: &impl ToString) -> ConstraintError {
    let message = one_line(&error.to_string());
    ConstraintError::Failed(match message.as_str() {
        "NoExtensionBias" => "the grammar allows no token here".to_owned(),
        _ => message,
    })
}

impl Constraint for GrammarState {
    fn mask(&self, mask: &mut TokenMask) -> Result<(), ConstraintError> {
        if self.ended {
            return Err(ConstraintError::Failed("the text of the grammar has ended".to_owned()));
        }
        let mut matcher = self.matcher.borrow_mut();
        let mut allowed = matcher.compute_mask_or_eos().map_err(|error| failed(&error))?;
        // A grammar may have terminals that an end of text ends, in its midst too: the compiler's mask has it there.
        if self.ends.iter().any(|&end| allowed.is_allowed(end)) {
            let whole = self.is_whole(&mut matcher)?;
            self.ends.iter().for_each(|&end| allowed.set(end as usize, whole));
        }
        mask.intersect(allowed.as_slice());
        Ok(())
    }

    fn advance(&mut self, token: TokenId) -> Result<(), ConstraintError> {
        let forbidden = ConstraintError::Forbidden { token };
        if self.ended {
            return Err(forbidden);
        }
        if self.ends.contains(&token) {
            self.ended = self.is_whole(&mut self.matcher.borrow_mut())?;
            return if self.ended { Ok(()) } else { Err(forbidden) };
        }
        let matcher = self.matcher.get_mut();
        match matcher.try_consume_tokens(&[token]) {
            Ok(1) => Ok(()),
            Ok(_) => Err(forbidden),
            Err(error) => Err(failed(&error)),
        }
    }

    fn fork(&self) -> Box<dyn Constraint> {
        Box::new(Self {
            matcher: RefCell::new(self.matcher.borrow().clone()),
            ends: Arc::clone(&self.ends),
            ended: self.ended,
        })
    }

    fn is_finished(&self) -> bool {
        let matcher = self.matcher.borrow();
        self.ended || (matcher.is_stopped() && !matcher.is_error())
    }
}
