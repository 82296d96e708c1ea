//! The exact evicted neighbourhood: evicted storages reachable through evicted ones.
//!
//! What was found for a candidate is kept as a floor. Evictions only add to a neighbourhood, so they change
//! no floor. When a storage comes back, what it cost is taken off the floors of those who had it in
//! theirs: one walk for each storage that comes back, instead of one for each candidate at each choice. If much lies below
//! it, that is taken off all floors instead: a deep history that comes back bit by bit is not walked for each bit.

use super::Lowered;
use crate::graph::{Graph, PathKey, StorageKey};
use slotmap::{Key as _, SecondaryMap};

/// No more paths than this are walked for a storage that came back.
const FAR: usize = 256;

/// Paths are counted once, however many of their outputs are evicted: running a path brings all of them
/// back.
#[derive(Debug)]
pub(super) struct Neighbourhood {
    /// What counts of the evicted storages that must come back before a candidate can.
    up: Reach,
    /// What counts of the evicted storages that need the candidate to come back.
    down: Option<Reach>,
    /// Of candidates whose scores were computed.
    floors: SecondaryMap<StorageKey, Floor>,
    /// Cost of all evicted storages ever forgotten, and of those that came back with too much below them.
    forgotten: f64,
    walk: Walk,
}

/// What counts of the evicted storages on one side of a candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reach {
    /// By what the cost of those counts that somebody holds: at most 1.
    pub held: f64,
    /// The same of the others.
    pub unheld: f64,
    /// No more paths than this count: a history may be as long as the program.
    pub most: usize,
    /// Whether those count first between which and the candidate the fewest others are.
    pub nearest_first: bool,
}

/// No more than the cost of a neighbourhood is now, up to rounding, but for what was forgotten since.
#[derive(Clone, Copy, Debug)]
struct Floor {
    cost: f64,
    /// [`Neighbourhood::forgotten`] when it was found.
    forgotten: f64,
}

/// A search, and the memory it reuses.
#[derive(Debug, Default)]
struct Walk {
    /// For each slot of a path, the number of the last walk that met it, so that walks need no clearing.
    met: Vec<u64>,
    number: u64,
    stack: Vec<StorageKey>,
    /// Whether the last walk ended before it had met all paths that count.
    is_cut: bool,
}

impl Reach {
    /// All of the evicted storages, and all of their costs.
    pub const ALL: Self = Self { held: 1.0, unheld: 1.0, most: usize::MAX, nearest_first: false };

    fn cost(self, key: StorageKey, path: PathKey, graph: &Graph) -> f64 {
        let is_held = graph.storage(key).handles > 0;
        graph.path(path).cost * if is_held { self.held } else { self.unheld }
    }
}

impl Neighbourhood {
    pub fn new(up: Reach, down: Option<Reach>) -> Self {
        Self { up, down, floors: SecondaryMap::new(), forgotten: 0.0, walk: Walk::default() }
    }

    /// Cost of the neighbourhood of a candidate now; of a part of it, if that is above `enough`.
    pub fn cost(&mut self, candidate: StorageKey, enough: f64, graph: &Graph) -> f64 {
        let mut cost = self.walk.up(candidate, enough, self.up, graph, |_| {});
        let mut floor = cost;
        if let Some(down) = self.down.filter(|_| cost <= enough) {
            cost += self.walk.down(candidate, enough - cost, down, graph, |_| {});
            // Some of them are not of the floor: where others are evicted, or somebody lets go of one, it falls, and nobody
            // tells. So one choice in a hundred is not of the lowest score, in random programs.
            if down == Reach::ALL {
                floor = cost;
            }
        }
        self.floors.insert(candidate, Floor { cost: floor, forgotten: self.forgotten });
        cost
    }

    /// No more than the cost of the neighbourhood, at once.
    pub fn floor(&self, candidate: StorageKey) -> f64 {
        let Some(floor) = self.floors.get(candidate) else { return 0.0 };
        (floor.cost - (self.forgotten - floor.forgotten)).max(0.0)
    }

