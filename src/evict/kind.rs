//! The crate's policies, and their names.

use super::{
    Around, ArticleConstants, Belady, ByScore, Coop, EvictAtRandom, Evictor, Exponents, Formula,
    Learn, Learned, LockHubs, MegEngine, MegEngineArticle, NeverEvict, ParseFormulaError, Policy,
};
use std::fmt;
use std::str::FromStr;

/// Policies of the crate. Each policy parses from a name, and prints as the same name.
///
/// ```
/// use remat::PolicyKind;
///
/// assert_eq!("lru".parse(), Ok(PolicyKind::Lru));
/// assert_eq!(PolicyKind::DtrEq.to_string(), "dtr-eq");
/// assert!(matches!("own/(size*stale)".parse::<PolicyKind>()?, PolicyKind::Formula(_)));
/// # Ok::<(), remat::evict::ParsePolicyError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum PolicyKind {
    /// `megengine`: see [`MegEngine`]. Parameters:
    /// `megengine:own-cost:cost=A:bytes=B:staleness=C:rerun=R`, in any order. A parameter that is
    /// left out has its default value.
    MegEngine {
        /// Exponents of the parts of the score.
        exponents: Exponents,
        /// Whether the tensor's own cost counts.
        own_cost: bool,
        /// Factor by which each recomputation of the tensor multiplies its score.
        rerun_factor: f64,
    },
    /// `dtr`: see [`Formula::DTR`]. A name with exponents, as in `dtr:staleness=0.5`, parses to a
    /// formula. The names `ancestors`, `dtr-eq` and `dtr-local` take exponents in the same way.
    Dtr,
    /// `ancestors`: see [`Formula::ANCESTORS`]. Of the policies without predictions of later
    /// commands, `ancestors` is the best. Hence it is the default of an engine by itself, which is
    /// given no predictions. A [`Runtime`](crate::Runtime) uses [`PolicyKind::Learned`] by default.
    #[default]
    Ancestors,
    /// `dtr-eq`: see [`Formula::DTR_EQ`].
    DtrEq,
    /// `dtr-local`: see [`Formula::DTR_LOCAL`].
    DtrLocal,
    /// `lru`: see [`Formula::LRU`].
    Lru,
    /// `largest`: see [`Formula::LARGEST`].
    Largest,
    /// `msps`: see [`Formula::MSPS`].
    Msps,
    /// `megengine-article`: see [`MegEngineArticle`]. Takes the parameters of `megengine` except
    /// `own-cost`, and also `cost-offset=X`, `staleness-offset=X`, `cost-scale=X` and
    /// `memory-unit=X`.
    MegEngineArticle(ArticleConstants),
    /// `learned`, `learned:portfolio`, `learned:search` or `learned:search:RUNS`: see [`Learned`]
    /// and [`Learn`].
    Learned(Learn),
    /// `coop`: see [`Coop`].
    Coop,
    /// `t-control`: see [`LockHubs`].
    LockHubs,
    /// `belady`: see [`Belady`].
    Belady,
    /// `random`: see [`EvictAtRandom`].
    Random,
    /// `none`: see [`NeverEvict`].
    None,
    /// A formula such as `own/(size*stale)`: see [`Formula`].
    Formula(Formula),
}

/// Text that is neither the name of a policy nor a formula.
///
/// ```
/// use remat::PolicyKind;
/// use remat::evict::ParsePolicyError;
///
/// let error = "oldest".parse::<PolicyKind>().unwrap_err();
/// assert_eq!(error, ParsePolicyError::Name("oldest".to_owned()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParsePolicyError {
    /// The name is unknown.
    #[error("`{0}` is not a policy; choose one of {names}, or write a formula such as (own+eq)/(size*stale)",
        names = PolicyKind::NAMES.join(", "))]
    Name(String),
    /// The effort of the policy `learned` is unknown.
    #[error(
        "`{0}` is not a policy; choose one of learned, learned:portfolio, learned:search, learned:search:RUNS"
    )]
    Learn(String),
    /// The policy does not have the parameter, or the parameter's value is invalid.
    #[error("parameter `{parameter}` of `{text}`: {why}")]
    Parameter {
        /// The text that was parsed.
        text: String,
        /// The parameter.
        parameter: String,
        /// The expected values.
        why: String,
    },
    /// The text looks like a formula but is not valid.
    #[error(transparent)]
    Formula(#[from] ParseFormulaError),
}

impl PolicyKind {
    /// Names of all policies.
    pub const NAMES: [&'static str; 15] = [
        "ancestors",
        "megengine",
        "dtr",
        "dtr-eq",
        "dtr-local",
        "lru",
        "largest",
        "msps",
        "megengine-article",
        "learned",
        "coop",
        "t-control",
        "belady",
        "random",
        "none",
    ];

