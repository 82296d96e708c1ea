//! Waiting commands: known before they run.

use super::Driver;
use crate::command::{Command, TensorId};
use crate::device::Device;
use crate::graph::Root;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// The commands that were admitted and have not run.
#[derive(Debug, Default)]
pub(super) struct Admitted {
    commands: VecDeque<Planned>,
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
struct Planned {
    /// See [`Command::counts`].
    counts: bool,
    /// What it reads, and of what it ends a handle.
    touches: SmallVec<[Root; 4]>,
    makes: SmallVec<[(TensorId, Root); 2]>,
    ends: SmallVec<[TensorId; 2]>,
}

impl<D: Device> Driver<D> {
    /// A command waits: whoever decides what to evict may know of it, by [`Graph::future`](crate::graph::Graph::future).
    /// Nothing else is different for it. It must be executed later, after those admitted before it, and before any that
    /// was not admitted: commands are known by their order.
    pub fn admit(&mut self, command: &Command<D::Op, D::Host>) {
        let counts = command.counts();
        let at = self.engine.future_mut().admit(counts);
        let mut planned = Planned { counts, ..Planned::default() };
        command.reads(|tensor| {
            if let Some(root) = self.root_of(tensor) {
                self.engine.future_mut().will_read(root, at);
                planned.touches.push(root);
            }
        });
        self.plan_outputs(command, &mut planned);
        command.ends(|tensor| {
            if let Some(root) = self.root_of(tensor)
                && self.admitted.ended.insert(tensor)
            {
                self.engine.future_mut().will_end(root, at);
                planned.touches.push(root);
                planned.ends.push(tensor);
            }
        });
        self.admitted.commands.push_back(planned);
    }

    /// A view and what replaces another value name what is there already; the others make something new. An update
    /// may take its input's storage over, which shows when it is made.
    fn plan_outputs(&mut self, command: &Command<D::Op, D::Host>, planned: &mut Planned) {
        let mut name = |driver: &mut Self, tensor: TensorId, same_as: Option<TensorId>| {
            let root = same_as.and_then(|source| driver.root_of(source));
            let future = driver.engine.future_mut();
            let root = root.unwrap_or_else(|| Root::Unmade(future.add_unmade()));
            future.will_name(root);
            driver.admitted.roots.insert(tensor, root);
            planned.makes.push((tensor, root));
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
    fn root_of(&self, tensor: TensorId) -> Option<Root> {
        let planned = self.admitted.roots.get(&tensor);
        planned.map(|&root| self.engine.graph().future().resolve(root)).or_else(|| {
            let key = self.tensors.get(tensor)?;
            Some(Root::Made(self.engine.graph().tensor(key)?.storage))
        })
    }

    /// The next command is about to run; whether it is a [position](Command::is_position) of a known step.
    #[inline(always)]
    pub(super) fn begin(&mut self, is_position: bool) {
        if is_position {
            self.engine.future_mut().advance_foreseen();
        }
        if self.admitted.commands.front().is_some_and(|planned| planned.counts) {
            self.engine.future_mut().advance();
        }
    }

    /// It ran.
    #[inline(always)]
    pub(super) fn end_admitted(&mut self) {
        if let Some(planned) = self.admitted.commands.pop_front() {
            self.settle(planned);
        }
    }

    #[inline(never)]
    fn settle(&mut self, Planned { touches, makes, ends, .. }: Planned) {
        ends.iter().for_each(|tensor| _ = self.admitted.ended.remove(tensor));
        for (tensor, root) in makes {
            self.admitted.roots.remove(&tensor);
            let graph = self.engine.graph();
            let info = self.tensors.get(tensor).and_then(|key| graph.tensor(key));
            let storage = info.map(|info| info.storage);
            self.engine.future_mut().did_name(root, storage);
        }
        touches.into_iter().for_each(|root| self.engine.future_mut().settle(root));
    }
}
