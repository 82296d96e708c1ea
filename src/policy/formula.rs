//! The family of rules of which h_DTR is one, put together from parts.

use super::classes::WatchedClasses;
use super::neighbourhood::Neighbourhood;
use super::{Aging, Lowered, Policy, View};
use crate::engine::StorageKey;

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

impl Default for Exponents {
    fn default() -> Self {
        Self { cost: 1.0, bytes: 1.0, staleness: 1.0 }
    }
}

impl Formula {
    /// A policy that goes by this.
    #[must_use]
    pub fn policy(self) -> Ranking {
        let book = match self.around {
            Around::Nothing => Book::Nothing,
            Around::Sources => Book::Neighbourhood(Neighbourhood::sources()),
            Around::Exact => Book::Neighbourhood(Neighbourhood::both()),
            Around::Classes => Book::Classes(WatchedClasses::default()),
        };
        Ranking { formula: self, book }
    }

    /// The formula, with `around` for the cost around the candidate; without staleness where the engine
    /// divides by that.
    fn score(&self, candidate: StorageKey, around: f64, view: View<'_>) -> f64 {
        let Exponents { cost, bytes, staleness } = self.exponents;
        let mut score = 1.0;
        if self.own_cost || self.around != Around::Nothing {
            let own = if self.own_cost { view.table.own_cost(candidate) } else { 0.0 };
            score = power(own + around, cost);
        }
        if bytes != 0.0 {
            let mut size = view.mebibytes(candidate);
            if self.free_neighbours {
                size += view.free_neighbour_bytes(candidate) as f64 / f64::from(1 << 20);
            }
            score /= power(size, bytes);
        }
        if staleness != 0.0 && self.aging() != Aging::Staleness {
            score /= power(view.staleness(candidate), staleness);
        }
        score
    }

    /// The cost around a candidate that makes its score `score`; infinite if none does.
    fn around(&self, candidate: StorageKey, score: f64, view: View<'_>) -> f64 {
        if self.exponents.cost != 1.0 || self.aging() == Aging::Any {
            return f64::INFINITY;
        }
        let own = if self.own_cost { view.table.own_cost(candidate) } else { 0.0 };
        let size = match self.exponents.bytes {
            0.0 => 1.0,
            bytes => power(view.mebibytes(candidate), bytes),
        };
        score * size - own
    }

    fn aging(&self) -> Aging {
        if self.free_neighbours && self.exponents.bytes != 0.0 || self.exponents.cost < 0.0 {
            return Aging::Any;
        }
        match self.exponents.staleness {
            0.0 => Aging::Steady,
            1.0 => Aging::Staleness,
            _ => Aging::Any,
        }
    }
}

fn power(base: f64, exponent: f64) -> f64 {
    if exponent == 1.0 { base } else { base.powf(exponent) }
}

/// A policy that goes by a [`Formula`].
#[derive(Debug)]
pub struct Ranking {
    formula: Formula,
    book: Book,
}

/// What is kept to answer for the cost around a candidate.
#[derive(Debug)]
enum Book {
    Nothing,
    Neighbourhood(Neighbourhood),
    Classes(WatchedClasses),
}

impl Policy for Ranking {
    fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        self.score_up_to(candidate, f64::INFINITY, view)
    }

    fn score_up_to(&mut self, candidate: StorageKey, enough: f64, view: View<'_>) -> f64 {
        let around = match &mut self.book {
            Book::Nothing => 0.0,
            Book::Neighbourhood(book) => {
                let enough = self.formula.around(candidate, enough, view);
                book.cost(candidate, enough, view.table)
            }
            Book::Classes(book) => book.cost(candidate, view.table),
        };
        self.formula.score(candidate, around, view)
    }

    fn aging(&self) -> Aging {
        self.formula.aging()
    }

    fn floor(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        let around = match &self.book {
            Book::Nothing => 0.0,
            Book::Neighbourhood(book) => book.floor(candidate),
            Book::Classes(book) => book.floor(candidate),
        };
        self.formula.score(candidate, around, view)
    }

    fn floors_are_scores(&self) -> bool {
        matches!(self.book, Book::Nothing)
    }

    fn did_evict(&mut self, key: StorageKey, view: View<'_>) {
        match &mut self.book {
            Book::Nothing => {}
            Book::Neighbourhood(book) => book.did_evict(key),
            Book::Classes(book) => book.did_evict(key, view.table),
        }
    }

    fn did_regenerate(&mut self, key: StorageKey, view: View<'_>, lowered: &mut Lowered) {
        match &mut self.book {
            Book::Nothing => {}
            Book::Neighbourhood(book) => book.did_regenerate(key, view.table, lowered),
            Book::Classes(book) => book.leave(key, view.table, lowered),
        }
    }

    fn will_forget(&mut self, key: StorageKey, view: View<'_>, lowered: &mut Lowered) {
        match &mut self.book {
            Book::Nothing => {}
            Book::Neighbourhood(book) => book.will_forget(key, view.table, lowered),
            Book::Classes(book) => book.leave(key, view.table, lowered),
        }
    }
}