    /// MegEngine's function with its default settings.
    ///
    /// ```
    /// use remat::PolicyKind;
    ///
    /// assert_eq!(PolicyKind::megengine().to_string(), "megengine");
    /// assert_eq!("megengine:rerun=1.0001".parse(), Ok(PolicyKind::megengine()));
    /// ```
    #[must_use]
    pub fn megengine() -> Self {
        let rerun_factor = MegEngine::RERUN_FACTOR;
        Self::MegEngine { exponents: Exponents::default(), own_cost: false, rerun_factor }
    }

    /// MegEngine 1.4's function with its default constants.
    ///
    /// ```
    /// use remat::PolicyKind;
    ///
    /// assert_eq!(PolicyKind::megengine_article().to_string(), "megengine-article");
    /// ```
    #[must_use]
    pub fn megengine_article() -> Self {
        Self::MegEngineArticle(ArticleConstants::default())
    }

    /// Builds a new evictor. Only the policy `random` uses `seed`.
    ///
    /// ```
    /// use remat::PolicyKind;
    ///
    /// assert!(PolicyKind::Lru.build(0).evicts());
    /// assert!(!PolicyKind::None.build(0).evicts());
    /// ```
    #[must_use]
    pub fn build(self, seed: u64) -> Box<dyn Evictor> {
        self.evictor(seed, None)
    }

    /// Builds a new evictor that scores about `2 * sqrt(n)` of `n` candidates at each choice.
    /// `seed` chooses the candidates that are scored.
    ///
    /// ```
    /// use remat::PolicyKind;
    ///
    /// assert_eq!(PolicyKind::Dtr.build_sampled(1).kind(), Some(PolicyKind::Dtr));
    /// ```
    #[must_use]
    pub fn build_sampled(self, seed: u64) -> Box<dyn Evictor> {
        self.evictor(seed, Some(seed))
    }

    pub(crate) fn evictor(self, seed: u64, sampling: Option<u64>) -> Box<dyn Evictor> {
        match self {
            // `coop` and `t-control` do not choose only by scores, so they are not sampled.
            Self::Coop => return Box::new(Coop::default()),
            Self::LockHubs => return Box::new(LockHubs::default()),
            _ => {}
        }
        match self.policy(seed) {
            Some(policy) => Box::new(ByScore::boxed(policy, sampling).of_kind(self)),
            None => Box::new(NeverEvict),
        }
    }

    /// Scores of the policy; `None` for the policy that never evicts. The policies `coop` and
    /// `t-control` do not choose only by scores.
    ///
    /// ```
    /// use remat::PolicyKind;
    ///
    /// assert!(PolicyKind::Dtr.policy(0).is_some());
    /// assert!(PolicyKind::None.policy(0).is_none());
    /// ```
    #[must_use]
    pub fn policy(self, seed: u64) -> Option<Box<dyn Policy>> {
        Some(match self {
            Self::MegEngine { exponents, own_cost, rerun_factor } => {
                Box::new(MegEngine::new(exponents, own_cost).rerun_factor(rerun_factor))
            }
            Self::Ancestors => Box::new(Formula::ANCESTORS.policy()),
            Self::Dtr => Box::new(Formula::DTR.policy()),
            Self::DtrEq => Box::new(Formula::DTR_EQ.policy()),
            Self::DtrLocal => Box::new(Formula::DTR_LOCAL.policy()),
            Self::Lru => Box::new(Formula::LRU.policy()),
            Self::Largest => Box::new(Formula::LARGEST.policy()),
            Self::Msps => Box::new(Formula::MSPS.policy()),
            Self::MegEngineArticle(constants) => Box::new(MegEngineArticle::new(constants)),
            Self::Learned(_) => Box::new(Learned::new()),
            Self::Coop => Box::new(Coop::SCORE.policy()),
            Self::LockHubs => Box::new(Formula::DTR_EQ.policy()),
            Self::Belady => Box::new(Belady),
            Self::Random => Box::new(EvictAtRandom::new(seed)),
            Self::None => return None,
            Self::Formula(formula) => Box::new(formula.policy()),
        })
    }

