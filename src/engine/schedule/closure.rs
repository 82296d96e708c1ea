//! Closures: a copy of the part of the graph that a regeneration touches.

use super::super::{Engine, PathKey, StorageKey};
use crate::device::Device;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Positions in the lists of a [`Closure`]: of storages, or of runs.
pub(super) type Positions = SmallVec<[u32; 4]>;

/// The wanted storages, and all storages needed to recompute them, back to resident storages. A
/// closure also has the runs that restore its resident storages, up to a limit, in case the
/// schedule evicts them.
#[derive(Debug, Default)]
pub(in crate::engine) struct Closure {
    pub(super) storages: Vec<Storage>,
    /// Paths to run. Paths that have to run at least once come first; paths that may have to run
    /// follow.
    pub(super) runs: Vec<Run>,
    /// Number of paths that have to run.
    due: usize,
    /// Storages that must be resident at the end, each once.
    pub(super) wanted: Positions,
}

/// A storage in a closure, the part of the graph that a regeneration touches.
#[derive(Debug)]
pub(super) struct Storage {
    pub(super) key: StorageKey,
    /// Bytes that the storage takes when it is resident.
    pub(super) bytes: u64,
    /// Whether the storage is resident when the schedule begins.
    pub(super) resident: bool,
    /// Whether the storage is resident and cannot be evicted. The schedule ignores the bytes of a
    /// fixed storage.
    pub(super) fixed: bool,
    /// Run that makes the storage. `None` if the storage is resident and stays as long as it is
    /// needed.
    pub(super) producer: Option<u32>,
    /// Runs that read the storage, each once.
    pub(super) readers: Positions,
}

/// A path in a closure, the part of the graph that a regeneration touches.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) path: PathKey,
    /// Cost of one run.
    pub(super) cost: f64,
    /// Bytes needed in addition to the outputs: scratch, and discarded outputs.
    pub(super) scratch: u64,
    /// Storages that the run reads, each once.
    pub(super) inputs: Positions,
    /// Storages that the run makes, wanted or not, each once.
    pub(super) outputs: Positions,
    /// Number of the path, in the order in which the program made the paths.
    pub(super) sequence: u64,
}

/// Number of runs that a closure may have in addition to twice the number of due runs. A due run
/// has to run at least once.
const SPARE_RUNS: usize = 256;

impl<D: Device> Engine<D> {
    /// Makes the closure of `wanted`, given the storages that are resident now.
    pub(super) fn closure(&self, wanted: &[StorageKey]) -> Closure {
        let mut closure = Closure::default();
        let mut positions = FxHashMap::default();
        let mut stack: Vec<u32> = Vec::new();
        for &key in wanted {
            let node = self.node(&mut closure, &mut positions, key);
            if !closure.wanted.contains(&node) {
                closure.wanted.push(node);
                if !closure.storages[node as usize].resident {
                    stack.push(node);
                }
            }
        }
        self.add_producers(&mut closure, &mut positions, stack);
        closure.due = closure.runs.len();
        // Memory is short, so even resident storages may have to be evicted and restored: add the
        // runs that make them.
        let most = 2 * closure.due + SPARE_RUNS;
        let mut node = 0;
        while node < closure.storages.len() && closure.runs.len() < most {
            let Storage { resident, fixed, .. } = closure.storages[node];
            if resident && !fixed {
                self.add_producers(&mut closure, &mut positions, vec![node as u32]);
            }
            node += 1;
        }
        closure
    }

    /// Adds the paths that make the given storages, and the paths that make missing inputs of the
    /// added paths.
    fn add_producers(
        &self,
        closure: &mut Closure,
        positions: &mut FxHashMap<StorageKey, u32>,
        mut stack: Vec<u32>,
    ) {
        while let Some(node) = stack.pop() {
            let storage = &closure.storages[node as usize];
            let path = match storage.producer {
                None => self.store.graph.storage(storage.key).producer,
                Some(_) => continue,
            };
            let Some(path) = path else { continue };
            let run = self.add_run(closure, positions, path);
            let inputs = closure.runs[run].inputs.iter();
            stack.extend(inputs.filter(|&&input| !closure.storages[input as usize].resident));
        }
    }

