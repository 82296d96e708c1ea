//! Scores in a known step.

use super::Foresight;
use super::needs::Needs;
use crate::event::Event;
use crate::evict::search::distance;
use crate::evict::{Lowered, View};
use crate::graph::{Foreseen, Graph, PathKey, StorageKey};
use crate::step::NEVER;
use slotmap::Key as _;
use std::sync::Arc;

/// Scores in a known step, with records for fast scoring.
///
/// Scores are compared as ranks: a rank is a root of a score, and is divided by the distance
/// without an exponent. A search can thus compute how ranks change with time. A floor is the rank
/// that a candidate would have if none of its ancestors were evicted.
///
/// A rank falls in four cases. First, the candidate was just used, so its next use is farther away.
/// Second, the candidate lost its last handle, so it has no next use. Third, a storage made from
/// the candidate was restored. Fourth, a storage whose cost the rank contains was restored.
///
/// Ranks of the fourth case are found once per command, by a walk down that ends at costs that no
/// rank counted. Finding fallen ranks at once would change choices in the middle of a regeneration.
/// Measurements show that this would not reduce recomputation.
#[derive(Debug)]
pub(super) struct Known {
    foresight: Arc<Foresight>,
    marks: Marks,
    needs: Needs,
    /// Evicted ancestors still to be visited. Each ancestor has a flag: whether its cost counts
    /// with the factor `Setting::shared`.
    up: Vec<(StorageKey, bool)>,
    lowered: Lowered,
    /// Storages used by the command at position `at`. After the command, scores of the used
    /// storages may be lower, so they are computed again.
    used: Vec<StorageKey>,
    /// Storages restored for the command at position `at`.
    returned: Vec<StorageKey>,
    at: u32,
    /// Clock time at which the last scored candidate is due.
    due: f64,
}

/// Marks on paths whose costs were counted.
///
/// With marks, walks up need no clearing, and walks down end at costs that no score counted.
#[derive(Debug, Default)]
struct Marks {
    /// Number of the last score that counted a path's cost, for each path's slot. 0 if all scores
    /// that counted the path have been lowered since then.
    counted: Vec<u64>,
    number: u64,
}

impl Marks {
    fn begin(&mut self) {
        self.number += 1;
    }

    /// Marks a path as counted. Returns true if the current score counts the path for the first
    /// time.
    #[inline]
    fn counts(&mut self, path: PathKey) -> bool {
        let slot = slot(path);
        if slot >= self.counted.len() {
            self.counted.resize(slot + 1, 0);
        }
        std::mem::replace(&mut self.counted[slot], self.number) != self.number
    }

    /// Clears the mark of a path. Returns whether the mark was set.
    fn take(&mut self, path: PathKey) -> bool {
        self.counted.get_mut(slot(path)).is_some_and(|counted| std::mem::take(counted) != 0)
    }
}

/// Slot of a path: the lower half of the key. No two paths of one walk share a slot.
fn slot(path: PathKey) -> usize {
    path.data().as_ffi() as u32 as usize
}

impl Known {
    pub fn new(foresight: Arc<Foresight>) -> Self {
        Self {
            foresight,
            marks: Marks::default(),
            up: Vec::new(),
            needs: Needs::default(),
            lowered: Lowered::default(),
            used: Vec::new(),
            returned: Vec::new(),
            at: 0,
            due: 0.0,
        }
    }

    pub fn is_short(&self) -> bool {
        self.foresight.is_short()
    }

