//! Waiting commands: known before they run.

use super::books::Books;
use crate::command::{Command, TensorId};
use crate::device::Device;
use crate::graph::Root;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// The commands that were admitted and have not run.
#[derive(Debug, Default)]
pub(super) struct Admitted {
    commands: VecDeque<Effects>,
    /// Tensors that they will make.
    roots: FxHashMap<TensorId, Root>,
    /// Numbers that end with one of them. Who dropped the handle that was given away asks for the deletion all the
    /// same.
    ended: FxHashSet<TensorId>,
}

impl Admitted {
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }
}

/// What one of them will do.
#[derive(Debug, Default)]
struct Effects {
    /// See [`Command::counts`].
    counts: bool,
    /// What it reads, and of what it ends a handle.
    touches: SmallVec<[Root; 4]>,
    makes: SmallVec<[(TensorId, Root); 2]>,
    ends: SmallVec<[TensorId; 2]>,
}

impl Admitted {
    /// A command waits: whoever decides what to evict may know of it, by [`Graph::future`](crate::graph::Graph::future).
    /// Nothing else is different for it. It must be executed later, after those admitted before it, and before any that
    /// was not admitted: commands are known by their order.
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

    /// A view and what replaces another value name what is there already; the others make something new. An update
    /// may take its input's storage over, which shows when it is made.
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

    /// The storage of a tensor, be it there or not. `None` for a number that means nothing.
    fn root_of<D: Device>(&self, books: &Books<D>, tensor: TensorId) -> Option<Root> {
        let effects = self.roots.get(&tensor);
        let unmade = effects.map(|&root| books.engine.graph().future().resolve(root));
        unmade.or_else(|| books.storage_of(tensor).map(Root::Made))
    }

    /// The next command is about to run; whether it is a [position](Command::is_position) of a known step.
    #[inline(always)]
    pub fn begin<D: Device>(&self, books: &mut Books<D>, is_position: bool) {
        if is_position {
            books.engine.future_mut().advance_foreseen();
        }
        if self.commands.front().is_some_and(|effects| effects.counts) {
            books.engine.future_mut().advance();
        }
    }

    /// It ran.
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
