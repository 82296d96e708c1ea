//! Admission of waiting commands, so that evictors can read a command's effects before the command
//! runs.

use super::books::Books;
use crate::command::{Command, TensorId};
use crate::device::Device;
use crate::graph::Root;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Commands that were admitted and have not run.
#[derive(Debug, Default)]
pub(super) struct Admitted {
    commands: VecDeque<Effects>,
    /// Root of each tensor that waiting commands will make. A root is a storage, made or not made
    /// yet.
    roots: FxHashMap<TensorId, Root>,
    /// Numbers of tensors that a waiting command deletes or consumes. A command may delete a handle
    /// that an earlier command consumed; only the earlier command then ends the handle.
    ended: FxHashSet<TensorId>,
}

impl Admitted {
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }
}

/// Effects of one waiting command.
#[derive(Debug, Default)]
struct Effects {
    /// Whether the command counts as a position in the queue: see [`Command::counts`].
    counts: bool,
    /// Roots (storages, made or not made yet) of the tensors that the command reads, deletes or
    /// consumes.
    touches: SmallVec<[Root; 4]>,
    makes: SmallVec<[(TensorId, Root); 2]>,
    ends: SmallVec<[TensorId; 2]>,
}

impl Admitted {
    /// Announces a command that waits to be executed. After the announcement, evictors can read the
    /// effects of the command in [`Graph::future`](crate::graph::Graph::future).
    ///
    /// Admission only updates `Graph::future`. Admitted commands must be executed in the order of
    /// admission, and before any command that was not admitted. The driver matches executed
    /// commands to admitted commands by their order.
    pub fn admit<D: Device>(&mut self, books: &mut Books<D>, command: &Command<D::Op, D::Host>) {
        let counts = command.counts();
        let at = books.engine.future_mut().admit(counts);
        let mut effects = Effects { counts, ..Effects::default() };
        command.reads(|tensor| {
            if let Some(root) = self.root_of(books, tensor) {
                books.engine.future_mut().will_read(root, at);
                effects.touches.push(root);
            }
        });
        self.note_outputs(books, command, &mut effects);
        command.ends(|tensor| {
            if let Some(root) = self.root_of(books, tensor)
                && self.ended.insert(tensor)
            {
                books.engine.future_mut().will_end(root, at);
                effects.touches.push(root);
                effects.ends.push(tensor);
            }
        });
        self.commands.push_back(effects);
    }

    /// Assigns a root (a storage, made or not made yet) to each output of a command. A view has the
    /// root of its source, and a replacement the root of its value. Every other output gets a new
    /// root. An update's output gets a new root, because only the run of the update shows whether
    /// it takes over its input's storage.
    fn note_outputs<D: Device>(
        &mut self,
        books: &mut Books<D>,
        command: &Command<D::Op, D::Host>,
        effects: &mut Effects,
    ) {
        let mut name = |admitted: &mut Self, tensor: TensorId, same_as: Option<TensorId>| {
            let root = same_as.and_then(|source| admitted.root_of(books, source));
            let future = books.engine.future_mut();
            let root = root.unwrap_or_else(|| Root::Unmade(future.add_unmade()));
            future.will_name(root);
            admitted.roots.insert(tensor, root);
            effects.makes.push((tensor, root));
        };
        match *command {
            Command::Put { tensor, .. } => name(self, tensor, None),
            Command::Replace { value, made, .. } => name(self, made, Some(value)),
            _ => {
                for call in command.calls() {
                    for (output, tensor) in call.outputs().enumerate() {
                        let seen = call.outputs.views().get(output);
                        let source = seen.and_then(|look| call.inputs.get(look.input)).copied();
                        name(self, tensor, source);
                    }
                }
            }
        }
    }

    /// The root of a tensor's storage, whether or not the storage exists yet. `None` for a number
    /// that names no tensor.
    fn root_of<D: Device>(&self, books: &Books<D>, tensor: TensorId) -> Option<Root> {
        let effects = self.roots.get(&tensor);
        let unmade = effects.map(|&root| books.engine.graph().future().resolve(root));
        unmade.or_else(|| books.storage_of(tensor).map(Root::Made))
    }

    /// Advances the queue of admitted commands in the graph's future by one command, just before
    /// that command runs.
    #[inline(always)]
    pub fn begin<D: Device>(&self, books: &mut Books<D>) {
        if self.commands.front().is_some_and(|effects| effects.counts) {
            books.engine.future_mut().advance();
        }
    }

    /// Removes the command that just ran from the queue, if it was admitted.
    #[inline(always)]
    pub fn end<D: Device>(&mut self, books: &mut Books<D>) {
        if let Some(effects) = self.commands.pop_front() {
            self.settle(books, effects);
        }
    }

    #[inline(never)]
    fn settle<D: Device>(
        &mut self,
        books: &mut Books<D>,
        Effects { touches, makes, ends, .. }: Effects,
    ) {
        ends.iter().for_each(|tensor| _ = self.ended.remove(tensor));
        for (tensor, root) in makes {
            self.roots.remove(&tensor);
            let storage = books.storage_of(tensor);
            books.engine.future_mut().did_name(root, storage);
        }
        touches.into_iter().for_each(|root| books.engine.future_mut().settle(root));
    }
}
