//! Family of scoring rules that combine cost, size and staleness. DTR's rule h_DTR belongs to the
//! family.

use super::classes::WatchedClasses;
use super::neighbourhood::{Neighbourhood, Reach};
use super::{Aging, Floors, Lowered, Policy, View};
use crate::event::{Event, Hears};
use crate::graph::StorageKey;

/// Scoring rule: cost divided by size and staleness, as `(own cost + cost around)^a / ((MiB + MiB
/// of free neighbours)^b * staleness^c)`. The cost around a candidate is the cost of evicted
/// storages connected to it. Any part can be left out.
///
/// A part with the exponent 0 is left out. If both own cost and cost around are left out, the
/// numerator is 1.
///
/// ```
/// use remat::unstable::evict::Formula;
///
/// assert_eq!("(own+exact)/(size*stale)".parse(), Ok(Formula::DTR));
/// assert_eq!(Formula::LRU.to_string(), "1/stale");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Formula {
    /// Whether the cost of the candidate's own op counts.
    pub own_cost: bool,
    /// Selects the evicted storages around the candidate whose costs count.
    pub around: Around,
    /// Whether free bytes beside the candidate count as the candidate's bytes, because eviction
    /// makes one hole of both.
    pub free_neighbours: bool,
    /// Exponents of the parts.
    pub exponents: Exponents,
}

/// Selection of the evicted storages around a candidate whose costs count.
///
/// ```
/// use remat::unstable::evict::{Around, Formula};
///
/// let formula: Formula = "(own+sources)/size".parse()?;
/// assert_eq!(formula.around, Around::Sources);
/// # Ok::<(), remat::evict::ParseFormulaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Around {
    /// No storage around the candidate counts.
    Nothing,
    /// Sources: all evicted storages needed to recompute the candidate.
    Sources,
    /// Up to 1024 evicted sources, and the four nearest evicted dependents, each with a weight.
    ///
    /// Sources are the evicted storages needed to recompute the candidate. A source that has a
    /// handle counts with 0.3 of its cost, because a later command will probably have it restored
    /// anyway. A source without a handle counts with its full cost. Dependents are the evicted
    /// storages that need the candidate to be recomputed. A dependent that has a handle counts with
    /// 0.9 of its cost, because it is likely to be used. A dependent without a handle counts with
    /// 0.15 of its cost.
    Ancestors,
    /// The evicted neighbourhood: all evicted sources, and all evicted storages that need the
    /// candidate to be recomputed.
    Exact,
    /// An approximation of the evicted neighbourhood: the union-find classes of the candidate's
    /// evicted sources and dependents.
    Classes,
}

/// Exponents of the parts of a score.
///
/// ```
/// use remat::evict::Exponents;
/// use remat::unstable::evict::Formula;
///
/// let exponents = Exponents { staleness: 2.0, ..Exponents::default() };
/// let formula = Formula { exponents, ..Formula::DTR_LOCAL };
/// assert_eq!(formula.to_string(), "own/(size*stale^2)");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exponents {
    /// Exponent of the recompute cost.
    pub cost: f64,
    /// Exponent of the bytes.
    pub bytes: f64,
    /// Exponent of the staleness.
    pub staleness: f64,
}

/// Weights of evicted ancestors (sources).
///
/// For ancestors that have a handle, the weights .7, .5, .3, .15 and 0 were tried. The weight .3 is
/// best on the traces of the DTR paper. A limit of 1024 paths gives scores as good as no limit. A
/// longer walk would take more time than restoring the storages.
const ANCESTORS: Reach = Reach { held: 0.3, unheld: 1.0, most: 1024, nearest_first: false };

/// Weights of evicted dependents. Only four dependents count: with more, their costs have too much
/// weight in training (docs/learned-eviction.md, "What else was tried").
const DEPENDENTS: Reach = Reach { held: 0.9, unheld: 0.15, most: 4, nearest_first: true };

impl Default for Exponents {
    fn default() -> Self {
        Self { cost: 1.0, bytes: 1.0, staleness: 1.0 }
    }
}

