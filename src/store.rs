//! What is in memory, and what can be done there: place, run, evict, free, move.
//!
//! A store does what it is told and decides nothing. What to evict, and when, is for the engine and its evictor; a
//! plan could drive it as well.

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
use crate::memory::{Held, Space};
use slotmap::SecondaryMap;

/// See the [module](self) documentation.
pub(crate) struct Store<D: Device> {
    pub device: D,
    pub space: Space,
    pub graph: Graph,
    pub candidates: Candidates,
    /// What to run, for each path in the graph.
    pub bodies: SecondaryMap<PathKey, Body<D>>,
    /// Cost of everything run so far: the clock that staleness is measured on.
    pub now: f64,
    /// Whether outputs of a run go to places of their own, though they are resident already.
    pub makes_anew: bool,
    /// Bytes of host memory held by uploads.
    pub host_bytes: u64,
    /// What is done is written down here.
    pub tape: Option<Box<Tape>>,
    /// If the device has done already what is to be done.
    pub script: Option<Box<Script>>,
    /// A block that somebody outside uses as they like.
    pub lent: Option<Held>,
    /// The op of the path whose body is away, since it runs again; empty between such runs.
    running: String,
    /// Of the operands of a run, kept to reuse its memory.
    places: Vec<Place>,
    /// Lists of paths that are gone, empty: kept to reuse their memory, one for each new path.
    spare: Vec<Vec<Layout>>,
}

/// Lists of layouts that are kept to be used again, at most: those of the paths of a step of a large network.
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

    /// Makes room in the tables for so many more tensors, each made by an op of its own.
    pub fn reserve(&mut self, tensors: usize) {
        self.graph.reserve(tensors);
        self.bodies.set_capacity(self.bodies.capacity() + tensors);
    }

    /// What an evictor may look at.
    pub fn view(&self) -> View<'_> {
        let Self { graph, candidates, space, now, .. } = self;
        View { graph, now: *now, candidates, space }
    }

    /// Bytes that evicting everything evictable would give back.
    pub fn evictable_bytes(&self) -> u64 {
        self.candidates.evictable_bytes()
    }

    /// Bytes of host memory held by a path.
    pub fn host_bytes_of(&self, path: PathKey) -> u64 {
        match self.bodies.get(path).map(|body| &body.work) {
            Some(Work::Upload(host)) => D::layout_of(host).bytes(),
            _ => 0,
        }
    }

    /// An empty list.
    pub fn layouts(&mut self) -> Vec<Layout> {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes a list back.
    pub fn reuse(&mut self, mut layouts: Vec<Layout>) {
        if self.spare.len() < MOST_SPARE {
            layouts.clear();
            self.spare.push(layouts);
        }
    }

    /// Panics if it contradicts itself between commands: the invariants of edges, residence and bytes. Walks
    /// everything.
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
