//! A step as a file that any program can write. The file lists tensors and ops, and says which
//! outputs may be written in place.
//!
//! The file is one JSON object, in any layout:
//!
//! ```json
//! {
//!   "format": "remat-graph",
//!   "version": 1,
//!   "tensors": [
//!     {"name": "x", "bytes": 4096, "before": true},
//!     {"name": "w", "bytes": 4096, "before": true, "after": true},
//!     {"name": "h", "bytes": 4096},
//!     {"name": "y", "bytes": 4096, "after": true}
//!   ],
//!   "ops": [
//!     {"name": "matmul", "inputs": ["x", "w"], "outputs": ["h"], "cost": 2.5, "workspace": 512},
//!     {"name": "relu", "inputs": ["h"], "outputs": ["y"], "cost": 1, "in_place": [["h", "y"]]}
//!   ]
//! }
//! ```
//!
//! A tensor has
//!
//! | key | | if it is missing |
//! |---|---|---|
//! | `name` | text that no other tensor has as its name; without commas, line ends, and spaces at both ends | needed |
//! | `bytes` | size in bytes | needed |
//! | `alignment` | alignment of the address, a power of two | 1 |
//! | `before` | whether the tensor exists before the first op | `false` |
//! | `after` | whether the tensor stays after the last op | `false` |
//!
//! and an op, in the order of the program,
//!
//! | key | | if it is missing |
//! |---|---|---|
//! | `name` | any text | needed |
//! | `inputs` | names of tensors that the op reads; each exists before the step, or an earlier op makes it | none |
//! | `outputs` | names of tensors that the op makes; none exists before the step, and no other op makes it | none |
//! | `updates` | names of tensors that the op reads and overwrites | none |
//! | `in_place` | pairs of an input and an output: the output may be written over the input | none |
//! | `cost` | cost of a run, in any unit | 0 |
//! | `workspace` | additional bytes while the op runs | 0 |
//! | `rematerializable` | whether the op may run again, with the same results | `true` |
//! | `waits` | whether the host waits for the op before the program issues later commands | `false` |
//! | `attributes` | any text: all other properties that distinguish the op from other ops | none |
//!
//! Other keys are errors.
//!
//! An `in_place` pair permits an op to write its output over its input. As in NNVM, the pair is
//! used under these conditions:
//!
//! - No later op of the file uses the input.
//! - The op reads the input once.
//! - The input does not stay after the last op.
//! - No earlier pair has used the input or the output.
//! - Input and output have the same size.
//!
//! If the pair is used, the two tensors share one buffer, which has the number of the input's
//! buffer. A value that is overwritten cannot be used to recompute other values. A file for the
//! planning of recomputation should therefore have no pairs.

mod error;
#[cfg(test)]
mod tests;

use std::collections::hash_map::Entry;
use std::io::{BufRead, Read as _, Write};

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use super::{Capture, CaptureError, CapturedBuffer, CapturedOp};

pub use self::error::{GraphError, Role};

/// Value of `format` in every file.
const FORMAT: &str = "remat-graph";
/// Version of the format, the only one so far.
const VERSION: u32 = 1;
/// Limit on the bytes of a file. A file of 100,000 ops has some 20 MB.
const MOST_BYTES: u64 = 32 << 20;

/// A step in the format of a graph file: see the [module](self).
///
/// ```
/// use remat_plan::Class;
/// use remat_plan::graph::Graph;
///
/// let text = r#"{"format": "remat-graph", "version": 1,
///     "tensors": [{"name": "x", "bytes": 8, "before": true}, {"name": "y", "bytes": 8, "after": true}],
///     "ops": [{"name": "relu", "inputs": ["x"], "outputs": ["y"], "cost": 2, "in_place": [["x", "y"]]}]}"#;
/// let graph = Graph::read(text.as_bytes())?;
/// let step = graph.capture()?;
/// assert_eq!(step.names, ["x+y"]);
/// assert_eq!((step.capture.program().load(), step.capture.cost()), (8, 2.0));
///
/// let mut written = Vec::new();
/// graph.write(&mut written)?;
/// assert_eq!(Graph::read(&written[..])?, graph);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Graph {
    /// Format of the file: `remat-graph`.
    format: String,
    /// Version of the format: 1.
    version: u32,
    /// Tensors that ops read, make and update.
    pub tensors: Vec<GraphTensor>,
    /// Ops in the order of the program.
    pub ops: Vec<GraphOp>,
}

/// A tensor of a [`Graph`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphTensor {
    /// Name, which no other tensor has.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Alignment of the address: a power of two.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub alignment: u64,
    /// Whether the tensor exists before the first op.
    #[serde(default, skip_serializing_if = "is_false")]
    pub before: bool,
    /// Whether the tensor stays after the last op.
    #[serde(default, skip_serializing_if = "is_false")]
    pub after: bool,
}

