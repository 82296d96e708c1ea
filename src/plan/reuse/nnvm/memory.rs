//! `PlanMemory`: storages for what a graph computes.

use std::cmp::Reverse;

use super::allocator::{Allocator, StorageEntry};
use super::graph::{InPlace, NnvmGraph, Node, NodeEntry, OpNode, StorageKind};
use super::{Home, MatchRange};

/// Which storage each entry of a graph is in, variables left out: the first of three stages, with
/// [`StoragePlan`](super::StoragePlan) and [`SharedPool`](super::SharedPool).
///
/// Storages are only ever used as a whole, and grow where they lie: nothing is placed inside another's bytes. That is the
/// weak point of this planner; [`Nnvm`](super::Nnvm) has figures.
#[derive(Clone, Debug)]
pub struct MemoryPlan<'g> {
    pub(super) graph: &'g NnvmGraph,
    // By node and output.
    pub(super) homes: Vec<Vec<Home>>,
    // By node and output: the input that was written over.
    pub(super) in_place: Vec<Vec<Option<usize>>>,
    storages: Vec<StorageEntry>,
    range: u64,
}

impl<'g> MemoryPlan<'g> {
    /// Goes through the nodes once, or for [`MatchRange::Auto`] once for each range, and keeps the smallest plan, the
    /// first of equal ones.
    ///
    /// Each node's outputs are put in place where its pairs allow it; the others get storages, the largest first, equal
    /// ones in their order. Then the storages of inputs that nobody else reads are released, then those of outputs that
    /// nobody does. An output is put in the storage of an input if no other output of the node is, if nothing else is to
    /// be read from it (or the output is the input unchanged, in elements and type), if something reads the output, and
    /// if they have as many elements, of the same size, on the same device. Beyond NNVM, it never is for an input that is
    /// ignored: that one may be in another's hands by then.
    #[must_use]
    pub fn new(graph: &'g NnvmGraph, range: MatchRange) -> Self {
        let uses = uses(graph);
        range.smallest(|range| Pass::new(graph, &uses, range).run(), Self::bytes)
    }

    /// Of all storages together. Variables, external and dynamic entries are not in it; an assign's output is, though it
    /// is to be given up.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.storages.iter().map(|storage| storage.bytes).sum()
    }

    /// By number.
    #[must_use]
    pub fn storages(&self) -> &[StorageEntry] {
        &self.storages
    }

    /// How many times larger or smaller than what was asked for a storage could be to be used again.
    #[must_use]
    pub fn range(&self) -> u64 {
        self.range
    }

    /// Where that is, if there is such an entry.
    #[must_use]
    pub fn home(&self, entry: NodeEntry) -> Option<Home> {
        self.homes.get(entry.node)?.get(entry.output).copied()
    }

    /// The input of its node in whose storage it is written, if any.
    #[must_use]
    pub fn in_place(&self, entry: NodeEntry) -> Option<usize> {
        *self.in_place.get(entry.node)?.get(entry.output)?
    }
}

/// How often each entry is read, by node and output: once for each input whose data a node needs, and once for each time
/// that it is an output of the graph.
pub(super) fn uses(graph: &NnvmGraph) -> Vec<Vec<usize>> {
    let mut uses: Vec<_> = graph.nodes().iter().map(|node| vec![0; node.outputs().len()]).collect();
    let reads = graph.nodes().iter().flat_map(Node::reads);
    for entry in reads.chain(graph.outputs().iter().copied()) {
        uses[entry.node][entry.output] += 1;
    }
    uses
}

/// `AllocMemory`: one walk through the graph.
struct Pass<'g, 'u> {
    plan: MemoryPlan<'g>,
    uses: &'u [Vec<usize>],
    allocator: Allocator,
    // By storage: how often what is in it is still to be read. Above 0 iff it is not released, but for outputs of the
    // present node.
    wanted: Vec<usize>,
}

