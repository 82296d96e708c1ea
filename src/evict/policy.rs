//! Scores: how much is lost by evicting a storage.

use super::{ByStep, View};
use crate::event::{Event, Hears};
use crate::graph::StorageKey;
use std::fmt;

/// A way to score what could be evicted. [`ByScore`](super::ByScore) evicts the candidate with the lowest score.
#[doc(alias("heuristic", "h_DTR"))]
pub trait Policy: fmt::Debug + Send {
    /// How much is lost by evicting `candidate` now; the lowest score goes. NaN counts as the highest.
    /// The candidate is resident, not pinned, and has a producer.
    fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64;

    /// Something happened. See [`Event`] for when each is told.
    fn on(&mut self, _event: &Event, _view: View<'_>) {}

    /// The part that goes by the known step, as [`Evictor::by_step`](super::Evictor::by_step).
    fn by_step(&mut self) -> Option<&mut dyn ByStep> {
        None
    }

    /// What it wants to be told of: to tell it of what it does not listen to takes time. It may be told of more. Must
    /// always return the same.
    fn hears(&self) -> Hears {
        Hears::ALL
    }

    /// Lower bounds of scores, if the policy can give them: then few scores are computed at each choice. Must always
    /// be the same, but after [`ByStep::foresee`]. Default: none, and every score is computed.
    fn floors(&mut self) -> Option<&mut dyn Floors> {
        None
    }
}

/// Lower bounds of scores, for policies whose scores seldom fall.
///
/// A score may rise at any time, but falls only with the candidate's own cost, or where the policy says so by
/// [`Floors::lowered`]. Where scores are divided by the staleness or the distance, all this is about scores before the
/// division.
pub trait Floors {
    /// How scores change with time. Must always return the same, but after [`ByStep::foresee`].
    fn aging(&self) -> Aging;

    /// A number that is cheaper to find than the score and never above it. Called for candidates that are new, or were
    /// reported as lowered.
    fn floor(&mut self, candidate: StorageKey, view: View<'_>) -> f64;

    /// The score, or if that is above `enough`, any number above `enough` and not above the score.
    fn score_up_to(&mut self, candidate: StorageKey, enough: f64, view: View<'_>) -> f64;

    /// Whether [`Floors::floor`] is the score, so that it need not be computed again.
    fn floors_are_scores(&self) -> bool {
        false
    }

    /// What a number found by floors is as a score: those may be compared in another unit that orders them in the same
    /// way. `aged`: after the division by the staleness or the distance.
    fn as_score(&self, aged: f64) -> f64 {
        aged
    }

    /// Under [`Aging::Distance`], when the candidate will be used that was asked about last.
    fn due(&self) -> f64 {
        0.0
    }

    /// Under [`Aging::Distance`], what time it is on the clock of [`Floors::due`].
    fn now(&self, _view: View<'_>) -> f64 {
        0.0
    }

    /// The candidates whose scores may have fallen since the last choice: after [`ByStep::foresee`], all of them. Whoever
    /// asks empties it.
    fn lowered(&mut self) -> &mut Lowered;
}

/// How scores change with time alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aging {
    /// They do not.
    Steady,
    /// They are divided by [`View::staleness`]; before that, they are not below 0 and do not change.
    Staleness,
    /// They are divided by the distance from [`Floors::now`] to [`Floors::due`], which is finite. Before that they do not
    /// change, and no use comes later than it was due.
    Distance,
}

/// More candidates than this are taken for all.
const MOST: usize = 1 << 14;

/// Collects candidates whose scores have fallen.
#[derive(Debug, Default)]
pub struct Lowered {
    pub(super) keys: Vec<StorageKey>,
    pub(super) all: bool,
}

impl Lowered {
    /// That of `key`. It need not be a candidate.
    pub fn push(&mut self, key: StorageKey) {
        if self.keys.len() == MOST {
            // Where nothing is chosen for long, it must not grow without end.
            self.keys.clear();
            self.all();
        }
        self.keys.push(key);
    }

    /// Perhaps all of them.
    pub const fn all(&mut self) {
        self.all = true;
    }
}