    fn node(
        &self,
        closure: &mut Closure,
        positions: &mut FxHashMap<StorageKey, u32>,
        key: StorageKey,
    ) -> u32 {
        *positions.entry(key).or_insert_with(|| {
            let held = self.store.graph.held(key);
            let bytes = self.store.graph.storage(key).bytes;
            closure.storages.push(Storage {
                key,
                bytes: held.map_or_else(|| self.store.space.at_most(bytes), |held| held.bytes),
                resident: held.is_some(),
                fixed: held.is_some() && !self.store.graph.is_evictable(key),
                producer: None,
                readers: Positions::new(),
            });
            closure.storages.len() as u32 - 1
        })
    }

    fn add_run(
        &self,
        closure: &mut Closure,
        positions: &mut FxHashMap<StorageKey, u32>,
        path: PathKey,
    ) -> usize {
        let number = closure.runs.len() as u32;
        let found = self.store.graph.path(path);
        let body = &self.store.bodies[path];
        let mut inputs = Positions::new();
        for edge in &found.inputs {
            let node = self.node(closure, positions, edge.storage);
            if !inputs.contains(&node) {
                inputs.push(node);
                closure.storages[node as usize].readers.push(number);
            }
        }
        // The op returned its workspace without an error when the path first ran, so no error is
        // expected now.
        let scratch = self.scratch_bytes(&body.work, body.inputs(), body.outputs()).unwrap_or(0);
        let mut scratch = if scratch > 0 { self.store.space.at_most(scratch) } else { 0 };
        let mut outputs = Positions::new();
        for (output, layout) in found.outputs.iter().zip(body.outputs()) {
            match output {
                Some(key) => {
                    let node = self.node(closure, positions, *key);
                    closure.storages[node as usize].producer = Some(number);
                    outputs.push(node);
                }
                None => scratch = scratch.saturating_add(self.store.space.at_most(layout.bytes())),
            }
        }
        let (cost, sequence) = (found.cost, found.sequence);
        closure.runs.push(Run { path, cost, scratch, inputs, outputs, sequence });
        number as usize
    }
}

impl Closure {
    /// Storages that are resident when the schedule begins and can be evicted.
    pub(super) fn resident(&self) -> impl Iterator<Item = u32> {
        let counts = |storage: &Storage| storage.resident && !storage.fixed;
        (0..).zip(&self.storages).filter(move |(_, s)| counts(s)).map(|(node, _)| node)
    }

    /// Due runs in the program's order. Each run comes after the runs that make its inputs.
    pub(super) fn order_of_creation(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.due as u32).collect();
        order.sort_unstable_by_key(|&run| self.runs[run as usize].sequence);
        order
    }

    /// Due runs, depth first. Each run comes right before its first reader.
    pub(super) fn order_of_depth(&self) -> Vec<u32> {
        #[derive(Clone, Copy, PartialEq)]
        enum Mark {
            New,
            Waiting,
            Done,
        }
        let mut marks = vec![Mark::New; self.runs.len()];
        let mut order = Vec::with_capacity(self.runs.len());
        let producer = |node: &u32| self.storages[*node as usize].producer;
        let mut stack: Vec<u32> = self.wanted.iter().rev().filter_map(producer).collect();
        while let Some(&run) = stack.last() {
            match marks[run as usize] {
                Mark::New => {
                    marks[run as usize] = Mark::Waiting;
                    let inputs = &self.runs[run as usize].inputs;
                    let missing = |node: &&u32| !self.storages[**node as usize].resident;
                    let needed = inputs.iter().rev().filter(missing).filter_map(producer);
                    stack.extend(needed.filter(|&run| marks[run as usize] == Mark::New));
                }
                Mark::Waiting => {
                    marks[run as usize] = Mark::Done;
                    order.push(run);
                    stack.pop();
                }
                Mark::Done => drop(stack.pop()),
            }
        }
        order
    }
}