impl<'g, 'u> Pass<'g, 'u> {
    fn new(graph: &'g NnvmGraph, uses: &'u [Vec<usize>], range: u64) -> Self {
        let homes = graph.nodes().iter().map(|node| {
            let home = |storage| match storage {
                StorageKind::Planned => Home::None,
                StorageKind::External => Home::External,
                StorageKind::Dynamic => Home::Dynamic,
            };
            node.outputs().iter().map(|tensor| home(tensor.storage)).collect()
        });
        let in_place = graph.nodes().iter().map(|node| vec![None; node.outputs().len()]);
        Self {
            plan: MemoryPlan {
                graph,
                homes: homes.collect(),
                in_place: in_place.collect(),
                storages: Vec::new(),
                range,
            },
            uses,
            allocator: Allocator::new(range),
            wanted: Vec::new(),
        }
    }

    fn run(mut self) -> MemoryPlan<'g> {
        let graph = self.plan.graph;
        for (i, node) in graph.nodes().iter().enumerate() {
            if node.is_variable() {
                continue;
            }
            if let Node::Op(op) = node {
                self.put_in_place(i, op);
            }
            self.request(i, node);
            self.release(i, node);
        }
        self.plan.storages = self.allocator.into_storages();
        self.plan
    }

    fn put_in_place(&mut self, node: usize, op: &OpNode) {
        let mut taken = vec![false; if op.in_place.is_empty() { 0 } else { op.inputs.len() }];
        for &pair in &op.in_place {
            let InPlace { input, output, .. } = pair;
            let entry = op.inputs[input];
            let Home::Storage(storage) = self.plan.homes[entry.node][entry.output] else {
                continue;
            };
            let free = !taken[input] && self.plan.homes[node][output] == Home::None;
            let uses = self.uses[node][output];
            if free && uses > 0 && self.may_take(op, pair, storage) {
                taken[input] = true;
                self.plan.homes[node][output] = Home::Storage(storage);
                self.plan.in_place[node][output] = Some(input);
                self.wanted[storage] += uses;
            }
        }
    }

    /// Whether the tensors are alike enough, and nobody is left who reads the input.
    fn may_take(&self, op: &OpNode, pair: InPlace, storage: usize) -> bool {
        let Some(from) = self.plan.graph.tensor(op.inputs[pair.input]) else {
            return false;
        };
        let to = &op.outputs[pair.output];
        let alike = from.elements == to.elements
            && from.dtype.bytes() == to.dtype.bytes()
            && from.device == to.device;
        let unchanged = pair.identity && from.dtype == to.dtype;
        alike && !op.ignored[pair.input] && (self.wanted[storage] == 1 || unchanged)
    }

    fn request(&mut self, i: usize, node: &Node) {
        let homes = &mut self.plan.homes[i];
        let mut outputs: Vec<_> = node
            .outputs()
            .iter()
            .enumerate()
            .filter(|(output, _)| homes[*output] == Home::None)
            .collect();
        outputs.sort_by_key(|(_, tensor)| Reverse(tensor.bytes()));
        for (output, tensor) in outputs {
            let storage = self.allocator.request(tensor.device, node.colour(), tensor.bytes());
            if storage == self.wanted.len() {
                self.wanted.push(0);
            }
            self.wanted[storage] = self.uses[i][output];
            homes[output] = Home::Storage(storage);
        }
    }

    fn release(&mut self, i: usize, node: &Node) {
        for entry in node.reads() {
            if let Home::Storage(storage) = self.plan.homes[entry.node][entry.output] {
                self.wanted[storage] -= 1;
                if self.wanted[storage] == 0 {
                    self.allocator.release(storage, node.colour());
                }
            }
        }
        for home in &self.plan.homes[i] {
            // Those in place are wanted, and those of the inputs are not among them.
            if let Home::Storage(storage) = *home
                && self.wanted[storage] == 0
            {
                self.allocator.release(storage, node.colour());
            }
        }
    }
}