    pub fn on(&mut self, event: &Event, view: View<'_>) {
        match *event {
            Event::DidUse { storage } => {
                let at = position(view);
                if at < self.at {
                    // The position moved back in the step, so past uses are in the future again.
                    self.needs.clear();
                    self.lowered.all();
                }
                if at != self.at {
                    self.at = at;
                    // The next use of storages used by the last command may be much later, or
                    // never.
                    self.used.drain(..).for_each(|key| self.lowered.push(key));
                    self.lower_below(view.graph);
                }
                self.used.push(storage);
            }
            Event::DidRegenerate { storage, .. } => {
                self.needs.did_return(storage, view.graph);
                view.graph.sources(storage).for_each(|source| self.lowered.push(source));
                self.returned.push(storage);
            }
            Event::DidEvict { storage, .. } => {
                let place = Place::of(view);
                let own = |key| place.need(key);
                self.needs.did_evict(storage, place.at, view.graph, own);
            }
            // Forget the needs that come from uses of a storage that is about to be deleted.
            Event::WillForget { storage } => {
                let place = Place::of(view);
                let lowered = &mut self.lowered;
                let (at, need) = (place.at, place.need(storage));
                self.needs.will_forget(storage, at, need, view.graph, |key| lowered.push(key));
            }
            _ => {}
        }
    }

    /// Whether a storage without a handle is needed to restore an evicted storage with a later use.
    /// If false, `key` need not stay resident, because it would be the first choice for eviction
    /// anyway.
    pub fn is_needed(&mut self, key: StorageKey, view: View<'_>) -> bool {
        // When `key` lost its last handle, it also lost its own next use, so its score may have
        // fallen.
        self.lowered.push(key);
        let place = Place::of(view);
        self.needs.below(key, place.at, view.graph, |key| place.need(key)) != NEVER
    }

    pub fn lowered(&mut self) -> &mut Lowered {
        &mut self.lowered
    }

    /// Rank that the candidate would have if none of its ancestors were evicted.
    pub fn floor(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        let place = Place::of(view);
        let known = self.needs.known(candidate, place.at).unwrap_or(NEVER);
        if !self.is_due(place.need(candidate).min(known)) {
            return -(view.graph.storage(candidate).bytes as f64);
        }
        let scale = self.scale(candidate, &place, view.graph);
        self.foresight.rank(view.graph.own_cost(candidate) * scale)
    }

    /// Rank of the candidate. If the rank is above `enough`, may return any lower bound above
    /// `enough`: see [`Floors::score_up_to`](crate::evict::Floors::score_up_to).
    pub fn rank_up_to(&mut self, candidate: StorageKey, enough: f64, view: View<'_>) -> f64 {
        let place = Place::of(view);
        let graph = view.graph;
        let own = |key| place.need(key);
        let below = self.needs.below(candidate, place.at, graph, own);
        if !self.is_due(own(candidate).min(below)) {
            return -(graph.storage(candidate).bytes as f64);
        }
        let scale = self.scale(candidate, &place, graph);
        self.rank_with_ancestors(candidate, scale, enough, &place)
    }