    /// One-line description of the storages that the policy evicts first.
    ///
    /// ```
    /// use remat::PolicyKind;
    ///
    /// assert_eq!(PolicyKind::Lru.about(), "least recently used");
    /// ```
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::MegEngine { .. } => {
                "least by MegEngine's function of cost, bytes, free neighbours and staleness"
            }
            Self::Ancestors => {
                "least (own cost + cost of evicted sources, held ones with less weight, + cost of the nearest \
                 evicted dependents) / (bytes * staleness^(2/3))"
            }
            Self::Dtr => {
                "least (own cost + cost of its evicted neighbourhood) / (bytes * staleness)"
            }
            Self::DtrEq => "dtr, with the neighbourhood approximated by union-find",
            Self::DtrLocal => "least own cost / (bytes * staleness)",
            Self::Lru => "least recently used",
            Self::Largest => "largest",
            Self::Msps => "least cost to recompute, evicted sources included, per byte (Capuchin)",
            Self::MegEngineArticle(_) => "as in MegEngine 1.4, faults included, for comparison",
            Self::Learned(_) => {
                "cheap to restore, large and needed again late, in known steps; as ancestors elsewhere"
            }
            Self::Coop => "cheapest group of neighbours in memory that makes enough room (Coop)",
            Self::LockHubs => {
                "dtr-eq, but keeps tensors that connect many others (after T-Control)"
            }
            Self::Belady => "latest next use, in known steps, for comparison",
            Self::Random => "a random tensor, as a baseline",
            Self::None => "nothing: fails when memory is full",
            Self::Formula(_) => "least value of a formula of your own",
        }
    }

    /// Whether the policy uses predictions of later commands, from known steps.
    ///
    /// ```
    /// use remat::PolicyKind;
    /// use remat::evict::Learn;
    ///
    /// assert!(PolicyKind::Learned(Learn::Ahead).looks_ahead());
    /// assert!(!PolicyKind::Dtr.looks_ahead());
    /// ```
    #[must_use]
    pub const fn looks_ahead(self) -> bool {
        matches!(self, Self::Learned(_) | Self::Belady)
    }

    /// Effort of the policy's searches for forecasts.
    pub(crate) const fn learn(self) -> Learn {
        match self {
            Self::Learned(learn) => learn,
            _ => Learn::Ahead,
        }
    }

    /// Whether simulated runs search for the best forecast of a step.
    ///
    /// ```
    /// use remat::PolicyKind;
    /// use remat::evict::Learn;
    ///
    /// assert!(PolicyKind::Learned(Learn::Portfolio).searches());
    /// assert!(!PolicyKind::Learned(Learn::Ahead).searches());
    /// ```
    #[must_use]
    pub const fn searches(self) -> bool {
        matches!(self, Self::Learned(Learn::Portfolio | Learn::Search { .. }))
    }

    /// All policies except `none`, in the order of [`PolicyKind::NAMES`].
    ///
    /// ```
    /// use remat::PolicyKind;
    ///
    /// assert_eq!(PolicyKind::all().count(), PolicyKind::NAMES.len() - 1);
    /// assert!(PolicyKind::all().all(|kind| kind != PolicyKind::None));
    /// ```
    pub fn all() -> impl Iterator<Item = Self> {
        Self::named().into_iter().filter(|kind| *kind != Self::None)
    }

    /// Formulas of the ablation study in the DTR paper, extended by free neighbours. The list has
    /// each combination of own cost, evicted neighbourhood (exact, by classes, none), size,
    /// staleness and free neighbours.
    ///
    /// ```
    /// use remat::PolicyKind;
    ///
    /// let all = PolicyKind::ablations();
    /// assert_eq!(all.len(), 36);
    /// assert!(all.iter().all(|kind| matches!(kind, PolicyKind::Formula(_))));
    /// ```
    #[must_use]
    pub fn ablations() -> Vec<Self> {
        let mut all = Vec::new();
        for around in [Around::Exact, Around::Classes, Around::Nothing] {
            for own_cost in [true, false] {
                // Free neighbours add to the size, so no formula has free neighbours without the
                // size.
                for (size, free_neighbours) in [(1.0, false), (1.0, true), (0.0, false)] {
                    for staleness in [1.0, 0.0] {
                        let cost = if own_cost || around != Around::Nothing { 1.0 } else { 0.0 };
                        let exponents = Exponents { cost, bytes: size, staleness };
                        all.push(Formula { own_cost, around, free_neighbours, exponents });
                    }
                }
            }
        }
        all.into_iter().map(Self::Formula).collect()
    }

    /// Replaces the exponents of the score. A policy whose score does not have cost, bytes and
    /// staleness is unchanged.
    ///
    /// ```
    /// use remat::PolicyKind;
    /// use remat::evict::Exponents;
    ///
    /// let half = Exponents { staleness: 0.5, ..Exponents::default() };
    /// let kind = PolicyKind::Dtr.with_exponents(half);
    /// assert_eq!(kind.to_string(), "(own+exact)/(size*stale^0.5)");
    /// assert_eq!(PolicyKind::Lru.with_exponents(half), PolicyKind::Lru);
    /// ```
    #[must_use]
    pub fn with_exponents(self, exponents: Exponents) -> Self {
        let formula = match self {
            Self::MegEngine { own_cost, rerun_factor, .. } => {
                return Self::MegEngine { exponents, own_cost, rerun_factor };
            }
            Self::MegEngineArticle(constants) => {
                return Self::MegEngineArticle(ArticleConstants { exponents, ..constants });
            }
            Self::Ancestors => Formula::ANCESTORS,
            Self::Dtr => Formula::DTR,
            Self::DtrEq => Formula::DTR_EQ,
            Self::DtrLocal => Formula::DTR_LOCAL,
            Self::Formula(formula) => formula,
            Self::Lru
            | Self::Largest
            | Self::Msps
            | Self::Learned(_)
            | Self::Coop
            | Self::LockHubs
            | Self::Belady
            | Self::Random
            | Self::None => {
                return self;
            }
        };
        let Exponents { cost, bytes, staleness } = formula.exponents;
        if cost == 0.0 || bytes == 0.0 || staleness == 0.0 {
            return self;
        }
        Self::Formula(Formula { exponents, ..formula }.canonical())
    }

    /// Replaces the factor for each rerun, if the policy has such a factor.
    ///
    /// ```
    /// use remat::PolicyKind;
    ///
    /// let kind = PolicyKind::megengine().with_rerun_factor(1.5);
    /// assert_eq!(kind.to_string(), "megengine:rerun=1.5");
    /// ```
    #[must_use]
    pub fn with_rerun_factor(self, rerun_factor: f64) -> Self {
        match self {
            Self::MegEngine { exponents, own_cost, .. } => {
                Self::MegEngine { exponents, own_cost, rerun_factor }
            }
            Self::MegEngineArticle(constants) => {
                Self::MegEngineArticle(ArticleConstants { rerun_factor, ..constants })
            }
            other => other,
        }
    }

    /// The policy as it would be after printing and parsing. Parts of a formula that have no effect
    /// are removed.
    pub(crate) fn canonical(self) -> Self {
        match self {
            Self::Formula(formula) => Self::Formula(formula.canonical()),
            other => other,
        }
    }

    fn named() -> [Self; Self::NAMES.len()] {
        [
            Self::Ancestors,
            Self::megengine(),
            Self::Dtr,
            Self::DtrEq,
            Self::DtrLocal,
            Self::Lru,
            Self::Largest,
            Self::Msps,
            Self::megengine_article(),
            Self::Learned(Learn::Ahead),
            Self::Coop,
            Self::LockHubs,
            Self::Belady,
            Self::Random,
            Self::None,
        ]
    }
}

