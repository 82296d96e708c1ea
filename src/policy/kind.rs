//! Policies by name.

use super::{
    Dtr, DtrEq, DtrLocal, Exponents, Largest, Lru, MegEngine, Msps, NeverEvict, Policy, Random,
};
use std::fmt;
use std::str::FromStr;

/// The policies that come with the crate. Parses from and prints as the name in brackets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum PolicyKind {
    /// `megengine`: see [`MegEngine`].
    MegEngine {
        /// How strongly each part counts.
        exponents: Exponents,
        /// Whether the tensor's own cost counts.
        own_cost: bool,
    },
    /// `dtr`: see [`Dtr`].
    Dtr,
    /// `dtr-eq`: see [`DtrEq`].
    #[default]
    DtrEq,
    /// `dtr-local`: see [`DtrLocal`].
    DtrLocal,
    /// `lru`: see [`Lru`].
    Lru,
    /// `largest`: see [`Largest`].
    Largest,
    /// `msps`: see [`Msps`].
    Msps,
    /// `random`: see [`Random`].
    Random,
    /// `none`: see [`NeverEvict`].
    None,
}

/// A name that is not a policy's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a policy; choose one of {names}", names = PolicyKind::NAMES.join(", "))]
pub struct ParsePolicyError(String);

impl PolicyKind {
    /// All names.
    pub const NAMES: [&'static str; 9] =
        ["megengine", "dtr", "dtr-eq", "dtr-local", "lru", "largest", "msps", "random", "none"];

    /// MegEngine's function with its own settings.
    #[must_use]
    pub fn megengine() -> Self {
        Self::MegEngine { exponents: Exponents::default(), own_cost: false }
    }

    /// A fresh policy; `seed` matters to `random` alone.
    #[must_use]
    pub fn build(self, seed: u64) -> Box<dyn Policy> {
        match self {
            Self::MegEngine { exponents, own_cost } => {
                Box::new(MegEngine::new(exponents, own_cost))
            }
            Self::Dtr => Box::<Dtr>::default(),
            Self::DtrEq => Box::<DtrEq>::default(),
            Self::DtrLocal => Box::new(DtrLocal),
            Self::Lru => Box::new(Lru),
            Self::Largest => Box::new(Largest),
            Self::Msps => Box::<Msps>::default(),
            Self::Random => Box::new(Random::new(seed)),
            Self::None => Box::new(NeverEvict),
        }
    }

    /// What it evicts first, in a line.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::MegEngine { .. } => {
                "MegEngine's function: cost of the evicted around it, bytes, holes beside it, staleness"
            }
            Self::Dtr => {
                "least (own cost + cost of its evicted neighbourhood) / (bytes * staleness)"
            }
            Self::DtrEq => "dtr with the neighbourhood estimated by union-find: as good, and fast",
            Self::DtrLocal => "least own cost / (bytes * staleness)",
            Self::Lru => "what was used longest ago",
            Self::Largest => "the largest",
            Self::Msps => "least cost to recompute, evicted sources included, per byte (Capuchin)",
            Self::Random => "anything: what the others must beat",
            Self::None => "nothing: fails if the step does not fit",
        }
    }

    /// The name it parses from.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MegEngine { .. } => "megengine",
            Self::Dtr => "dtr",
            Self::DtrEq => "dtr-eq",
            Self::DtrLocal => "dtr-local",
            Self::Lru => "lru",
            Self::Largest => "largest",
            Self::Msps => "msps",
            Self::Random => "random",
            Self::None => "none",
        }
    }
}

impl FromStr for PolicyKind {
    type Err = ParsePolicyError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let all = [
            Self::megengine(),
            Self::Dtr,
            Self::DtrEq,
            Self::DtrLocal,
            Self::Lru,
            Self::Largest,
            Self::Msps,
            Self::Random,
            Self::None,
        ];
        all.into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| ParsePolicyError(name.to_owned()))
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