    pub fn did_evict(&mut self, key: StorageKey) {
        self.floors.remove(key);
    }

    /// `key` came back. All that it was made from is there, or it could not have been recomputed.
    pub fn did_regenerate(&mut self, key: StorageKey, graph: &Graph, lowered: &mut Lowered) {
        let Self { floors, walk, .. } = self;
        let cost = graph.own_cost(key);
        let near = Reach { most: FAR, ..Reach::ALL };
        walk.down(key, f64::INFINITY, near, graph, |candidate| {
            if let Some(floor) = floors.get_mut(candidate) {
                floor.cost -= cost;
                lowered.push(candidate);
            }
        });
        if walk.is_cut {
            self.forgotten += cost;
            lowered.all();
        }
        let Self { floors, .. } = self;
        // Its sources reach what lies below it no more.
        for source in graph.sources(key) {
            if floors.remove(source).is_some() {
                lowered.push(source);
            }
        }
    }

    /// `key` is about to be forgotten. Nobody needs it, so it is in the neighbourhood of its sources, and
    /// their sources, only. To find those, for each storage of a history that goes, would take longer than
    /// to ask again: its cost is taken off the floors of all.
    pub fn will_forget(&mut self, key: StorageKey, graph: &Graph, lowered: &mut Lowered) {
        self.forgotten += graph.own_cost(key);
        if !self.floors.is_empty() {
            lowered.all();
        }
        if graph.dependents(key).next().is_some() {
            // It was lost to a failure.
            self.floors.clear();
        }
    }
}

impl Walk {
    /// Cost of all evicted storages on the way up from `from`, or of the first of them that together are
    /// above `enough`; `edge` is called for those that are not evicted, where the walk ends.
    fn up(
        &mut self,
        from: StorageKey,
        enough: f64,
        reach: Reach,
        graph: &Graph,
        mut edge: impl FnMut(StorageKey),
    ) -> f64 {
        self.walk(from, enough, reach, graph, |key, stack| {
            for source in graph.sources(key) {
                if graph.is_evicted(source) { stack.push(source) } else { edge(source) }
            }
        })
    }

    /// The same on the way down.
    fn down(
        &mut self,
        from: StorageKey,
        enough: f64,
        reach: Reach,
        graph: &Graph,
        mut edge: impl FnMut(StorageKey),
    ) -> f64 {
        self.walk(from, enough, reach, graph, |key, stack| {
            for dependent in graph.dependents(key) {
                if graph.is_evicted(dependent) { stack.push(dependent) } else { edge(dependent) }
            }
        })
    }

    fn walk(
        &mut self,
        from: StorageKey,
        enough: f64,
        reach: Reach,
        graph: &Graph,
        mut next: impl FnMut(StorageKey, &mut Vec<StorageKey>),
    ) -> f64 {
        self.number += 1;
        self.is_cut = false;
        let mut cost = 0.0;
        let mut left = reach.most;
        // Where the nearest are first, those before this were taken.
        let mut at = 0;
        next(from, &mut self.stack);
        while let Some(key) = match reach.nearest_first {
            true => self.stack.get(at).copied(),
            false => self.stack.pop(),
        } {
            at += 1;
            let path = graph.storage(key).producer.expect("an evicted storage has a producer");
            if self.meets(path) {
                cost += reach.cost(key, path, graph);
                left -= 1;
                if cost > enough || left == 0 {
                    self.is_cut = true;
                    break;
                }
                for output in graph.path(path).outputs.iter().flatten() {
                    if graph.is_evicted(*output) {
                        next(*output, &mut self.stack);
                    }
                }
            }
        }
        self.stack.clear();
        cost
    }

    /// Whether this walk had not met the path.
    fn meets(&mut self, path: PathKey) -> bool {
        // The slot is in the lower half of a key. A walk sees no two paths of one slot.
        let slot = path.data().as_ffi() as u32 as usize;
        if slot >= self.met.len() {
            self.met.resize(slot + 1, 0);
        }
        std::mem::replace(&mut self.met[slot], self.number) != self.number
    }
}