impl FromStr for PolicyKind {
    type Err = ParsePolicyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(kind) = Self::named().into_iter().find(|kind| kind.to_string() == text) {
            return Ok(kind);
        }
        if let Some(kind) = Self::with_parameters(text) {
            return kind;
        }
        match text.strip_prefix("learned:") {
            Some("portfolio") => return Ok(Self::Learned(Learn::Portfolio)),
            Some("search") => return Ok(Self::Learned(Learn::Search { runs: Learn::RUNS })),
            Some(rest) => {
                let runs = rest.strip_prefix("search:").and_then(|runs| runs.parse().ok());
                let learned = runs.map(|runs| Self::Learned(Learn::Search { runs }));
                return learned.ok_or_else(|| ParsePolicyError::Learn(text.to_owned()));
            }
            None => {}
        }
        // A text without an operator counts as a name, unless it is a valid formula.
        match text.parse::<Formula>() {
            Ok(formula) => Ok(Self::Formula(formula)),
            Err(error) if text.contains(['/', '+', '*', '^', '(']) => Err(error.into()),
            Err(_) => Err(ParsePolicyError::Name(text.to_owned())),
        }
    }
}

/// Prints a name or formula that parses to the same policy.
impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::MegEngine { .. } => "megengine",
            Self::Ancestors => "ancestors",
            Self::Dtr => "dtr",
            Self::DtrEq => "dtr-eq",
            Self::DtrLocal => "dtr-local",
            Self::Lru => "lru",
            Self::Largest => "largest",
            Self::Msps => "msps",
            Self::MegEngineArticle(_) => "megengine-article",
            Self::Learned(Learn::Ahead) => "learned",
            Self::Learned(Learn::Portfolio) => "learned:portfolio",
            Self::Learned(Learn::Search { runs: Learn::RUNS }) => "learned:search",
            Self::Learned(Learn::Search { runs }) => {
                return f.pad(&format!("learned:search:{runs}"));
            }
            Self::Coop => "coop",
            Self::LockHubs => "t-control",
            Self::Belady => "belady",
            Self::Random => "random",
            Self::None => "none",
            Self::Formula(formula) => return f.pad(&formula.to_string()),
        };
        // Collect name and parameters in one text, so that padding applies to the whole.
        let mut text = name.to_owned();
        self.write_parameters(&mut text)?;
        f.pad(&text)
    }
}