impl Formula {
    /// Removes parts that do not affect scores, so that equal formulas have equal text.
    pub(super) fn canonical(mut self) -> Self {
        if self.exponents.cost == 0.0 {
            (self.own_cost, self.around) = (false, Around::Nothing);
        }
        if !self.own_cost && self.around == Around::Nothing {
            self.exponents.cost = 0.0;
        }
        self.free_neighbours &= self.exponents.bytes != 0.0;
        self
    }

    /// Builds the policy of the formula.
    ///
    /// ```
    /// use remat::unstable::evict::Formula;
    /// use remat::prelude::*;
    ///
    /// let policy = Formula { own_cost: false, ..Formula::DTR }.policy();
    /// let runtime = Runtime::builder().budget("8KiB").policy(policy).cpu()?;
    /// let x = runtime.ones(&[1024])?;
    /// let (y, z) = (x.square()?, x.sin()?);
    /// assert_eq!(y.to_vec::<f32>()?, vec![1.0; 1024]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn policy(self) -> Ranking {
        let book = match self.around {
            Around::Nothing => Book::Nothing,
            Around::Sources => Book::Neighbourhood(Neighbourhood::new(Reach::ALL, None)),
            Around::Ancestors => {
                Book::Neighbourhood(Neighbourhood::new(ANCESTORS, Some(DEPENDENTS)))
            }
            Around::Exact => Book::Neighbourhood(Neighbourhood::new(Reach::ALL, Some(Reach::ALL))),
            Around::Classes => Book::Classes(WatchedClasses::default()),
        };
        Ranking { formula: self, aging: self.aging(), book, lowered: Lowered::default() }
    }

    /// Computes the formula without the division by the staleness. `around` is the cost of the
    /// evicted storages around the candidate.
    fn before_staleness(&self, candidate: StorageKey, around: f64, view: View<'_>) -> f64 {
        let Exponents { cost, bytes, .. } = self.exponents;
        let mut score = 1.0;
        if self.own_cost || self.around != Around::Nothing {
            let own = if self.own_cost { view.graph.own_cost(candidate) } else { 0.0 };
            score = power(own + around, cost);
        }
        if bytes != 0.0 {
            let mut size = view.mebibytes(candidate);
            if self.free_neighbours {
                size += view.free_neighbour_bytes(candidate) as f64 / f64::from(1 << 20);
            }
            score /= power(size, bytes);
        }
        score
    }

    /// Rank of a candidate: `(numerator / size)^(1 / c)`, where `c` is the exponent of the
    /// staleness. The search divides ranks by the staleness without an exponent. Divided ranks
    /// order candidates as scores do.
    fn rank(&self, candidate: StorageKey, around: f64, view: View<'_>) -> f64 {
        let score = self.before_staleness(candidate, around, view);
        match self.exponents.staleness {
            0.0 => score,
            staleness => power(score, staleness.recip()),
        }
    }

    /// Converts a rank to a score. A rank divided by the staleness becomes a score divided by the
    /// power of the staleness.
    fn score_of(&self, rank: f64) -> f64 {
        match self.exponents.staleness {
            0.0 => rank,
            staleness => power(rank, staleness),
        }
    }

    /// Inverse of [`Self::rank`]: the cost around a candidate that gives it the rank `rank`.
    /// Infinite if the cost cannot be computed from the rank.
    fn around(&self, candidate: StorageKey, rank: f64, view: View<'_>) -> f64 {
        if self.exponents.cost != 1.0 {
            return f64::INFINITY;
        }
        let own = if self.own_cost { view.graph.own_cost(candidate) } else { 0.0 };
        let size = match self.exponents.bytes {
            0.0 => 1.0,
            bytes => power(view.mebibytes(candidate), bytes),
        };
        self.score_of(rank) * size - own
    }

    /// How scores change with time; `None` if scores may change in any way, so that lower bounds of
    /// scores are impossible.
    fn aging(&self) -> Option<Aging> {
        if self.free_neighbours && self.exponents.bytes != 0.0 || self.exponents.cost < 0.0 {
            return None;
        }
        match self.exponents.staleness {
            0.0 => Some(Aging::Steady),
            c if c > 0.0 => Some(Aging::Staleness),
            _ => None,
        }
    }
}

