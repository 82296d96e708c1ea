//! What is there between two turns.

use super::turns::Numbering;
use crate::device::Device;
use crate::graph::{StorageKey, TensorKey};
use crate::layout::Layout;
use crate::memory::Held;
use crate::program::Driver;
use rustc_hash::FxHashMap;

/// The tensors between two turns, all of them resident values without a history.
#[derive(Clone, Debug)]
pub(super) struct Boundary {
    /// By slot, rising: how each looks, and at which of the storages.
    pub tensors: Vec<(u32, Layout, u32)>,
    /// Their sizes, in the order in which tensors speak of them.
    pub bytes: Vec<u64>,
    pub storages: Vec<StorageKey>,
    pub held: Vec<Held>,
}

impl Boundary {
    /// What is there now. `None` if it could not be the beginning of a plan: something has a history, or is away, or waits
    /// for what comes.
    pub fn of<D: Device>(driver: &Driver<D>, numbers: &Numbering) -> Option<Self> {
        let engine = &driver.engine;
        let graph = engine.graph();
        let (tensors, storages, paths) = graph.counts();
        if !engine.is_settled() || paths > 0 {
            return None;
        }
        let slot = |(tensor, key)| Some((numbers.slot(tensor)?, key));
        let mut all: Vec<(u32, TensorKey)> =
            driver.tensors.iter().map(slot).collect::<Option<_>>()?;
        all.sort_unstable_by_key(|(slot, _)| *slot);
        let mut boundary = Self { tensors: vec![], bytes: vec![], storages: vec![], held: vec![] };
        let mut known: FxHashMap<StorageKey, u32> = FxHashMap::default();
        for (slot, key) in all {
            let tensor = graph.tensor(key)?;
            let number = match known.get(&tensor.storage) {
                Some(&number) => number,
                None => {
                    let number = boundary.storages.len() as u32;
                    known.insert(tensor.storage, number);
                    boundary.storages.push(tensor.storage);
                    boundary.bytes.push(graph.storage(tensor.storage).bytes);
                    boundary.held.push(graph.held(tensor.storage)?);
                    number
                }
            };
            boundary.tensors.push((slot, tensor.layout, number));
        }
        let complete = boundary.tensors.len() == tensors && boundary.storages.len() == storages;
        complete.then_some(boundary)
    }

    /// Whether the same is there, wherever it is.
    pub fn is_like(&self, other: &Self) -> bool {
        self.tensors == other.tensors && self.bytes == other.bytes
    }
}
