//! Graphs of nodes, for which NNVM's planner plans the memory.

use std::collections::HashSet;

/// Kind of number that the bits of an element stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// Signed integers.
    Int,
    /// Unsigned integers.
    Uint,
    /// Floating point.
    Float,
}

/// The type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataType {
    /// Interpretation of the bits.
    pub code: Code,
    /// Bits in a lane.
    pub bits: u8,
    /// Number of lanes of a vector; 1 if an element is a single number.
    pub lanes: u16,
}

impl DataType {
    /// Single precision.
    pub const F32: Self = Self { code: Code::Float, bits: 32, lanes: 1 };

    /// Bytes of an element: the bits of all lanes, rounded up to whole bytes, as in GraphRuntime.
    #[must_use]
    pub fn bytes(self) -> u64 {
        (u64::from(self.bits) * u64::from(self.lanes)).div_ceil(8)
    }
}

/// Owner of an entry's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StorageKind {
    /// The plan allocates the entry.
    Planned,
    /// The runner of the graph allocates the entry (storage id -2).
    External,
    /// The entry is allocated while the graph runs, because its size is not known earlier (storage
    /// id -3).
    Dynamic,
}

/// Number of elements, element type, device and owner of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Number of elements.
    pub elements: u64,
    /// Type of the elements.
    pub dtype: DataType,
    /// Number of the device.
    pub device: u32,
    /// Owner of the entry's memory.
    pub storage: StorageKind,
}

impl TensorType {
    /// Type of an entry with `elements` elements, on device 0, whose memory is planned.
    #[must_use]
    pub fn new(elements: u64, dtype: DataType) -> Self {
        Self { elements, dtype, device: 0, storage: StorageKind::Planned }
    }

    /// Sets the device.
    #[must_use]
    pub fn on(self, device: u32) -> Self {
        Self { device, ..self }
    }

    /// Sets the owner of the entry's memory.
    #[must_use]
    pub fn stored(self, storage: StorageKind) -> Self {
        Self { storage, ..self }
    }

    /// Bytes of the entry, saturating at `u64::MAX`, which no entry of an [`NnvmGraph`] reaches.
    /// NNVM's planner counts four bytes for each element of any type; only its runtime uses the
    /// true size. This planner uses the true size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.elements.saturating_mul(self.dtype.bytes())
    }
}

/// An output of a node, which other nodes may have as an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeEntry {
    /// Number of the node.
    pub node: usize,
    /// Number of the output of the node.
    pub output: usize,
}

/// A pair of an output and an input: the output may overwrite the input (`FInplaceOption`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InPlace {
    /// Number of the input.
    pub input: usize,
    /// Number of the output.
    pub output: usize,
    /// Whether the output is the unchanged input (`FInplaceIdentity`). If the output is unchanged,
    /// input and output may share bytes even if other nodes read the input later.
    pub identity: bool,
}

/// Dependence of an op's outputs on its inputs. Patterns that are easier to fuse come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pattern {
    /// Each element of the output depends only on the element of each input at the same position.
    Elementwise,
    /// Elementwise, with inputs repeated along axes.
    Broadcast,
    /// Each element of the output depends on one element of the input.
    Injective,
    /// Reductions such as sums.
    Reduce,
    /// Unknown dependence.
    Opaque,
}

/// A computing node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpNode {
    pub(super) inputs: Vec<NodeEntry>,
    pub(super) outputs: Vec<TensorType>,
    pub(super) in_place: Vec<InPlace>,
    // One flag for each input.
    pub(super) ignored: Vec<bool>,
    pub(super) pattern: Pattern,
    pub(super) colour: u32,
}

impl OpNode {
    /// Makes a node with these inputs and outputs, and the pattern [`Pattern::Opaque`].
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

    /// Adds a pair of an input and an output; the output may overwrite the input. Pairs are tried
    /// in the order in which they were added.
    #[must_use]
    pub fn in_place(mut self, pair: InPlace) -> Self {
        self.in_place.push(pair);
        self
    }

    /// Marks an input whose data the node does not read (`FIgnoreInputs`). The node that makes the
    /// input only has to run earlier. A number that no input has is ignored.
    #[must_use]
    pub fn ignoring(mut self, input: usize) -> Self {
        if let Some(ignored) = self.ignored.get_mut(input) {
            *ignored = true;
        }
        self
    }