/// Exponent 2/3, of the staleness or of the distance to the next use. Ranks with the exponent 2/3
/// are computed without `powf`.
pub(super) const TWO_THIRDS: f64 = 2.0 / 3.0;

fn power(base: f64, exponent: f64) -> f64 {
    match exponent {
        1.0 => base,
        2.0 => base * base,
        0.5 => base.sqrt(),
        // Ranks of `Formula::ANCESTORS` have the exponent 3 / 2. Computed with `sqrt`, the power
        // has the same bits on every machine.
        1.5 => base * base.sqrt(),
        TWO_THIRDS => (base * base).cbrt(),
        _ => base.powf(exponent),
    }
}

/// Policy that scores by a [`Formula`].
#[derive(Debug)]
pub struct Ranking {
    formula: Formula,
    /// Result of `Formula::aging` for `formula`, computed once.
    aging: Option<Aging>,
    book: Book,
    lowered: Lowered,
}

/// Records from which the cost around a candidate is computed.
#[derive(Debug)]
enum Book {
    Nothing,
    Neighbourhood(Neighbourhood),
    Classes(WatchedClasses),
}

impl Ranking {
    /// Present cost around a candidate. The walk stops early once the cost found so far makes the
    /// rank exceed `enough`.
    fn around(&mut self, candidate: StorageKey, enough: f64, view: View<'_>) -> f64 {
        match &mut self.book {
            Book::Nothing => 0.0,
            Book::Neighbourhood(book) => {
                let enough = self.formula.around(candidate, enough, view);
                book.cost(candidate, enough, view.graph)
            }
            Book::Classes(book) => book.cost(candidate, view.graph),
        }
    }
}

impl Policy for Ranking {
    fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        let around = self.around(candidate, f64::INFINITY, view);
        let score = self.formula.before_staleness(candidate, around, view);
        match self.formula.exponents.staleness {
            0.0 => score,
            staleness => score / power(view.staleness(candidate), staleness),
        }
    }

    fn on(&mut self, event: &Event, view: View<'_>) {
        let Self { book, lowered, .. } = self;
        match (book, *event) {
            (Book::Nothing, _) => {}
            (Book::Neighbourhood(book), Event::DidEvict { storage, .. }) => book.did_evict(storage),
            (Book::Neighbourhood(book), Event::DidRegenerate { storage, .. }) => {
                book.did_regenerate(storage, view.graph, lowered);
            }
            (Book::Neighbourhood(book), Event::WillForget { storage }) => {
                book.will_forget(storage, view.graph, lowered);
            }
            (Book::Classes(book), Event::DidEvict { storage, .. }) => {
                book.did_evict(storage, view.graph);
            }
            (Book::Classes(book), Event::DidRegenerate { storage, .. })
            | (Book::Classes(book), Event::WillForget { storage }) => {
                book.leave(storage, view.graph, lowered);
            }
            _ => {}
        }
    }

    fn hears(&self) -> Hears {
        match self.book {
            Book::Nothing => Hears::NOTHING,
            Book::Neighbourhood(_) | Book::Classes(_) => Hears::EVICTIONS,
        }
    }

    fn floors(&mut self) -> Option<&mut dyn Floors> {
        self.aging.is_some().then_some(self)
    }
}

impl Floors for Ranking {
    fn aging(&self) -> Aging {
        self.aging.expect("only asked where there are floors")
    }

    fn floor(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        let around = match &self.book {
            Book::Nothing => 0.0,
            Book::Neighbourhood(book) => book.floor(candidate),
            Book::Classes(book) => book.floor(candidate),
        };
        self.formula.rank(candidate, around, view)
    }

    fn score_up_to(&mut self, candidate: StorageKey, enough: f64, view: View<'_>) -> f64 {
        let around = self.around(candidate, enough, view);
        self.formula.rank(candidate, around, view)
    }

    fn as_score(&self, aged: f64) -> f64 {
        self.formula.score_of(aged)
    }

    fn floors_are_scores(&self) -> bool {
        matches!(self.book, Book::Nothing)
    }

    fn lowered(&mut self) -> &mut Lowered {
        &mut self.lowered
    }
}