/// An op of a [`Graph`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphOp {
    /// Name of the op: any text.
    pub name: String,
    /// Tensors to read, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<String>,
    /// Tensors to make, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<String>,
    /// Tensors to read and overwrite, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub updates: Vec<String>,
    /// Pairs of an input and an output; the output may be written over the input.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_place: Vec<[String; 2]>,
    /// Cost of a run, in any unit.
    #[serde(default)]
    pub cost: f64,
    /// Additional bytes while the op runs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub workspace: u64,
    /// Whether the op may run again, with the same results.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub rematerializable: bool,
    /// Whether the host waits for the op.
    #[serde(default, skip_serializing_if = "is_false")]
    pub waits: bool,
    /// Any text: all properties that the other fields do not hold, and that distinguish the op from
    /// other ops.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub attributes: String,
}

/// A step with names for its buffers.
#[derive(Clone, Debug)]
pub struct NamedCapture {
    /// The step.
    pub capture: Capture,
    /// Name of each buffer. If several tensors share a buffer in place, the name of the buffer is
    /// all their names, joined by `+`.
    pub names: Vec<String>,
}

impl Graph {
    /// Makes a graph of these tensors and ops.
    #[must_use]
    pub fn new(tensors: Vec<GraphTensor>, ops: Vec<GraphOp>) -> Self {
        Self { format: FORMAT.to_owned(), version: VERSION, tensors, ops }
    }

    /// Makes the graph of a step. The tensors are called `t0`, `t1` and so on, after the numbers of
    /// the buffers. Updates in place are written as `updates`; the graph has no `in_place` pairs.
    #[must_use]
    pub fn of_capture(capture: &Capture) -> Self {
        Self::of_capture_with(capture, |buffer| format!("t{buffer}"))
    }

    /// [`Graph::of_capture`] with `name(i)` as the name of buffer `i`.
    #[must_use]
    pub fn of_capture_with(capture: &Capture, name: impl Fn(usize) -> String) -> Self {
        let name = |&buffer: &usize| name(buffer);
        let tensors = capture.buffers().iter().enumerate().map(|(number, buffer)| GraphTensor {
            name: name(&number),
            bytes: buffer.bytes,
            alignment: buffer.align,
            before: buffer.before,
            after: buffer.after,
        });
        let ops = capture.ops().iter().map(|op| GraphOp {
            name: op.name.to_string(),
            inputs: op.reads.iter().map(name).collect(),
            outputs: op.makes.iter().map(name).collect(),
            updates: op.updates.iter().map(name).collect(),
            in_place: Vec::new(),
            cost: op.cost,
            workspace: op.workspace,
            rematerializable: op.rematerializable,
            waits: op.waits,
            attributes: op.attributes.to_string(),
        });
        Self::new(tensors.collect(), ops.collect())
    }