    /// Sets the pattern.
    #[must_use]
    pub fn of(self, pattern: Pattern) -> Self {
        Self { pattern, ..self }
    }

    /// Inputs whose data the node reads.
    fn reads(&self) -> impl Iterator<Item = NodeEntry> {
        self.inputs.iter().zip(&self.ignored).filter(|(_, ignored)| !**ignored).map(|(e, _)| *e)
    }
}

/// A node of an [`NnvmGraph`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// An input of the graph or a parameter.
    Variable { name: String, tensor: TensorType },
    /// A computing node.
    Op(OpNode),
    /// Writes a value into a variable: `entries` are the variable and the value. The output of the
    /// node stands for the variable, and `tensor` is the type of the variable.
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

    /// Entries that count as read by the node: inputs whose data an op reads, or the variable and
    /// the value of an assignment.
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

/// Nodes in the order in which they run, each after the nodes that make its inputs.
#[derive(Clone, Debug, Default)]
pub struct NnvmGraph {
    // Inputs are outputs of earlier nodes. The inputs and outputs of pairs exist. The value of an
    // assignment has the same number of elements and the same element type as the variable. No two
    // variables have the same name.
    nodes: Vec<Node>,
    // All entries belong to existing nodes.
    outputs: Vec<NodeEntry>,
    names: HashSet<String>,
    // Total bytes of the outputs of all nodes; less than 2^64.
    bytes: u64,
}

impl NnvmGraph {
    /// Adds an input or a parameter, which keeps its bytes as long as the graph exists.
    ///
    /// # Errors
    ///
    /// [`GraphError`] if another variable has the name, or if all tensors together have 2^64 bytes
    /// or more.
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

    /// Adds a computing node, and returns its number. The outputs of the node are the
    /// [`NodeEntry`]s with this number.
    ///
    /// # Errors
    ///
    /// [`GraphError`] in these cases:
    ///
    /// - An input is not an output of an earlier node.
    /// - The op does not have the input or output of a pair.
    /// - All tensors together have 2^64 bytes or more.
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

    /// Adds a node that writes `value` into `variable`. The result is an entry for the variable
    /// with its new value, which later nodes can read.
    ///
    /// # Errors
    ///
    /// [`GraphError`] in these cases:
    ///
    /// - An entry does not exist.
    /// - `variable` is not a variable.
    /// - Value and variable differ in element type or number of elements.
    /// - All tensors together have 2^64 bytes or more.
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

    /// Marks an entry as an output of the graph: its bytes must not be reused before the graph has
    /// run.
    ///
    /// # Errors
    ///
    /// [`GraphError::Missing`] if the entry does not exist.
    pub fn output(&mut self, entry: NodeEntry) -> Result<(), GraphError> {
        self.tensor(entry).ok_or(GraphError::Missing(entry))?;
        self.outputs.push(entry);
        Ok(())
    }

    /// Type of an entry; `None` for an unknown entry.
    #[must_use]
    pub fn tensor(&self, entry: NodeEntry) -> Option<&TensorType> {
        self.nodes.get(entry.node)?.outputs().get(entry.output)
    }

    /// Number of nodes, variables included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether the graph is empty.
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

/// Reasons why a node or an output cannot be added to an [`NnvmGraph`]. After such an error, the
/// graph is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// No node of the graph has this output.
    #[error("node {} has no output {}, or does not exist yet", .0.node, .0.output)]
    Missing(NodeEntry),
    /// The op does not have the input or the output of a pair.
    #[error("the op does not have both input {} and output {} of a pair", .0.input, .0.output)]
    Pair(InPlace),
    /// Two variables have the same name.
    #[error("two variables are called {0}")]
    Name(String),
    /// The type of the value differs from that of the variable, or the entry to write into is not a
    /// variable.
    #[error(
        "output {} of node {} cannot be written into node {}: \
         give a variable with as many elements of the same type",
        .value.output, .value.node, .variable.node
    )]
    Assign {
        /// Entry to write into.
        variable: NodeEntry,
        /// Entry to be written.
        value: NodeEntry,
    },
    /// All tensors together have 2^64 bytes or more.
    #[error("all tensors together have 2^64 bytes or more")]
    TooLarge,
}
