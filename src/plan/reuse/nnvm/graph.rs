//! The graph that memory is planned for.

use std::collections::HashSet;

/// How the bits of an element are to be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// Integers with a sign.
    Int,
    /// Integers without a sign.
    Uint,
    /// Floating point.
    Float,
}

/// The type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataType {
    /// What its bits are.
    pub code: Code,
    /// How many there are in a lane.
    pub bits: u8,
    /// Lanes of a vector, 1 for plain numbers.
    pub lanes: u16,
}

impl DataType {
    /// Single precision.
    pub const F32: Self = Self { code: Code::Float, bits: 32, lanes: 1 };

    /// What an element takes: all its bits, rounded up to whole bytes, as GraphRuntime counts.
    #[must_use]
    pub fn bytes(self) -> u64 {
        (u64::from(self.bits) * u64::from(self.lanes)).div_ceil(8)
    }
}

/// Who finds room for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StorageKind {
    /// The plan.
    Planned,
    /// Whoever runs the graph (storage id -2).
    External,
    /// It is allocated as the graph runs, its size being unknown before (storage id -3).
    Dynamic,
}

/// What an entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// How many elements it has.
    pub elements: u64,
    /// Of what type they are.
    pub dtype: DataType,
    /// Where it is.
    pub device: u32,
    /// Who finds room for it.
    pub storage: StorageKind,
}

impl TensorType {
    /// So many elements, on device 0, to be planned.
    #[must_use]
    pub fn new(elements: u64, dtype: DataType) -> Self {
        Self { elements, dtype, device: 0, storage: StorageKind::Planned }
    }

    /// On that device.
    #[must_use]
    pub fn on(self, device: u32) -> Self {
        Self { device, ..self }
    }

    /// With room found by that.
    #[must_use]
    pub fn stored(self, storage: StorageKind) -> Self {
        Self { storage, ..self }
    }

    /// What it takes, at most `u64::MAX` (an [`NnvmGraph`] has none that large). The open source counts four bytes an element
    /// while it plans, whatever the type, and the true ones when it runs: here they are the true ones both times.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.elements.saturating_mul(self.dtype.bytes())
    }
}

/// An output of a node, which others may have as input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeEntry {
    /// Whose output it is.
    pub node: usize,
    /// Which of them.
    pub output: usize,
}

/// An output that may be written where an input is (`FInplaceOption`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InPlace {
    /// Which input.
    pub input: usize,
    /// Which output.
    pub output: usize,
    /// Whether the output is the input unchanged (`FInplaceIdentity`), so that they may share bytes though others still
    /// read the input.
    pub identity: bool,
}

/// How an op's outputs depend on its inputs, from the one most easily fused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pattern {
    /// Each element of the output of the one at the same place.
    Elementwise,
    /// The same, with inputs repeated along axes.
    Broadcast,
    /// Each element of the output of one of the input.
    Injective,
    /// Sums and the like.
    Reduce,
    /// Nothing is known of it.
    Opaque,
}

/// A node that computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpNode {
    pub(super) inputs: Vec<NodeEntry>,
    pub(super) outputs: Vec<TensorType>,
    pub(super) in_place: Vec<InPlace>,
    // As many as there are inputs.
    pub(super) ignored: Vec<bool>,
    pub(super) pattern: Pattern,
    pub(super) colour: u32,
}

impl OpNode {
    /// From these to those, by a pattern of which nothing is known.
    #[must_use]
    pub fn new(
        inputs: impl IntoIterator<Item = NodeEntry>,
        outputs: impl IntoIterator<Item = TensorType>,
    ) -> Self {
        let inputs: Vec<_> = inputs.into_iter().collect();
        Self {
            ignored: vec![false; inputs.len()],
            inputs,
            outputs: outputs.into_iter().collect(),
            in_place: Vec::new(),
            pattern: Pattern::Opaque,
            colour: 0,
        }
    }

