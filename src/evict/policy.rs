//! Policies: a policy scores how much is lost by evicting a storage. `formula.rs` computes the scores
//! of most policies, and `by_score.rs` finds the lowest score.

use super::{ByStep, View};
use crate::event::{Event, Hears};
use crate::graph::StorageKey;
use std::fmt;

/// Scores of eviction candidates. [`ByScore`](super::ByScore) evicts the candidate with the lowest
/// score.
#[doc(alias("heuristic", "h_DTR"))]
pub trait Policy: fmt::Debug + Send {
    /// Loss from evicting `candidate` now. The candidate with the lowest score is evicted; NaN
    /// counts as the highest score. Each candidate is resident, not pinned, and has a producer.
    fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64;

    /// Receives an event of a kind that [`Policy::hears`] names, and possibly of other kinds.
    /// [`Event`] says when each kind is sent.
    fn on(&mut self, _event: &Event, _view: View<'_>) {}

    /// The part of the policy that uses the known step, if any; see
    /// [`Evictor::by_step`](super::Evictor::by_step).
    fn by_step(&mut self) -> Option<&mut dyn ByStep> {
        None
    }

    /// Kinds of events to receive. Receiving fewer kinds saves time. A policy must always return
    /// the same kinds.
    fn hears(&self) -> Hears {
        Hears::ALL
    }

    /// Lower bounds of scores, if the policy has them. With lower bounds, few scores are computed
    /// for each choice. The result may change only in [`ByStep::foresee`]. Default: `None`, and
    /// every score is computed.
    fn floors(&mut self) -> Option<&mut dyn Floors> {
        None
    }
}

/// Lower bounds of scores (*floors*), for policies whose scores rarely fall.
///
/// A score may rise at any time. A score may fall only if the cost of the candidate's own op falls,
/// or if [`Floors::lowered`] lists the candidate. Under [`Aging::Staleness`] and
/// [`Aging::Distance`], a score means the number before the division.
pub trait Floors {
    /// How scores change with time. The result may change only in [`ByStep::foresee`].
    fn aging(&self) -> Aging;

    /// Lower bound of the score of `candidate`, cheaper to compute than the score. The search asks
    /// for floors of new candidates, and of candidates that [`Floors::lowered`] lists.
    fn floor(&mut self, candidate: StorageKey, view: View<'_>) -> f64;

    /// Score of `candidate`. If the score is above `enough`, may return any number `x` with `enough
    /// < x <= score`.
    fn score_up_to(&mut self, candidate: StorageKey, enough: f64, view: View<'_>) -> f64;

    /// Whether [`Floors::floor`] returns the exact score. If true, the score need not be computed
    /// again.
    fn floors_are_scores(&self) -> bool {
        false
    }

    /// Converts a number from [`Floors::score_up_to`] to a score. The two may differ, because
    /// floors may use another unit that has the same order. `aged` is the number after the division
    /// by the staleness or the distance.
    fn as_score(&self, aged: f64) -> f64 {
        aged
    }

    /// Under [`Aging::Distance`], the time of the next use of the candidate whose floor or score
    /// was computed last.
    fn due(&self) -> f64 {
        0.0
    }

    /// Under [`Aging::Distance`], the current time on the clock of [`Floors::due`].
    fn now(&self, _view: View<'_>) -> f64 {
        0.0
    }

    /// Candidates whose scores may have fallen since the last choice. After [`ByStep::foresee`],
    /// the list must mark all candidates. The caller empties the list.
    fn lowered(&mut self) -> &mut Lowered;
}

/// Change of scores with time alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aging {
    /// Scores do not change.
    Steady,
    /// Scores are divided by [`View::staleness`]. Before the division, a score is at least 0 and
    /// does not change.
    Staleness,
    /// Scores are divided by the distance from [`Floors::now`] to [`Floors::due`], which is finite.
    /// Before the division, a score does not change. A candidate is always used at its due time or
    /// earlier.
    ///
    /// [`ByScore`](super::ByScore) leaves out candidates whose eviction other victims of the same
    /// request make needless.
    Distance,
}

/// Maximum number of listed candidates. A longer list is replaced by a mark that stands for all
/// candidates.
const MOST: usize = 1 << 14;

/// List of candidates whose scores may have fallen.
#[derive(Debug, Default)]
pub struct Lowered {
    pub(super) keys: Vec<StorageKey>,
    pub(super) all: bool,
}

impl Lowered {
    /// Lists `key`, which need not be a candidate.
    pub fn push(&mut self, key: StorageKey) {
        if self.keys.len() == MOST {
            // Limit the list, because no choice may be made for a long time.
            self.keys.clear();
            self.all();
        }
        self.keys.push(key);
    }

    /// Lists all candidates.
    pub const fn all(&mut self) {
        self.all = true;
    }
}
