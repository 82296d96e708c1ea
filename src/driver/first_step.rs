//! The end of the first step, which includes the setup of the program.

use super::books::Books;
use crate::command::TensorId;
use crate::device::Device;
use crate::graph::StorageKey;
use rustc_hash::{FxHashMap, FxHashSet};

/// Tensors to [commit](crate::command::Command::Commit) at the end of a first step.
///
/// Has one tensor of each held storage whose history leads back through unheld storages to an unheld
/// [root](is_root). Empty if the budget is too small to hold all storages to commit as leaves.
pub(super) fn to_commit<D: Device>(books: &mut Books<D>) -> Vec<TensorId> {
    let graph = books.engine.graph();
    let mut known = FxHashMap::default();
    let mut held: Vec<(TensorId, StorageKey)> = books
        .tensors
        .iter()
        .filter_map(|(tensor, key)| Some((tensor, graph.tensor(key)?.storage)))
        .filter(|&(_, storage)| keeps_root(books, storage, &mut known))
        .collect();
    // One tensor of each storage is enough.
    held.sort_unstable();
    let mut seen = FxHashSet::default();
    held.retain(|&(_, storage)| seen.insert(storage));
    let storages: Vec<StorageKey> = held.iter().map(|held| held.1).collect();
    match books.engine.fit_as_leaves(&storages) {
        true => held.into_iter().map(|held| held.0).collect(),
        false => Vec::new(),
    }
}

/// Whether a path leads from a storage through unheld storages to an unheld root. `known` caches
/// answers for storages.
fn keeps_root<D: Device>(
    books: &Books<D>,
    storage: StorageKey,
    known: &mut FxHashMap<StorageKey, bool>,
) -> bool {
    let graph = books.engine.graph();
    let unheld = |storage: StorageKey| {
        graph.sources(storage).filter(|&source| graph.storage(source).handles == 0)
    };
    // An explicit stack replaces recursion, because histories may be deep. The sources of a storage
    // are visited before the storage.
    let mut stack = vec![(storage, false)];
    while let Some((at, is_done)) = stack.pop() {
        if is_done {
            let keeps = unheld(at).any(|source| is_root(books, source) || known[&source]);
            known.insert(at, keeps);
        } else if !known.contains_key(&at) {
            stack.push((at, true));
            stack.extend(unheld(at).map(|source| (source, false)));
        }
    }
    known[&storage]
}

/// Whether a storage is the beginning of a history: a leaf, or the output of an op without inputs,
/// such as initial random numbers.
fn is_root<D: Device>(books: &Books<D>, storage: StorageKey) -> bool {
    books.engine.graph().sources(storage).next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Apply, Command};
    use crate::cost::CostModelKind;
    use crate::device::sim::Sim;
    use crate::driver::Driver;
    use crate::engine::{Engine, Settings};
    use crate::evict::PolicyKind;
    use crate::host::HostTensor;
    use crate::layout::{DType, Dims, Layout};
    use crate::op::Outputs;
    use crate::ops::{Binary, Fill, Op, Unary};
    use std::sync::Arc;

    const BYTES: u64 = 256;

    #[derive(Debug)]
    struct Program(Driver<Sim<Op, HostTensor>>, u64);

    impl Program {
        fn new(budget: u64) -> Self {
            let costs = CostModelKind::Flops.build();
            let device = Sim::<Op, HostTensor>::cpu(budget);
            let policy = PolicyKind::Ancestors.build(0);
            Self(Driver::new(Engine::new(device, Settings::default(), policy, costs).unwrap()), 0)
        }

        fn next(&mut self) -> TensorId {
            self.1 += 1;
            TensorId(self.1)
        }

        fn put(&mut self) -> TensorId {
            let tensor = self.next();
            let host = Arc::new(HostTensor::zeros(DType::F32, [8, 8]).unwrap());
            self.0.execute(Command::Put { tensor, host, leaf: true });
            tensor
        }

        fn call(&mut self, op: impl Into<Op>, inputs: &[TensorId]) -> TensorId {
            let made = self.next();
            let outputs = Outputs::fresh([Layout::contiguous(DType::F32, [8, 8])]);
            self.0.execute(Command::Apply(Apply::new(op.into(), inputs, outputs, made)));
            assert!(self.0.engine_mut().take_failure().is_none());
            made
        }

        fn del(&mut self, tensor: TensorId) {
            self.0.execute(Command::Del(tensor));
        }

        fn is_leaf(&self, tensor: TensorId) -> bool {
            let storage = self.0.books.storage_of(tensor).unwrap();
            self.0.engine().graph().storage(storage).producer.is_none()
        }
    }

    #[test]
    fn tensors_made_from_deleted_leaves_become_leaves() {
        let mut program = Program::new(1 << 20);
        let (weight, batch) = (program.put(), program.put());
        let passed = program.call(Binary::Add, &[batch, weight]);
        let activation = program.call(Unary::Relu, &[passed]);
        program.del(passed);
        let gradient = program.call(Unary::Neg, &[activation]);
        let new = program.call(Binary::Add, &[weight, gradient]);
        let moment = program.call(Unary::Neg, &[gradient]);
        program.del(gradient);
        program.del(weight);
        assert_eq!(program.0.engine().used_bytes(), 5 * BYTES, "with the old weight");
        program.0.end_first_step();
        let leaves = [activation, new, moment].map(|tensor| program.is_leaf(tensor));
        assert_eq!(leaves, [true, true, false], "the old weight is in the history of two");
        // The old weight, the gradient and the source of the activation are freed.
        assert_eq!(program.0.engine().used_bytes(), 4 * BYTES);
        // A tensor made from held tensors keeps its compute path.
        let held = program.call(Binary::Add, &[batch, new]);
        program.0.end_first_step();
        assert!(!program.is_leaf(held));
    }

    /// Initial weights that an op has made are not leaves. Without the commit, the new weight would
    /// be recomputed through the whole first step.
    #[test]
    fn tensors_made_from_deleted_initial_values_become_leaves() {
        let mut program = Program::new(1 << 20);
        let fill = Fill { shape: Dims::new(&[8, 8]), value: 1.0 };
        let weight = program.call(fill, &[]);
        let kept = program.call(fill, &[]);
        let gradient = program.call(Unary::Neg, &[weight]);
        let new = program.call(Binary::Add, &[weight, gradient]);
        program.del(gradient);
        program.del(weight);
        program.0.end_first_step();
        let leaves = [kept, new].map(|tensor| program.is_leaf(tensor));
        assert_eq!(leaves, [false, true], "only the new weight has a deleted value in its history");
    }

    #[test]
    fn where_all_would_not_fit_nothing_is() {
        let mut program = Program::new(4 * BYTES);
        let weight = program.put();
        let made: Vec<_> = (0..6).map(|_| program.call(Unary::Relu, &[weight])).collect();
        program.del(weight);
        program.0.end_first_step();
        program.0.execute(Command::Step);
        assert!(made.iter().all(|&tensor| !program.is_leaf(tensor)));
        for tensor in made {
            program.call(Unary::Relu, &[tensor]);
        }
    }
}