    /// May also do this in place. Pairs are tried in the order in which they are given.
    #[must_use]
    pub fn in_place(mut self, pair: InPlace) -> Self {
        self.in_place.push(pair);
        self
    }

    /// Does not read the data of this input, only needs it to come before (`FIgnoreInputs`). One that there is not is
    /// ignored itself.
    #[must_use]
    pub fn ignoring(mut self, input: usize) -> Self {
        if let Some(ignored) = self.ignored.get_mut(input) {
            *ignored = true;
        }
        self
    }

    /// Of this pattern.
    #[must_use]
    pub fn of(self, pattern: Pattern) -> Self {
        Self { pattern, ..self }
    }

    /// Those inputs whose data it reads.
    fn reads(&self) -> impl Iterator<Item = NodeEntry> {
        self.inputs.iter().zip(&self.ignored).filter(|(_, ignored)| !**ignored).map(|(e, _)| *e)
    }
}

/// A part of an [`NnvmGraph`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// An input of the graph or a parameter.
    Variable { name: String, tensor: TensorType },
    /// Computes.
    Op(OpNode),
    /// Writes one entry into a variable; its output is that variable. The tensor is the variable's.
    Assign { entries: [NodeEntry; 2], tensor: TensorType, colour: u32 },
}

impl Node {
    pub fn inputs(&self) -> &[NodeEntry] {
        match self {
            Self::Variable { .. } => &[],
            Self::Op(op) => &op.inputs,
            Self::Assign { entries, .. } => entries,
        }
    }

    pub fn outputs(&self) -> &[TensorType] {
        match self {
            Self::Variable { tensor, .. } | Self::Assign { tensor, .. } => {
                std::slice::from_ref(tensor)
            }
            Self::Op(op) => &op.outputs,
        }
    }

    /// Those inputs that count as references.
    pub fn reads(&self) -> impl Iterator<Item = NodeEntry> {
        let (op, entries) = match self {
            Self::Variable { .. } => (None, &[][..]),
            Self::Op(op) => (Some(op), &[][..]),
            Self::Assign { entries, .. } => (None, &entries[..]),
        };
        entries.iter().copied().chain(op.into_iter().flat_map(OpNode::reads))
    }

    pub fn is_variable(&self) -> bool {
        matches!(self, Self::Variable { .. })
    }

    pub fn colour(&self) -> u32 {
        match self {
            Self::Variable { .. } => 0,
            Self::Op(OpNode { colour, .. }) | Self::Assign { colour, .. } => *colour,
        }
    }
}

/// Nodes in the order in which they run, each after those whose outputs it has as inputs.
#[derive(Clone, Debug, Default)]
pub struct NnvmGraph {
    // Inputs are outputs of earlier nodes; pairs name inputs and outputs that there are; an assign writes into a variable
    // and has the elements of it; no two variables have one name.
    nodes: Vec<Node>,
    // Entries of nodes that there are.
    outputs: Vec<NodeEntry>,
    names: HashSet<String>,
    // Of all outputs together, less than 2^64.
    bytes: u64,
}

impl NnvmGraph {
    /// An input or a parameter, which keeps its bytes for as long as the graph is there.
    ///
    /// # Errors
    ///
    /// Another has that name, or all tensors together have 2^64 bytes or more.
    pub fn variable(
        &mut self,
        name: impl Into<String>,
        tensor: TensorType,
    ) -> Result<NodeEntry, GraphError> {
        let name = name.into();
        if self.names.contains(&name) {
            return Err(GraphError::Name(name));
        }
        self.count(&[tensor])?;
        self.names.insert(name.clone());
        Ok(self.push(Node::Variable { name, tensor }))
    }

