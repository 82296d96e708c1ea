//! Scores in a step that is known.

use super::Foresight;
use crate::event::Event;
use crate::evict::{Lowered, View};
use crate::graph::{Foreseen, Graph, NEVER, PathKey, StorageKey};
use slotmap::Key as _;
use std::sync::Arc;

/// After so many storages a walk that only says whose scores have fallen ends: those of all may have.
const FAR: usize = 256;

/// The score, and what it takes to find it fast.
///
/// A floor is what the score would be if nothing around were evicted. What falls: the score of what was just used, for
/// its next use is farther away; and, when a storage comes back, those of its sources and of what was to be made from
/// it.
#[derive(Debug)]
pub(super) struct Known {
    foresight: Arc<Foresight>,
    marks: Marks,
    /// Evicted ancestors to look at, and whether they only count as shared.
    up: Vec<(StorageKey, bool)>,
    down: Vec<StorageKey>,
    lowered: Lowered,
    /// What was used by the command at this position: their next uses are found when that is past.
    used: Vec<StorageKey>,
    at: u32,
}

/// Paths that a walk has met, so that walks need no clearing.
#[derive(Debug, Default)]
struct Marks {
    /// For each slot of a path, the number of the last walk that met it.
    met: Vec<u64>,
    number: u64,
}

impl Marks {
    fn begin(&mut self) {
        self.number += 1;
    }

    /// Whether this walk had not met the path.
    #[inline]
    fn meets(&mut self, path: PathKey) -> bool {
        // The slot is in the lower half of a key. A walk sees no two paths of one slot.
        let slot = path.data().as_ffi() as u32 as usize;
        if slot >= self.met.len() {
            self.met.resize(slot + 1, 0);
        }
        std::mem::replace(&mut self.met[slot], self.number) != self.number
    }
}

impl Known {
    pub fn new(foresight: Arc<Foresight>) -> Self {
        Self {
            foresight,
            marks: Marks::default(),
            up: Vec::new(),
            down: Vec::new(),
            lowered: Lowered::default(),
            used: Vec::new(),
            at: 0,
        }
    }

    pub fn is_short(&self) -> bool {
        self.foresight.is_short()
    }

    pub fn on(&mut self, event: &Event, view: View<'_>) {
        match *event {
            Event::DidUse { storage } => {
                let at = position(view);
                if at != self.at {
                    self.at = at;
                    self.used.drain(..).for_each(|key| self.lowered.push(key));
                }
                self.used.push(storage);
                self.lowered.push(storage);
            }
            Event::DidRegenerate { storage, .. } | Event::WillForget { storage } => {
                self.leaves(storage, view.graph);
            }
            _ => {}
        }
    }

    pub fn lowered(&mut self) -> &mut Lowered {
        &mut self.lowered
    }

    /// What the score is if nothing around the candidate is evicted.
    pub fn floor(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        let place = Place::of(view);
        let need = self.need(candidate, &place);
        if need == NEVER {
            return -(view.graph.storage(candidate).bytes as f64);
        }
        let scale = self.scale(candidate, &place, view.graph);
        view.graph.own_cost(candidate) * scale / self.foresight.distance(place.at, need)
    }

    /// See [`Floors::score_up_to`](crate::evict::Floors::score_up_to).
    pub fn score_up_to(&mut self, candidate: StorageKey, enough: f64, view: View<'_>) -> f64 {
        let place = Place::of(view);
        let graph = view.graph;
        let mut need = self.need(candidate, &place);
        if need == NEVER {
            need = self.need_below(candidate, need, &place);
            if need == NEVER {
                return -(graph.storage(candidate).bytes as f64);
            }
        }
        let scale = self.scale(candidate, &place, graph);
        // The nearer the need, the higher the score: this much cost is certainly enough.
        let farthest = self.foresight.distance(place.at, need);
        let most = enough * farthest / scale;
        let cost = graph.own_cost(candidate);
        let cost = cost + self.cost_above(candidate, most - cost, &place);
        if cost > most {
            return cost * scale / farthest;
        }
        let need = self.need_below(candidate, need, &place);
        cost * scale / self.foresight.distance(place.at, need)
    }

