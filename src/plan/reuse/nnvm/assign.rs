//! `DecorateMemoryPlan`: storages for variables, and for what is assigned to them.

use super::graph::{NnvmGraph, Node, NodeEntry, Pattern, StorageKind};
use super::memory::uses;
use super::{Home, MemoryPlan, StorageEntry};

/// What a node is to an assignment: the flag that GraphCompile gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Assign {
    /// No assignment (flag 0).
    No,
    /// Copies a value into a variable (flag 1).
    Copy,
    /// Does nothing, for the value is computed where the variable is (flag 2).
    Nothing,
}

impl NnvmGraph {
    /// What each node is. [`Assign::Nothing`] needs a value that nobody else reads, computed by an op with a pattern up to
    /// [`Pattern::Broadcast`], which then writes into the variable.
    ///
    /// Beyond NNVM: value and variable are on one device, both are planned, and no node that comes after that op and
    /// before the assignment reads the variable or writes into it; it would find the new value too early, or have its own
    /// put in place of it.
    #[must_use]
    pub fn assigns(&self) -> Vec<Assign> {
        let uses = uses(self);
        // By variable: the last node so far that had to do with its bytes.
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

    /// Whether an op that can write anywhere computes the value, and where the variable is as well.
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

    /// The variable that it is, or that it has been assigned to.
    fn variable_of(&self, entry: NodeEntry) -> Option<NodeEntry> {
        match &self.nodes()[entry.node] {
            Node::Variable { .. } => Some(entry),
            Node::Assign { entries: [variable, _], .. } => Some(*variable),
            Node::Op(_) => None,
        }
    }
}

/// Which storage each entry of a graph is in, variables and assignments included.
#[derive(Clone, Debug)]
pub struct StoragePlan<'g> {
    graph: &'g NnvmGraph,
    homes: Vec<Vec<Home>>,
    in_place: Vec<Vec<Option<usize>>>,
    assigns: Vec<Assign>,
    // All members of a storage are on its device.
    storages: Vec<StorageEntry>,
    // Name and storage of each variable that is planned.
    variables: Vec<(&'g str, usize)>,
}

impl<'g> StoragePlan<'g> {
    /// Gives each variable a storage of its own, moves what is assigned to them there, and counts the bytes of each
    /// storage anew: those of the largest entry that is in it now.
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
        // Ops that were to write over what has gone elsewhere.
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

    /// Of all storages together, variables included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.storages.iter().map(|storage| storage.bytes).sum()
    }

    /// By number. One in which nothing is left has 0 bytes.
    #[must_use]
    pub fn storages(&self) -> &[StorageEntry] {
        &self.storages
    }

    /// Where that is, if there is such an entry. It is never [`Home::None`].
    #[must_use]
    pub fn home(&self, entry: NodeEntry) -> Option<Home> {
        self.homes.get(entry.node)?.get(entry.output).copied()
    }

    /// The input of its node in whose bytes it is written, if any: for an assignment, the variable.
    #[must_use]
    pub fn in_place(&self, entry: NodeEntry) -> Option<usize> {
        *self.in_place.get(entry.node)?.get(entry.output)?
    }

    /// What each node is: those that are [`Assign::Nothing`] need not run.
    #[must_use]
    pub fn assigns(&self) -> &[Assign] {
        &self.assigns
    }

    pub(super) fn graph(&self) -> &'g NnvmGraph {
        self.graph
    }

    /// Name and storage of each variable that is planned.
    pub(super) fn variables(&self) -> &[(&'g str, usize)] {
        &self.variables
    }
}