    /// A node that computes; its outputs are the [`NodeEntry`]s of the number returned.
    ///
    /// # Errors
    ///
    /// An input that is no output of an earlier node, a pair of which the op lacks the input or the output, or all
    /// tensors together have 2^64 bytes or more.
    pub fn op(&mut self, op: OpNode) -> Result<usize, GraphError> {
        for &entry in &op.inputs {
            self.tensor(entry).ok_or(GraphError::Missing(entry))?;
        }
        for &pair in &op.in_place {
            if pair.input >= op.inputs.len() || pair.output >= op.outputs.len() {
                return Err(GraphError::Pair(pair));
            }
        }
        self.count(&op.outputs)?;
        Ok(self.push(Node::Op(OpNode { colour: 0, ..op })).node)
    }

    /// Writes `value` into `variable`. What is returned is the variable once more, for those who want it updated.
    ///
    /// # Errors
    ///
    /// There is no such entry, the first is no variable, or they differ in elements or type; or all tensors together have
    /// 2^64 bytes or more.
    pub fn assign(
        &mut self,
        variable: NodeEntry,
        value: NodeEntry,
    ) -> Result<NodeEntry, GraphError> {
        let tensor = *self.tensor(variable).ok_or(GraphError::Missing(variable))?;
        let from = self.tensor(value).ok_or(GraphError::Missing(value))?;
        let same = (tensor.elements, tensor.dtype) == (from.elements, from.dtype);
        if !same || !self.nodes[variable.node].is_variable() {
            return Err(GraphError::Assign { variable, value });
        }
        self.count(&[tensor])?;
        Ok(self.push(Node::Assign { entries: [variable, value], tensor, colour: 0 }))
    }

    /// The entry is wanted when the graph has run.
    ///
    /// # Errors
    ///
    /// There is no such entry.
    pub fn output(&mut self, entry: NodeEntry) -> Result<(), GraphError> {
        self.tensor(entry).ok_or(GraphError::Missing(entry))?;
        self.outputs.push(entry);
        Ok(())
    }

    /// What the entry holds, if there is one.
    #[must_use]
    pub fn tensor(&self, entry: NodeEntry) -> Option<&TensorType> {
        self.nodes.get(entry.node)?.outputs().get(entry.output)
    }

    /// How many nodes there are, variables included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no node.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(super) fn outputs(&self) -> &[NodeEntry] {
        &self.outputs
    }

    pub(super) fn set_colours(&mut self, colours: &[u32]) {
        for (node, &new) in self.nodes.iter_mut().zip(colours) {
            match node {
                Node::Variable { .. } => {}
                Node::Op(OpNode { colour, .. }) | Node::Assign { colour, .. } => *colour = new,
            }
        }
    }

    fn count(&mut self, tensors: &[TensorType]) -> Result<(), GraphError> {
        self.bytes = tensors
            .iter()
            .try_fold(self.bytes, |sum, tensor| {
                sum.checked_add(tensor.elements.checked_mul(tensor.dtype.bytes())?)
            })
            .ok_or(GraphError::TooLarge)?;
        Ok(())
    }

    fn push(&mut self, node: Node) -> NodeEntry {
        self.nodes.push(node);
        NodeEntry { node: self.nodes.len() - 1, output: 0 }
    }
}

/// Why something cannot be part of an [`NnvmGraph`], which is left as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// No node so far has this output.
    #[error("there is no output {} of a node {} so far", .0.output, .0.node)]
    Missing(NodeEntry),
    /// The op lacks one or the other.
    #[error("the op has no input {} or no output {}", .0.input, .0.output)]
    Pair(InPlace),
    /// Two variables of one name.
    #[error("two variables are called {0}")]
    Name(String),
    /// One cannot be written into the other.
    #[error(
        "output {} of node {} cannot be written into node {}: \
         that must be a variable of as many elements of the same type",
        .value.output, .value.node, .variable.node
    )]
    Assign {
        /// What was to be written into.
        variable: NodeEntry,
        /// What was to be written.
        value: NodeEntry,
    },
    /// More bytes than there are addresses.
    #[error("all tensors together have 2^64 bytes or more")]
    TooLarge,
}
