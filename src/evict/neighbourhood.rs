//! Exact evicted neighbourhood: the evicted storages connected to a candidate directly or through
//! other evicted storages.
//!
//! The cost found for a candidate is kept as a floor (lower bound). An eviction only adds to
//! neighbourhoods, so all floors stay valid. When a storage is restored, its cost is subtracted
//! from the floors of all candidates that counted it. The subtraction takes one walk for each
//! restored storage, instead of one walk for each candidate at each choice. If very many paths
//! depend on the restored storage, its cost is subtracted from all floors, without a walk. A deep
//! history that is restored piece by piece is thus not walked for each piece.

use super::Lowered;
use crate::graph::{Graph, PathKey, StorageKey};
use slotmap::{Key as _, SecondaryMap};

/// Limit on the number of paths that are visited to lower floors for one restored storage.
const FAR: usize = 256;

/// Costs of evicted neighbourhoods, with a floor (lower bound of the cost) for each candidate.
///
/// A path counts once, however many of its outputs are evicted, because running the path restores
/// all its outputs.
#[derive(Debug)]
pub(super) struct Neighbourhood {
    /// Weights of the evicted storages that must be restored before the candidate.
    up: Reach,
    /// Weights of the evicted storages that need the candidate to be recomputed; `None` if their
    /// costs do not count.
    down: Option<Reach>,
    /// Floor (lower bound of the cost) of each candidate whose score was computed.
    floors: SecondaryMap<StorageKey, Floor>,
    /// Total cost subtracted from all floors so far: the costs of deleted evicted storages, and of
    /// restored storages with too many dependents.
    forgotten: f64,
    walk: Walk,
}

/// Weights and limits for the evicted storages on one side of a candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reach {
    /// Weight of the cost of a storage that has a handle: at most 1.
    pub held: f64,
    /// Weight of the cost of a storage without a handle: at most 1.
    pub unheld: f64,
    /// Limit on the number of paths whose costs count. Without a limit, a walk might visit a
    /// history as long as the program.
    pub most: usize,
    /// Whether storages nearer to the candidate, with fewer storages in between, count before
    /// storages farther away.
    pub nearest_first: bool,
}

/// Lower bound of the cost of a neighbourhood, up to rounding. Costs added to
/// [`Neighbourhood::forgotten`] since the bound was computed are not subtracted yet.
#[derive(Clone, Copy, Debug)]
struct Floor {
    cost: f64,
    /// Value of [`Neighbourhood::forgotten`] when the cost was computed.
    forgotten: f64,
}

/// Depth-first or breadth-first search, with buffers that are reused.
#[derive(Debug, Default)]
struct Walk {
    /// Number of the last walk that visited a path, for each path's slot. With numbers in place of
    /// flags, the list need not be cleared before each walk.
    met: Vec<u64>,
    number: u64,
    stack: Vec<StorageKey>,
    /// Whether the last walk ended before it had visited all paths that count.
    is_cut: bool,
}

impl Reach {
    /// All evicted storages, with their full costs.
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

    /// Present cost of the neighbourhood of a candidate. If a part of the cost is already above
    /// `enough`, may return that part instead.
    pub fn cost(&mut self, candidate: StorageKey, enough: f64, graph: &Graph) -> f64 {
        let mut cost = self.walk.up(candidate, enough, self.up, graph, |_| {});
        let mut floor = cost;
        if let Some(down) = self.down.filter(|_| cost <= enough) {
            cost += self.walk.down(candidate, enough - cost, down, graph, |_| {});
            // A floor must not include weighted costs of dependents, which may fall without an
            // event: when other dependents are evicted or a handle is dropped. Without dependents
            // in floors, about one choice in a hundred misses the lowest score in random programs.
            if down == Reach::ALL {
                floor = cost;
            }
        }
        self.floors.insert(candidate, Floor { cost: floor, forgotten: self.forgotten });
        cost
    }

    /// Lower bound of the cost of the neighbourhood, read without a search.
    pub fn floor(&self, candidate: StorageKey) -> f64 {
        let Some(floor) = self.floors.get(candidate) else { return 0.0 };
        (floor.cost - (self.forgotten - floor.forgotten)).max(0.0)
    }

    pub fn did_evict(&mut self, key: StorageKey) {
        self.floors.remove(key);
    }

    /// Lowers the floors (lower bounds of costs) that counted a restored storage. All inputs of the
    /// restored storage are resident, because the run that restored it just read them.
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
        // `key` no longer connects its sources with its dependents, so the scores of its sources
        // may fall.
        for source in graph.sources(key) {
            if floors.remove(source).is_some() {
                lowered.push(source);
            }
        }
    }

    /// Lowers all floors (lower bounds of costs) by the cost of `key`, which is about to be
    /// deleted.
    ///
    /// No storage needs `key`, so only neighbourhoods of its direct and indirect sources contain
    /// it. Finding the affected neighbourhoods for each storage of a deleted history would take
    /// longer than searching for new costs. To avoid the search, the cost is subtracted from all
    /// floors.
    pub fn will_forget(&mut self, key: StorageKey, graph: &Graph, lowered: &mut Lowered) {
        self.forgotten += graph.own_cost(key);
        if !self.floors.is_empty() {
            lowered.all();
        }
        if graph.dependents(key).next().is_some() {
            // A storage with dependents is deleted only after it was lost to a failure. Forget all
            // floors then.
            self.floors.clear();
        }
    }
}

impl Walk {
    /// Sums the costs of the evicted direct and indirect sources of `from`. Ends early once the sum
    /// is above `enough`. Calls `edge` for each storage at which the walk ends because the storage
    /// is not evicted.
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

    /// Sums the costs of the evicted direct and indirect dependents of `from`, as [`Walk::up`] does
    /// for sources.
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
        // If near storages come first, the stack is used as a queue, whose entries before position
        // `at` were already taken.
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

    /// Marks a path as visited. Returns true if the current walk visits the path for the first
    /// time.
    fn meets(&mut self, path: PathKey) -> bool {
        // The slot is the lower half of a key. No two paths of one walk share a slot.
        let slot = path.data().as_ffi() as u32 as usize;
        if slot >= self.met.len() {
            self.met.resize(slot + 1, 0);
        }
        std::mem::replace(&mut self.met[slot], self.number) != self.number
    }
}
