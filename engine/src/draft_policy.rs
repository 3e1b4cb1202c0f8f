//! What can be said about drafts: how many, in which shape, drawn how.

use std::fmt;
use std::str::FromStr;

use redline_scheduler::DraftBudget;
use redline_spec::{DrawMode, TreeLimits};

/// How many draft tokens a round gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DraftLength {
    /// The controller decides per sequence and step, from measured acceptance and times.
    Auto,
    /// Always as many as this, where the drafter, the context and the token budget allow it. A request may
    /// still ask for fewer.
    Fixed(usize),
}

/// The shape of a round's drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tree {
    /// One after the other.
    #[default]
    Chain,
    /// As measured acceptance, by depth and rank among siblings, and measured times have it.
    Auto,
    /// Up to `width` candidates for a token, `depth` tokens ahead. Where that is more nodes than a round
    /// may draft, those stay that are usually accepted most often.
    Sized {
        /// Candidates, 1 to [`Tree::MAX_WIDTH`].
        width: usize,
        /// Tokens ahead, 1 to [`Tree::MAX_DEPTH`].
        depth: usize,
    },
}

impl Tree {
    /// Most candidates for a token.
    pub const MAX_WIDTH: usize = 8;
    /// Most tokens ahead.
    pub const MAX_DEPTH: usize = 32;
    /// Candidates that [`Tree::Auto`] goes up to.
    const AUTO_WIDTH: usize = 4;

    /// Whether a node may have several children.
    #[must_use]
    pub fn branches(self) -> bool {
        !matches!(self, Self::Chain | Self::Sized { width: 0 | 1, .. })
    }

    /// How far it may spread; `None` for a chain of any length.
    pub(crate) fn limits(self) -> Option<TreeLimits> {
        match self {
            Self::Chain => None,
            Self::Auto => Some(TreeLimits { width: Self::AUTO_WIDTH, depth: Self::MAX_DEPTH }),
            Self::Sized { width, depth } => {
                let width = width.clamp(1, Self::MAX_WIDTH);
                Some(TreeLimits { width, depth: depth.clamp(1, Self::MAX_DEPTH) })
            }
        }
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chain => f.write_str("chain"),
            Self::Auto => f.write_str("auto"),
            Self::Sized { width, depth } => write!(f, "{width}x{depth}"),
        }
    }
}

impl FromStr for Tree {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let sized = |text: &str| {
            let (width, depth) = text.split_once('x')?;
            let (width, depth) = (width.parse().ok()?, depth.parse().ok()?);
            let inside =
                (1..=Self::MAX_WIDTH).contains(&width) && (1..=Self::MAX_DEPTH).contains(&depth);
            inside.then_some(Self::Sized { width, depth })
        };
        match text {
            "chain" => Ok(Self::Chain),
            "auto" => Ok(Self::Auto),
            _ => sized(text).ok_or_else(|| {
                let (width, depth) = (Self::MAX_WIDTH, Self::MAX_DEPTH);
                format!(
                    "`chain`, `auto` or WxD: 1 to {width} candidates for a token, 1 to {depth} tokens ahead, such as 2x3"
                )
            }),
        }
    }
}

/// How a drafter that has a law picks the candidates for a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Draw {
    /// As the rule does best: with the target's own noise, or at random without replacement
    #[default]
    Rule,
    /// At random, each only once
    Without,
    /// At random, the same one twice if it comes twice
    With,
    /// The likeliest
    Top,
}

impl Draw {
    /// The mode, where the rule prefers `rule`.
    pub(crate) fn mode(self, rule: DrawMode) -> DrawMode {
        match self {
            Self::Rule => rule,
            Self::Without => DrawMode::Sampled { replacement: false },
            Self::With => DrawMode::Sampled { replacement: true },
            Self::Top => DrawMode::Point,
        }
    }
}

/// All that can be said about drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drafting {
    /// How many.
    pub length: DraftLength,
    /// In which shape, if the drafter can draw trees.
    pub tree: Tree,
    /// Drawn how, if the drafter has a law.
    pub draw: Draw,
}

/// Who decides how many draft tokens a round gets.
pub enum DraftPolicy {
    /// The engine.
    Engine(Drafting),
    /// An embedder's own [`DraftBudget`]. Chains, drawn as the rule wants.
    Custom(Box<dyn DraftBudget + Send>),
}

impl DraftPolicy {
    pub(crate) fn tree(&self) -> Tree {
        match self {
            Self::Engine(drafting) => drafting.tree,
            Self::Custom(_) => Tree::Chain,
        }
    }

    pub(crate) fn draw(&self) -> Draw {
        match self {
            Self::Engine(drafting) => drafting.draw,
            Self::Custom(_) => Draw::Rule,
        }
    }
}

impl From<DraftLength> for Drafting {
    fn from(length: DraftLength) -> Self {
        Self { length, tree: Tree::Chain, draw: Draw::Rule }
    }
}

impl From<Drafting> for DraftPolicy {
    fn from(drafting: Drafting) -> Self {
        Self::Engine(drafting)
    }
}

impl From<DraftLength> for DraftPolicy {
    fn from(length: DraftLength) -> Self {
        Self::Engine(length.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read_and_written() {
        for text in ["chain", "auto", "1x1", "2x3", "8x32"] {
            assert_eq!(text.parse::<Tree>().unwrap().to_string(), text);
        }
        for wrong in ["", "tree", "2", "x", "2x", "0x3", "9x1", "2x0", "2x33", "2x3x4", "-1x2"] {
            let refused = wrong.parse::<Tree>().unwrap_err();
            assert!(refused.contains("1 to 8") && refused.contains("1 to 32"), "{refused}");
        }
    }

    #[test]
    fn one_candidate_is_a_chain() {
        let sized = |width, depth| Tree::Sized { width, depth };
        assert!(!sized(1, 4).branches() && !Tree::Chain.branches());
        assert!(sized(2, 1).branches() && Tree::Auto.branches());
        assert_eq!(sized(0, 99).limits(), Some(TreeLimits { width: 1, depth: 32 }));
    }
}
