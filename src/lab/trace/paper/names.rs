//! Names in a log, and the number of names of each tensor.

use crate::command::TensorId;
use rustc_hash::FxHashMap;

/// Position of a name, in the order of first appearance.
pub(super) type NameId = u32;

/// All names read so far. A released name keeps its last tensor.
#[derive(Default)]
pub(super) struct Names {
    index: FxHashMap<Box<str>, NameId>,
    bound: Vec<Bound>,
    /// Tensor -> number of names. A tensor is alive iff the number is above 0.
    counts: Vec<u64>,
}

#[derive(Clone, Copy)]
struct Bound {
    /// Tensor of the name; `None` while the lines of the op that makes the tensor are still being
    /// read.
    tensor: Option<TensorId>,
    /// Whether the name holds the tensor.
    held: bool,
}

impl Names {
    /// Adds a name without a tensor; `None` if the name exists already.
    pub fn reserve(&mut self, name: &str) -> Option<NameId> {
        if self.index.contains_key(name) {
            return None;
        }
        let id = self.bound.len() as NameId;
        self.index.insert(name.into(), id);
        self.bound.push(Bound { tensor: None, held: false });
        Some(id)
    }

    pub fn find(&self, name: &str) -> Option<NameId> {
        self.index.get(name).copied()
    }

    /// Text of a name. The search is slow, so use it only for messages.
    pub fn text(&self, id: NameId) -> &str {
        self.index.iter().find(|(_, found)| **found == id).map_or("?", |(name, _)| name)
    }

    /// Last tensor of a name, even if the tensor is no longer alive.
    pub fn tensor(&self, id: NameId) -> Option<TensorId> {
        self.bound[id as usize].tensor
    }

    /// Whether a name holds the tensor.
    pub fn is_alive(&self, tensor: TensorId) -> bool {
        self.counts.get(tensor.index()).is_some_and(|&count| count > 0)
    }

    /// Gives a name to a tensor, and takes the name from its previous tensor. Returns the previous
    /// tensor if no other name holds it.
    pub fn bind(&mut self, id: NameId, tensor: TensorId) -> Option<TensorId> {
        let old = self.bound[id as usize];
        if old.held && old.tensor == Some(tensor) {
            return None;
        }
        let dead = self.release(id);
        let needed = tensor.index() + 1;
        self.counts.resize(self.counts.len().max(needed), 0);
        self.counts[tensor.index()] += 1;
        self.bound[id as usize] = Bound { tensor: Some(tensor), held: true };
        dead
    }

    /// Takes a name from its tensor. Returns the tensor if no other name holds it.
    pub fn release(&mut self, id: NameId) -> Option<TensorId> {
        let bound = &mut self.bound[id as usize];
        if !std::mem::take(&mut bound.held) {
            return None;
        }
        let tensor = bound.tensor?;
        let count = &mut self.counts[tensor.index()];
        *count -= 1;
        (*count == 0).then_some(tensor)
    }

    /// Tensors with a name, in the order of their names. A tensor with several names is listed
    /// several times.
    pub fn alive(&self) -> impl Iterator<Item = TensorId> {
        self.bound.iter().filter_map(|bound| bound.tensor).filter(|&tensor| self.is_alive(tensor))
    }
}
