//! `PlanMemory`: storages for the values that a graph computes.

use std::cmp::Reverse;

use super::allocator::{Allocator, StorageEntry};
use super::graph::{InPlace, NnvmGraph, Node, NodeEntry, OpNode, StorageKind};
use super::{Home, MatchRange};

/// Storage of each entry of a graph, except variables. A memory plan is the first of three stages;
/// [`StoragePlan`](super::StoragePlan) and [`SharedPool`](super::SharedPool) follow.
///
/// A storage is always reused as a whole: two small values never share the storage of a large
/// value. A storage may grow when it is reused. The reuse of whole storages makes the planner weak
/// if sizes differ much; the documentation of [`Nnvm`](super::Nnvm) has measurements.
#[derive(Clone, Debug)]
pub struct MemoryPlan<'g> {
    pub(super) graph: &'g NnvmGraph,
    // Node, output -> location.
    pub(super) homes: Vec<Vec<Home>>,
    // Node, output -> index of the input that the output overwrites, if any.
    pub(super) in_place: Vec<Vec<Option<usize>>>,
    storages: Vec<StorageEntry>,
    range: u64,
}

impl<'g> MemoryPlan<'g> {
    /// Plans a graph in one pass over its nodes. [`MatchRange::Auto`] makes a pass for each range,
    /// and keeps the smallest plan; the first on a tie.
    ///
    /// At each node, outputs first get the storages of inputs if in-place pairs allow it. The
    /// remaining outputs request storages: the largest first, and outputs of equal size in their
    /// order. After the requests, the storages of inputs that no later node reads are released. The
    /// storages of outputs that no node reads are released last.
    ///
    /// An output gets the storage of an input if all of these conditions hold:
    ///
    /// - No other output of the node has the storage of this input.
    /// - No other read of the storage remains, or the output is the unchanged input and has the
    ///   same element type.
    /// - Some node reads the output.
    /// - Input and output have the same number of elements, elements of the same size, and the same
    ///   device.
    /// - The node reads the data of the input. NNVM lacks the condition that the node reads the
    ///   data, although the storage of an ignored input may have been reused already.
    #[must_use]
    pub fn new(graph: &'g NnvmGraph, range: MatchRange) -> Self {
        let uses = uses(graph);
        range.smallest(|range| Pass::new(graph, &uses, range).run(), Self::bytes)
    }

    /// Total bytes of all storages. Variables, external entries and dynamic entries have no
    /// storage. The output of an assignment has a storage, which
    /// [`StoragePlan`](super::StoragePlan) replaces by the storage of the variable.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.storages.iter().map(|storage| storage.bytes).sum()
    }

    /// Storages by number.
    #[must_use]
    pub fn storages(&self) -> &[StorageEntry] {
        &self.storages
    }

    /// Range of this plan: reused storages were at most this many times larger or smaller than the
    /// request.
    #[must_use]
    pub fn range(&self) -> u64 {
        self.range
    }

    /// Location of an entry; `None` for an unknown entry.
    #[must_use]
    pub fn home(&self, entry: NodeEntry) -> Option<Home> {
        self.homes.get(entry.node)?.get(entry.output).copied()
    }

    /// Index of the input that the entry overwrites, if any.
    #[must_use]
    pub fn in_place(&self, entry: NodeEntry) -> Option<usize> {
        *self.in_place.get(entry.node)?.get(entry.output)?
    }
}

/// Node, output -> number of reads. A read is counted for each time that a node reads the data of
/// the entry, and for each time that the entry is an output of the graph.
pub(super) fn uses(graph: &NnvmGraph) -> Vec<Vec<usize>> {
    let mut uses: Vec<_> = graph.nodes().iter().map(|node| vec![0; node.outputs().len()]).collect();
    let reads = graph.nodes().iter().flat_map(Node::reads);
    for entry in reads.chain(graph.outputs().iter().copied()) {
        uses[entry.node][entry.output] += 1;
    }
    uses
}

/// `AllocMemory`: a pass over the nodes of a graph.
struct Pass<'g, 'u> {
    plan: MemoryPlan<'g>,
    uses: &'u [Vec<usize>],
    allocator: Allocator,
    // Storage -> number of reads that remain. A released storage has 0 reads left. While a node is
    // visited, the storages of its outputs that no node reads have 0 reads left, too.
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

    /// Whether the output of a pair may get the storage of its input. The two tensors must have
    /// equal element counts, element sizes and devices, and the node must read the input. Besides,
    /// no other read may remain, unless the output is the unchanged input.
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
            // An output in the storage of an input has readers, so this storage is not released
            // here. The storages of all other outputs hold no input.
            if let Home::Storage(storage) = *home
                && self.wanted[storage] == 0
            {
                self.allocator.release(storage, node.colour());
            }
        }
    }
}
