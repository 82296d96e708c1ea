//! `DecorateMemoryPlan`: storages for variables, and for values assigned to variables.

use super::graph::{NnvmGraph, Node, NodeEntry, Pattern, StorageKind};
use super::memory::uses;
use super::{Home, MemoryPlan, StorageEntry};

/// Role of a node as an assignment (NNVM's GraphCompile sets it as a flag).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Assign {
    /// The node is no assignment (flag 0).
    No,
    /// The node copies a value into a variable (flag 1).
    Copy,
    /// The node does nothing, because the op that computes the value writes the value into the
    /// variable's bytes (flag 2).
    Nothing,
}

impl NnvmGraph {
    /// Role of each node. An assignment is [`Assign::Nothing`] if no other node reads the assigned
    /// value, and if an op with a pattern up to [`Pattern::Broadcast`] computes the value. The op
    /// that computes the value then writes into the variable.
    ///
    /// The three following conditions are not in NNVM. Value and variable are on the same device.
    /// The memory of value and variable is planned. No node between the op and the assignment reads
    /// or writes the variable. A reader would find the new value too early, and a writer would
    /// overwrite the new value.
    #[must_use]
    pub fn assigns(&self) -> Vec<Assign> {
        let uses = uses(self);
        // Variable -> last node so far that read the variable or assigned to it.
        let mut last = vec![0; self.len()];
        let mut kinds = Vec::with_capacity(self.len());
        for (i, node) in self.nodes().iter().enumerate() {
            let kind = match node {
                Node::Assign { entries: [variable, value], .. } => {
                    let read_once = uses[value.node][value.output] <= 1;
                    let quiet = last[variable.node] <= value.node;
                    if read_once && quiet && self.computed_for(*variable, *value) {
                        Assign::Nothing
                    } else {
                        Assign::Copy
                    }
                }
                _ => Assign::No,
            };
            kinds.push(kind);
            for variable in node.reads().filter_map(|entry| self.variable_of(entry)) {
                last[variable.node] = i;
            }
        }
        kinds
    }

    /// Whether an op with a pattern up to [`Pattern::Broadcast`] computes the value, and variable
    /// and value are both planned and on the same device.
    fn computed_for(&self, variable: NodeEntry, value: NodeEntry) -> bool {
        let Node::Op(op) = &self.nodes()[value.node] else {
            return false;
        };
        let planned = |entry| {
            let tensor = self.tensor(entry)?;
            (tensor.storage == StorageKind::Planned).then_some(tensor.device)
        };
        let device = planned(variable);
        op.pattern <= Pattern::Broadcast && device.is_some() && device == planned(value)
    }

    /// The variable whose bytes the entry stands for: the entry itself, or the variable to which
    /// its node assigns. `None` if the node is an op.
    fn variable_of(&self, entry: NodeEntry) -> Option<NodeEntry> {
        match &self.nodes()[entry.node] {
            Node::Variable { .. } => Some(entry),
            Node::Assign { entries: [variable, _], .. } => Some(*variable),
            Node::Op(_) => None,
        }
    }
}

/// Storage of each entry of a graph, including variables and assignments.
#[derive(Clone, Debug)]
pub struct StoragePlan<'g> {
    graph: &'g NnvmGraph,
    homes: Vec<Vec<Home>>,
    in_place: Vec<Vec<Option<usize>>>,
    assigns: Vec<Assign>,
    // All entries in a storage are on the device of the storage.
    storages: Vec<StorageEntry>,
    // Name and number of the storage of each planned variable.
    variables: Vec<(&'g str, usize)>,
}

impl<'g> StoragePlan<'g> {
    /// Gives each variable a storage of its own, and moves values that are assigned to a variable
    /// into the storage of the variable. Afterwards, sets the size of each storage to the size of
    /// its largest entry.
    #[must_use]
    pub fn new(plan: MemoryPlan<'g>) -> Self {
        let storages = plan.storages().iter().map(|storage| StorageEntry { bytes: 0, ..*storage });
        let mut new = Self {
            graph: plan.graph,
            assigns: plan.graph.assigns(),
            storages: storages.collect(),
            variables: Vec::new(),
            homes: plan.homes,
            in_place: plan.in_place,
        };
        new.place_variables();
        new.place_assigned();
        new.measure();
        new
    }

    fn place_variables(&mut self) {
        for (node, homes) in self.graph.nodes().iter().zip(&mut self.homes) {
            if let Node::Variable { name, tensor } = node
                && homes[0] == Home::None
            {
                homes[0] = Home::Storage(self.storages.len());
                self.variables.push((name, self.storages.len()));
                self.storages.push(StorageEntry { device: tensor.device, bytes: 0 });
            }
        }
    }

    fn place_assigned(&mut self) {
        for (i, (node, kind)) in self.graph.nodes().iter().zip(&self.assigns).enumerate() {
            if let Node::Assign { entries: [variable, value], .. } = node {
                let home = self.homes[variable.node][variable.output];
                self.homes[i][0] = home;
                self.in_place[i][0] = Some(0);
                if *kind == Assign::Nothing {
                    self.homes[value.node][value.output] = home;
                }
            }
        }
        // An output no longer overwrites an input if the output or the input has moved to a
        // different storage.
        for (i, node) in self.graph.nodes().iter().enumerate() {
            if let Node::Op(op) = node {
                for (input, home) in self.in_place[i].iter_mut().zip(&self.homes[i]) {
                    input.take_if(|input| {
                        let entry = op.inputs[*input];
                        self.homes[entry.node][entry.output] != *home
                    });
                }
            }
        }
    }

    fn measure(&mut self) {
        for (node, homes) in self.graph.nodes().iter().zip(&self.homes) {
            for (tensor, home) in node.outputs().iter().zip(homes) {
                if let Home::Storage(storage) = *home {
                    let bytes = &mut self.storages[storage].bytes;
                    *bytes = tensor.bytes().max(*bytes);
                }
            }
        }
    }

    /// Total bytes of all storages, including those of variables.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.storages.iter().map(|storage| storage.bytes).sum()
    }

    /// Storages by number. A storage without entries has 0 bytes.
    #[must_use]
    pub fn storages(&self) -> &[StorageEntry] {
        &self.storages
    }

    /// Location of an entry, which is never [`Home::None`]. `None` for an unknown entry.
    #[must_use]
    pub fn home(&self, entry: NodeEntry) -> Option<Home> {
        self.homes.get(entry.node)?.get(entry.output).copied()
    }

    /// Index of the input that the entry overwrites, if any. An assignment overwrites the variable.
    #[must_use]
    pub fn in_place(&self, entry: NodeEntry) -> Option<usize> {
        *self.in_place.get(entry.node)?.get(entry.output)?
    }

    /// Role of each node. Nodes with the role [`Assign::Nothing`] need not run.
    #[must_use]
    pub fn assigns(&self) -> &[Assign] {
        &self.assigns
    }

    pub(super) fn graph(&self) -> &'g NnvmGraph {
        self.graph
    }

    /// Name and number of the storage of each planned variable.
    pub(super) fn variables(&self) -> &[(&'g str, usize)] {
        &self.variables
    }
}
