//! The names of a log, and how many of them each tensor has.

use crate::command::TensorId;
use rustc_hash::FxHashMap;

/// Position of a name in the order in which names came up first.
pub(super) type NameId = u32;

/// All names so far. A released name stays, with the tensor that it had.
#[derive(Default)]
pub(super) struct Names {
    index: FxHashMap<Box<str>, NameId>,
    bound: Vec<Bound>,
    /// Tensor -> number of names that hold it. It is alive iff there is one.
    counts: Vec<u64>,
}

#[derive(Clone, Copy)]
struct Bound {
    /// `None` while the lines of an op that makes it are still being read.
    tensor: Option<TensorId>,
    /// Whether it is counted.
    held: bool,
}

impl Names {
    /// A new name, of no tensor yet; `None` if it is taken.
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

    /// The text of a name. Slow: for messages.
    pub fn text(&self, id: NameId) -> &str {
        self.index.iter().find(|(_, found)| **found == id).map_or("?", |(name, _)| name)
    }

    /// The tensor of a name, which may have gone.
    pub fn tensor(&self, id: NameId) -> Option<TensorId> {
        self.bound[id as usize].tensor
    }

    /// Whether a name holds the tensor.
    pub fn is_alive(&self, tensor: TensorId) -> bool {
        self.counts.get(tensor.index()).is_some_and(|&count| count > 0)
    }

    /// Gives a name to a tensor, and takes it from the one that had it. Returns that one if this was
    /// its last.
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

    /// Lets the tensor of a name go. Returns it if this was its last.
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

    /// The tensors that are alive, in the order of their names; one with several names several times.
    pub fn alive(&self) -> impl Iterator<Item = TensorId> {
        self.bound.iter().filter_map(|bound| bound.tensor).filter(|&tensor| self.is_alive(tensor))
    }
}
