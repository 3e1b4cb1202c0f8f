//! How a broken rule is told: as a value, so that it can be shrunk and reported instead of ending the process.

/// A rule that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broken(pub(crate) String);

pub(crate) type Check<T = ()> = Result<T, Broken>;

/// `rule!(condition, "what should hold")`: returns [`Broken`] from the function unless the condition holds.
macro_rules! rule {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            return Err($crate::simulate::rule::Broken(format!($($text)+)));
        }
    };
}
pub(crate) use rule;

impl From<redline_scheduler::Violation> for Broken {
    fn from(violation: redline_scheduler::Violation) -> Self {
        Self(format!("audit: {violation}"))
    }
}