    /// Score of the candidate; see the [module](super).
    pub fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        let rank = self.rank_up_to(candidate, f64::INFINITY, view);
        self.as_score(rank / distance(self.due, self.now(view)))
    }

    /// Converts a rank that was divided by the distance to a score.
    pub fn as_score(&self, rank: f64) -> f64 {
        if rank < 0.0 { rank } else { self.foresight.score(rank) }
    }

    /// Clock time at which the last scored candidate is due.
    pub const fn due(&self) -> f64 {
        self.due
    }

    pub fn now(&self, view: View<'_>) -> f64 {
        self.foresight.time(position(view))
    }

    /// Records when a candidate is due. Returns whether the candidate is needed at all.
    fn is_due(&mut self, need: u32) -> bool {
        self.due = self.foresight.due(need);
        need != NEVER
    }

    /// Factor of the cost in the score: all parts except the distance.
    fn scale(&self, candidate: StorageKey, place: &Place<'_>, graph: &Graph) -> f64 {
        let bytes = graph.storage(candidate).bytes.max(1) as f64;
        match place.foreseen.ordinal(candidate) {
            Some(ordinal) if self.foresight.has_factors() => {
                self.foresight.factor(ordinal, place.at) / bytes
            }
            _ => bytes.recip(),
        }
    }

    /// Rank from the weighted costs of the candidate and its evicted ancestors. Ends early once the
    /// rank is above `enough`.
    fn rank_with_ancestors(
        &mut self,
        candidate: StorageKey,
        scale: f64,
        enough: f64,
        place: &Place<'_>,
    ) -> f64 {
        let graph = place.graph;
        let setting = self.foresight.setting();
        let mut up = std::mem::take(&mut self.up);
        self.marks.begin();
        let evicted = |source: &StorageKey| graph.is_evicted(*source);
        up.extend(graph.sources(candidate).filter(evicted).map(|source| (source, false)));
        let mut cost = graph.own_cost(candidate);
        let mut rank = self.foresight.rank(cost * scale);
        while let Some((source, mut shared)) = up.pop() {
            let key = graph.storage(source).producer.expect("an evicted storage has a producer");
            if !self.marks.counts(key) {
                continue;
            }
            let path = graph.path(key);
            let lives = place.need(source) != NEVER;
            if !lives && !shared && setting.shared != 1.0 {
                shared = graph
                    .dependents(source)
                    .any(|other| graph.is_evicted(other) && place.need(other) != NEVER);
            }
            let weight = if lives { setting.live } else { 1.0 };
            cost += path.cost * if shared { weight * setting.shared } else { weight };
            rank = self.foresight.rank(cost * scale);
            if rank > enough {
                break;
            }
            let sources = path.inputs.iter().map(|edge| edge.storage).filter(evicted);
            up.extend(sources.map(|source| (source, shared)));
        }
        up.clear();
        self.up = up;
        rank
    }

    /// Lowers the ranks that contain the costs of restored storages.
    ///
    /// A rank that counted a path also counted all paths between the path and the candidate. Each
    /// step of the walk down thus clears one mark that a walk up had set. The walks down thus take
    /// no longer than the walks up, however deep the histories are.
    fn lower_below(&mut self, graph: &Graph) {
        let mut down = std::mem::take(&mut self.returned);
        while let Some(key) = down.pop() {
            let path = graph.storages.get(key).and_then(|storage| storage.producer);
            let Some(path) = path.filter(|path| self.marks.take(*path)) else { continue };
            for output in graph.path(path).outputs.iter().flatten() {
                for below in graph.dependents(*output) {
                    if graph.is_evicted(below) {
                        down.push(below);
                    } else {
                        self.lowered.push(below);
                    }
                }
            }
        }
        self.returned = down;
    }
}

#[cfg(all(test, feature = "lab"))]
impl Known {
    pub fn need_below(&mut self, candidate: StorageKey, view: View<'_>) -> u32 {
        let place = Place::of(view);
        self.needs.below(candidate, place.at, view.graph, |key| place.need(key))
    }

    pub fn own_need(key: StorageKey, view: View<'_>) -> u32 {
        Place::of(view).need(key)
    }
}

/// Current position in the known step.
struct Place<'a> {
    graph: &'a Graph,
    foreseen: &'a Foreseen,
    at: u32,
}

impl<'a> Place<'a> {
    fn of(view: View<'a>) -> Self {
        let foreseen = view.graph.future().foreseen().expect("a step that is known is running");
        Self { graph: view.graph, foreseen, at: foreseen.at() }
    }

    /// Position of the next use of a storage, with the current command included. [`NEVER`] if the
    /// storage has no handle, because no command can use such a storage.
    #[inline]
    fn need(&self, key: StorageKey) -> u32 {
        if self.graph.storage(key).handles == 0 {
            return NEVER;
        }
        match self.foreseen.ordinal(key) {
            Some(ordinal) => self.foreseen.step().next_use(ordinal, self.at),
            None => self.guess(key),
        }
    }

    /// Position of the next use of a storage that the step does not contain: its next read by a
    /// queued command, or else the end of the step.
    fn guess(&self, key: StorageKey) -> u32 {
        // Commands may run beyond the predicted end of the step, but a need must not be in the
        // past.
        let end = (self.foreseen.step().len() as u32).max(self.at);
        match self.graph.future().next_read(key) {
            Some(commands) => self.at.saturating_add(commands as u32).min(end),
            None => end,
        }
    }
}

fn position(view: View<'_>) -> u32 {
    view.graph.future().foreseen().map_or(0, Foreseen::at)
}