    /// Reads a file of at most 32 MiB.
    ///
    /// # Errors
    ///
    /// [`GraphError`] if the file cannot be read, or is not in this format. The error gives the
    /// position of the fault, and says what was expected. Whether the ops form a valid step is
    /// checked later, by [`Graph::capture`].
    pub fn read(file: impl BufRead) -> Result<Self, GraphError> {
        let mut bytes = Vec::new();
        file.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(GraphError::TooLong { limit: MOST_BYTES });
        }
        let text = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
        let graph: Self = serde_json::from_slice(text)?;
        if graph.format != FORMAT {
            return Err(GraphError::Format { found: error::excerpt(&graph.format) });
        }
        if graph.version != VERSION {
            return Err(GraphError::Version { found: graph.version });
        }
        Ok(graph)
    }

    /// Writes the file: a line for each tensor and op.
    ///
    /// # Errors
    ///
    /// [`GraphError::Io`] if the file cannot be written.
    pub fn write(&self, mut file: impl Write) -> Result<(), GraphError> {
        let Self { format, version, tensors, ops } = self;
        write!(
            file,
            "{{\n  \"format\": \"{format}\",\n  \"version\": {version},\n  \"tensors\": ["
        )?;
        write_lines(tensors, &mut file)?;
        write!(file, "],\n  \"ops\": [")?;
        write_lines(ops, &mut file)?;
        writeln!(file, "]\n}}")?;
        Ok(file.flush()?)
    }

    /// Converts the graph to a step. Every in-place pair whose conditions hold is used.
    ///
    /// # Errors
    ///
    /// [`GraphError`] in the following cases. Each error names the op, the tensor, and what was
    /// expected.
    ///
    /// - Two tensors have the same name, or a tensor has an invalid name or alignment.
    /// - An op reads a tensor that does not exist, or makes a tensor that exists.
    /// - A pair is not an input and an output of its op.
    /// - A cost is negative or not finite.
    /// - The buffers and workspaces together have 2^64 bytes or more.
    pub fn capture(&self) -> Result<NamedCapture, GraphError> {
        // Names are resolved to numbers, and the uses of each tensor are counted.
        let numbers = self.numbers()?;
        let mut uses = vec![0_usize; self.tensors.len()];
        let mut operands = Vec::with_capacity(self.ops.len());
        for (at, op) in self.ops.iter().enumerate() {
            let found = Operands::of(at, op, &numbers)?;
            found.inputs.iter().chain(&found.updates).for_each(|&tensor| uses[tensor] += 1);
            operands.push(found);
        }
        // Tensor -> the first tensor of its buffer; `None` until the tensor is made.
        let before = |(number, tensor): (usize, &GraphTensor)| tensor.before.then_some(number);
        let mut homes: Vec<Option<usize>> = self.tensors.iter().enumerate().map(before).collect();
        // First tensor of a buffer -> the buffer.
        let mut buffers: Vec<CapturedBuffer> =
            self.tensors.iter().map(GraphTensor::buffer).collect();
        let mut names: Vec<String> =
            self.tensors.iter().map(|tensor| tensor.name.clone()).collect();
        let mut ops = Vec::with_capacity(self.ops.len());
        for (at, (op, found)) in self.ops.iter().zip(operands).enumerate() {
            let failed = |role, tensor: usize| GraphError::Operand {
                op: at,
                name: error::excerpt(&op.name),
                role,
                tensor: error::excerpt(&self.tensors[tensor].name),
                why: match role {
                    Role::Output => {
                        "the tensor exists already: make a new tensor, or name this one in updates"
                    }
                    _ => "the tensor does not exist yet: make it by an earlier op, or set `before`",
                },
            };
            // Inputs and updated tensors must exist already, and outputs must not.
            let Operands { inputs, repeated, outputs, updates, pairs } = found;
            let there = |role, tensors: &[usize]| -> Result<Vec<usize>, GraphError> {
                tensors.iter().map(|&it| homes[it].ok_or_else(|| failed(role, it))).collect()
            };
            let mut captured = CapturedOp::new(&*op.name);
            captured.reads = there(Role::Input, &inputs)?;
            captured.updates = there(Role::Update, &updates)?;
            inputs.iter().chain(&updates).for_each(|&tensor| uses[tensor] -= 1);
            if let Some(&output) = outputs.iter().find(|&&output| homes[output].is_some()) {
                return Err(failed(Role::Output, output));
            }
            // If a pair can be used, its output gets the buffer of its input.
            let mut written: FxHashSet<usize> = captured.updates.iter().copied().collect();
            for (input, output) in pairs {
                let (from, made) = (&self.tensors[input], &self.tensors[output]);
                let is_last = uses[input] == 0 && !from.after && !repeated.contains(&input);
                if let Some(home) = homes[input]
                    && homes[output].is_none()
                    && is_last
                    && from.bytes == made.bytes
                    && written.insert(home)
                {
                    captured.updates.push(home);
                    let whole = &mut buffers[home];
                    (whole.after, whole.align) = (made.after, whole.align.max(made.alignment));
                    names[home] = format!("{}+{}", names[home], made.name);
                    homes[output] = Some(home);
                }
            }
            // Buffers that the op now updates are removed from its reads. The remaining outputs get
            // new buffers.
            captured.reads.retain(|read| !written.contains(read));
            for output in outputs {
                if homes[output].is_none() {
                    captured.makes.push(output);
                    homes[output] = Some(output);
                }
            }
            (captured.cost, captured.workspace) = (op.cost, op.workspace);
            (captured.rematerializable, captured.waits) = (op.rematerializable, op.waits);
            captured.attributes = op.attributes.as_str().into();
            ops.push(captured);
        }
        if let Some(never) = homes.iter().position(Option::is_none) {
            let tensor = error::excerpt(&self.tensors[never].name);
            return Err(GraphError::NeverMade { tensor });
        }
        // Buffers are numbered in the order of their first tensors.
        let is_first: Vec<bool> = (0..).zip(&homes).map(|(it, home)| *home == Some(it)).collect();
        let mut count = 0..;
        let numbers: Vec<usize> = is_first
            .iter()
            .map(|&first| if first { count.next().unwrap_or(0) } else { 0 })
            .collect();
        for op in &mut ops {
            for buffer in op.reads.iter_mut().chain(&mut op.makes).chain(&mut op.updates) {
                *buffer = numbers[*buffer];
            }
        }
        let mut is_kept = is_first.iter();
        buffers.retain(|_| is_kept.next() == Some(&true));
        let mut is_kept = is_first.iter();
        names.retain(|_| is_kept.next() == Some(&true));
        let capture = Capture::new(buffers, ops).map_err(|problem| match problem {
            CaptureError::Cost { op, cost } => {
                GraphError::Cost { op, name: error::excerpt(&self.ops[op].name), cost }
            }
            other => GraphError::Capture(other),
        })?;
        Ok(NamedCapture { capture, names })
    }

    /// Name -> number of the tensor. Fails if a name or an alignment is not valid.
    fn numbers(&self) -> Result<FxHashMap<&str, usize>, GraphError> {
        let mut numbers = FxHashMap::default();
        for (number, GraphTensor { name, alignment, .. }) in self.tensors.iter().enumerate() {
            let tensor = || error::excerpt(name);
            if name.is_empty() || name.trim() != name || name.contains([',', '\n', '\r']) {
                return Err(GraphError::Name { number, tensor: tensor() });
            }
            if !alignment.is_power_of_two() {
                return Err(GraphError::Alignment { tensor: tensor(), alignment: *alignment });
            }
            match numbers.entry(name.as_str()) {
                Entry::Vacant(entry) => entry.insert(number),
                Entry::Occupied(_) => return Err(GraphError::SameName { tensor: tensor() }),
            };
        }
        Ok(numbers)
    }
}

