//! The store: tensors in memory, with the operations place, run, evict, free and move.
//!
//! A store makes no decisions. The engine and its evictor decide which storages to evict, and when.
//! A store does not depend on the engine.

mod launch;
mod names;
mod path_body;
mod place;
mod residence;
mod script;
mod tape;

pub(crate) use launch::Launch;
pub(crate) use path_body::{Body, Work};
pub(crate) use script::Script;
pub(crate) use tape::{Action, Before, Ends, Life, Operand, Record, Spot, Tape};

use crate::device::{Device, Memory, Place};
use crate::evict::{Candidates, View};
use crate::graph::{Graph, PathKey, Residence};
use crate::layout::Layout;
use remat_memory::{Held, Space};
use slotmap::SecondaryMap;

/// A device, its memory, the graph, and the bodies of paths. See the [module](self) documentation.
pub(crate) struct Store<D: Device> {
    pub device: D,
    pub space: Space,
    pub graph: Graph,
    pub candidates: Candidates,
    /// Body of each path in the graph: its op or upload, and the layouts of its operands.
    pub bodies: SecondaryMap<PathKey, Body<D>>,
    /// Engine clock for staleness: the total cost of all runs so far.
    pub now: f64,
    /// Whether each run allocates new blocks for outputs that are already resident. True for
    /// devices that own their memory.
    pub makes_anew: bool,
    /// Bytes of host memory held by uploads.
    pub host_bytes: u64,
    /// Tape that records all actions; `None` if no turn is being taped.
    pub tape: Option<Box<Tape>>,
    /// Script to follow; `Some` while the store repeats, only in its tables, actions that the
    /// device has already done.
    pub script: Option<Box<Script>>,
    /// Block lent to a plan, which places its own blocks in it.
    pub lent: Option<Held>,
    /// Name of the op that is running, whose body is out of the table; empty if no op is running.
    running: String,
    /// Buffer for the places of operands, kept between runs to avoid allocations.
    places: Vec<Place>,
    /// Empty layout lists of removed paths, kept for reuse by new paths.
    spare: Vec<Vec<Layout>>,
}

/// Limit on the length of `Store::spare`, which suffices for the paths of one step of a large
/// network.
const MOST_SPARE: usize = 4096;

impl<D: Device> Store<D> {
    pub fn new(device: D, memory: Memory, space: Space, min_evict_bytes: u64) -> Self {
        Self {
            makes_anew: matches!(memory, Memory::Owned { .. }),
            device,
            space,
            graph: Graph::default(),
            candidates: Candidates::new(min_evict_bytes),
            bodies: SecondaryMap::new(),
            now: 0.0,
            host_bytes: 0,
            tape: None,
            script: None,
            lent: None,
            running: String::new(),
            places: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Reserves table space for `tensors` more tensors, each made by a separate op.
    pub fn reserve(&mut self, tensors: usize) {
        self.graph.reserve(tensors);
        self.bodies.set_capacity(self.bodies.capacity() + tensors);
    }

    /// Read-only view for an evictor.
    pub fn view(&self) -> View<'_> {
        let Self { graph, candidates, space, now, .. } = self;
        View { graph, now: *now, candidates, space }
    }

    /// Bytes that would be freed if all evictable storages were evicted.
    pub fn evictable_bytes(&self) -> u64 {
        self.candidates.evictable_bytes()
    }

    /// Bytes of host memory held by a path. 0 unless the path is an upload.
    pub fn host_bytes_of(&self, path: PathKey) -> u64 {
        match self.bodies.get(path).map(|body| &body.work) {
            Some(Work::Upload(host)) => D::layout_of(host).bytes(),
            _ => 0,
        }
    }

    /// Returns an empty layout list, with the memory of an old list if possible.
    pub fn layouts(&mut self) -> Vec<Layout> {
        self.spare.pop().unwrap_or_default()
    }

    /// Stores a layout list for reuse by [`Store::layouts`].
    pub fn reuse(&mut self, mut layouts: Vec<Layout>) {
        if self.spare.len() < MOST_SPARE {
            layouts.clear();
            self.spare.push(layouts);
        }
    }

    /// Checks the invariants of edges, residence and bytes between commands. Walks all tables.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub fn check(&self) {
        self.space.check();
        self.graph.check();
        let (mut resident, mut evictable) = (0, 0);
        for (key, storage) in self.graph.storages() {
            assert_eq!(storage.pins, 0, "nothing is pinned between commands");
            assert_eq!(storage.awaited, 0, "nothing is awaited between commands");
            if let Some(position) = storage.candidate {
                assert_eq!(self.candidates.keys()[position as usize], key);
            }
            let Residence::Resident(held) = storage.residence else { continue };
            resident += held.bytes;
            if storage.producer.is_some() {
                evictable += held.bytes;
            }
        }
        let kept = self.tape.iter().flat_map(|tape| &tape.kept);
        let lent = self.lent.iter().chain(kept).map(|held| held.bytes).sum::<u64>();
        let used = self.space.used() - lent;
        assert_eq!(resident, used, "resident bytes and used bytes agree");
        assert_eq!(evictable, self.evictable_bytes(), "evictable bytes");
        assert_eq!(self.bodies.len(), self.graph.paths.len(), "each path has a body");
    }
}