    /// By what a cost is multiplied, but for the distance.
    fn scale(&self, candidate: StorageKey, place: &Place<'_>, graph: &Graph) -> f64 {
        let bytes = graph.storage(candidate).bytes.max(1) as f64;
        match place.foreseen.ordinal(candidate) {
            Some(ordinal) if self.foresight.has_factors() => {
                self.foresight.factor(ordinal, place.at) / bytes
            }
            _ => bytes.recip(),
        }
    }

    /// The position of the next use of a storage: the one at hand counts.
    #[inline]
    fn need(&self, key: StorageKey, place: &Place<'_>) -> u32 {
        match place.foreseen.ordinal(key) {
            Some(ordinal) => self.foresight.next_use(Some(ordinal), place.at),
            None => place.guess(key),
        }
    }

    /// Cost of all evicted ancestors of a candidate, each by its weight; or of the first of them that together are
    /// above `enough`.
    fn cost_above(&mut self, candidate: StorageKey, enough: f64, place: &Place<'_>) -> f64 {
        let graph = place.graph;
        let setting = self.foresight.setting();
        let mut up = std::mem::take(&mut self.up);
        self.marks.begin();
        let evicted = |source: &StorageKey| graph.is_evicted(*source);
        up.extend(graph.sources(candidate).filter(evicted).map(|source| (source, false)));
        let mut cost = 0.0;
        while let Some((source, mut shared)) = up.pop() {
            let key = graph.storage(source).producer.expect("an evicted storage has a producer");
            if !self.marks.meets(key) {
                continue;
            }
            let path = graph.path(key);
            let lives = self.need(source, place) != NEVER;
            if !lives && !shared && setting.shared != 1.0 {
                shared = graph
                    .dependents(source)
                    .any(|other| graph.is_evicted(other) && self.need(other, place) != NEVER);
            }
            let weight = if lives { setting.live } else { 1.0 };
            cost += path.cost * if shared { weight * setting.shared } else { weight };
            if cost > enough {
                break;
            }
            let sources = path.inputs.iter().map(|edge| edge.storage).filter(evicted);
            up.extend(sources.map(|source| (source, shared)));
        }
        up.clear();
        self.up = up;
        cost
    }

    /// The earliest next use of a candidate, which is `own`, or of any evicted storage that is made from it.
    fn need_below(&mut self, candidate: StorageKey, own: u32, place: &Place<'_>) -> u32 {
        let graph = place.graph;
        let mut need = own;
        self.marks.begin();
        let mut down = std::mem::take(&mut self.down);
        let evicted = |key: &StorageKey| graph.is_evicted(*key);
        down.extend(graph.dependents(candidate).filter(evicted));
        while let Some(below) = down.pop() {
            let path = graph.storage(below).producer.expect("an evicted storage has a producer");
            if self.marks.meets(path) {
                for output in graph.path(path).outputs.iter().flatten().copied().filter(evicted) {
                    need = need.min(self.need(output, place));
                    down.extend(graph.dependents(output).filter(evicted));
                }
                if need <= place.at {
                    break;
                }
            }
        }
        down.clear();
        self.down = down;
        need
    }

    /// `key` is evicted no more: tells whose scores may have fallen.
    fn leaves(&mut self, key: StorageKey, graph: &Graph) {
        self.lowered.push(key);
        graph.sources(key).for_each(|source| self.lowered.push(source));
        self.marks.begin();
        let mut down = std::mem::take(&mut self.down);
        down.push(key);
        let mut left = FAR;
        while let Some(key) = down.pop() {
            let Some(path) = graph.storage(key).producer else { continue };
            if !self.marks.meets(path) {
                continue;
            }
            left -= 1;
            if left == 0 {
                self.lowered.all();
                break;
            }
            for output in graph.path(path).outputs.iter().flatten() {
                for below in graph.dependents(*output) {
                    if graph.is_evicted(below) {
                        down.push(below)
                    } else {
                        self.lowered.push(below)
                    }
                }
            }
        }
        down.clear();
        self.down = down;
    }
}

/// Where the step is.
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

    /// When a storage will be used that the step does not know: as the queue says, or not before the end of the step.
    fn guess(&self, key: StorageKey) -> u32 {
        let end = self.foreseen.step().len() as u32;
        match self.graph.future().next_read(key) {
            Some(commands) => self.at.saturating_add(commands as u32).min(end),
            None => end,
        }
    }
}

fn position(view: View<'_>) -> u32 {
    view.graph.future().foreseen().map_or(0, Foreseen::at)
}
