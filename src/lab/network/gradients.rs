//! Gradients of a program: the tensors that updates of parameters read.

use super::exchanges::Tensors;
use crate::command::{Apply, Command, RecordedOp, RecordedProgram, TensorId};
use rustc_hash::{FxHashMap, FxHashSet};

/// Optimizers of this crate. Each op of these optimizers updates parameters.
const OPTIMIZERS: [&str; 3] = ["sgd_momentum", "adamw", "lion"];

/// Gradients with the positions of the updates that read them, in the order of the updates.
///
/// An op of any other optimizer is recognized by two conditions. The op updates a tensor in place
/// that the step did not compute, and an earlier op of the step has read that tensor. An
/// accumulator of gradients fails the first condition, and a sum of losses fails the second.
///
/// A gradient is a tensor that the step computes and an update reads, with as many elements as an
/// updated tensor.
pub(super) fn gradients(program: &RecordedProgram, tensors: &Tensors) -> Vec<(TensorId, usize)> {
    let mut search = Search {
        program,
        tensors,
        first: 0,
        made: 0,
        before: FxHashMap::default(),
        read: FxHashSet::default(),
        found: Vec::new(),
    };
    for (at, command) in program.commands().iter().enumerate() {
        command.calls().iter().for_each(|call| search.call(at, call));
        command.makes(|_| search.made += 1);
        if matches!(command, Command::Step) {
            search.first = search.made;
            search.read.clear();
        }
    }
    search.found
}

struct Search<'a> {
    program: &'a RecordedProgram,
    tensors: &'a Tensors,
    /// Index of the first tensor of the step.
    first: usize,
    /// Number of tensors made so far.
    made: usize,
    /// Updated value -> value before all updates in place.
    before: FxHashMap<TensorId, TensorId>,
    /// Tensors that an op of the step has read, as they were before all updates in place.
    read: FxHashSet<TensorId>,
    found: Vec<(TensorId, usize)>,
}

impl Search<'_> {
    fn call(&mut self, at: usize, call: &Apply<RecordedOp>) {
        let targets = call.outputs.targets();
        let (updated, read) = call.inputs.split_at(targets.min(call.inputs.len()));
        if targets > 0 && self.updates_parameters(call, updated) {
            for &input in read {
                let gradient = self.unscaled(input);
                if self.is_gradient(gradient, updated) {
                    self.found.push((gradient, at));
                }
            }
        }
        // A view reads no element.
        if call.outputs.views().is_empty() {
            let read: Vec<TensorId> = read.iter().map(|&input| self.first_value(input)).collect();
            self.read.extend(read);
        }
        for (&old, new) in updated.iter().zip(call.outputs()) {
            let first = self.first_value(old);
            self.before.insert(new, first);
        }
    }

    fn updates_parameters(&self, call: &Apply<RecordedOp>, updated: &[TensorId]) -> bool {
        OPTIMIZERS.contains(&&*call.op.name)
            || updated
                .iter()
                .map(|&target| self.first_value(target))
                .any(|target| self.read.contains(&target) && !self.is_computed(target))
    }

    fn is_gradient(&self, tensor: TensorId, updated: &[TensorId]) -> bool {
        let elements = |tensor: TensorId| self.tensors.layouts[tensor.index()].elements();
        // A value from before the step is a parameter or a state, even if the step has updated it.
        let is_new = self.first_value(tensor).index() >= self.first;
        let fits = updated.iter().any(|&target| elements(target) == elements(tensor));
        fits && is_new && self.is_computed(self.tensors.origin(tensor))
    }

    /// Value of a tensor before all updates in place, through all views.
    fn first_value(&self, tensor: TensorId) -> TensorId {
        let origin = self.tensors.origin(tensor);
        self.before.get(&origin).copied().unwrap_or(origin)
    }

    /// Whether the step computes a tensor from other tensors.
    fn is_computed(&self, tensor: TensorId) -> bool {
        tensor.index() >= self.first
            && self.maker(tensor).is_some_and(|call| !call.inputs.is_empty())
    }

    /// Gradient before its multiplication by a factor: clipping and unscaling multiply a gradient
    /// by a scalar. All ranks have the same factor, so the gradients are summed before the
    /// multiplication. The factor of clipping even depends on the sum.
    fn unscaled(&self, mut gradient: TensorId) -> TensorId {
        while let Some(call) = self.maker(self.tensors.origin(gradient))
            && &*call.op.name == "mul"
            && let [value, factor] = *call.inputs
            && self.tensors.layouts[factor.index()].elements() == 1
            && self.is_computed(self.tensors.origin(value))
        {
            gradient = value;
        }
        gradient
    }

    /// Op that makes a tensor; `None` for uploads.
    fn maker(&self, tensor: TensorId) -> Option<&Apply<RecordedOp>> {
        let position = *self.tensors.makers.get(tensor.index())? as usize;
        let command = &self.program.commands()[position];
        command.calls().iter().find(|call| call.outputs().any(|output| output == tensor))
    }
}
