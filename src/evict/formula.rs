//! The family of rules of which h_DTR is one, put together from parts.

use super::classes::WatchedClasses;
use super::neighbourhood::{Neighbourhood, Reach};
use super::{Aging, Floors, Lowered, Policy, View};
use crate::event::{Event, Hears};
use crate::graph::StorageKey;

/// `(own cost + cost around)^a / ((MiB + MiB of free neighbours)^b * staleness^c)`, with any part left out.
///
/// A part with the exponent 0 is left out. Without own cost and cost around, the numerator is 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Formula {
    /// Whether the cost of its own op counts.
    pub own_cost: bool,
    /// What counts of the evicted storages around it.
    pub around: Around,
    /// Whether free bytes beside it count as its own, for evicting it makes one hole of all.
    pub free_neighbours: bool,
    /// How strongly each part counts.
    pub exponents: Exponents,
}

/// What counts of the evicted storages around a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Around {
    /// Nothing.
    Nothing,
    /// The evicted storages that it takes to recompute it.
    Sources,
    /// The same of 1024 of them, but of those that somebody holds only 0.3 of the cost: they are likely to come back for
    /// their own sake. And of the four nearest evicted storages that it takes it to recompute: 0.9 of the cost of those
    /// that somebody holds, for they are likely to be wanted, and 0.15 of the others.
    Ancestors,
    /// Those, and the evicted storages that it takes it to recompute: the evicted neighbourhood.
    Exact,
    /// The union-find classes of its evicted sources and dependents: the evicted neighbourhood,
    /// approximately.
    Classes,
}

/// How strongly each part of a score counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exponents {
    /// Of the recompute cost.
    pub cost: f64,
    /// Of the bytes.
    pub bytes: f64,
    /// Of the staleness.
    pub staleness: f64,
}

/// What counts of evicted ancestors. Of those that somebody holds .3: of .7, .5, .3, .15 and 0, this is best on the traces
/// of the DTR paper. So many of them are as good as infinitely many, and finding more takes longer than bringing them back.
const ANCESTORS: Reach = Reach { held: 0.3, unheld: 1.0, most: 1024, nearest_first: false };

/// What counts of evicted dependents. More of them count for too much in training (docs/learned-eviction.md, "What else was
/// tried").
const DEPENDENTS: Reach = Reach { held: 0.9, unheld: 0.15, most: 4, nearest_first: true };

impl Default for Exponents {
    fn default() -> Self {
        Self { cost: 1.0, bytes: 1.0, staleness: 1.0 }
    }
}

impl Formula {
    /// The formula without parts that do not count, which gives the scores that it gives: as its text has it.
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

    /// A policy that goes by this.
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

    /// The formula, with `around` for the cost around the candidate, but for the division by the staleness.
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

    /// What scores are ranked by where there are floors. Those are divided by the plain staleness, so it is
    /// `(numerator / size)^(1 / c)`, which orders them in the same way.
    fn rank(&self, candidate: StorageKey, around: f64, view: View<'_>) -> f64 {
        let score = self.before_staleness(candidate, around, view);
        match self.exponents.staleness {
            0.0 => score,
            staleness => power(score, staleness.recip()),
        }
    }

    /// The score of a rank, which is divided by the staleness if scores are.
    fn score_of(&self, rank: f64) -> f64 {
        match self.exponents.staleness {
            0.0 => rank,
            staleness => power(rank, staleness),
        }
    }

    /// The cost around a candidate that makes its rank `rank`; infinite if none does.
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

    /// How scores change with time; `None`: in any way, so that there are no floors.
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

/// An exponent of staleness and distance whose ranks take no power.
pub(super) const TWO_THIRDS: f64 = 2.0 / 3.0;

fn power(base: f64, exponent: f64) -> f64 {
    match exponent {
        1.0 => base,
        2.0 => base * base,
        0.5 => base.sqrt(),
        // 3 / 2, for the floors of `Formula::ANCESTORS`. Exact on every machine.
        1.5 => base * base.sqrt(),
        TWO_THIRDS => (base * base).cbrt(),
        _ => base.powf(exponent),
    }
}

/// A policy that goes by a [`Formula`].
#[derive(Debug)]
pub struct Ranking {
    formula: Formula,
    /// What the formula says of itself, always the same.
    aging: Option<Aging>,
    book: Book,
    lowered: Lowered,
}

/// What is kept to answer for the cost around a candidate.
#[derive(Debug)]
enum Book {
    Nothing,
    Neighbourhood(Neighbourhood),
    Classes(WatchedClasses),
}

impl Ranking {
    /// The cost around a candidate now; if its rank is above `enough`, any part of it that makes it so.
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