impl GraphTensor {
    const fn buffer(&self) -> CapturedBuffer {
        let Self { bytes, alignment, before, after, .. } = *self;
        CapturedBuffer { bytes, align: alignment, before, after }
    }
}

/// Tensors that an op names, by number.
struct Operands {
    /// Inputs, each once, without the tensors that the op updates.
    inputs: Vec<usize>,
    /// Inputs that are listed more than once.
    repeated: FxHashSet<usize>,
    outputs: Vec<usize>,
    updates: Vec<usize>,
    /// Pairs of an input and an output.
    pairs: Vec<(usize, usize)>,
}

impl Operands {
    fn of(at: usize, op: &GraphOp, numbers: &FxHashMap<&str, usize>) -> Result<Self, GraphError> {
        let failed = |role, tensor: &str, why| GraphError::Operand {
            op: at,
            name: error::excerpt(&op.name),
            role,
            tensor: error::excerpt(tensor),
            why,
        };
        let number = |role, name: &str| {
            numbers.get(name).copied().ok_or_else(|| failed(role, name, "no tensor has this name"))
        };
        let each_once = |role, names: &[String]| {
            let mut seen = FxHashSet::default();
            let of = |name: &String| match number(role, name)? {
                twice if !seen.insert(twice) => {
                    Err(failed(role, name, "the tensor is named twice"))
                }
                number => Ok(number),
            };
            names.iter().map(of).collect::<Result<Vec<usize>, GraphError>>()
        };
        let (outputs, updates) =
            (each_once(Role::Output, &op.outputs)?, each_once(Role::Update, &op.updates)?);
        let mut inputs = Vec::with_capacity(op.inputs.len());
        let (mut read, mut repeated) = (FxHashSet::default(), FxHashSet::default());
        let updated: FxHashSet<usize> = updates.iter().copied().collect();
        for name in &op.inputs {
            let input = number(Role::Input, name)?;
            // A tensor that the op updates is not listed as an input, because an update also reads
            // the tensor.
            if !read.insert(input) {
                repeated.insert(input);
            } else if !updated.contains(&input) {
                inputs.push(input);
            }
        }
        let made: FxHashSet<usize> = outputs.iter().copied().collect();
        let mut pairs = Vec::with_capacity(op.in_place.len());
        for [input, output] in &op.in_place {
            let pair = (number(Role::InPlace, input)?, number(Role::InPlace, output)?);
            if !read.contains(&pair.0) {
                return Err(failed(Role::InPlace, input, "the tensor is not an input of the op"));
            }
            if !made.contains(&pair.1) {
                return Err(failed(Role::InPlace, output, "the tensor is not an output of the op"));
            }
            pairs.push(pair);
        }
        Ok(Self { inputs, repeated, outputs, updates, pairs })
    }
}

/// Writes the entries of a list, each on its own line.
fn write_lines<T: Serialize>(entries: &[T], file: &mut impl Write) -> Result<(), GraphError> {
    for (number, entry) in entries.iter().enumerate() {
        file.write_all(if number == 0 { b"\n    " } else { b",\n    " })?;
        serde_json::to_writer(&mut *file, entry)?;
    }
    if !entries.is_empty() {
        file.write_all(b"\n  ")?;
    }
    Ok(())
}

const fn one() -> u64 {
    1
}

const fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives references")]
const fn is_one(value: &u64) -> bool {
    *value == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives references")]
const fn is_zero(value: &u64) -> bool {
    *value == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives references")]
const fn is_true(value: &bool) -> bool {
    *value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives references")]
const fn is_false(value: &bool) -> bool {
    !*value
}
